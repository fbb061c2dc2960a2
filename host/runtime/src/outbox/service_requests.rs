//! Requests to services. Each request is sent as a CloudEvent, and the call that made the request waits for the answer
//! (L10, L15, I6).

use super::events::attributes;
use crate::agent::{ANY_TYPE, ServiceConfig};
use agent_core::event::WaitCause;
use agent_core::message::CallId;
use agent_core::outgoing_event::{EventAttributes, OutgoingEvent};
use agent_core::plugin::Scope;
use agent_core::run::Awaited;
use agent_core::tool::ServiceRequest;
use agent_store::digest_of;
use serde_json::json;
use std::time::Duration;

/// The conditions that the answer to a service request must satisfy.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServiceContract {
    /// A JSON object, as text: the keys are the event types of answers, and the values are the JSON Schemas of the
    /// answers' data. If `None`, every answer is accepted.
    emits: Option<String>,
    /// Time within which the answer must arrive. `None` means no limit.
    within: Option<Duration>,
}

impl ServiceContract {
    /// Returns the contract of a configured service. If the configuration of the service contains no schemas for
    /// answers, the schema in the request is used. If both the configuration and the request contain a time limit, the
    /// shorter limit is used.
    pub(crate) fn of_service(service: &ServiceConfig, request: Option<&ServiceRequest>) -> Self {
        let requested = request.map(Self::of_request).unwrap_or_default();
        let emits = (!service.emits.is_empty()).then(|| json!(service.emits).to_string()).or(requested.emits);
        let within = [service.answer_within, requested.within].into_iter().flatten().min();
        Self { emits, within }
    }

    /// Returns the contract that a plugin has specified in its request.
    pub(crate) fn of_request(request: &ServiceRequest) -> Self {
        let emits = request.answer_schema.as_ref().map(|schema| json!({ ANY_TYPE: schema }).to_string());
        Self { emits, within: request.answer_within.map(|within| Duration::from_millis(within.into())) }
    }
}

/// The data of a call that waits for an answer from a service.
#[derive(Debug)]
pub(crate) struct ForwardedCall {
    /// Describes the answer that the call waits for, and contains the outgoing event with the request.
    pub(crate) awaits: Awaited,
    /// JSON text of the schemas for the answer, which must be stored in the same commit as the call. `None` if every
    /// answer is accepted.
    pub(crate) contract: Option<String>,
}

/// Creates the outgoing event for a service request, and the description of the answer that the call waits for. The
/// type and the data of the event come from the request. The host sets all other attributes. `now` is the time in milliseconds
/// since 1970.
pub(crate) fn forward(
    scope: &Scope,
    call: &CallId,
    (request, domain): (ServiceRequest, Option<String>),
    ServiceContract { emits: contract, within }: ServiceContract,
    now: u64,
) -> ForwardedCall {
    let expires_at = within.map(|within| now.saturating_add(u64::try_from(within.as_millis()).unwrap_or(u64::MAX)));
    let emits = contract.as_ref().map(|contract| digest_of(contract.as_bytes()));
    let cause = WaitCause::Service { event_type: request.event_type.to_string(), expires_at, emits };
    let attributes = EventAttributes { domain, ..attributes(scope, call.0.clone()) };
    let event = OutgoingEvent::to_service(&request.event_type, attributes, request.data);
    ForwardedCall { awaits: Awaited { cause, event: Some(event) }, contract }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::plugin::TraceContext;
    use jiff::Timestamp;
    use std::collections::BTreeMap;

    fn scope() -> Scope {
        Scope {
            agent: "büro.1".into(),
            session: "büro.1/0193".into(),
            delegated_by: None,
            user: None,
            turn: 1,
            trace: TraceContext { traceparent: "00-a-b-01".into(), tracestate: Some("v=1".into()) },
        }
    }

    /// I6, P2: the CloudEvent that is sent for a service request has exactly the expected attributes.
    #[test]
    fn i6_a_request_is_a_cloud_event_with_the_calls_id() {
        let config = ServiceConfig {
            domain: Some("eu".to_owned()),
            answer_within: Some(Duration::from_secs(5)),
            ..ServiceConfig::new("com.example.work".parse().unwrap())
        };
        let request = ServiceRequest { answer_within: Some(60_000), ..config.request(json!({"n": 1})) };
        let contract = ServiceContract::of_service(&config, Some(&request));
        let forwarded =
            forward(&scope(), &CallId("call_1_1_1".into()), (request, config.domain.clone()), contract, 70_000);
        let mut event = serde_json::to_value(forwarded.awaits.event.unwrap()).unwrap();
        let time = event.as_object_mut().unwrap().remove("time").unwrap();
        assert!(time.as_str().unwrap().parse::<Timestamp>().is_ok(), "{time}");
        let expected = json!({
            "specversion": "1.0", "id": "call_1_1_1", "source": "agent-host/b%C3%BCro.1", "type": "com.example.work",
            "subject": "büro.1/0193", "datacontenttype": "application/json", "domain": "eu",
            "deduplicationid": "call_1_1_1", "traceparent": "00-a-b-01", "tracestate": "v=1", "data": {"n": 1},
        });
        assert_eq!(event, expected);
        let WaitCause::Service { expires_at, emits: None, .. } = forwarded.awaits.cause else { panic!() };
        assert_eq!(expires_at, Some(75_000), "the shorter of the two time limits is used");
    }

    /// P2: if both the service's configuration and the plugin's request contain schemas for answers, the schemas in
    /// the configuration apply.
    #[test]
    fn p2_the_service_configuration_takes_precedence_over_the_request() {
        let mut config = ServiceConfig::new("com.example.work".parse().unwrap());
        let schema = json!({"type": "object"});
        let request = ServiceRequest { answer_schema: Some(schema.clone()), ..config.request(json!({})) };
        let requested = ServiceContract::of_request(&request);
        assert_eq!(requested.emits.as_deref(), Some(r#"{"*":{"type":"object"}}"#));
        assert_eq!(ServiceContract::of_service(&config, Some(&request)).emits, requested.emits);
        config.emits = BTreeMap::from([("done".to_owned(), schema)]);
        let contract = ServiceContract::of_service(&config, Some(&request));
        assert_eq!(contract.emits.as_deref(), Some(r#"{"done":{"type":"object"}}"#));
        let forwarded = forward(&scope(), &CallId("call_1_1_1".into()), (request, None), contract, 0);
        let WaitCause::Service { emits, .. } = forwarded.awaits.cause else { panic!() };
        assert_eq!(emits, forwarded.contract.map(|contract| digest_of(contract.as_bytes())));
    }
}
