//! Asks the people who read the server's inbox for missing grants before a plugin is used for the first time (P6, I3).

use crate::commands::first_use_queues::CurrentSession;
use crate::terminal::{Terminal, text};
use agent_config::first_use::{FirstUseAnswer, FirstUsePrompt, FirstUseQuestion, FirstUseReport};
use agent_serve::{FirstUseQuestions, SessionOfQuestion};
use agent_store::{SessionFilter, Store};
use async_trait::async_trait;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Asks the questions in the inbox.
pub(super) struct InboxPrompt {
    pub(super) questions: FirstUseQuestions,
    pub(super) store: Arc<dyn Store>,
    pub(super) terminal: Terminal,
    /// The session in which the plugin is about to be used.
    pub(super) session: CurrentSession,
}

#[async_trait]
impl FirstUsePrompt for InboxPrompt {
    async fn ask(&self, request: &mut FirstUseQuestion<'_>, stop: &CancellationToken) -> FirstUseAnswer {
        if request.offers().offered.is_empty() {
            return FirstUseAnswer::Stopped;
        }
        let subject = self.session.get();
        let filter = SessionFilter { subject: Some(subject.clone()), ..SessionFilter::default() };
        let session = match self.store.sessions(filter, 1).await {
            Ok(mut found) => found.pop(),
            Err(error) => {
                tracing::warn!(session = subject, %error, "nobody was asked for the grants of a plugin");
                None
            }
        };
        // Without the owner of the session, it is not known who may be asked.
        let Some(session) = session else { return FirstUseAnswer::Stopped };
        let (agent, user, title) = (session.agent, session.user, session.title);
        let session = SessionOfQuestion { session: subject, agent, user, title };
        self.questions.ask(session, request, stop).await
    }

    fn report(&self, report: &FirstUseReport) {
        self.terminal.note(text::harmless(&report.to_string()));
    }
}
