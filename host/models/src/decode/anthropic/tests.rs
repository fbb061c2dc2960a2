//! Tests of replies in the format of Anthropic Messages.

use crate::Protocol;
use crate::decode::test_support::stream;
use crate::decode::{DecodedReply, StreamError, decode_document};
use agent_core::model::{StopReason, TokenDetails, Usage};
use serde_json::{Value, json};

fn decode(events: &[Value]) -> Result<(DecodedReply, String), StreamError> {
    stream(Protocol::Anthropic, events)
}

fn message_start() -> Value {
    json!({"type": "message_start", "message": {
        "id": "msg_1", "model": "claude-x", "content": [], "stop_reason": null,
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 100, "output_tokens": 1},
    }})
}

fn start(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

/// Returns the events at the end of a reply.
fn end(reason: &str) -> Vec<Value> {
    let usage = json!({"output_tokens": 7, "output_tokens_details": {"thinking_tokens": 5}});
    let changes = json!({"stop_reason": reason, "stop_details": {"why": "x"}});
    vec![json!({"type": "message_delta", "delta": changes, "usage": usage}), json!({"type": "message_stop"})]
}

fn with_blocks(events: Vec<Value>, reason: &str) -> (DecodedReply, String) {
    decode(&[vec![message_start()], events, end(reason)].concat()).unwrap()
}

/// M1: all kinds of blocks are decoded, and everything that must be sent back is stored as it was sent.
#[test]
fn m1_blocks_are_decoded_and_stored() {
    let unknown = json!({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}});
    let (decoded, text) = with_blocks(
        vec![
            start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
            delta(0, json!({"type": "thinking_delta", "thinking": "I se"})),
            delta(0, json!({"type": "thinking_delta", "thinking": "e"})),
            delta(0, json!({"type": "signature_delta", "signature": "sig"})),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "ping"}),
            start(1, json!({"type": "redacted_thinking", "data": "x"})),
            start(2, json!({"type": "text", "text": "Look"})),
            delta(2, json!({"type": "text_delta", "text": "ing."})),
            delta(2, json!({"type": "citations_delta", "citation": {"url": "u"}})),
            start(3, unknown),
            delta(3, json!({"type": "input_json_delta", "partial_json": "{\"q\": "})),
            delta(3, json!({"type": "input_json_delta", "partial_json": "1}"})),
            json!({"type": "some_new_event", "anything": 1}),
            start(4, json!({"type": "compaction", "content": "a"})),
            delta(4, json!({"type": "compaction_delta", "content": "b", "encrypted": [1]})),
            start(5, json!({"type": "tool_use", "id": "t1", "name": "f", "input": {}})),
            delta(5, json!({"type": "input_json_delta", "partial_json": ""})),
            start(6, json!({"type": "tool_use", "id": "t2", "name": "g", "input": {"b": 1, "a": 2}})),
        ],
        "tool_use",
    );
    assert_eq!(text, "{I see}Looking.");
    let reply = decoded.reply;
    assert_eq!((reply.text.as_str(), reply.stop), ("Looking.", StopReason::ToolCalls));
    let calls: Vec<_> = reply.calls.iter().map(|call| (call.name.as_str(), call.arguments.as_str())).collect();
    assert_eq!(calls, [("f", ""), ("g", "{\"b\":1,\"a\":2}")]);
    let expected = json!({"protocol": "anthropic", "model": "m", "items": [
        {"type": "thinking", "thinking": "I see", "signature": "sig"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "Looking.", "citations": [{"url": "u"}]},
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": 1}},
        {"type": "compaction", "content": "ab", "encrypted": [1]},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {}},
        {"type": "tool_use", "id": "t2", "name": "g", "input": {"b": 1, "a": 2}},
    ]});
    assert_eq!(reply.replay.unwrap().data, expected);
    assert_eq!((&decoded.raw["finish_reason"], &decoded.raw["reasoning"]), (&json!("tool_use"), &json!("I see")));
}

/// M1: the usage in the last event replaces the usage in the first event, and the tokens of each price are counted
/// on their own.
#[test]
fn m1_usage_counts_the_whole_reply() {
    let (decoded, _) = with_blocks(vec![start(0, json!({"type": "text", "text": "a"}))], "end_turn");
    let details = TokenDetails { uncached_prompt: 10, cache_read: 100, cache_write: 0, completion: 7, thinking: 5 };
    assert_eq!(decoded.reply.usage, Usage { details: Some(details), ..Usage::new(10, 7) });
    assert_eq!(decoded.reply.replay, None, "plain text is not stored twice");
}

