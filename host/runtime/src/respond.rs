//! Answers to calls that were handed on: matched, checked against what was agreed, and taken once (L10, I6).

use crate::approvals::APPROVAL_RESOLVED;
use crate::calls::bounded;
use crate::services::{ANY_TYPE, now_ms};
use crate::session::{Notes, Session, SessionError};
use crate::trace::is_trace;
use agent_core::change::{CallRecord, CallResult, CallState};
use agent_core::cloud_event::CloudEvent;
use agent_core::event::{Wait, WaitCause};
use agent_core::event_type::{HostEventType, is_reserved};
use agent_core::message::{CallId, Content, Digest};
use agent_core::plugin::TraceContext;
use agent_core::run::{Answerer, Input};
use agent_core::schema::Schema;
use agent_core::tool::{ToolError, Violation};
use agent_store::{CallFilter, StepRecord, StoreError};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What became of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Responded {
    /// It is the call's result.
    Taken {
        /// Where it is not what was agreed: then the model gets an error that names these instead. Else empty.
        violations: Vec<Violation>,
        /// What the turn still waits for; [`Session::run`] goes on where that is nothing.
        waits: Vec<Wait>,
    },
    /// The call has this very answer already. Nothing has changed.
    Duplicate,
    /// The call has another result already: it was answered otherwise, has expired, or its turn is over. Nothing has
    /// changed.
    Late,
}

/// An answer that cannot be taken. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum RespondError {
    /// It does not say what it answers.
    #[error("the event has no `parentid`; an answer names there the `id` of the request, which is the call's")]
    NoParent,
    /// It claims to be an event of the host.
    #[error(
        "the event's `type` is `{event_type}`: types that begin with `agent-host.`, or look like it, are the host's own, and \
         no service answers with one; the only one that may come in is `{APPROVAL_RESOLVED}`"
    )]
    Reserved {
        /// Of the event.
        event_type: String,
    },
    /// It is for somebody else.
    #[error("the event's `subject` is `{subject}`, and the session is `{session}`: leave it out, or name this session")]
    OtherSubject {
        /// Of the event.
        subject: String,
        /// The session's.
        session: String,
    },
    /// It answers nothing.
    #[error("session `{session}` has no call `{call}`, which the event's `parentid` names; {waiting}")]
    NoCall {
        /// As the event names it.
        call: String,
        /// The session's subject.
        session: String,
        /// The calls that wait, in words.
        waiting: String,
    },
    /// The call waits for something else.
    #[error("call `{call}` does not wait for a service: {state}; {waiting}")]
    NotAService {
        /// Which.
        call: CallId,
        /// What it does instead.
        state: &'static str,
        /// The calls that wait, in words.
        waiting: String,
    },
    /// Nobody has said what an answer of this type is.
    #[error("the event's `type` is `{event_type}`, which is no answer to call `{call}`; known are: {known}")]
    UnknownType {
        /// Of the event.
        event_type: String,
        /// Which.
        call: CallId,
        /// Those that are.
        known: String,
    },
    /// An answer to an approval request does not say whose.
    #[error("the event has no `subject`; an approval names there the session that it is for, `{session}`")]
    NoSubject {
        /// The session that it was brought to.
        session: String,
    },
    /// It holds no decisions.
    #[error(
        "the event's data is no answer to an approval: {problem}; `{event_type}` has \
         {{\"decisions\": [{{\"call\": ID, \"verdict\": \"granted\"|\"denied\"}}]}}"
    )]
    Decisions {
        /// What is wrong.
        problem: String,
        /// What it should be.
        event_type: HostEventType,
    },
    /// Nobody has asked.
    #[error("session `{session}` has sent no approval request `{request}`, which the event's `parentid` names")]
    NoRequest {
        /// As the event names it.
        request: String,
        /// The session's subject.
        session: String,
    },
    /// It decides about something else.
    #[error("the request `{request}` did not ask about call `{call}`")]
    NotRequested {
        /// Which.
        call: CallId,
        /// The request.
        request: String,
    },
    /// The session cannot be worked on.
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl From<StoreError> for RespondError {
    fn from(error: StoreError) -> Self {
        Self::Session(error.into())
    }
}

