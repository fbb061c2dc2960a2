//! Answers of services to the calls that were forwarded to them. Each answer is matched to its call, checked against
//! the schema that was stored with the call, and accepted only once (L10, I6).

use super::approval_answers::open_decisions;
use crate::agent::ANY_TYPE;
use crate::approvals::{APPROVAL_RESOLVED, without_edit_note};
use crate::host::SessionServices;
use crate::records::{CommitNotes, ServiceAnswerRecord, StepRecordBody};
use crate::session::{Session, SessionError};
use crate::tools::results::{bounded, error_result};
use agent_core::change::{CallRecord, CallResult, CallState};
use agent_core::cloud_event::CloudEvent;
use agent_core::event::{Wait, WaitCause};
use agent_core::event_type::{HostEventType, is_reserved};
use agent_core::message::{CallId, Content, Digest};
use agent_core::plugin::TraceContext;
use agent_core::run::{Answerer, Input, Run};
use agent_core::schema::Schema;
use agent_core::tool::{ToolError, Violation};
use agent_store::{CallFilter, StepRecord, StoreError};
use serde_json::Value;
use std::collections::BTreeMap;

/// Outcome of an answer that was delivered to a session.
#[derive(Clone, Debug, PartialEq)]
pub enum ResponseOutcome {
    /// The answer became the call's result.
    Taken {
        /// Violations of the schema that was stored with the call. If the list is not empty, the model does not
        /// receive the answer, but an error that lists the violations.
        violations: Vec<Violation>,
        /// The answers that the turn still waits for. If the list is empty, the caller can continue the turn
        /// with [`Session::run`].
        waits: Vec<Wait>,
    },
    /// The call already has exactly this answer. The session is not changed.
    Duplicate,
    /// The call already has another result, because another answer was accepted, the call's time limit has passed, or
    /// the call's turn has ended. The session is not changed.
    Late,
}

/// The reason why an answer was rejected. The session is not changed.
#[derive(Debug, thiserror::Error)]
pub enum RespondError {
    /// The event does not contain the id of the request that it answers.
    #[error("the event has no `parentid`; set it to the `id` of the request that it answers, which is the call's id")]
    NoParent,
    /// The event claims a type that is reserved for the host.
    #[error(
        "the event's `type` is `{event_type}`: types that begin with `agent-host.`, or look like it, are reserved for the host; \
         the only reserved type that an answer may have is `{APPROVAL_RESOLVED}`"
    )]
    Reserved {
        /// The `type` attribute of the event.
        event_type: String,
    },
    /// The event names another session as its subject.
    #[error(
        "the event's `subject` is `{subject}`, but the session is `{session}`: omit the subject, or set it to this session"
    )]
    OtherSubject {
        /// The `subject` attribute of the event.
        subject: String,
        /// Id (subject) of the session that received the event.
        session: String,
    },
    /// The session has no call with this id.
    #[error("the event's `parentid` is `{call}`, but session `{session}` has no such call; {waiting}")]
    NoCall {
        /// The call id that the event contains as its `parentid`.
        call: String,
        /// Id (subject) of the session that received the event.
        session: String,
        /// Text that lists the calls that wait for an answer.
        waiting: String,
    },
    /// The call is not waiting for an answer of a service.
    #[error("call `{call}` is not waiting for a service: {state}; {waiting}")]
    NotAService {
        /// Id of the call that the event answers.
        call: CallId,
        /// Description of the call's state, as a clause for the message.
        state: &'static str,
        /// Text that lists the calls that wait for an answer.
        waiting: String,
    },
    /// The call does not accept answers of this event type, because no schema was stored for this type.
    #[error(
        "the event's `type` is `{event_type}`, which is not an expected answer to call `{call}`; expected types: {known}"
    )]
    UnknownType {
        /// The `type` attribute of the event.
        event_type: String,
        /// Id of the call that the event answers.
        call: CallId,
        /// The event types that the call accepts as answers, separated by commas.
        known: String,
    },
    /// The event answers an approval request, but does not name the session.
    #[error(
        "the event has no `subject`; an answer to an approval request must have its session as `subject`, which is \
         `{session}`"
    )]
    NoSubject {
        /// Id (subject) of the session that received the event.
        session: String,
    },
    /// The data of an approval answer cannot be read or contains no decisions.
    #[error(
        "the event's data is not an approval answer: {problem}; the data of `{event_type}` has the form \
         {{\"decisions\": [{{\"call\": ID, \"verdict\": \"granted\"|\"denied\"}}]}}"
    )]
    Decisions {
        /// Description of the problem with the event's data.
        problem: String,
        /// Type of the event, which determines the form of its data.
        event_type: HostEventType,
    },
    /// The session never sent this approval request.
    #[error(
        "the event's `parentid` is `{request}`, but session `{session}` has not sent an approval request with this id"
    )]
    NoRequest {
        /// The request id that the event contains as its `parentid`.
        request: String,
        /// Id (subject) of the session that received the event.
        session: String,
    },
    /// The event contains a decision about a call that is not part of the approval request.
    #[error("the approval request `{request}` does not contain call `{call}`")]
    NotRequested {
        /// Id of the call that the decision is about.
        call: CallId,
        /// Id of the approval request that the event answers.
        request: String,
    },
    /// The turn works on something else, although the call still waits for an answer.
    #[error("the turn cannot take an answer to call `{call}` at the moment; try again later")]
    NotNow {
        /// Id of the call that the event answers.
        call: String,
    },
    /// The stored session cannot be read or changed.
    #[error(transparent)]
    Session(Box<SessionError>),
}

