//! Asks the user of an editor for missing grants before a plugin is used for the first time (P6).

use crate::environment;
use crate::terminal::first_use::{RequestingPlugin, card};
use crate::terminal::{Terminal, text};
use agent_acp::{Choice, ChoiceKind, EditorQuestions};
use agent_config::first_use::{
    FirstUseAnswer, FirstUseHandler, FirstUsePrompt, FirstUseQuestion, FirstUseReport, Keeping,
};
use agent_runtime::FirstUse;
use agent_store::Store;
use async_trait::async_trait;
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

/// Asks about the plugins of all sessions. Questions of different sessions and about different plugins are asked at the same
/// time, so that a question that nobody answers does not hold up other sessions. Questions of a session about the same plugin
/// are asked one after another, because the answer to one of them may answer the others.
pub(super) struct FirstUseQueues {
    pub(super) questions: EditorQuestions,
    pub(super) store: Arc<dyn Store>,
    /// Configuration files of the agents, by the agent's name.
    pub(super) files: BTreeMap<String, PathBuf>,
    pub(super) terminal: Terminal,
    /// Cancelled when the connection to the editor ends.
    pub(super) stop: CancellationToken,
}

impl FirstUseQueues {
    /// Answers the questions until the connection ends.
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
        let (questions, terminal) = (self.questions.clone(), self.terminal.clone());
        let prompt = Arc::new(EditorPrompt { questions, terminal, session: Mutex::default() });
        let (unused, first_uses) = channel(1);
        let mut handler = FirstUseHandler::new(
            prompt.clone(),
            self.store.clone(),
            environment::host(),
            (first_uses, self.files.clone()),
        );
        let stop = self.stop.clone();
        async move {
            while let Some(first_use) = waiting.recv().await {
                prompt.session.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&first_use.session);
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

/// Asks the questions in the editor.
struct EditorPrompt {
    questions: EditorQuestions,
    terminal: Terminal,
    /// The session in which the plugin is about to be used.
    session: Mutex<String>,
}

#[async_trait]
impl FirstUsePrompt for EditorPrompt {
    async fn ask(&self, request: &mut FirstUseQuestion<'_>, stop: &CancellationToken) -> FirstUseAnswer {
        if request.offers().offered.is_empty() {
            return FirstUseAnswer::Stopped;
        }
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let details = card(&RequestingPlugin::from(&*request), request.offers());
        let details = anstream::adapter::strip_str(&details).to_string();
        let title = format!("Grant the plugin `{}` what it needs?", text::one_line(&request.plugin.name, 60));
        let chosen = self.questions.ask(&session, (&title, &details), &choices(request.keeping), stop).await;
        match chosen {
            Some("this_session") => FirstUseAnswer::ThisSession,
            Some("always") => FirstUseAnswer::Always,
            Some("no") => FirstUseAnswer::No,
            Some("never") => FirstUseAnswer::Never,
            _ => FirstUseAnswer::Stopped,
        }
    }

    fn report(&self, report: &FirstUseReport) {
        self.terminal.note(text::harmless(&report.to_string()));
    }
}

/// Returns the possible answers.
fn choices(keeping: Keeping) -> Vec<Choice> {
    let choice = |id, label: &str, kind| Choice { id, label: label.to_owned(), kind };
    // No answer applies to a single call, so that no answer has the kind of an answer that is given once.
    let mut choices = vec![choice("this_session", "Allow until this session is closed", ChoiceKind::AllowAlways)];
    if keeping == Keeping::File {
        choices.push(choice("always", "Allow, and write it into the configuration", ChoiceKind::AllowAlways));
    }
    choices.push(choice("no", "Don't allow in this session", ChoiceKind::RejectAlways));
    if keeping == Keeping::File {
        choices.push(choice("never", "Never ask again", ChoiceKind::RejectAlways));
    }
    choices
}
