//! Services: work outside the host that the model asks for like any tool, and that goes out as a CloudEvent (L10, L15, I6).

use crate::session::Session;
use agent_core::change::CallRecord;
use agent_core::cloud_event::{CloudEvent, SPEC_VERSION};
use agent_core::event::WaitCause;
use agent_core::message::CallId;
use agent_core::plugin::Scope;
use agent_core::run::Awaited;
use agent_core::schema::{Schema, SchemaError};
use agent_core::tool::{ServiceRequest, ToolDefinition, ToolError, ToolSource, Traits};
use agent_memory::digest_of;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// The field of a request's data that the host fills in: the subject of the session that asks (L15).
pub const RESERVED_FIELD: &str = "parentSubject$$";
/// In [`ServiceConfig::emits`], stands for every type that is not named.
pub const ANY_TYPE: &str = "*";
/// Characters of an event's type and domain.
const MAX_ATTRIBUTE: usize = 1024;

/// A service as the agent's configuration describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceConfig {
    /// CloudEvent type of its requests.
    pub event_type: String,
    /// For the model.
    pub description: String,
    /// JSON Schema of a request's data; an object. Default: any object.
    pub accepts: Value,
    /// JSON Schemas of answers' data, by the answer's type or [`ANY_TYPE`]. Default: empty, any answer is taken.
    pub emits: BTreeMap<String, Value>,
    /// Routing attribute of its requests.
    pub domain: Option<String>,
    /// After that the host answers `unavailable` itself. Default: it waits for ever.
    pub answer_within: Option<Duration>,
    /// Of one reply's calls only those with the highest priority run (L6). Default: 0.
    pub priority: i32,
}

impl ServiceConfig {
    /// A service that takes anything and answers anything.
    pub fn new(event_type: impl Into<String>) -> Self {
        let event_type = event_type.into();
        Self {
            description: format!("Asks the service {event_type} and waits for its answer."),
            event_type,
            accepts: json!({"type": "object"}),
            emits: BTreeMap::new(),
            domain: None,
            answer_within: None,
            priority: 0,
        }
    }

    /// As a tool. The registry takes the reserved field out of the schema.
    pub(crate) fn definition(&self, name: &str) -> ToolDefinition {
        let mut input_schema = self.accepts.clone();
        if let Value::Object(schema) = &mut input_schema {
            schema.entry("type").or_insert_with(|| json!("object"));
        }
        ToolDefinition {
            name: name.to_owned(),
            title: None,
            description: self.description.clone(),
            input_schema,
            output_schema: None,
            // The event's deduplication value makes a second request harmless.
            traits: Traits { idempotent: true, open_world: true, ..Traits::default() },
            priority: self.priority,
        }
    }

    pub(crate) fn source(&self) -> ToolSource {
        ToolSource::Service { event_type: self.event_type.clone() }
    }

    /// Whether each schema of its answers can be used; the error names the answer's type.
    pub(crate) fn check(&self) -> Result<(), (String, SchemaError)> {
        self.emits.iter().try_for_each(|(event_type, schema)| {
            Schema::compile(schema).map(|_| ()).map_err(|error| (event_type.clone(), error))
        })
    }

    fn request(&self, data: Value) -> ServiceRequest {
        ServiceRequest {
            event_type: self.event_type.clone(),
            data,
            domain: self.domain.clone(),
            answer_schema: None,
            answer_within: None,
        }
    }
}

/// A call that is handed on.
#[derive(Debug)]
pub(crate) struct HandedOn {
    /// What it waits for.
    pub(crate) awaits: Awaited,
    /// What the answer must be, to be stored with the commit.
    pub(crate) contract: Option<String>,
    /// What a plugin has asked for.
    pub(crate) request: Option<ServiceRequest>,
}

impl Session {
    /// What a call waits for that somebody outside does; none where the host runs it.
    pub(crate) fn handed_on(&self, record: &CallRecord) -> Option<HandedOn> {
        if let Some(awaits) = self.awaits_agent(record).or_else(|| self.awaited_answer(record)) {
            return Some(HandedOn { awaits, contract: None, request: None });
        }
        let tool = self.shared.agent.registry().get(&record.name)?;
        let service = match &tool.source {
            ToolSource::Service { .. } => self.shared.agent.config().services.get(&record.name)?,
            _ => return None,
        };
        let data = tool.outgoing(record.effective_arguments(), &self.run.session).into_owned();
        let contract = (!service.emits.is_empty()).then(|| json!(service.emits).to_string());
        Some(hand_on(&self.scope(), &record.id, service.request(data), (contract, service.answer_within)))
    }
}

