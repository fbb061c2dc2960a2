//! Events that leave the host. They are made only here, from a parsed type, so that one with a type of the host is always
//! the host's own, and all attributes are the host's words (row 51).

use crate::cloud_event::{CloudEvent, SPEC_VERSION};
use crate::event_type::{HostEventType, ServiceEventType, is_reserved};
use crate::plugin::TraceContext;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ops::Deref;

/// What the host says of an event beside its type and its data.
#[derive(Clone, Debug, PartialEq)]
pub struct EventAttributes {
    /// Unique per source, and the same for every repetition: it is also the deduplication value.
    pub id: String,
    /// Who sends it.
    pub source: String,
    /// The session's subject.
    pub subject: String,
    /// RFC 3339.
    pub time: Option<String>,
    /// Routing, from the configuration.
    pub domain: Option<String>,
    /// The trace it belongs to.
    pub trace: TraceContext,
}

/// An event that the host sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OutgoingEvent(CloudEvent);

impl OutgoingEvent {
    /// An event of the host itself.
    pub fn of_host(event_type: HostEventType, attributes: EventAttributes, data: Value) -> Self {
        Self::new(event_type.as_str(), attributes, data)
    }

    /// A request to a service.
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

    /// Whether a stored event has a type of the host although a tool call asked for it: versions before the types were
    /// reserved stored such events. Nothing but a call's request has the id of a call.
    pub fn is_forged(&self) -> bool {
        is_reserved(&self.0.event_type) && self.0.id.starts_with("call_")
    }

    /// As it is written.
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

    /// I6: the attributes are the host's, and what is stored is read as it was.
    #[test]
    fn i6_an_outgoing_event_has_the_hosts_attributes() {
        let event_type = ServiceEventType::parse("com.example.work").expect("a type");
        let event = OutgoingEvent::to_service(&event_type, attributes("call_1_1_1"), json!({"subject": "else"}));
        let written = serde_json::to_value(&event).expect("it serialises");
        let expected = json!({
            "specversion": "1.0", "id": "call_1_1_1", "source": "agent-host/a", "type": "com.example.work", "subject": "a/1",
            "datacontenttype": "application/json", "domain": "eu", "deduplicationid": "call_1_1_1",
            "traceparent": "00-a-b-01", "data": {"subject": "else"},
        });
        assert_eq!(written, expected);
        assert_eq!(serde_json::from_value::<OutgoingEvent>(written).ok(), Some(event.clone()));
        assert!(!event.is_forged());
    }

    /// Row 51: what an earlier version let a plugin store is told from the host's own.
    #[test]
    fn row51_a_stored_event_with_a_type_of_the_host_and_the_id_of_a_call_is_forged() {
        let of_host = |id: &str| OutgoingEvent::of_host(HostEventType::ApprovalRequested, attributes(id), json!({}));
        assert!(!of_host("approval_7_0123456789ab").is_forged());
        assert!(!of_host("turn_1").is_forged());
        assert!(of_host("call_1_1_1_0123456789ab").is_forged());
    }
}
