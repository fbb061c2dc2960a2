//! Services: work outside the host that the model asks for like any tool, and that goes out as a CloudEvent (L10, L15, I6).

use crate::session::Session;
use agent_core::change::CallRecord;
use agent_core::event::WaitCause;
use agent_core::event_type::ServiceEventType;
use agent_core::message::CallId;
use agent_core::outgoing_event::{EventAttributes, OutgoingEvent};
use agent_core::plugin::Scope;
use agent_core::run::Awaited;
use agent_core::schema::{Schema, SchemaError};
use agent_core::tool::{ServiceRequest, ToolDefinition, ToolSource, Traits};
use agent_store::digest_of;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// The field of a request's data that the host fills in: the subject of the session that asks (L15).
pub const RESERVED_FIELD: &str = "parentSubject$$";
/// In [`ServiceConfig::emits`], stands for every type that is not named.
pub const ANY_TYPE: &str = "*";
/// What the names of all fields end with that the host fills in, and that nobody else may write.
const RESERVED_ENDING: &str = "$$";

/// A service as the agent's configuration describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceConfig {
    /// CloudEvent type of its requests.
    pub event_type: ServiceEventType,
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
    pub fn new(event_type: ServiceEventType) -> Self {
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
        ToolSource::Service { event_type: self.event_type.to_string() }
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
            domain: None,
            answer_schema: None,
            answer_within: None,
        }
    }
}

/// What was agreed about the answer to a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServiceContract {
    /// JSON text: the schemas of the answer's data by its type. None: any answer is taken.
    emits: Option<String>,
    /// None: it is waited for without end.
    within: Option<Duration>,
}

impl ServiceContract {
    /// As the service's configuration has it. Where that says nothing of answers, what the request says counts; of two
    /// times the shorter one.
    pub(crate) fn of_service(service: &ServiceConfig, request: Option<&ServiceRequest>) -> Self {
        let asked = request.map(Self::of_request).unwrap_or_default();
        let emits = (!service.emits.is_empty()).then(|| json!(service.emits).to_string()).or(asked.emits);
        let within = [service.answer_within, asked.within].into_iter().flatten().min();
        Self { emits, within }
    }

    /// As a plugin's request has it.
    pub(crate) fn of_request(request: &ServiceRequest) -> Self {
        let emits = request.answer_schema.as_ref().map(|schema| json!({ ANY_TYPE: schema }).to_string());
        Self { emits, within: request.answer_within.map(|within| Duration::from_millis(within.into())) }
    }
}

/// A call that is handed on.
#[derive(Debug)]
pub(crate) struct HandedOn {
    /// What it waits for.
    pub(crate) awaits: Awaited,
    /// What the answer must be, to be stored with the commit.
    pub(crate) contract: Option<String>,
}

impl Session {
    /// What a call waits for that somebody outside does; none where the host runs it.
    pub(crate) fn handed_on(&self, record: &CallRecord) -> Option<HandedOn> {
        if let Some(awaits) = self.awaits_agent(record).or_else(|| self.awaited_answer(record)) {
            return Some(HandedOn { awaits, contract: None });
        }
        let tool = self.shared.agent.registry().get(&record.name)?;
        let service = match &tool.source {
            ToolSource::Service { .. } => self.shared.agent.config().services.get(&record.name)?,
            _ => return None,
        };
        let data = tool.outgoing(record.effective_arguments(), &self.run.session).into_owned();
        let contract = ServiceContract::of_service(service, None);
        Some(hand_on(&self.scope(), &record.id, (service.request(data), service.domain.clone()), contract))
    }
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default()
}

/// What a request is handed on as. All attributes are the host's: only the type and the data are the request's.
pub(crate) fn hand_on(
    scope: &Scope,
    call: &CallId,
    (request, domain): (ServiceRequest, Option<String>),
    ServiceContract { emits: contract, within }: ServiceContract,
) -> HandedOn {
    let expires_at =
        within.map(|within| now_ms().saturating_add(u64::try_from(within.as_millis()).unwrap_or(u64::MAX)));
    let emits = contract.as_ref().map(|contract| digest_of(contract.as_bytes()));
    let cause = WaitCause::Service { event_type: request.event_type.to_string(), expires_at, emits };
    let attributes = EventAttributes { domain, ..attributes(scope, call.0.clone()) };
    let event = OutgoingEvent::to_service(&request.event_type, attributes, request.data);
    HandedOn { awaits: Awaited { cause, event: Some(event) }, contract }
}

