//! News of the sessions of this process that other processes are told about (F1). Announcements only save time, so they may
//! be lost.

use agent_core::event::Event;
use agent_store::{Announcement, News};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Maximum number of announcements that wait. Other processes find further news by searching.
const MAX_WAITING: usize = 1_000;

/// News that a supervisor announces to other processes. All clones share the same news.
#[derive(Clone, Debug, Default)]
pub struct SessionNews(Arc<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    announcements: Mutex<BTreeMap<Announcement, AnnouncementId>>,
    added: Notify,
    is_urgent: Notify,
}

/// An id by which a work queue recognises a doubled announcement: the id of the commit or request that is announced.
pub(crate) type AnnouncementId = String;

impl SessionNews {
    /// Adds the news of a commit with these events.
    pub(crate) fn committed(&self, session: &str, events: &[Event]) {
        if !events.is_empty() {
            self.add(News::Events, session, String::new());
        }
    }

    /// Adds that there is work for a session: something for which it waits has happened, or no process has it open any more.
    pub(crate) fn add_work(&self, session: &str, id: AnnouncementId) {
        self.add(News::Work, session, id);
    }

    /// Adds news for which somebody waits, so that they are announced at once.
    pub(crate) fn add_urgent(&self, news: News, session: &str, id: AnnouncementId) {
        self.add(news, session, id);
        self.0.is_urgent.notify_one();
    }

    fn add(&self, news: News, session: &str, id: AnnouncementId) {
        let mut waiting = self.0.announcements.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < MAX_WAITING {
            waiting.insert(Announcement { news, session: session.to_owned() }, id);
            self.0.added.notify_one();
        }
    }

    /// Waits until there are news.
    pub(crate) async fn added(&self) {
        self.0.added.notified().await;
    }

    /// Waits until there are urgent news.
    pub(crate) async fn is_urgent(&self) {
        self.0.is_urgent.notified().await;
    }

    /// Removes all news, and returns them.
    pub(crate) fn take(&self) -> Vec<(Announcement, AnnouncementId)> {
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
            news.add_work(&format!("a/{}", number % (MAX_WAITING + 10)), number.to_string());
        }
        news.added().await;
        assert_eq!(news.take().len(), MAX_WAITING);
        news.add_urgent(News::Answer, "a/1", "1".to_owned());
        news.add_urgent(News::Answer, "a/1", "2".to_owned());
        news.is_urgent().await;
        news.committed("a/2", &[]);
        let announcement = Announcement { news: News::Answer, session: "a/1".to_owned() };
        assert_eq!(news.take(), [(announcement, "2".to_owned())]);
    }
}
