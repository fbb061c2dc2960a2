//! Questions to the user of the editor, as permission requests.

use crate::shared::Shared;
use crate::tool_call::text;
use agent_client_protocol::v1::schema::{
    PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest, SessionUpdate,
    ToolCallId, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use std::sync::{Arc, PoisonError};
use tokio_util::sync::CancellationToken;

/// A possible answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Id of the answer, which is unique within the question.
    pub id: &'static str,
    /// The answer in words.
    pub label: String,
    /// The meaning of the answer.
    pub kind: ChoiceKind,
}

/// The meaning of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChoiceKind {
    /// Yes, once or for a short time.
    AllowOnce,
    /// Yes, also later.
    AllowAlways,
    /// No.
    RejectOnce,
    /// No, also later.
    RejectAlways,
}

/// Asks the user of the editor questions that do not belong to a stored tool call.
#[derive(Clone)]
pub struct EditorQuestions(pub(crate) Arc<Shared>);

impl EditorQuestions {
    /// Asks a question in the session of the editor that `session` belongs to, and returns the id of the chosen answer.
    /// `details` is shown as plain text. Returns `None` if the user gives no answer, if the editor does not know the
    /// session, or if `stop` is cancelled.
    pub async fn ask(
        &self,
        session: &str,
        (title, details): (&str, &str),
        choices: &[Choice],
        stop: &CancellationToken,
    ) -> Option<&'static str> {
        let root = self.0.root_of(session).await?;
        let id = ToolCallId::new(format!("question-{}", uuid::Uuid::new_v4().simple()));
        let fields = ToolCallUpdateFields::new()
            .title(title.to_owned())
            .kind(ToolKind::Other)
            .status(ToolCallStatus::Pending)
            .content(vec![text(details)]);
        let cancelled = self.0.opened.lock().unwrap_or_else(PoisonError::into_inner).get(&root)?.current();
        let call = ToolCallUpdate::new(id.clone(), fields);
        let chosen = tokio::select! {
            chosen = self.0.ask(&root, call, choices, stop) => chosen,
            () = cancelled.cancelled() => None,
        };
        let allowed = choices.iter().any(|choice| {
            Some(choice.id) == chosen && matches!(choice.kind, ChoiceKind::AllowOnce | ChoiceKind::AllowAlways)
        });
        let status = if allowed { ToolCallStatus::Completed } else { ToolCallStatus::Failed };
        let answered = ToolCallUpdate::new(id, ToolCallUpdateFields::new().status(status));
        // If the connection has ended, nobody needs the update.
        let _ = self.0.update(&root, SessionUpdate::ToolCallUpdate(answered)).await;
        chosen
    }
}

impl Shared {
    /// Asks for a permission, and returns the id of the chosen answer. Returns `None` if the user gives no answer, if the
    /// editor answers with something that was not offered, or if `stop` is cancelled.
    pub(crate) async fn ask(
        &self,
        session: &str,
        call: ToolCallUpdate,
        choices: &[Choice],
        stop: &CancellationToken,
    ) -> Option<&'static str> {
        let connection = self.connection.get()?;
        let options =
            choices.iter().map(|choice| PermissionOption::new(choice.id, choice.label.clone(), choice.kind.into()));
        let request = RequestPermissionRequest::new(session.to_owned(), call, options.collect());
        // If the future is dropped, the editor is told that the answer is no longer needed.
        let answer = tokio::select! {
            answer = connection.send_request(request).block_task() => answer,
            () = stop.cancelled() => return None,
            () = self.closed.cancelled() => return None,
        };
        match answer.map(|response| response.outcome) {
            Ok(RequestPermissionOutcome::Selected(selected)) => {
                let chosen = choices.iter().find(|choice| *choice.id == *selected.option_id.0);
                if chosen.is_none() {
                    tracing::warn!("the editor answered a permission request with an option that was not offered");
                }
                chosen.map(|choice| choice.id)
            }
            Ok(_) => None,
            Err(error) => {
                tracing::warn!(%error, "the editor did not answer a permission request");
                None
            }
        }
    }
}

impl From<ChoiceKind> for PermissionOptionKind {
    fn from(kind: ChoiceKind) -> Self {
        match kind {
            ChoiceKind::AllowOnce => Self::AllowOnce,
            ChoiceKind::AllowAlways => Self::AllowAlways,
            ChoiceKind::RejectOnce => Self::RejectOnce,
            ChoiceKind::RejectAlways => Self::RejectAlways,
        }
    }
}
