//! News of the sessions of this process that other processes are told about (F1). Announcements only save time, so they may
//! be lost.

use agent_core::event::Event;
use agent_store::{Announcement, News};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Maximum number of announcements that wait. Other processes find further news by searching.
const MAX_WAITING: usize = 1_000;

/// News that a supervisor announces to other processes. All clones share the same news.
#[derive(Clone, Debug, Default)]
pub struct SessionNews(Arc<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    announcements: Mutex<BTreeSet<Announcement>>,
    added: Notify,
}

impl SessionNews {
    /// Adds the news of a commit with these events.
    pub(crate) fn committed(&self, session: &str, events: &[Event]) {
        if !events.is_empty() {
            self.add(News::Events, session);
        }
    }

    pub(crate) fn add(&self, news: News, session: &str) {
        let mut waiting = self.0.announcements.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < MAX_WAITING {
            waiting.insert(Announcement { news, session: session.to_owned() });
            self.0.added.notify_one();
        }
    }

    /// Waits until there are news.
    pub(crate) async fn added(&self) {
        self.0.added.notified().await;
    }

    /// Removes all news, and returns them.
    pub(crate) fn take(&self) -> Vec<Announcement> {
        std::mem::take(&mut *self.0.announcements.lock().unwrap_or_else(PoisonError::into_inner)).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn equal_news_are_announced_once_and_their_number_is_bounded() {
        let news = SessionNews::default();
        for number in 0..2 * MAX_WAITING {
            news.add(News::Work, &format!("a/{}", number % (MAX_WAITING + 10)));
        }
        news.added().await;
        assert_eq!(news.take().len(), MAX_WAITING);
        news.add(News::Events, "a/1");
        news.add(News::Events, "a/1");
        news.committed("a/2", &[]);
        assert_eq!(news.take(), [Announcement { news: News::Events, session: "a/1".to_owned() }]);
    }
}