/// M1: every stop reason has a meaning for the loop.
#[test]
fn m1_stop_reasons_are_converted() {
    use StopReason::{ContentFilter, Length, Paused, Stop};
    let cases = [
        ("end_turn", Stop),
        ("stop_sequence", Stop),
        ("max_tokens", Length),
        ("model_context_window_exceeded", Length),
        ("refusal", ContentFilter),
        ("pause_turn", Paused),
        ("compaction", Paused),
        ("a_new_reason", Stop),
    ];
    for (reason, expected) in cases {
        assert_eq!(with_blocks(vec![], reason).0.reply.stop, expected, "{reason}");
    }
    let call = start(0, json!({"type": "tool_use", "id": "t", "name": "f", "input": {}}));
    let cut = delta(0, json!({"type": "input_json_delta", "partial_json": "{\"a\": \"b"}));
    let (decoded, _) = with_blocks(vec![call, cut], "max_tokens");
    assert_eq!((decoded.reply.stop, decoded.reply.calls[0].arguments.as_str()), (Length, "{\"a\": \"b"));
}

/// M3, row 31: only `message_stop` ends a reply, and errors end it without a reply.
#[test]
fn m3_errors_and_truncated_replies_are_reported_as_errors() {
    let text = start(0, json!({"type": "text", "text": "a"}));
    let truncated = [message_start(), text.clone(), end("end_turn")[0].clone()];
    assert_eq!(decode(&truncated).unwrap_err(), StreamError::Truncated);
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    for events in [vec![message_start(), text.clone(), error.clone()], [vec![error.clone()], end("end_turn")].concat()]
    {
        let StreamError::Provider { code, message, .. } = decode(&events).unwrap_err() else { panic!("{events:?}") };
        assert_eq!((code.as_deref(), message.as_str()), (Some("overloaded_error"), "Overloaded"));
    }
    let unknown_block = [message_start(), delta(2_000_000, json!({"type": "text_delta", "text": "a"}))];
    assert!(matches!(decode(&unknown_block).unwrap_err(), StreamError::Invalid { .. }));
    let not_a_block = [message_start(), start(0, json!("text"))];
    assert!(matches!(decode(&not_a_block).unwrap_err(), StreamError::Invalid { .. }));
}

/// M1: a message that is not streamed is decoded like a stream.
#[test]
fn m1_complete_messages_are_decoded() {
    let message = json!({
        "type": "message", "id": "msg_1", "model": "claude-x", "stop_reason": "tool_use",
        "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "a"},
                    {"type": "tool_use", "id": "t", "name": "f", "input": {"x": 1.0}}],
        "usage": {"input_tokens": 3, "output_tokens": 4},
    });
    let decoded = decode_document(Protocol::Anthropic, "p", "p/m", message.to_string().as_bytes()).unwrap();
    assert_eq!((decoded.reply.text.as_str(), decoded.reply.stop), ("a", StopReason::ToolCalls));
    assert_eq!(decoded.reply.calls[0].arguments, "{\"x\":1.0}");
    assert_eq!(decoded.reply.usage, Usage::new(3, 4));
    assert_eq!(decoded.reply.replay.unwrap().data["items"], message["content"]);
    let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message": "bad"}});
    let error = decode_document(Protocol::Anthropic, "p", "p/m", error.to_string().as_bytes()).unwrap_err();
    assert!(matches!(error, StreamError::Provider { .. }), "{error:?}");
}

/// D1: the record names the thinking that the provider removed from the request.
#[test]
fn d1_thinking_that_the_provider_removed_is_recorded() {
    let dropped =
        json!([{"type": "thinking_dropped", "path": "messages.1.content.0", "reason": "prefix_binding_mismatch"}]);
    let end_with = |changes: &Value| {
        let mut events = end("end_turn");
        events[0]["input_transformations"] = changes.clone();
        events
    };
    let mut begin = message_start();
    let (decoded, _) = decode(&[vec![begin.clone()], end_with(&dropped)].concat()).unwrap();
    assert_eq!(decoded.raw["input_transformations"], dropped);
    begin["message"]["input_transformations"] = dropped.clone();
    let (decoded, _) = decode(&[vec![begin], end_with(&Value::Null)].concat()).unwrap();
    assert_eq!(decoded.raw["input_transformations"], dropped);
    let too_long = json!([{"type": "thinking_dropped", "path": "x".repeat(100_000)}]);
    let (decoded, _) = decode(&[vec![message_start()], end_with(&too_long)].concat()).unwrap();
    assert_eq!(decoded.raw.get("input_transformations"), None);
}
