//! Questions to people: what the model asks in the middle of a turn, answered whenever somebody does (L18), and what became of
//! calls that nobody saw the end of (D3).

use crate::session::{Notes, Session, SessionError};
use agent_core::change::{CallRecord, CallResult};
use agent_core::event::{Suspension, Wait, WaitCause};
use agent_core::loop_break::{LoopBreak, argument};
use agent_core::message::{CallId, Content};
use agent_core::run::{Answerer, Awaited, Decision, Input, Refused};
use agent_core::tool::ToolSource;
use serde_json::Value;
use std::time::{SystemTime, UNIX_EPOCH};

/// The question that a suspended turn waits for, with its call. A reply asks at most one.
pub fn question(suspension: &Suspension) -> Option<(&CallId, &str)> {
    suspension.waits.iter().find_map(|wait: &Wait| match &wait.cause {
        WaitCause::Answer { question, .. } => Some((&wait.call, question.as_str())),
        _ => None,
    })
}

impl Session {
    /// The user's answer to the question of this call (L18). It is stored at once; [`Session::run`] then goes on.
    pub async fn answer(&mut self, call: CallId, text: String) -> Result<(), SessionError> {
        self.has_context()?;
        let call = self.run.named_call(call);
        let is_asked = matches!(self.run.action(), agent_core::run::Action::Suspended(suspension)
            if question(&suspension).is_some_and(|(asked, _)| *asked == call));
        if !is_asked {
            return Err(Refused::Unexpected("an answer to a question of this call").into());
        }
        let result = CallResult { content: vec![Content::Text(text)], ..CallResult::default() };
        self.apply(Input::Respond { call, from: Answerer::User, result }, Notes::default()).await
    }

    /// Decides about a call whose outcome is unknown (D3). [`Session::run`] then goes on.
    pub async fn resolve(&mut self, call: CallId, decision: Decision) -> Result<(), SessionError> {
        self.has_context()?;
        let call = self.run.named_call(call);
        self.apply(Input::Resolve { call, decision }, Notes::default()).await
    }

    /// The calls that wait for such a decision, in call order.
    pub async fn undecided(&mut self) -> Result<Vec<CallRecord>, SessionError> {
        let waits = self.run.waits().into_iter().filter(|wait| wait.cause == WaitCause::OutcomeUnknown);
        let ids: Vec<CallId> = waits.map(|wait| wait.call).collect();
        Ok(self.load_calls(&ids).await?)
    }

    /// What a call waits for that asks the user; none for any other call.
    pub(crate) fn awaited_answer(&self, record: &CallRecord) -> Option<Awaited> {
        let is_own = record.source == Some(ToolSource::BuiltIn);
        if !is_own || LoopBreak::of_tool(&record.name) != Some(LoopBreak::Ask) {
            return None;
        }
        let question = record.effective_arguments().get(argument::QUESTION).and_then(Value::as_str);
        let within = self.run.turn.as_ref().and_then(|turn| turn.config.answer_within_ms);
        let expires_at = within.map(|within| now_ms().saturating_add(within));
        Some(Awaited {
            cause: WaitCause::Answer { question: question.unwrap_or_default().to_owned(), expires_at },
            event: None,
        })
    }
}

/// Milliseconds since 1970.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
