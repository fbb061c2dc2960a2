//! Encodes one request to a model as the JSON body of the Chat Completions API. The same request always produces the
//! same bytes.

mod dialect;
mod media;
mod messages;
mod replay;

use super::writer::{RequestWriter, SCHEMA_NAME, leading_system_messages, system_text};
use super::{Encoded, Format};
use crate::error::ModelError;
use crate::provider::MediaSource;
use dialect::SchemaField;
use messages::Messages;

pub(crate) use dialect::{Dialect, is_loopback};

use agent_core::model::{ModelRequest, OfferedTool};
use serde_json::{Map, Value, json};

/// Encodes a request to a model.
pub(super) async fn encode(
    request: &ModelRequest,
    format: Format,
    media: &dyn MediaSource,
) -> Result<Encoded, ModelError> {
    let dialect = format.dialect;
    let writer = RequestWriter::new(request, &fields(request, format), "messages", media)?;
    let mut messages = Messages::new(writer, format);
    messages.system(&system_text(request, dialect.schema_field(request) == SchemaField::JsonSchema))?;
    for message in request.messages.iter().skip(leading_system_messages(request)) {
        messages.write(message).await?;
    }
    messages.finish().await
}

fn fields(request: &ModelRequest, format: Format) -> Map<String, Value> {
    let dialect = format.dialect;
    let mut fields = Map::new();
    fields.insert("model".into(), json!(request.model.name));
    fields.insert("stream".into(), json!(true));
    if dialect.asks_for_usage() {
        fields.insert("stream_options".into(), json!({ "include_usage": true }));
    }
    fields.insert(dialect.max_tokens_field().into(), json!(request.max_tokens));
    if let Some(effort) = format.effort {
        fields.insert("reasoning_effort".into(), json!(effort.name()));
    }
    if !request.tools.is_empty() {
        fields.insert("tools".into(), request.tools.iter().map(function).collect());
    }
    if let Some(schema) = &request.output_schema {
        let format = match dialect.schema_field(request) {
            SchemaField::JsonSchema => {
                let schema = json!({ "name": SCHEMA_NAME, "strict": false, "schema": schema });
                Some(json!({ "type": "json_schema", "json_schema": schema }))
            }
            SchemaField::JsonObject => Some(json!({ "type": "json_object" })),
            SchemaField::SystemMessage => None,
        };
        fields.extend(format.map(|format| ("response_format".to_owned(), format)));
    }
    fields
}

fn function(tool: &OfferedTool) -> Value {
    let OfferedTool { name, description, input_schema, .. } = tool;
    json!({ "type": "function", "function": { "name": name, "description": description, "parameters": input_schema } })
}

#[cfg(test)]
mod tests;
