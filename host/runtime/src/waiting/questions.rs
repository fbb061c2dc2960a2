//! Questions that only a user can answer: the questions that the model asks during a turn (L18), and how to continue
//! with a call whose outcome is unknown (D3).

use crate::records::CommitNotes;
use crate::session::{Session, SessionError};
use agent_core::change::{CallRecord, CallResult};
use agent_core::event::{Suspension, Wait, WaitCause};
use agent_core::loop_break::{LoopBreak, argument};
use agent_core::message::{CallId, Content};
use agent_core::run::{Action, Answerer, Awaited, Decision, Input, InputError, Run};
use agent_core::tool::ToolSource;
use serde_json::Value;

/// Returns the question whose answer a suspended turn waits for, and the call that asks the question. A model reply
/// asks at most one question.
pub fn question(suspension: &Suspension) -> Option<(&CallId, &str)> {
    suspension.waits.iter().find_map(|wait: &Wait| match &wait.cause {
        WaitCause::Answer { question, .. } => Some((&wait.call, question.as_str())),
        _ => None,
    })
}

impl Session {
    /// Stores the user's answer to the question of this call (L18). The turn continues when [`Session::run`] is called.
    pub async fn answer(&mut self, call: CallId, text: String) -> Result<(), SessionError> {
        self.require_stored_state()?;
        let call = self.run.named_call(call);
        let is_asked = matches!(self.run.action(), Action::Suspended(suspension)
            if question(&suspension).is_some_and(|(asked, _)| *asked == call));
        if !is_asked {
            return Err(InputError::Unexpected("an answer to a question of this call").into());
        }
        let result = CallResult { content: vec![Content::Text(text)], ..CallResult::default() };
        self.apply(Input::Respond { call, from: Answerer::User, result }, CommitNotes::default()).await
    }

    /// Stores a user's decision about a call whose outcome is unknown (D3). The turn continues when [`Session::run`]
    /// is called.
    pub async fn resolve(&mut self, call: CallId, decision: Decision) -> Result<(), SessionError> {
        self.require_stored_state()?;
        let call = self.run.named_call(call);
        self.apply(Input::Resolve { call, decision }, CommitNotes::default()).await
    }

    /// Returns the calls whose outcome is unknown and that wait for a decision, in call order.
    pub async fn undecided(&mut self) -> Result<Vec<CallRecord>, SessionError> {
        let waits = self.run.waits().into_iter().filter(|wait| wait.cause == WaitCause::OutcomeUnknown);
        let ids: Vec<CallId> = waits.map(|wait| wait.call).collect();
        Ok(self.history.load_calls(&ids).await?)
    }
}

/// Returns a description of the answer that a question to the user waits for, or `None` if the call is not a question
/// to the user. `now` is the time in milliseconds since 1970.
pub(super) fn awaited_answer(run: &Run, record: &CallRecord, now: u64) -> Option<Awaited> {
    let is_own = record.source == Some(ToolSource::BuiltIn);
    if !is_own || LoopBreak::of_tool(&record.name) != Some(LoopBreak::Ask) {
        return None;
    }
    let question = record.effective_arguments().get(argument::QUESTION).and_then(Value::as_str);
    let within = run.turn.as_ref().and_then(|turn| turn.config.answer_within_ms);
    let expires_at = within.map(|within| now.saturating_add(within));
    Some(Awaited {
        cause: WaitCause::Answer { question: question.unwrap_or_default().to_owned(), expires_at },
        event: None,
    })
}
