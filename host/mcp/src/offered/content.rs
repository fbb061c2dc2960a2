//! Converts results of calls to the protocol's form.

use super::{CallOutput, OutputContent};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};

/// Converts a result. Structured data is also sent as text, unless the content contains this text already, because older
/// clients read only the content.
pub(super) fn result_of(output: CallOutput) -> CallToolResult {
    let CallOutput { content, structured, is_error } = output;
    let mut blocks: Vec<_> = content.into_iter().map(block_of).collect();
    if let Some(json) = &structured {
        let text = json.to_string();
        let is_repeated = |block: &ContentBlock| {
            block.as_text().is_some_and(|block| {
                block.text == text
                    || serde_json::from_str(&block.text).is_ok_and(|read: serde_json::Value| read == *json)
            })
        };
        if !blocks.iter().any(is_repeated) {
            blocks.push(ContentBlock::text(text));
        }
    }
    let mut result = if is_error { CallToolResult::error(blocks) } else { CallToolResult::success(blocks) };
    result.structured_content = structured;
    result
}

fn block_of(content: OutputContent) -> ContentBlock {
    match content {
        OutputContent::Text(text) => ContentBlock::text(text),
        OutputContent::Media { bytes, mime_type, uri } => {
            let data = STANDARD.encode(&bytes);
            match mime_type.split('/').next() {
                Some("image") => ContentBlock::image(data, mime_type),
                Some("audio") => ContentBlock::audio(data, mime_type),
                _ => ContentBlock::resource(ResourceContents::blob(data, uri).with_mime_type(mime_type)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// I4: every kind of content is converted, and structured data is sent once as text.
    #[test]
    fn i4_every_kind_of_content_is_converted() {
        let media = |mime_type: &str| OutputContent::Media {
            bytes: vec![1, 2, 3],
            mime_type: mime_type.to_owned(),
            uri: "agent-host:media/1".to_owned(),
        };
        let content = vec![
            OutputContent::Text("{\"n\": 1}".to_owned()),
            media("image/png"),
            media("audio/wav"),
            media("application/pdf"),
        ];
        let output = CallOutput { content, structured: Some(json!({"n": 1})), is_error: false };
        let written = serde_json::to_value(result_of(output)).unwrap();
        assert_eq!(
            written["content"],
            json!([
                {"type": "text", "text": "{\"n\": 1}"},
                {"type": "image", "data": "AQID", "mimeType": "image/png"},
                {"type": "audio", "data": "AQID", "mimeType": "audio/wav"},
                {"type": "resource", "resource":
                    {"uri": "agent-host:media/1", "mimeType": "application/pdf", "blob": "AQID"}},
            ])
        );
        assert_eq!((&written["structuredContent"], &written["isError"]), (&json!({"n": 1}), &json!(false)));
        let output = CallOutput { structured: Some(json!([1])), ..CallOutput::default() };
        assert_eq!(
            serde_json::to_value(result_of(output)).unwrap()["content"],
            json!([{"type": "text", "text": "[1]"}])
        );
        assert_eq!(serde_json::to_value(result_of(CallOutput::error("no"))).unwrap()["isError"], json!(true));
    }
}
