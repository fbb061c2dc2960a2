//! Responses that are built again from the stored events of their turn. Thinking is not stored, so it is not part of them.

use super::builder::{ResponseBuilder, ResponseHead};
use super::id::ResponseId;
use crate::access::Caller;
use crate::openai::error::OpenAiError;
use crate::openai::turn::{open_waits_of, output_of, own_waits};
use crate::state::ApiState;
use agent_core::event::{EventKind, WaitCause};
use agent_runtime::TurnUpdate;
use agent_store::{SessionSummary, TimedEvent};
use axum::http::StatusCode;
use jiff::Timestamp;
use serde_json::Value;

/// Number of events that are read at once.
const PAGE: usize = 256;

/// A response that was found in the store.
pub(super) struct StoredResponse {
    pub(super) id: ResponseId,
    pub(super) session: SessionSummary,
    pub(super) response: Value,
    pub(super) head: ResponseHead,
    /// Sequence number of the event at which the turn ended or began to wait. `None` if the turn still works.
    stopped_at: Option<u64>,
}

fn not_found(id: &str) -> OpenAiError {
    let id: String = id.chars().take(200).collect();
    let message = format!("there is no response `{id}` for this token");
    OpenAiError::new(StatusCode::NOT_FOUND, "response_not_found", message)
}

/// Reads the response with this id, if the caller may use its session.
pub(super) async fn stored_response(
    state: &ApiState,
    caller: &Caller,
    text: &str,
) -> Result<StoredResponse, OpenAiError> {
    let id = ResponseId::decode(text).ok_or_else(|| not_found(text))?;
    let session = state.session(caller, &id.session).await.map_err(|problem| match problem.status {
        404 => not_found(text),
        _ => problem.into(),
    })?;
    let mut after = id.first_event - 1;
    let mut reader = Reader { id: &id, text, agent: &session.agent, builder: None, stopped: None };
    while reader.stopped.is_none() {
        let page = state.store().events(&id.session, after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = last.event.sequence;
        for stored in page {
            if reader.add(stored)? {
                break;
            }
        }
    }
    let stopped = reader.stopped;
    let mut builder = reader.builder.ok_or_else(|| not_found(text))?;
    let stopped_at = match stopped {
        None => {
            let waits = open_waits_of(state.store(), &id.session, id.turn).await?;
            if !waits.is_empty() {
                builder.wait(&waits);
            }
            (!waits.is_empty()).then_some(after)
        }
        Some(Stop { sequence, suspension: Some(suspension) }) => {
            builder.wait(&own_waits(&id.session, suspension));
            Some(sequence)
        }
        Some(Stop { sequence, suspension: None }) => {
            match builder.ending().failure() {
                Some(failure) => builder.fail(&failure),
                None => {
                    let output = output_of(state.store(), &session, id.turn).await?;
                    builder.complete(&output.unwrap_or_default());
                }
            }
            Some(sequence)
        }
    };
    Ok(StoredResponse { response: builder.response(), head: builder.into_head(), id, session, stopped_at })
}

impl StoredResponse {
    /// Checks that the response is the last one of its session and that it is finished, so that it can be continued.
    pub(super) async fn check_is_last(&self, state: &ApiState) -> Result<(), OpenAiError> {
        let conflict =
            |code, message| Err(OpenAiError::new(StatusCode::CONFLICT, code, message).about("previous_response_id"));
        let Some(mut after) = self.stopped_at else {
            return conflict(
                "response_in_progress",
                "the turn of the previous response still works; try again when it has ended",
            );
        };
        loop {
            let page = state.store().events(&self.id.session, after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.event.sequence;
            let is_later = |kind: &EventKind| {
                matches!(kind, EventKind::LoopStart { .. } | EventKind::Resumed | EventKind::LoopEnd { .. })
            };
            if page.iter().any(|stored| is_later(&stored.event.kind)) {
                return conflict(
                    "response_superseded",
                    "the session has continued since the previous response; continue its last response",
                );
            }
        }
    }
}

/// The event at which a response ends.
struct Stop {
    sequence: u64,
    /// What the turn waits for. `None` if the turn has ended.
    suspension: Option<Vec<agent_core::event::Wait>>,
}

/// Builds a response from events.
struct Reader<'r> {
    id: &'r ResponseId,
    text: &'r str,
    agent: &'r str,
    builder: Option<ResponseBuilder>,
    stopped: Option<Stop>,
}

impl Reader<'_> {
    /// Adds an event. Returns whether the response ends with it.
    fn add(&mut self, TimedEvent { event, time }: TimedEvent) -> Result<bool, OpenAiError> {
        if self.builder.is_none() {
            if event.sequence != self.id.first_event || event.turn != self.id.turn {
                return Err(not_found(self.text));
            }
            let created = time.parse::<Timestamp>().map_or(0, Timestamp::as_second);
            let head = ResponseHead {
                id: self.text.to_owned(),
                created_at: u64::try_from(created).unwrap_or_default(),
                model: self.agent.to_owned(),
                previous_response_id: None,
                is_stored: true,
                is_background: false,
            };
            self.builder = Some(ResponseBuilder::new(head, self.id));
        }
        let Some(builder) = &mut self.builder else { return Ok(false) };
        if event.turn != self.id.turn {
            return Ok(false);
        }
        let sequence = event.sequence;
        self.stopped = match &event.kind {
            EventKind::LoopEnd { .. } => Some(Stop { sequence, suspension: None }),
            // The turn continues by itself when the agents to which it delegates have ended.
            EventKind::Suspended { suspension }
                if suspension.waits.iter().any(|wait| !matches!(wait.cause, WaitCause::Agent { .. })) =>
            {
                Some(Stop { sequence, suspension: Some(suspension.waits.clone()) })
            }
            _ => None,
        };
        builder.update(TurnUpdate::Event(event));
        builder.discard_events();
        Ok(self.stopped.is_some())
    }
}
