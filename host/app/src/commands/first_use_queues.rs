//! Asks people about missing grants when a plugin is used for the first time, in processes that run many sessions (P6).

use crate::environment;
use agent_config::first_use::{FirstUseHandler, FirstUsePrompt};
use agent_runtime::FirstUse;
use agent_store::Store;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Number of sets of a session's questions about one plugin. If there are more, sets without a waiting question are
/// forgotten together with the refusals in them, so that the user may be asked again.
const QUEUES: usize = 256;
/// Number of questions about one plugin that wait.
const WAITING_QUESTIONS: usize = 4;

/// The session to which the current question of a prompt belongs.
#[derive(Clone, Default)]
pub(super) struct CurrentSession(Arc<Mutex<String>>);

impl CurrentSession {
    /// Returns the id (subject) of the session.
    pub(super) fn get(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, session: &str) {
        session.clone_into(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Creates the prompt that asks the questions of a session about one plugin.
pub(super) type PromptSource = Box<dyn Fn(CurrentSession) -> Arc<dyn FirstUsePrompt> + Send + Sync>;

/// Asks about the plugins of all sessions. Questions of different sessions and about different plugins are asked at the same
/// time, so that a question that nobody answers does not hold up other sessions. Questions of a session about the same plugin
/// are asked one after another, because the answer to one of them may answer the others.
pub(super) struct FirstUseQueues {
    pub(super) prompts: PromptSource,
    pub(super) store: Arc<dyn Store>,
    /// Configuration files of the agents, by the agent's name.
    pub(super) files: BTreeMap<String, PathBuf>,
    /// Cancelled when nobody can answer any more.
    pub(super) stop: CancellationToken,
}

impl FirstUseQueues {
    /// Answers the questions until nobody can answer any more.
    pub(super) async fn run(self, mut first_uses: Receiver<FirstUse>) {
        let (mut queues, tasks) = (BTreeMap::<QueueKey, Sender<FirstUse>>::new(), TaskTracker::new());
        loop {
            let first_use = tokio::select! {
                first_use = first_uses.recv() => first_use,
                () = self.stop.cancelled() => None,
            };
            let Some(first_use) = first_use else { break };
            let agent = first_use.agent.current().config().name.clone();
            // The questions of delegated sessions belong to the session of the user.
            let session = first_use.agent.session().unwrap_or(&first_use.session).to_owned();
            let key = QueueKey { session, agent, plugin: first_use.plugin.name.clone() };
            if queues.len() >= QUEUES {
                queues.retain(|_, queue| queue.capacity() < queue.max_capacity());
            }
            let queue = queues.entry(key).or_insert_with(|| {
                let (queue, waiting) = channel(WAITING_QUESTIONS);
                tasks.spawn(self.answer(waiting));
                queue
            });
            // If the queue is full, the question is dropped, and the call runs with the grants that the plugin has.
            if queue.try_send(first_use).is_err() {
                tracing::warn!(
                    "too many questions about the first use of a plugin wait; the call runs without further grants"
                );
            }
        }
        drop(queues);
        tasks.close();
        tasks.wait().await;
    }

    /// Answers the questions about one plugin.
    fn answer(&self, mut waiting: Receiver<FirstUse>) -> impl Future<Output = ()> + Send + 'static {
        let session = CurrentSession::default();
        let (unused, first_uses) = channel(1);
        let mut handler = FirstUseHandler::new(
            (self.prompts)(session.clone()),
            self.store.clone(),
            environment::host(),
            (first_uses, self.files.clone()),
        );
        let stop = self.stop.clone();
        async move {
            while let Some(first_use) = waiting.recv().await {
                session.set(&first_use.session);
                handler.serve(first_use, &stop).await;
            }
            drop(unused);
        }
    }
}

/// The questions that wait for each other.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct QueueKey {
    session: String,
    agent: String,
    plugin: String,
}
