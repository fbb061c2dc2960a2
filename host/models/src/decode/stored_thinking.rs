//! Reads the thinking that a provider attached to a stored reply, so that people can see it later.

use crate::protocol::Protocol;
use agent_core::message::Replay;
use serde_json::Value;

/// Returns the readable thinking in the data of a stored reply, or `None` if there is none.
///
/// Providers decide what the data contain. Anthropic Messages has the thinking or a summary of it, Responses has summaries,
/// Gemini has summaries if they were asked for, and Chat Completions has the thinking only in replies with tool calls.
/// Encrypted thinking is not readable. The text is untrusted text of the model.
///
/// # Examples
///
/// ```
/// use agent_core::message::Replay;
/// use agent_models::decode::stored_thinking;
/// use serde_json::json;
///
/// let items = json!([{"type": "thinking", "thinking": "First, I read.", "signature": "c2ln"}, {"type": "text", "text": "Done."}]);
/// let data = json!({"protocol": "anthropic", "model": "claude-opus-5", "items": items});
/// let replay = Replay { provider: "anthropic".into(), data };
/// assert_eq!(stored_thinking(&replay).as_deref(), Some("First, I read."));
/// ```
pub fn stored_thinking(replay: &Replay) -> Option<String> {
    let protocol = replay.data.get("protocol").and_then(Value::as_str).unwrap_or_default();
    let texts: Vec<&str> = match Protocol::ALL.into_iter().find(|known| known.name() == protocol) {
        Some(Protocol::Anthropic) => texts_of_items(&replay.data, |item| {
            let text = item.get("thinking").filter(|_| is_type(item, "thinking"));
            text.and_then(Value::as_str).into_iter().collect()
        }),
        Some(Protocol::Responses) => texts_of_items(&replay.data, |item| match is_type(item, "reasoning") {
            true => ["summary", "content"].into_iter().flat_map(|field| texts_of_parts(item.get(field))).collect(),
            false => Vec::new(),
        }),
        Some(Protocol::Gemini) => texts_of_items(&replay.data, |item| {
            let is_thought = item.get("thought").and_then(Value::as_bool) == Some(true);
            item.get("text").filter(|_| is_thought).and_then(Value::as_str).into_iter().collect()
        }),
        Some(Protocol::ChatCompletions) | None => texts_of_message(replay.data.get("message")?),
    };
    let text = texts.join("\n\n");
    (!text.trim().is_empty()).then_some(text)
}

fn texts_of_items<'d>(data: &'d Value, texts: impl Fn(&'d Value) -> Vec<&'d str>) -> Vec<&'d str> {
    data.get("items").and_then(Value::as_array).into_iter().flatten().flat_map(texts).collect()
}

fn texts_of_parts(parts: Option<&Value>) -> impl Iterator<Item = &str> {
    let parts = parts.and_then(Value::as_array).into_iter().flatten();
    parts.filter_map(|part| part.get("text").and_then(Value::as_str))
}

/// Returns the thinking in the data of Chat Completions. The two fields repeat each other if both exist.
fn texts_of_message(message: &Value) -> Vec<&str> {
    if let Some(text) = message.get("reasoning_content").and_then(Value::as_str) {
        return vec![text];
    }
    let details = message.get("reasoning_details").and_then(Value::as_array).into_iter().flatten();
    details
        .filter_map(|detail| {
            ["text", "summary"].into_iter().find_map(|field| detail.get(field).and_then(Value::as_str))
        })
        .collect()
}

fn is_type(item: &Value, name: &str) -> bool {
    item.get("type").and_then(Value::as_str) == Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn thinking(data: Value) -> Option<String> {
        stored_thinking(&Replay { provider: "p".to_owned(), data })
    }

    fn of_items(protocol: &str, items: Value) -> Option<String> {
        thinking(json!({"protocol": protocol, "model": "m", "items": items}))
    }

    /// L21: the thinking of each wire format is read. Answers, encrypted thinking and unexpected values are not.
    #[test]
    fn l21_stored_thinking_is_read_from_each_format() {
        let anthropic = json!([{"type": "redacted_thinking", "data": "x"}, {"type": "thinking", "thinking": "A."}, {"type": "text", "text": "B."}]);
        assert_eq!(of_items(Protocol::Anthropic.name(), anthropic).as_deref(), Some("A."));
        let responses = json!([{"type": "reasoning", "summary": [{"type": "summary_text", "text": "A."}, {"text": "B."}], "encrypted_content": "x"},
            {"type": "message", "content": [{"type": "output_text", "text": "C."}]}]);
        assert_eq!(of_items(Protocol::Responses.name(), responses).as_deref(), Some("A.\n\nB."));
        let gemini = json!([{"text": "A.", "thought": true}, {"text": "B.", "thoughtSignature": "x"}]);
        assert_eq!(of_items(Protocol::Gemini.name(), gemini).as_deref(), Some("A."));
        let chat = |message| thinking(json!({"model": "m", "message": message, "tool_calls": []}));
        let both = json!({"reasoning_content": "A.", "reasoning_details": [{"type": "reasoning.text", "text": "A."}]});
        assert_eq!(chat(both).as_deref(), Some("A."));
        let details = json!({"reasoning_details": [{"type": "reasoning.summary", "summary": "A."}, {"type": "reasoning.encrypted", "data": "x"}]});
        assert_eq!(chat(details).as_deref(), Some("A."));
        for odd in [
            json!(null),
            json!([1, {"type": "thinking", "thinking": 7}]),
            json!("x"),
            json!([{"type": "thinking", "thinking": " "}]),
        ] {
            for protocol in Protocol::ALL {
                assert_eq!(of_items(protocol.name(), odd.clone()), None, "{odd}");
            }
        }
        assert_eq!((thinking(json!(null)), thinking(json!([]))), (None, None));
    }
}
