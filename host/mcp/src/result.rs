//! Converts the results of MCP tools to the kinds of content that the host supports (P2).

use crate::configuration::{McpLimits, ServerConfig};
use crate::error::printable;
use agent_core::tool::{ToolError, Violation};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{CallToolResult, ContentBlock, ErrorCode, ErrorData, ResourceContents};
use serde_json::Value;

/// Maximum number of characters of a protocol error that the model receives.
const MAX_ERROR_CHARACTERS: usize = 4_000;

/// Maximum size of a tool's error message, in bytes. The same limit applies to the error messages of plugin tools.
const MAX_ERROR_BYTES: usize = 4 << 10;

/// The result of a successful tool call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct McpToolResult {
    /// Content for the model, in order.
    pub content: Vec<McpContent>,
    /// Structured result as JSON, or `None` if the tool returned no structured result.
    pub structured: Option<Value>,
}

/// One item in the content of a tool result.
#[derive(Clone, Debug, PartialEq)]
pub enum McpContent {
    /// A text. If this text comes from an embedded resource, its first line is the URI of the resource in brackets.
    Text(String),
    /// A resource link, as JSON in the format of the protocol.
    Json(Value),
    /// An image, an audio recording, or the bytes of an embedded resource, before the host stores the bytes in the
    /// blob store.
    Media {
        /// The decoded bytes; the server sent them as base64.
        bytes: Vec<u8>,
        /// Media type that the server declared.
        mime_type: String,
        /// File name for display, taken from the URI of an embedded resource. Images and audio recordings have no
        /// file name.
        name: Option<String>,
    },
}

impl McpToolResult {
    /// Converts a result that the server sent, and applies the configured limits. If the server marked the result as an
    /// error, returns a tool error.
    pub(crate) fn read(result: CallToolResult, config: &ServerConfig) -> Result<Self, ToolError> {
        let limits = &config.limits;
        let failed = |reason: String| ToolError::Failed { message: format!("MCP server {}: {reason}", config.name) };
        let mut reader = ResultReader { limits, text_size: 0, media_size: 0, content: Vec::new() };
        for block in result.content {
            reader.add(block).map_err(failed)?;
        }
        if result.is_error == Some(true) {
            return Err(ToolError::Failed { message: truncate_error(reader.message(result.structured_content)) });
        }
        let structured = result.structured_content.filter(|json| !json.is_null());
        if structured.as_ref().is_some_and(|json| json.to_string().len() > limits.text_bytes) {
            return Err(failed(format!("its structured result has more than {} bytes", limits.text_bytes)));
        }
        Ok(Self { content: reader.content, structured })
    }
}

/// Truncates an error message to its maximum size.
fn truncate_error(mut message: String) -> String {
    if message.len() > MAX_ERROR_BYTES {
        message.truncate(message.floor_char_boundary(MAX_ERROR_BYTES));
        message.push('…');
    }
    message
}

/// Converts a protocol error to a tool error for the model.
pub(crate) fn protocol_error(server: &str, error: &ErrorData) -> ToolError {
    let message = format!("MCP server {server}: {}", printable(&error.message, MAX_ERROR_CHARACTERS));
    match error.code {
        ErrorCode::INVALID_PARAMS => {
            ToolError::InvalidArguments { violations: vec![Violation { pointer: String::new(), rule: None, message }] }
        }
        ErrorCode::METHOD_NOT_FOUND | ErrorCode::RESOURCE_NOT_FOUND => ToolError::NotFound { message },
        _ => ToolError::Failed { message },
    }
}

struct ResultReader<'l> {
    limits: &'l McpLimits,
    /// Size of the texts and links that were added so far, in bytes.
    text_size: usize,
    /// Size of the media that were added so far, in bytes.
    media_size: usize,
    content: Vec<McpContent>,
}

