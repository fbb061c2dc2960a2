//! Events of other systems that come over NATS (I6). An event begins a session, as a request to a webhook does, or answers a request
//! to a service. Each event takes effect exactly once, because the name of its session contains its id.

use super::Supervisor;
use crate::agent::EventInput;
use crate::fleet::Fleet;
use crate::requests::{Prompt, RequestError, RequestProblem, SessionName, SessionRequest};
use agent_core::cloud_event::{CloudEvent, MAX_EVENT_BYTES};
use agent_core::event_type::is_reserved;
use agent_core::message::{Part, TurnInput};
use agent_core::plugin::TraceContext;
use agent_fleet::{IncomingEvent, MAX_DELIVERIES};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Maximum number of events of one table that are handled at the same time.
const HANDLED: usize = 16;
/// Time until the next attempt if the host is busy.
const LATER: Duration = Duration::from_secs(2);
/// Delay of the second delivery after a failure. Each further failure doubles the delay.
const FIRST_DELAY: Duration = Duration::from_secs(1);

/// Receives the events of one table `[events.NAME]` of an agent until the supervisor shuts down.
pub(super) async fn receive_events(
    supervisor: Supervisor,
    fleet: Fleet,
    (agent, name, input): (String, String, EventInput),
) {
    let mut events = fleet.nats.incoming_events((&agent, &name), &input.source, fleet.key.clone());
    let permits = Arc::new(Semaphore::new(HANDLED));
    let receiver = Arc::new(Receiver { supervisor: supervisor.clone(), fleet, agent, name, input });
    loop {
        let received = async {
            let permit = permits.clone().acquire_owned().await.ok()?;
            Some((events.next().await, permit))
        };
        let (event, permit) = tokio::select! {
            () = supervisor.0.stop.cancelled() => return,
            received = received => match received {
                Some(received) => received,
                None => return,
            },
        };
        let receiver = receiver.clone();
        supervisor.0.tasks.spawn(async move {
            receiver.handle(event).await;
            drop(permit);
        });
    }
}

/// Handles the events of one table.
struct Receiver {
    supervisor: Supervisor,
    fleet: Fleet,
    agent: String,
    name: String,
    input: EventInput,
}

impl Receiver {
    async fn handle(&self, event: IncomingEvent) {
        let (agent, name, process) = (&self.agent, &self.name, &self.fleet.process);
        if event.deliveries > MAX_DELIVERIES {
            return event
                .give_up("no process has confirmed it; processes may have stopped while they tried", process)
                .await;
        }
        let error = loop {
            match self.accept(&event).await {
                Ok(()) => return event.confirm().await,
                // A busy host says nothing about the event.
                Err(error) if error.kind == RequestProblem::Unavailable => event.still_trying().await,
                Err(error) => break error,
            }
            tokio::select! {
                // A process that shuts down leaves the event to the others.
                () = self.supervisor.0.stop.cancelled() => return event.retry_after(Duration::ZERO).await,
                () = tokio::time::sleep(LATER) => {}
            }
        };
        if error.kind == RequestProblem::Failed && event.deliveries < MAX_DELIVERIES {
            tracing::warn!(agent, name, %error, "an event cannot be handled now; it is delivered again");
            let delay = FIRST_DELAY * (1 << (event.deliveries.clamp(1, MAX_DELIVERIES) - 1));
            return event.retry_after(delay).await;
        }
        tracing::warn!(agent, name, %error, "an event cannot be handled; see `agent-host dead-letter list`");
        event.give_up(&error.message, process).await;
    }

    /// Begins a session with an event, or hands an answer to its session. Returns after this was committed.
    async fn accept(&self, event: &IncomingEvent) -> Result<(), RequestError> {
        match read(event)? {
            Content::Answer { session, event } => {
                let found = self.supervisor.0.stored(&session).await?;
                // An event may answer only requests of the agent that receives it.
                if found.is_none_or(|found| found.agent != self.agent) {
                    let message =
                        format!("the agent `{}` has no session `{session}`, which the event answers", self.agent);
                    return Err(RequestError::new(RequestProblem::NotFound, message));
                }
                self.supervisor.send(&session, SessionRequest::Respond(event)).await.map(drop)
            }
            Content::Input { data, id, trace } => {
                let input = match &self.input.prompt {
                    None => TurnInput::Json(data),
                    Some(prompt) => TurnInput::Message(vec![Part::Text(prompt.to_string()), Part::Json(data)]),
                };
                let prompt = Prompt { user: self.input.user.clone(), trace, ..Prompt::new(input) };
                // NATS grants rights on subjects, so an id is only valid on the subject of its event.
                let session = SessionName::new("event", &format!("{}\0{}\0{id}", self.name, event.origin.subject));
                self.supervisor.create_once(&self.agent, &session, prompt).await.map(drop)
            }
        }
    }
}

/// What an event asks for.
#[derive(Debug, PartialEq)]
enum Content {
    /// Begin a session.
    Input { data: Value, id: String, trace: Option<TraceContext> },
    /// Take the answer to a request of this session.
    Answer { session: String, event: Box<CloudEvent> },
}

fn read(event: &IncomingEvent) -> Result<Content, RequestError> {
    let header = |name: &str| event.headers.get(name).map(String::as_str);
    let fallback = match &event.origin.message_id {
        Some(id) => format!("message {id}"),
        None => format!("position {}", event.origin.position),
    };
    read_content(header, &event.payload, fallback)
}