impl Session {
    /// Takes a service's answer (L10), or one to an approval request (L17). It needs nothing but the stored state (L1): also what the answer must be was stored
    /// when the request went out. [`Session::run`] then goes on.
    pub async fn respond(&mut self, event: CloudEvent) -> Result<Responded, RespondError> {
        let session = self.subject().to_owned();
        self.has_context()?;
        if let Some(subject) = event.subject.as_ref().filter(|subject| **subject != session) {
            return Err(RespondError::OtherSubject { subject: subject.clone(), session });
        }
        if event.event_type == APPROVAL_RESOLVED.as_str() {
            return self.respond_to_approval(&event).await;
        }
        if is_reserved(&event.event_type) {
            return Err(RespondError::Reserved { event_type: event.event_type });
        }
        let named = event.parentid.clone().ok_or(RespondError::NoParent)?;
        self.expire_due().await?;
        let either = CallFilter::Ids(self.shared.call_ids(&named));
        let found = self.shared.store.calls(&session, either).await?;
        let Some(record) = found.into_iter().next() else {
            return Err(RespondError::NoCall { call: named, session, waiting: self.in_words() });
        };
        let call = record.id.clone();
        let answer = result_of(event.data.clone());
        if let Some(result) = &record.result {
            let same =
                crate::approvals::without_edit_note(&record, &result.content) == answer.content && !result.is_error;
            return Ok(if same { Responded::Duplicate } else { Responded::Late });
        }
        let emits = match self.run.waits().into_iter().find(|wait| wait.call == call).map(|wait| wait.cause) {
            Some(WaitCause::Service { emits, .. }) => emits,
            _ => return Err(RespondError::NotAService { call, state: state(&record), waiting: self.in_words() }),
        };
        let violations = match emits {
            Some(contract) => self.violations(&contract, &event, &call).await?,
            None => Vec::new(),
        };
        let result = if violations.is_empty() { answer } else { broken(&event.event_type, &violations) };
        let notes = Notes { records: vec![received(&record, &event)], ..Notes::default() };
        self.apply(Input::Respond { call, from: Answerer::Service, result }, notes).await?;
        Ok(Responded::Taken { violations, waits: self.run.waits() })
    }

    /// Ends the waiting for what is overdue.
    pub(crate) async fn expire_due(&mut self) -> Result<(), SessionError> {
        while let Some(call) = self.due() {
            self.apply(Input::Expire { call }, Notes::default()).await?;
        }
        Ok(())
    }

    /// A call whose answer is overdue.
    pub(crate) fn due(&self) -> Option<CallId> {
        let now = now_ms();
        let waits = self.run.waits().into_iter();
        waits.filter(|wait| wait.cause.expires_at().is_some_and(|time| time <= now)).map(|wait| wait.call).next()
    }

    /// What of the data is not as agreed; an error where no answer of this type was agreed.
    async fn violations(
        &self,
        contract: &Digest,
        event: &CloudEvent,
        call: &CallId,
    ) -> Result<Vec<Violation>, RespondError> {
        let text = self.shared.store.text(contract).await?;
        let damaged =
            |problem: String| StoreError::Invalid { what: format!("the answer's schema {contract}"), problem };
        let schemas: BTreeMap<String, Value> =
            serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        let Some(schema) = schemas.get(&event.event_type).or_else(|| schemas.get(ANY_TYPE)) else {
            let known = schemas.keys().map(|known| format!("`{known}`")).collect::<Vec<_>>().join(", ");
            return Err(RespondError::UnknownType { event_type: event.event_type.clone(), call: call.clone(), known });
        };
        let schema = Schema::compile(schema).map_err(|error| damaged(error.to_string()))?;
        Ok(schema.check(event.data.as_ref().unwrap_or(&Value::Null)).err().unwrap_or_default())
    }

    fn in_words(&self) -> String {
        let waits: Vec<_> = self.run.waits().iter().map(|wait| format!("`{}` ({})", wait.call, wait.name)).collect();
        if waits.is_empty() { "no call waits".to_owned() } else { format!("waiting are: {}", waits.join(", ")) }
    }
}

/// Of the step record that says which event was taken as an answer.
const ANSWER_KIND: &str = "service_answer";

/// Where an answer came from, and of which trace it is.
fn received(record: &CallRecord, event: &CloudEvent) -> StepRecord {
    let (traceparent, tracestate) = (event.traceparent.clone(), event.tracestate.clone());
    let trace = traceparent.map(|traceparent| TraceContext { traceparent, tracestate }).filter(is_trace);
    let body = json!({
        "call": record.id,
        "id": event.id,
        "source": event.source,
        "type": event.event_type,
        "time": event.time,
        "trace": trace,
    });
    StepRecord { turn: record.turn, step: record.step, kind: ANSWER_KIND.to_owned(), body }
}

fn state(record: &CallRecord) -> &'static str {
    match record.state {
        CallState::Waiting => "it has not begun",
        CallState::Asking => "somebody must allow it first",
        CallState::Outstanding => "somebody else answers it",
        CallState::Started => "it runs",
        CallState::OutcomeUnknown => "its outcome is unknown, and `session resolve` decides",
        CallState::Finished => "it has its result",
    }
}

/// The data as the model is shown it, and as it was.
fn result_of(data: Option<Value>) -> CallResult {
    let content = match &data {
        None => Content::Text("The service answered without data.".to_owned()),
        Some(Value::String(text)) => Content::Text(text.clone()),
        Some(json) => Content::Json(json.clone()),
    };
    CallResult { content: bounded(vec![content]), structured: data, ..CallResult::default() }
}

/// An answer that is not what was agreed, for the model: each place with its rule.
fn broken(event_type: &str, violations: &[Violation]) -> CallResult {
    let problems = violations.iter().map(|violation| {
        let pointer = if violation.pointer.is_empty() { "the whole" } else { &violation.pointer };
        let rule = violation.rule.as_deref().unwrap_or("format");
        format!("{pointer} breaks `{rule}`: {}", violation.message)
    });
    let problems = problems.collect::<Vec<_>>().join("; ");
    let message = format!("the service's answer `{event_type}` is not what it promised: {problems}");
    let content = vec![Content::Text(ToolError::Failed { message }.for_model())];
    CallResult { content, is_error: true, ..CallResult::default() }
}
