//! Reads what an event of another system asks for (I6).

use crate::requests::{RequestError, RequestProblem};
use agent_core::cloud_event::{CloudEvent, MAX_EVENT_BYTES};
use agent_core::event_type::is_reserved;
use agent_core::plugin::TraceContext;
use agent_fleet::IncomingEvent;
use serde_json::Value;

/// What an event asks for.
#[derive(Debug, PartialEq)]
pub(super) enum Content {
    /// Begin a session.
    Input { data: Value, id: String, trace: Option<TraceContext> },
    /// Take the answer to a request of this session.
    Answer { session: String, event: Box<CloudEvent> },
}

pub(super) fn read(event: &IncomingEvent) -> Result<Content, RequestError> {
    let header = |name: &str| event.headers.get(name).map(String::as_str);
    let origin = &event.origin;
    let fallback = match &origin.message_id {
        Some(id) => format!("message {id}"),
        None => format!("position {}", origin.position),
    };
    // NATS grants rights on subjects, so an id is only valid on the subject of its event.
    Ok(match read_content(header, &event.payload, fallback)? {
        Content::Input { data, id, trace } => Content::Input { data, id: format!("{}\0{id}", origin.subject), trace },
        answer @ Content::Answer { .. } => answer,
    })
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