impl ResultReader<'_> {
    fn add(&mut self, block: ContentBlock) -> Result<(), String> {
        match block {
            ContentBlock::Text(text) => self.add_text(text.text),
            ContentBlock::Image(image) => self.add_media(&image.data, image.mime_type, None)?,
            ContentBlock::Audio(audio) => self.add_media(&audio.data, audio.mime_type, None)?,
            ContentBlock::ResourceLink(_) => {
                let link = serde_json::to_value(&block).map_err(|error| error.to_string())?;
                let bytes = link.to_string().len();
                if self.text_size + bytes > self.limits.text_bytes {
                    return Err(format!("its links and text have more than {} bytes", self.limits.text_bytes));
                }
                self.text_size += bytes;
                self.content.push(McpContent::Json(link));
            }
            ContentBlock::Resource(embedded) => match embedded.resource {
                ResourceContents::TextResourceContents { uri, text, .. } => {
                    self.add_text(format!("[{uri}]\n{text}"));
                }
                ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                    let name = uri.rsplit('/').find(|part| !part.is_empty()).map(str::to_owned);
                    let mime_type = mime_type.unwrap_or_else(|| "application/octet-stream".to_owned());
                    self.add_media(&blob, mime_type, name)?;
                }
                _ => return Err("it sent an unknown kind of resource".to_owned()),
            },
            _ => return Err("it sent an unknown kind of content".to_owned()),
        }
        Ok(())
    }

    /// Adds text to the content. A text that exceeds the limit is truncated and ends with a note that says so. All
    /// later texts are left out.
    fn add_text(&mut self, mut text: String) {
        let remaining = self.limits.text_bytes.saturating_sub(self.text_size);
        if remaining == 0 {
            return;
        }
        self.text_size += text.len();
        if text.len() > remaining {
            text.truncate(text.floor_char_boundary(remaining));
            text.push_str(&format!("\n[truncated: the result has more than {} bytes of text]", self.limits.text_bytes));
        }
        self.content.push(McpContent::Text(text));
    }

    fn add_media(&mut self, base64: &str, mime_type: String, name: Option<String>) -> Result<(), String> {
        // Check the size before the base64 text is decoded. Four base64 characters encode three bytes.
        self.media_size += base64.len() / 4 * 3;
        if self.media_size > self.limits.media_bytes {
            return Err(format!("its media have more than {} bytes", self.limits.media_bytes));
        }
        let bytes =
            STANDARD.decode(base64).map_err(|error| format!("media in its result is not valid base64: {error}"))?;
        self.content.push(McpContent::Media { bytes, mime_type, name });
        Ok(())
    }

    /// Returns the message of a result that the server marked as an error. The message is all text in the result or, if
    /// the result contains no text, the structured result.
    fn message(self, structured: Option<Value>) -> String {
        let texts: Vec<String> = self
            .content
            .into_iter()
            .filter_map(|content| match content {
                McpContent::Text(text) => Some(text),
                McpContent::Json(json) => Some(json.to_string()),
                McpContent::Media { .. } => None,
            })
            .collect();
        match (texts.is_empty(), structured) {
            (false, _) => texts.join("\n"),
            (true, Some(json)) => {
                let text = json.to_string();
                text[..text.floor_char_boundary(self.limits.text_bytes.min(text.len()))].to_owned()
            }
            (true, None) => "the tool failed without a message".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::{ChildCommand, Transport};
    use serde_json::json;

    fn read(result: Value) -> Result<McpToolResult, ToolError> {
        let mut config = ServerConfig::new("desk", Transport::Stdio(ChildCommand::default()));
        (config.limits.text_bytes, config.limits.media_bytes) = (100, 10);
        McpToolResult::read(serde_json::from_value(result).unwrap(), &config)
    }

    #[test]
    fn i5_every_kind_of_content_is_converted() {
        let result = read(json!({"content": [
            {"type": "text", "text": "hello"},
            {"type": "image", "data": "AAEC", "mimeType": "image/png"},
            {"type": "audio", "data": "AwQ=", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "words"}},
            {"type": "resource", "resource": {"uri": "file:///b/c.bin", "blob": "BQ=="}},
        ], "structuredContent": {"n": 1}}))
        .unwrap();
        let media = |bytes: &[u8], mime_type: &str, name: Option<&str>| McpContent::Media {
            bytes: bytes.to_vec(),
            mime_type: mime_type.to_owned(),
            name: name.map(str::to_owned),
        };
        let expected = vec![
            McpContent::Text("hello".to_owned()),
            media(&[0, 1, 2], "image/png", None),
            media(&[3, 4], "audio/wav", None),
            McpContent::Text("[file:///a.txt]\nwords".to_owned()),
            media(&[5], "application/octet-stream", Some("c.bin")),
        ];
        assert_eq!(result, McpToolResult { content: expected, structured: Some(json!({"n": 1})) });
        let link = json!({"type": "resource_link", "uri": "file:///a", "name": "a"});
        assert_eq!(read(json!({"content": [link]})).unwrap().content, [McpContent::Json(link)]);
    }

    #[test]
    fn i5_an_error_result_becomes_a_tool_error() {
        let message = |result: Value| match read(result).unwrap_err() {
            ToolError::Failed { message } => message,
            other => panic!("{other:?}"),
        };
        assert_eq!(message(json!({"content": [{"type": "text", "text": "no disk"}], "isError": true})), "no disk");
        assert_eq!(message(json!({"content": [], "structuredContent": {"a": 1}, "isError": true})), r#"{"a":1}"#);
        assert!(message(json!({"content": [], "isError": true})).contains("without a message"));
        let long = message(json!({"content": [{"type": "text", "text": "ä".repeat(40)}], "isError": true}));
        assert_eq!(long.chars().count(), 40, "{long}");
        let mut config = ServerConfig::new("desk", Transport::Stdio(ChildCommand::default()));
        config.limits.text_bytes = 1 << 20;
        let very_long = json!({"content": [{"type": "text", "text": "ä".repeat(100_000)}], "isError": true});
        let error = McpToolResult::read(serde_json::from_value(very_long).unwrap(), &config).unwrap_err();
        assert!(matches!(&error, ToolError::Failed { message } if message.len() <= (4 << 10) + '…'.len_utf8()));
    }

    #[test]
    fn i5_results_stay_within_the_limits() {
        let long = json!([{"type": "text", "text": "ä".repeat(80)}, {"type": "text", "text": "more"}]);
        let truncated = read(json!({"content": long})).unwrap();
        let [McpContent::Text(text)] = truncated.content.as_slice() else { panic!("{truncated:?}") };
        assert!(text.starts_with(&"ä".repeat(50)) && text.contains("[truncated"), "{text}");
        for (result, expected) in [
            (json!({"content": [{"type": "image", "data": "A".repeat(20), "mimeType": "image/png"}]}), "more than 10"),
            (json!({"content": [{"type": "image", "data": "?", "mimeType": "image/png"}]}), "base64"),
            (json!({"content": [], "structuredContent": "x".repeat(101)}), "structured"),
            (json!({"content": [{"type": "resource_link", "uri": "x".repeat(101), "name": "a"}]}), "links"),
        ] {
            let error = read(result).unwrap_err();
            assert!(error.for_model().contains(expected), "{error:?}");
        }
    }

    #[test]
    fn p2_protocol_errors_become_matching_tool_errors() {
        let error_of = |code| protocol_error("desk", &ErrorData::new(code, "no", None));
        assert!(matches!(error_of(ErrorCode::INVALID_PARAMS), ToolError::InvalidArguments { .. }));
        assert!(matches!(error_of(ErrorCode::METHOD_NOT_FOUND), ToolError::NotFound { .. }));
        assert!(matches!(error_of(ErrorCode::INTERNAL_ERROR), ToolError::Failed { .. }));
    }
}