/// What a tool's own request is handed on as (P2). A request that cannot go out is the tool's failure.
pub(crate) fn pending(scope: &Scope, call: &CallId, request: ServiceRequest) -> Result<HandedOn, ToolError> {
    let refused = |what: &str, problem: String| ToolError::Failed {
        message: format!("the tool asks for a service, and {what} cannot be used: {problem}"),
    };
    for (what, text) in [("the event's type", Some(&request.event_type)), ("its domain", request.domain.as_ref())] {
        if text.is_some_and(|text| !is_attribute(text)) {
            return Err(refused(what, format!("it must be 1 to {MAX_ATTRIBUTE} characters in one line")));
        }
    }
    if let Some(schema) = &request.answer_schema {
        Schema::compile(schema).map_err(|error| refused("the schema of its answer", error.to_string()))?;
    }
    let contract = request.answer_schema.as_ref().map(|schema| json!({ ANY_TYPE: schema }).to_string());
    let within = request.answer_within.map(|within| Duration::from_millis(within.into()));
    let asked = Some(request.clone());
    Ok(HandedOn { request: asked, ..hand_on(scope, call, request, (contract, within)) })
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default()
}

/// A text that an attribute of an event may be.
fn is_attribute(text: &str) -> bool {
    !text.trim().is_empty() && text.chars().count() <= MAX_ATTRIBUTE && !text.contains(char::is_control)
}

fn hand_on(
    scope: &Scope,
    call: &CallId,
    request: ServiceRequest,
    (contract, within): (Option<String>, Option<Duration>),
) -> HandedOn {
    let expires_at =
        within.map(|within| now_ms().saturating_add(u64::try_from(within.as_millis()).unwrap_or(u64::MAX)));
    let emits = contract.as_ref().map(|contract| digest_of(contract.as_bytes()));
    let cause = WaitCause::Service { event_type: request.event_type.clone(), expires_at, emits };
    let event = CloudEvent {
        domain: request.domain,
        deduplicationid: Some(call.0.clone()),
        ..event(scope, (call.0.clone(), request.event_type), request.data)
    };
    HandedOn { awaits: Awaited { cause, event: Some(event) }, contract, request: None }
}

/// An event of the session, with all that its kind does not decide.
pub(crate) fn event(scope: &Scope, (id, event_type): (String, String), data: Value) -> CloudEvent {
    CloudEvent {
        specversion: SPEC_VERSION.to_owned(),
        id,
        source: source(&scope.agent),
        event_type,
        subject: Some(scope.session.clone()),
        time: Some(Timestamp::now().to_string()),
        datacontenttype: Some("application/json".to_owned()),
        parentid: None,
        domain: None,
        deduplicationid: None,
        traceparent: Some(scope.trace.traceparent.clone()),
        tracestate: scope.trace.tracestate.clone(),
        data: Some(data),
    }
}

/// A URI reference: what is not of its alphabet stands there as its bytes in hexadecimal.
fn source(agent: &str) -> String {
    let bytes = agent.bytes().map(|byte| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    });
    format!("agent-host/{}", bytes.collect::<String>())
}

/// Whether the host fills in a field of the tool's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserved {
    /// Its schema has none.
    Nothing,
    /// [`RESERVED_FIELD`].
    Subject,
}

/// Takes the reserved field out of a schema that the model sees (L15): also out of the parts that it is put together from.
pub(crate) fn without_reserved(schema: &mut Value) -> Reserved {
    let Some(object) = schema.as_object_mut() else { return Reserved::Nothing };
    let properties = object.get_mut("properties").and_then(Value::as_object_mut);
    let mut is_there = properties.is_some_and(|properties| properties.remove(RESERVED_FIELD).is_some());
    if let Some(required) = object.get_mut("required").and_then(Value::as_array_mut) {
        let before = required.len();
        required.retain(|name| name != RESERVED_FIELD);
        is_there |= required.len() < before;
    }
    for (keyword, part) in object.iter_mut() {
        let parts: Vec<&mut Value> = match (keyword.as_str(), part) {
            ("allOf" | "anyOf" | "oneOf", Value::Array(parts)) => parts.iter_mut().collect(),
            ("$defs" | "definitions" | "dependentSchemas", Value::Object(parts)) => parts.values_mut().collect(),
            ("if" | "then" | "else", part) => vec![part],
            _ => continue,
        };
        for part in parts {
            is_there |= without_reserved(part) == Reserved::Subject;
        }
    }
    if is_there { Reserved::Subject } else { Reserved::Nothing }
}

