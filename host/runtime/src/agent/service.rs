//! The configuration of a service that an agent's model calls as a tool (L10, L15).

use agent_core::event_type::ServiceEventType;
use agent_core::schema::{Schema, SchemaError};
use agent_core::tool::{ServiceRequest, ToolDefinition, ToolSource, Traits};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Key in [`ServiceConfig::emits`]. The schema with this key applies to every event type that is not itself a key
/// of the map.
pub const ANY_TYPE: &str = "*";

/// The configuration of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceConfig {
    /// CloudEvent type of the requests to the service.
    pub event_type: ServiceEventType,
    /// Description of the tool for the model.
    pub description: String,
    /// JSON Schema of a request's data, which must be an object. The default is any object.
    pub accepts: Value,
    /// JSON Schemas for the data in answers. The key is the event type of the answer, or [`ANY_TYPE`]. The default is
    /// an empty map, so that every answer is accepted.
    pub emits: BTreeMap<String, Value>,
    /// Value of the routing attribute `domain` in the requests. By default, the requests do not have this attribute.
    pub domain: Option<String>,
    /// Time after which the host itself answers the request with the error `unavailable`. By default, there is
    /// no limit.
    pub answer_within: Option<Duration>,
    /// Priority of the tool: only the calls with the highest priority in a reply run (L6). The default is 0.
    pub priority: i32,
}

impl ServiceConfig {
    /// Creates a service that accepts any object as the data of a request and any data as the answer.
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

    /// Returns the tool definition of the service. The input schema in this definition may contain a field that is
    /// reserved for the host. The tool registry removes this field.
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
            // A request that is sent twice does no harm, because both events have the same deduplication id.
            traits: Traits { idempotent: true, open_world: true, ..Traits::default() },
            priority: self.priority,
        }
    }

    pub(crate) fn source(&self) -> ToolSource {
        ToolSource::Service { event_type: self.event_type.to_string() }
    }

    /// Checks that all JSON Schemas for answers are valid. The error contains the event type to which the
    /// invalid schema applies.
    pub(crate) fn check(&self) -> Result<(), (String, SchemaError)> {
        self.emits.iter().try_for_each(|(event_type, schema)| {
            Schema::compile(schema).map(|_| ()).map_err(|error| (event_type.clone(), error))
        })
    }

    pub(crate) fn request(&self, data: Value) -> ServiceRequest {
        ServiceRequest {
            event_type: self.event_type.clone(),
            data,
            domain: None,
            answer_schema: None,
            answer_within: None,
        }
    }
}
