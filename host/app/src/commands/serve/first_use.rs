//! Asks the people who read the server's inbox for missing grants before a plugin is used for the first time (P6, I3).

use crate::commands::first_use_queues::CurrentSession;
use crate::terminal::{Terminal, text};
use agent_config::first_use::{FirstUseAnswer, FirstUsePrompt, FirstUseQuestion, FirstUseReport};
use agent_runtime::begins_unattended;
use agent_serve::{AnswerEffect, EffectReport, FirstUseQuestions, GivenAnswer, SessionOfQuestion, TurnOrigin};
use agent_store::{SessionFilter, SessionSummary, Store, StoreError};
use async_trait::async_trait;
use std::sync::{Arc, Mutex, PoisonError};
use tokio_util::sync::CancellationToken;

/// Maximum number of agents between a session and the session whose turn delegated the work first.
const MAX_DELEGATES: usize = 16;

/// Asks the questions in the inbox.
pub(super) struct InboxPrompt {
    pub(super) questions: FirstUseQuestions,
    pub(super) store: Arc<dyn Store>,
    pub(super) terminal: Terminal,
    /// The session in which the plugin is about to be used.
    pub(super) session: CurrentSession,
    /// The effect of the answer that is being applied, and where it is reported.
    pub(super) applying: Mutex<Option<(AnswerEffect, EffectReport)>>,
}

impl InboxPrompt {
    /// Finds the session of a question, and what has begun its turn. Returns `None` if there is no such session.
    async fn session_of_question(&self, subject: &str) -> Result<Option<SessionOfQuestion>, StoreError> {
        let Some(session) = self.stored(subject).await? else { return Ok(None) };
        let mut first = session.clone();
        for _ in 0..MAX_DELEGATES {
            let Some(parent) = &first.delegated_by else { break };
            let Some(parent) = self.stored(parent).await? else { break };
            first = parent;
        }
        // Only the first turn of a session begins without a person. Later turns begin with the prompt of somebody.
        let is_unattended = first.delegated_by.is_some() || (begins_unattended(&first.subject) && first.turns <= 1);
        let turn = if is_unattended { TurnOrigin::Unattended } else { TurnOrigin::Prompt };
        let SessionSummary { agent, user, title, .. } = session;
        Ok(Some(SessionOfQuestion { session: subject.to_owned(), agent, user, title, turn }))
    }

    async fn stored(&self, subject: &str) -> Result<Option<SessionSummary>, StoreError> {
        let filter = SessionFilter { subject: Some(subject.to_owned()), ..SessionFilter::default() };
        Ok(self.store.sessions(filter, 1).await?.pop())
    }

    fn note_effect(&self, effect: AnswerEffect) {
        if let Some((noted, _)) = &mut *self.applying.lock().unwrap_or_else(PoisonError::into_inner) {
            *noted = effect;
        }
    }
}

#[async_trait]
impl FirstUsePrompt for InboxPrompt {
    async fn ask(&self, request: &mut FirstUseQuestion<'_>, stop: &CancellationToken) -> FirstUseAnswer {
        if request.offers().offered.is_empty() {
            return FirstUseAnswer::Stopped;
        }
        let subject = self.session.get();
        let session = match self.session_of_question(&subject).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(session = subject, %error, "nobody was asked for the grants of a plugin");
                None
            }
        };
        // Without the owner of the session, it is not known who may be asked.
        let Some(session) = session else { return FirstUseAnswer::Stopped };
        let given = self.questions.ask(session, request, stop).await;
        let Some(GivenAnswer { answer, effect }) = given else { return FirstUseAnswer::Stopped };
        *self.applying.lock().unwrap_or_else(PoisonError::into_inner) = Some((AnswerEffect::Used, effect));
        answer
    }

    fn report(&self, report: &FirstUseReport) {
        self.terminal.note(text::harmless(&report.to_string()));
        match report {
            FirstUseReport::GrantsWritten { .. } | FirstUseReport::NeverAskWritten { .. } => {
                self.note_effect(AnswerEffect::Kept);
            }
            FirstUseReport::GrantsNotWritten { reason, .. } | FirstUseReport::NeverAskNotWritten { reason, .. } => {
                self.note_effect(AnswerEffect::NotKept { reason: reason.clone() });
            }
            FirstUseReport::NothingGranted { reason } => {
                self.note_effect(AnswerEffect::NotUsed { reason: reason.clone() });
            }
            FirstUseReport::Lacking { .. } | FirstUseReport::NotEnded { .. } | FirstUseReport::NotAudited { .. } => {}
        }
    }

    fn applied(&self) {
        let applied = self.applying.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((effect, report)) = applied {
            report.send(effect);
        }
    }
}
