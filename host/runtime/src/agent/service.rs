//! The configuration of a service that an agent's model calls like a tool (L10, L15).

use agent_core::event_type::ServiceEventType;
use agent_core::schema::{Schema, SchemaError};
use agent_core::tool::{ServiceRequest, ToolDefinition, ToolSource, Traits};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Key in [`ServiceConfig::emits`] that matches every event type without a key.
pub const ANY_TYPE: &str = "*";
/// The configuration of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceConfig {
    /// CloudEvent type of the requests to the service.
    pub event_type: ServiceEventType,
    /// Description of the tool for the model.
    pub description: String,
    /// JSON Schema of a request's data, which must be an object. Default: any object.
    pub accepts: Value,
    /// JSON Schemas of the data in answers, by the answer's event type or [`ANY_TYPE`]. Default: empty, so any answer
    /// is accepted.
    pub emits: BTreeMap<String, Value>,
    /// Value of the routing attribute `domain` in the requests. Default: none.
    pub domain: Option<String>,
    /// Time after which the host itself answers with the error `unavailable`. Default: it waits for ever.
    pub answer_within: Option<Duration>,
    /// Priority of the tool: only the calls with the highest priority in a reply run (L6). Default: 0.
    pub priority: i32,
}

impl ServiceConfig {
    /// A service that accepts any object as request data and may answer anything.
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

    /// The definition of the service as a tool. The registry removes the reserved field from the schema.
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
            // The deduplication id of the event makes a repeated request harmless.
            traits: Traits { idempotent: true, open_world: true, ..Traits::default() },
            priority: self.priority,
        }
    }

    pub(crate) fn source(&self) -> ToolSource {
        ToolSource::Service { event_type: self.event_type.to_string() }
    }

    /// Checks that the schemas of all answers can be used. The error names the answer's event type.
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
