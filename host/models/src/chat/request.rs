//! Encodes one request to a model as the JSON body of the Chat Completions API. The same request always produces the
//! same bytes.

use super::dialect::{Dialect, SchemaField};
use super::messages::Messages;
use super::request_body::{self, Body, BodyTooLarge};
use crate::error::ModelError;
use crate::provider::MediaSource;
use agent_core::message::Role;
use agent_core::model::{ModelRequest, OfferedTool};
use serde_json::{Map, Value, json};

/// Name of the output schema in requests. The API requires a name, but neither the host nor the servers use this name.
const SCHEMA_NAME: &str = "output";

/// Encodes a request to a model. Media items are read one at a time, so that at most one media item is in memory in
/// addition to the encoded request.
pub(super) async fn encode(
    request: &ModelRequest,
    dialect: Dialect,
    media: &dyn MediaSource,
) -> Result<Vec<u8>, ModelError> {
    let too_large =
        |BodyTooLarge { limit, largest }| ModelError::TooLarge { model: request.model.to_string(), limit, largest };
    let body = Body::new(&fields(request, dialect), request_body::MAX_BYTES).map_err(too_large)?;
    let mut messages = Messages::new(request, dialect, media, body);
    messages.system(&system_text(request, dialect))?;
    for message in request.messages.iter().skip(count_leading_system_messages(request)) {
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
    fields.insert(dialect.max_tokens_field().into(), json!(request.max_tokens));
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

/// Returns the text of the system message with which the request begins. The system message contains the sections of
/// the request, the leading system messages of the conversation, and the output schema if the server does not accept it
/// in a field.
fn system_text(request: &ModelRequest, dialect: Dialect) -> String {
    let mut sections = request.system.clone();
    sections.extend(
        request.messages[..count_leading_system_messages(request)]
            .iter()
            .map(|message| super::messages::text(&message.parts)),
    );
    if let Some(schema) = &request.output_schema
        && dialect.schema_field(request) != SchemaField::JsonSchema
    {
        sections.push(format!(
            "Your final answer is one JSON document and nothing else. It follows this JSON Schema:\n\n{schema}"
        ));
    }
    sections.retain(|section| !section.is_empty());
    sections.join("\n\n")
}

fn count_leading_system_messages(request: &ModelRequest) -> usize {
    request.messages.iter().take_while(|message| message.role == Role::System).count()
}
