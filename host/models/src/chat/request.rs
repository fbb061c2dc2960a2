//! One request in the words of Chat Completions. The same request always becomes the same bytes.

use super::body::{self, Body, Full};
use super::dialect::{Dialect, SchemaField};
use super::messages::Messages;
use crate::error::ModelError;
use crate::provider::MediaSource;
use agent_core::message::Role;
use agent_core::model::{ModelRequest, OfferedTool};
use serde_json::{Map, Value, json};

/// The name of the output's schema, which the API wants and nobody reads.
const SCHEMA_NAME: &str = "output";

/// The bytes of a request. Media are read one after another.
pub(super) async fn bytes(
    request: &ModelRequest,
    dialect: Dialect,
    media: &dyn MediaSource,
) -> Result<Vec<u8>, ModelError> {
    let too_large = |Full { limit, largest }| ModelError::TooLarge { model: request.model.to_string(), limit, largest };
    let body = Body::new(&fields(request, dialect), body::LIMIT).map_err(too_large)?;
    let mut messages = Messages::new(request, dialect, media, body);
    messages.system(&system_text(request, dialect))?;
    for message in request.messages.iter().skip(leading_system(request)) {
        messages.write(message).await?;
    }
    messages.finish().await
}

fn fields(request: &ModelRequest, dialect: Dialect) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("model".into(), json!(request.model.name));
    fields.insert("stream".into(), json!(true));
    if dialect.asks_for_usage() {
        fields.insert("stream_options".into(), json!({ "include_usage": true }));
    }
    fields.insert(dialect.bound().into(), json!(request.max_tokens));
    if !request.tools.is_empty() {
        fields.insert("tools".into(), request.tools.iter().map(function).collect());
    }
    if let Some(schema) = &request.output_schema {
        let format = match dialect.schema_field(request) {
            SchemaField::Schema => {
                let schema = json!({ "name": SCHEMA_NAME, "strict": false, "schema": schema });
                Some(json!({ "type": "json_schema", "json_schema": schema }))
            }
            SchemaField::Object => Some(json!({ "type": "json_object" })),
            SchemaField::Nowhere => None,
        };
        fields.extend(format.map(|format| ("response_format".to_owned(), format)));
    }
    fields
}

fn function(tool: &OfferedTool) -> Value {
    let OfferedTool { name, description, input_schema, .. } = tool;
    json!({ "type": "function", "function": { "name": name, "description": description, "parameters": input_schema } })
}

/// The sections, the system messages at the conversation's very beginning, and where the server has no field for it, the
/// output schema.
fn system_text(request: &ModelRequest, dialect: Dialect) -> String {
    let mut sections = request.system.clone();
    sections.extend(
        request.messages[..leading_system(request)].iter().map(|message| super::messages::text(&message.parts)),
    );
    if let Some(schema) = &request.output_schema
        && dialect.schema_field(request) != SchemaField::Schema
    {
        sections.push(format!(
            "Your final answer is one JSON document and nothing else. It follows this JSON Schema:\n\n{schema}"
        ));
    }
    sections.retain(|section| !section.is_empty());
    sections.join("\n\n")
}

fn leading_system(request: &ModelRequest) -> usize {
    request.messages.iter().take_while(|message| message.role == Role::System).count()
}