impl From<SessionError> for RespondError {
    fn from(error: SessionError) -> Self {
        Self::Session(Box::new(error))
    }
}

impl From<StoreError> for RespondError {
    fn from(error: StoreError) -> Self {
        SessionError::from(error).into()
    }
}

impl Session {
    /// Processes the answer of a service to a call that was forwarded to that service (L10), or a user's answer to an
    /// approval request (L17). Only the stored state is needed (L1), because the schema of the answer was stored when
    /// the request was sent. The turn continues when [`Session::run`] is called.
    pub async fn respond(&mut self, event: CloudEvent) -> Result<ResponseOutcome, RespondError> {
        self.require_stored_state()?;
        check_attributes(&self.services, &event)?;
        if is_approval(&event) {
            return self.respond_to_approval(&event).await;
        }
        self.expire_overdue_calls().await?;
        let (record, answer) = match find_call(&self.services, &self.run, &event).await? {
            FoundCall::Settled(outcome) => return Ok(outcome),
            FoundCall::Open(open) => *open,
        };
        let call = record.id.clone();
        let contract = match self.run.waits().into_iter().find(|wait| wait.call == call).map(|wait| wait.cause) {
            Some(WaitCause::Service { emits, .. }) => emits,
            _ => {
                return Err(RespondError::NotAService {
                    call,
                    state: state_text(&record),
                    waiting: waiting_calls(&self.run),
                });
            }
        };
        let violations = match contract {
            Some(contract) => self.violations(&contract, &event, &call).await?,
            None => Vec::new(),
        };
        let result = if violations.is_empty() { answer } else { broken_contract(&event.event_type, &violations) };
        let notes = CommitNotes { records: vec![answer_record(&record, &event)], ..CommitNotes::default() };
        self.apply(Input::Respond { call, from: Answerer::Service, result }, notes).await?;
        Ok(ResponseOutcome::Taken { violations, waits: self.run.waits() })
    }