/// What the host says of an event of the session.
pub(crate) fn attributes(scope: &Scope, id: String) -> EventAttributes {
    EventAttributes {
        id,
        source: source(&scope.agent),
        subject: scope.session.clone(),
        time: Some(Timestamp::now().to_string()),
        domain: None,
        trace: scope.trace.clone(),
    }
}

/// JSON pointer of a key in a plugin's data that only the host may write; none where there is no such key, however deep.
pub(crate) fn reserved_key(data: &Value) -> Option<String> {
    let below = |key: String, value: &Value| reserved_key(value).map(|rest| format!("/{key}{rest}"));
    match data {
        Value::Object(fields) => fields.iter().find_map(|(key, value)| {
            let shown = || key.chars().take(64).flat_map(char::escape_debug).collect::<String>();
            if is_reserved_key(key) { Some(format!("/{}", shown())) } else { below(shown(), value) }
        }),
        Value::Array(items) => items.iter().enumerate().find_map(|(place, item)| below(place.to_string(), item)),
        _ => None,
    }
}

/// Readers differ in what they trim and fold, so a key counts as reserved also with invisible characters at its end, and
/// with the wide forms of the dollar sign.
fn is_reserved_key(key: &str) -> bool {
    let plain = key.chars().map(|character| if matches!(character, '\u{ff04}' | '\u{fe69}') { '$' } else { character });
    let plain: String = plain.filter(|character| character.is_ascii_graphic() || character.is_alphanumeric()).collect();
    plain.ends_with(RESERVED_ENDING)
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

    /// I6, P2: each attribute of a request.
    #[test]
    fn i6_a_request_is_a_cloud_event_under_the_calls_id() {
        let config = ServiceConfig {
            domain: Some("eu".to_owned()),
            answer_within: Some(Duration::from_secs(5)),
            ..ServiceConfig::new("com.example.work".parse().unwrap())
        };
        let asked = ServiceRequest { answer_within: Some(60_000), ..config.request(json!({"n": 1})) };
        let contract = ServiceContract::of_service(&config, Some(&asked));
        let handed_on = hand_on(&scope(), &CallId("call_1_1_1".into()), (asked, config.domain.clone()), contract);
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
        assert!(expires_at > now_ms() && expires_at <= now_ms() + 5_000, "the shorter of two times counts");
    }

    /// P2: what the service's configuration says of answers goes before what a plugin says.
    #[test]
    fn p2_the_answers_contract_is_the_services_or_else_the_requests() {
        let mut config = ServiceConfig::new("com.example.work".parse().unwrap());
        let schema = json!({"type": "object"});
        let asked = ServiceRequest { answer_schema: Some(schema.clone()), ..config.request(json!({})) };
        let own = ServiceContract::of_request(&asked);
        assert_eq!(own.emits.as_deref(), Some(r#"{"*":{"type":"object"}}"#));
        assert_eq!(ServiceContract::of_service(&config, Some(&asked)).emits, own.emits);
        config.emits = BTreeMap::from([("done".to_owned(), schema)]);
        let contract = ServiceContract::of_service(&config, Some(&asked));
        assert_eq!(contract.emits.as_deref(), Some(r#"{"done":{"type":"object"}}"#));
        let handed_on = hand_on(&scope(), &CallId("call_1_1_1".into()), (asked, None), contract);
        let WaitCause::Service { emits, .. } = handed_on.awaits.cause else { panic!() };
        assert_eq!(emits, handed_on.contract.map(|contract| digest_of(contract.as_bytes())));
    }

    /// Row 51, L15: what the host fills in nobody else writes, at no depth and in no disguise.
    #[test]
    fn row51_reserved_keys_are_found_wherever_they_stand() {
        for (data, place) in [
            (json!({"parentSubject$$": "x"}), "/parentSubject$$"),
            (json!({"PARENTSUBJECT$$": "x"}), "/PARENTSUBJECT$$"),
            (json!({"parentSubject$$ ": "x"}), "/parentSubject$$ "),
            (json!({"parentSubject$$\u{200b}": "x"}), "/parentSubject$$\\u{200b}"),
            (json!({"parentSubject＄＄": "x"}), "/parentSubject＄＄"),
            (json!({"anything$$": null}), "/anything$$"),
            (json!({"a": [1, {"b": {"parentSubject$$": {}}}]}), "/a/1/b/parentSubject$$"),
            (json!([[{"parentSubject$$": 1}]]), "/0/0/parentSubject$$"),
        ] {
            assert_eq!(reserved_key(&data).as_deref(), Some(place), "{data}");
        }
        for honest in
            [json!({"price$": 1, "$ref": "x", "$$typeof": 1, "a": ["parentSubject$$"]}), json!(null), json!("a$$")]
        {
            assert_eq!(reserved_key(&honest), None, "{honest}");
        }
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