/// The arguments without what the model must not say (L15).
pub(crate) fn without_reserved_value(mut arguments: Value) -> Value {
    if let Value::Object(fields) = &mut arguments {
        fields.remove(RESERVED_FIELD);
    }
    arguments
}

/// The arguments as they go out: with the session's subject where the tool wants it (L15).
pub(crate) fn with_reserved(arguments: &Value, subject: &str) -> Value {
    let mut fields = arguments.as_object().cloned().unwrap_or_default();
    fields.insert(RESERVED_FIELD.to_owned(), json!(subject));
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::plugin::TraceContext;

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

    fn asked(request: ServiceRequest) -> Result<HandedOn, ToolError> {
        pending(&scope(), &CallId("call_1_1_1".into()), request)
    }

    fn request() -> ServiceRequest {
        let (event_type, data) = ("com.example.work".into(), json!({"n": 1}));
        ServiceRequest { event_type, data, domain: None, answer_schema: None, answer_within: None }
    }

    /// I6, P2: each attribute of a request.
    #[test]
    fn i6_a_request_is_a_cloud_event_under_the_calls_id() {
        let domain = Some("eu".to_owned());
        let handed_on = asked(ServiceRequest { domain, answer_within: Some(5_000), ..request() }).unwrap();
        let mut event = serde_json::to_value(handed_on.awaits.event.unwrap()).unwrap();
        let time = event.as_object_mut().unwrap().remove("time").unwrap();
        assert!(time.as_str().unwrap().parse::<Timestamp>().is_ok(), "{time}");
        let expected = json!({
            "specversion": "1.0", "id": "call_1_1_1", "source": "agent-host/b%C3%BCro.1", "type": "com.example.work",
            "subject": "büro.1/0193", "datacontenttype": "application/json", "domain": "eu",
            "deduplicationid": "call_1_1_1", "traceparent": "00-a-b-01", "tracestate": "v=1", "data": {"n": 1},
        });
        assert_eq!(event, expected);
        let WaitCause::Service { expires_at: Some(expires_at), emits: None, .. } = handed_on.awaits.cause else {
            panic!()
        };
        assert!(expires_at > now_ms() && expires_at <= now_ms() + 5_000);
    }

    /// P2
    #[test]
    fn p2_a_request_that_cannot_go_out_is_the_tools_failure() {
        let schema = Some(json!({"$ref": "http://example.org/a.json"}));
        for wrong in [
            ServiceRequest { event_type: " ".into(), ..request() },
            ServiceRequest { event_type: "a\nb".into(), ..request() },
            ServiceRequest { domain: Some(String::new()), ..request() },
            ServiceRequest { answer_schema: schema, ..request() },
        ] {
            assert!(matches!(asked(wrong.clone()), Err(ToolError::Failed { .. })), "{wrong:?}");
        }
        let handed_on = asked(ServiceRequest { answer_schema: Some(json!({"type": "object"})), ..request() }).unwrap();
        assert_eq!(handed_on.contract.as_deref(), Some(r#"{"*":{"type":"object"}}"#));
        let WaitCause::Service { emits, .. } = handed_on.awaits.cause else { panic!() };
        assert_eq!(emits, handed_on.contract.map(|contract| digest_of(contract.as_bytes())));
    }

    /// L15
    #[test]
    fn l15_the_reserved_field_is_taken_out_and_put_back() {
        let mut schema = json!({"type": "object", "required": ["n", "parentSubject$$"],
            "properties": {"n": {"type": "integer"}, "parentSubject$$": {"type": "string"}}});
        assert_eq!(without_reserved(&mut schema), Reserved::Subject);
        assert_eq!(schema, json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}));
        assert_eq!(without_reserved(&mut schema), Reserved::Nothing);
        let mut composed = json!({"$ref": "#/$defs/r", "$defs": {"r": {"allOf": [
            {"properties": {"parentSubject$$": {"type": "string"}}}, {"required": ["parentSubject$$", "n"]}]}}});
        assert_eq!(without_reserved(&mut composed), Reserved::Subject);
        assert!(!composed.to_string().contains("parentSubject"), "{composed}");
        let from_the_model = without_reserved_value(json!({"n": 1, "parentSubject$$": "somebody else"}));
        assert_eq!(with_reserved(&from_the_model, "agent/1"), json!({"n": 1, "parentSubject$$": "agent/1"}));
    }
}