/// Reads a CloudEvent in structured or binary mode, as the NATS protocol binding of CloudEvents describes them, or other JSON data,
/// which has the id `fallback`.
fn read_content<'h>(
    header: impl Fn(&str) -> Option<&'h str>,
    payload: &[u8],
    fallback: String,
) -> Result<Content, RequestError> {
    let invalid = |problem: &dyn std::fmt::Display| RequestError::new(RequestProblem::Invalid, problem);
    if payload.len() > MAX_EVENT_BYTES {
        return Err(invalid(&format!("the event has {} bytes, and the limit is {MAX_EVENT_BYTES}", payload.len())));
    }
    let content_type = header("content-type").unwrap_or("application/json").to_ascii_lowercase();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if essence == "application/cloudevents+json" {
        return of_event(CloudEvent::parse(payload).map_err(|error| invalid(&error))?);
    }
    if !(essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))) {
        return Err(invalid(
            &"the event is not JSON: its header `Content-Type` must be application/json or a JSON type",
        ));
    }
    let data: Value =
        serde_json::from_slice(payload).map_err(|error| invalid(&format!("the event cannot be read: {error}")))?;
    if header("ce-specversion").is_none() {
        // Many senders of CloudEvents leave out the header with the content type.
        if header("content-type").is_none() && data.get("specversion").is_some() {
            return of_event(CloudEvent::parse(payload).map_err(|error| invalid(&error))?);
        }
        let trace = header("traceparent").map(|traceparent| TraceContext {
            traceparent: traceparent.to_owned(),
            tracestate: header("tracestate").map(str::to_owned),
        });
        return Ok(Content::Input { data, id: fallback, trace });
    }
    // The attributes are checked as in structured mode.
    let attributes =
        ["specversion", "id", "source", "type", "subject", "time", "parentid", "traceparent", "tracestate"];
    let attribute = |name: &&str| Some(((*name).to_owned(), Value::from(header(&format!("ce-{name}"))?)));
    let mut object: serde_json::Map<String, Value> = attributes.iter().filter_map(attribute).collect();
    object.insert("data".to_owned(), data);
    of_event(CloudEvent::parse(&serde_json::to_vec(&object).unwrap_or_default()).map_err(|error| invalid(&error))?)
}

fn of_event(event: CloudEvent) -> Result<Content, RequestError> {
    if is_reserved(&event.event_type) {
        let message = format!("events of the type `{}` are not accepted over NATS", event.event_type);
        return Err(RequestError::new(RequestProblem::Invalid, message));
    }
    if let (Some(_), Some(session)) = (&event.parentid, &event.subject) {
        return Ok(Content::Answer { session: session.clone(), event: Box::new(event) });
    }
    let id = format!("event {}\0{}", event.source, event.id);
    let trace = event.traceparent.map(|traceparent| TraceContext { traceparent, tracestate: event.tracestate });
    Ok(Content::Input { data: event.data.unwrap_or(Value::Null), id, trace })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn read_with(headers: &[(&str, &str)], payload: &[u8]) -> Result<Content, RequestError> {
        let headers: BTreeMap<&str, &str> = headers.iter().copied().collect();
        read_content(|name| headers.get(name).copied(), payload, "position S 7".to_owned())
    }

    fn input(content: Result<Content, RequestError>) -> (Value, String) {
        match content {
            Ok(Content::Input { data, id, .. }) => (data, id),
            other => panic!("{other:?}"),
        }
    }

    /// I6: events in structured and in binary mode have the same id, and other data is identified by its message.
    #[test]
    fn i6_events_are_read_in_both_modes() {
        let event = json!({"specversion": "1.0", "id": "1", "source": "/shop", "type": "order", "data": {"n": 3}});
        let structured = read_with(&[("content-type", "application/cloudevents+json")], event.to_string().as_bytes());
        let expected = (json!({"n": 3}), "event /shop\u{0}1".to_owned());
        assert_eq!(input(structured), expected);
        assert_eq!(input(read_with(&[], event.to_string().as_bytes())), expected);
        let headers = [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "/shop"), ("ce-type", "order")];
        assert_eq!(input(read_with(&headers, b"{\"n\": 3}")), expected);
        assert_eq!(input(read_with(&[], b"[1]")), (json!([1]), "position S 7".to_owned()));
    }

    /// I6: an event with a parent answers a request of the session that it names.
    #[test]
    fn i6_answers_name_their_session() {
        let event = json!({
            "specversion": "1.0", "id": "9", "source": "/work", "type": "done", "parentid": "call_1", "subject": "clerk/1",
        });
        let content = read_with(&[], event.to_string().as_bytes());
        assert!(matches!(content, Ok(Content::Answer { session, .. }) if session == "clerk/1"));
    }

    /// I6, row 51: events of the host's own types, and data that is no event, are refused with the reason.
    #[test]
    fn i6_reserved_and_unreadable_events_are_refused() {
        let approval = json!({
            "specversion": "1.0", "id": "9", "source": "/x", "type": "agent-host.approval.resolved", "parentid": "approval_1",
            "subject": "clerk/1",
        });
        let structured = [("content-type", "application/cloudevents+json")];
        let text = [("content-type", "text/plain")];
        let incomplete = [("ce-specversion", "1.0"), ("ce-id", "1")];
        for (headers, payload, problem) in [
            (&[][..], approval.to_string(), "are not accepted over NATS"),
            (&structured, "{}".to_owned(), "not a CloudEvent"),
            (&text, "hello".to_owned(), "Content-Type"),
            (&[], "hello".to_owned(), "cannot be read"),
            (&incomplete, "{}".to_owned(), "`source`"),
            (&[], " ".repeat(MAX_EVENT_BYTES + 1), "limit"),
        ] {
            let error = read_with(headers, payload.as_bytes()).expect_err(problem);
            assert_eq!(error.kind, RequestProblem::Invalid);
            assert!(error.message.contains(problem), "{}", error.message);
        }
    }
}
