//! Follows the sessions to which a turn has delegated work, because their approvals and questions are asked in the session
//! of the editor (L16).

use crate::shared::Shared;
use crate::waits::{Settled, Suspended, Waiting};
use agent_core::event::EventKind;
use agent_runtime::{EventPosition, TurnEvents, TurnUpdate};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Number of messages that wait until the session of the editor handles them.
const WAITING_NEWS: usize = 16;
/// Maximum number of delegated sessions that are followed for one turn.
const MAX_CHILDREN: usize = 256;

/// What happened in a delegated session.
#[derive(Debug)]
pub(crate) enum ChildNews {
    /// The session has delegated work to this session.
    Child(String),
    /// The session waits for something that the user must know.
    Waits(Waiting),
}

/// The delegated sessions of one turn.
pub(crate) struct Children {
    shared: Arc<Shared>,
    root: String,
    followed: HashSet<String>,
    stop: CancellationToken,
    news: (mpsc::Sender<ChildNews>, mpsc::Receiver<ChildNews>),
}

impl Children {
    pub(crate) fn new(shared: Arc<Shared>, root: String) -> Self {
        let stop = shared.closed.child_token();
        Self { shared, root, followed: HashSet::new(), stop, news: mpsc::channel(WAITING_NEWS) }
    }

    /// Waits for news. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> ChildNews {
        match self.news.1.recv().await {
            Some(news) => news,
            None => std::future::pending().await,
        }
    }

    /// Follows this session until the turn ends, unless it is already followed.
    pub(crate) fn follow(&mut self, session: String) {
        if self.followed.len() == MAX_CHILDREN || !self.followed.insert(session.clone()) {
            return;
        }
        let (shared, root, news) = (self.shared.clone(), self.root.clone(), self.news.0.clone());
        let stop = self.stop.clone();
        self.shared.tasks.spawn(async move {
            tokio::select! {
                () = follow((shared, root), session, (stop.clone(), news)) => {}
                () = stop.cancelled() => {}
            }
        });
    }

    /// Stops to follow the sessions, because the turn has ended or is cancelled.
    pub(crate) fn stop(&mut self) {
        self.stop.cancel();
        self.stop = self.shared.closed.child_token();
        self.followed.clear();
        while self.news.1.try_recv().is_ok() {}
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn follow(
    (shared, root): (Arc<Shared>, String),
    session: String,
    (stop, news): (CancellationToken, mpsc::Sender<ChildNews>),
) {
    let mut turn = TurnEvents::new(shared.supervisor().events(&session, EventPosition::default()), 1);
    let mut approvals = HashMap::new();
    while let Ok(Some(update)) = turn.next().await {
        let TurnUpdate::Event(event) = update else { continue };
        match event.kind {
            EventKind::ApprovalRequested { calls, .. } => {
                approvals.extend(calls.into_iter().map(|item| (item.call.clone(), item)));
            }
            EventKind::Suspended { .. } => {
                turn.resume();
                let (shared, root, stop) = (shared.clone(), root.clone(), stop.clone());
                let suspended =
                    Suspended { shared, root, session: session.clone(), approvals: approvals.clone(), stop };
                let told = match suspended.settle().await {
                    Ok(Settled::Waits(waiting)) => vec![ChildNews::Waits(waiting)],
                    Ok(Settled::Continues { children }) => children.into_iter().map(ChildNews::Child).collect(),
                    Err(error) => vec![ChildNews::Waits(Waiting { text: error.message, question: None })],
                };
                for told in told {
                    if news.send(told).await.is_err() {
                        return;
                    }
                }
            }
            _ => {}
        }
    }
}
