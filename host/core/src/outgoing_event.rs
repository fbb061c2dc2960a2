//! Events that the host sends. Only this module can create outgoing events, and only with an event type that has been
//! parsed. For this reason, the host sets all attributes of outgoing events, and an event with a host type always comes
//! from the host itself (row 51).

use crate::cloud_event::{CloudEvent, SPEC_VERSION};
use crate::event_type::{HostEventType, ServiceEventType, is_reserved};
use crate::plugin::TraceContext;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ops::Deref;

/// The attributes of an event other than its type and its data.
#[derive(Clone, Debug, PartialEq)]
pub struct EventAttributes {
    /// Id of the event, unique per source and the same in every repetition of the event. The id is also the
    /// deduplication id.
    pub id: String,
    /// Sender of the event, which consists of `agent-host/` and the agent's name.
    pub source: String,
    /// The subject, a string that identifies the session.
    pub subject: String,
    /// Time of the event in RFC 3339. `None` means that the event has no time.
    pub time: Option<String>,
    /// Routing domain from the configuration. `None` means that the event has no domain.
    pub domain: Option<String>,
    /// Trace context to which the event belongs.
    pub trace: TraceContext,
}

/// An event that the host sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OutgoingEvent(CloudEvent);

impl OutgoingEvent {
    /// Creates an event with one of the host's own types.
    pub fn of_host(event_type: HostEventType, attributes: EventAttributes, data: Value) -> Self {
        Self::new(event_type.as_str(), attributes, data)
    }

    /// Creates a request to a service.
    pub fn to_service(event_type: &ServiceEventType, attributes: EventAttributes, data: Value) -> Self {
        Self::new(event_type.as_str(), attributes, data)
    }

    fn new(event_type: &str, attributes: EventAttributes, data: Value) -> Self {
        let EventAttributes { id, source, subject, time, domain, trace } = attributes;
        Self(CloudEvent {
            specversion: SPEC_VERSION.to_owned(),
            deduplicationid: Some(id.clone()),
            id,
            source,
            event_type: event_type.to_owned(),
            subject: Some(subject),
            time,
            datacontenttype: Some("application/json".to_owned()),
            parentid: None,
            domain,
            traceparent: Some(trace.traceparent),
            tracestate: trace.tracestate,
            data: Some(data),
        })
    }

    /// Whether a stored event has a host type although a tool call requested the event. Such events come from old
    /// versions of the host, which did not reserve the host types yet. An event was requested by a tool call if its id
    /// is the id of a call.
    pub fn is_forged(&self) -> bool {
        is_reserved(&self.0.event_type) && self.0.id.starts_with("call_")
    }

    /// Returns the event in its wire format.
    pub fn into_inner(self) -> CloudEvent {
        self.0
    }
}

impl Deref for OutgoingEvent {
    type Target = CloudEvent;

    fn deref(&self) -> &CloudEvent {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn attributes(id: &str) -> EventAttributes {
        EventAttributes {
            id: id.to_owned(),
            source: "agent-host/a".to_owned(),
            subject: "a/1".to_owned(),
            time: None,
            domain: Some("eu".to_owned()),
            trace: TraceContext { traceparent: "00-a-b-01".to_owned(), tracestate: None },
        }
    }

    /// I6: the host sets the attributes, and an event is unchanged after it has been stored and read back.
    #[test]
    fn i6_an_outgoing_event_has_the_hosts_attributes() {
        let event_type = ServiceEventType::parse("com.example.work").expect("the type is valid");
        let event = OutgoingEvent::to_service(&event_type, attributes("call_1_1_1"), json!({"subject": "else"}));
        let written = serde_json::to_value(&event).expect("the event can be serialized");
        let expected = json!({
            "specversion": "1.0", "id": "call_1_1_1", "source": "agent-host/a", "type": "com.example.work", "subject": "a/1",
            "datacontenttype": "application/json", "domain": "eu", "deduplicationid": "call_1_1_1",
            "traceparent": "00-a-b-01", "data": {"subject": "else"},
        });
        assert_eq!(written, expected);
        assert_eq!(serde_json::from_value::<OutgoingEvent>(written).ok(), Some(event.clone()));
        assert!(!event.is_forged());
    }

    /// Row 51: an older host allowed plugins to request events with types that are reserved for the host. The host
    /// recognizes such an event if it is stored.
    #[test]
    fn row51_a_stored_event_with_a_host_type_and_a_call_id_is_recognized() {
        let of_host = |id: &str| OutgoingEvent::of_host(HostEventType::ApprovalRequested, attributes(id), json!({}));
        assert!(!of_host("approval_7_0123456789ab").is_forged());
        assert!(!of_host("turn_1").is_forged());
        assert!(of_host("call_1_1_1_0123456789ab").is_forged());
    }
}