    /// Checks the data of the event against the schema that was stored with the call, and returns the violations.
    /// Returns an error if no schema was stored for answers of this type.
    async fn violations(
        &self,
        contract: &Digest,
        event: &CloudEvent,
        call: &CallId,
    ) -> Result<Vec<Violation>, RespondError> {
        let text = self.services.store.text(&self.services.subject, contract).await?;
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
}

/// Handles an event while an action of the turn borrows the session. Then no call waits for an answer, so the event is a
/// repetition, too late or wrong, and it is answered at once. Only the store is read.
pub(crate) async fn respond_during_action(
    services: &SessionServices,
    run: &Run,
    event: &CloudEvent,
) -> Result<ResponseOutcome, RespondError> {
    check_attributes(services, event)?;
    let not_now = |call: &CallId| RespondError::NotNow { call: call.to_string() };
    if is_approval(event) {
        let decisions = open_decisions(services, run, event).await?;
        return decisions.first().map_or(Ok(ResponseOutcome::Late), |decision| Err(not_now(&decision.call)));
    }
    match find_call(services, run, event).await? {
        FoundCall::Settled(outcome) => Ok(outcome),
        FoundCall::Open(open) => Err(not_now(&open.0.id)),
    }
}

/// Checks the attributes of an event, without the store.
fn check_attributes(services: &SessionServices, event: &CloudEvent) -> Result<(), RespondError> {
    if let Some(subject) = event.subject.as_ref().filter(|subject| **subject != services.subject) {
        return Err(RespondError::OtherSubject { subject: subject.clone(), session: services.subject.clone() });
    }
    if !is_approval(event) && is_reserved(&event.event_type) {
        return Err(RespondError::Reserved { event_type: event.event_type.clone() });
    }
    event.parentid.as_ref().map(drop).ok_or(RespondError::NoParent)
}

fn is_approval(event: &CloudEvent) -> bool {
    event.event_type == APPROVAL_RESOLVED.as_str()
}

/// The call to which an event belongs.
enum FoundCall {
    /// The call has a result already.
    Settled(ResponseOutcome),
    /// The call has no result. The answer is the result that it would get.
    Open(Box<(CallRecord, CallResult)>),
}

/// Finds the call to which an event belongs. Only the store is read.
async fn find_call(services: &SessionServices, run: &Run, event: &CloudEvent) -> Result<FoundCall, RespondError> {
    let parent = event.parentid.as_deref().ok_or(RespondError::NoParent)?;
    let Some(record) = answered_call(services, parent).await? else {
        let session = services.subject.clone();
        return Err(RespondError::NoCall { call: parent.to_owned(), session, waiting: waiting_calls(run) });
    };
    let answer = answer_result(event.data.clone());
    Ok(match settled_outcome(&record, &answer) {
        Some(outcome) => FoundCall::Settled(outcome),
        None => FoundCall::Open(Box::new((record, answer))),
    })
}

fn waiting_calls(run: &Run) -> String {
    let waits: Vec<_> = run.waits().iter().map(|wait| format!("`{}` ({})", wait.call, wait.name)).collect();
    if waits.is_empty() { "no call is waiting".to_owned() } else { format!("waiting calls: {}", waits.join(", ")) }
}

/// Returns the stored call that an answer refers to by this id.
async fn answered_call(services: &SessionServices, id: &str) -> Result<Option<CallRecord>, StoreError> {
    let filter = CallFilter::Ids(services.call_ids(id));
    Ok(services.store.calls(&services.subject, filter).await?.into_iter().next())
}

/// Returns the outcome of an answer if the call already has a result.
fn settled_outcome(record: &CallRecord, answer: &CallResult) -> Option<ResponseOutcome> {
    let result = record.result.as_ref()?;
    let is_same = without_edit_note(record, &result.content) == answer.content && !result.is_error;
    Some(if is_same { ResponseOutcome::Duplicate } else { ResponseOutcome::Late })
}

/// Builds the step record that states where an answer came from and to which trace the answer belongs.
fn answer_record(record: &CallRecord, event: &CloudEvent) -> StepRecord {
    let (traceparent, tracestate) = (event.traceparent.clone(), event.tracestate.clone());
    let trace = traceparent.map(|traceparent| TraceContext { traceparent, tracestate }).filter(TraceContext::is_valid);
    let body = ServiceAnswerRecord {
        call: record.id.clone(),
        id: event.id.clone(),
        source: event.source.clone(),
        event_type: event.event_type.clone(),
        time: event.time.clone(),
        trace,
    };
    StepRecordBody::ServiceAnswer(Box::new(body)).into_record(record.turn, record.step)
}

fn state_text(record: &CallRecord) -> &'static str {
    match record.state {
        CallState::Waiting => "it has not started",
        CallState::AwaitingApproval => "it waits for an approval",
        CallState::Outstanding => "it waits for an answer from outside the host",
        CallState::Started => "it is running",
        CallState::OutcomeUnknown => "its outcome is unknown; decide with `session resolve`",
        CallState::Finished => "it already has a result",
    }
}

/// Builds the call's result: content for the model, and the unchanged data.
fn answer_result(data: Option<Value>) -> CallResult {
    let content = match &data {
        None => Content::Text("The service answered without data.".to_owned()),
        Some(Value::String(text)) => Content::Text(text.clone()),
        Some(json) => Content::Json(json.clone()),
    };
    CallResult { content: bounded(vec![content]), structured: data, ..CallResult::default() }
}

/// Builds the error that the model receives if an answer violates the schema that was stored with the call. The error
/// lists the location of each violation and the rule that is violated.
fn broken_contract(event_type: &str, violations: &[Violation]) -> CallResult {
    let problems = violations.iter().map(|violation| {
        let pointer = if violation.pointer.is_empty() { "the whole answer" } else { &violation.pointer };
        let rule = violation.rule.as_deref().unwrap_or("format");
        format!("{pointer} violates `{rule}`: {}", violation.message)
    });
    let problems = problems.collect::<Vec<_>>().join("; ");
    let message = format!("the service's answer `{event_type}` does not match its agreed schema: {problems}");
    error_result(&ToolError::Failed { message })
}
