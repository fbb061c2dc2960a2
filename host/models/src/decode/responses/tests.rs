//! Tests of replies in the format of OpenAI Responses.

use crate::Protocol;
use crate::decode::test_support::stream;
use crate::decode::{DecodedReply, StreamError, decode_document};
use agent_core::model::{StopReason, TokenDetails, Usage};
use serde_json::{Value, json};

fn decode(events: &[Value]) -> Result<(DecodedReply, String), StreamError> {
    stream(Protocol::Responses, events)
}

fn event(kind: &str, index: u64, fields: Value) -> Value {
    let mut event = json!({"type": format!("response.{kind}"), "output_index": index});
    event.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    event
}

fn piece(kind: &str, index: u64, delta: &str) -> Value {
    event(&format!("{kind}.delta"), index, json!({"delta": delta}))
}

fn done(index: u64, item: &Value) -> Value {
    event("output_item.done", index, json!({"item": item}))
}

fn completed(output: Value) -> Value {
    let usage = json!({
        "input_tokens": 100, "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
        "output_tokens": 20, "output_tokens_details": {"reasoning_tokens": 5},
    });
    let response = json!({"id": "r1", "model": "gpt-x", "status": "completed", "output": output, "usage": usage});
    json!({"type": "response.completed", "response": response})
}

fn message(text: &str) -> Value {
    json!({"type": "message", "id": "m1", "status": "completed", "role": "assistant",
           "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": text}]})
}

/// M1: all kinds of items are decoded, and all items are stored as they were sent.
#[test]
fn m1_items_are_decoded_and_stored() {
    let reasoning = json!({"type": "reasoning", "id": "rs1", "encrypted_content": "final", "summary": []});
    let call = json!({"type": "function_call", "id": "fc1", "call_id": "c1", "name": "f", "arguments": "{\"a\":1}",
                      "namespace": "n", "status": "completed"});
    let unknown = json!({"type": "program", "id": "p1", "code": [1, {"deep": null}]});
    let added = json!({"item": {"type": "reasoning", "encrypted_content": "not yet final", "summary": []}});
    let (decoded, text) = decode(&[
        event("created", 0, json!({"response": {"id": "r1", "status": "in_progress"}})),
        event("output_item.added", 0, added),
        piece("reasoning_summary_text", 0, "First."),
        event("reasoning_summary_part.added", 0, json!({"summary_index": 1})),
        piece("reasoning_summary_text", 0, "Second."),
        done(0, &reasoning),
        piece("output_text", 1, "Hel"),
        piece("output_text", 1, "lo"),
        done(1, &message("Hello")),
        event("output_item.added", 2, json!({"item": {"type": "function_call", "arguments": ""}})),
        piece("function_call_arguments", 2, "{\"a\""),
        done(2, &call),
        done(3, &unknown),
        completed(json!([])),
        json!({"type": "response.output_text.delta", "delta": "after the end"}),
    ])
    .unwrap();
    assert_eq!(text, "{First.\n\nSecond.}Hello");
    let reply = decoded.reply;
    assert_eq!((reply.text.as_str(), reply.stop), ("Hello", StopReason::ToolCalls));
    assert_eq!((reply.calls[0].provider_id.as_deref(), reply.calls[0].arguments.as_str()), (Some("c1"), "{\"a\":1}"));
    let items = json!([reasoning, message("Hello"), call, unknown]);
    assert_eq!(reply.replay.unwrap().data, json!({"protocol": "responses", "model": "m", "items": items}));
    let details = TokenDetails { uncached_prompt: 30, cache_read: 60, cache_write: 10, completion: 20, thinking: 5 };
    assert_eq!(reply.usage, Usage { details: Some(details), ..Usage::new(100, 20) });
    assert_eq!(decoded.raw["finish_reason"], "completed");
}

/// M1: text that arrives only in the complete item or response is streamed as well. If the complete text contradicts
/// the pieces, all text is streamed again.
#[test]
fn m1_complete_text_wins_over_its_pieces() {
    let output = completed(json!([message("Hello")]));
    let thinking = json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "content": null});
    let cases = [
        (vec![output.clone()], "Hello"),
        (vec![done(0, &message("Hello")), output.clone()], "Hello"),
        (vec![piece("output_text", 0, "He"), output.clone()], "Hello"),
        (vec![piece("output_text", 0, "He"), done(0, &message("Hello")), completed(json!([]))], "Hello"),
        (vec![piece("output_text", 0, "Hallo"), done(0, &message("Hello")), completed(json!([]))], "Hallo|Hello"),
        (vec![done(0, &thinking), done(1, &message("Hello")), completed(json!([]))], "{hm}Hello"),
        (vec![piece("output_text", 0, "Hello"), completed(Value::Null)], "Hello"),
    ];
    for (events, expected) in cases {
        let (decoded, text) = decode(&events).unwrap();
        assert_eq!((decoded.reply.text.as_str(), text.as_str()), ("Hello", expected), "{events:?}");
    }
    let (decoded, _) = decode(&[piece("output_text", 0, "Hello"), completed(Value::Null)]).unwrap();
    assert_eq!(decoded.reply.replay, None, "plain text is not stored twice");
}

/// M1: a refusal is streamed and stored separately from the text.
#[test]
fn m1_a_refusal_is_separate_from_the_text() {
    let item = json!({"type": "message", "content": [{"type": "refusal", "refusal": "I won't"}]});
    let (decoded, text) = decode(&[piece("refusal", 0, "I "), done(0, &item), completed(json!([]))]).unwrap();
    assert_eq!((text.as_str(), decoded.reply.text.as_str()), ("I won't", ""));
    assert_eq!(decoded.refusal.as_deref(), Some("I won't"));
}

/// M1, M3, row 31: every end of a response has a meaning for the loop.
#[test]
fn m1_ends_of_responses_are_converted() {
    let end = |kind: &str, response: Value| {
        decode(&[piece("output_text", 0, "a"), json!({"type": format!("response.{kind}"), "response": response})])
    };
    let incomplete =
        |reason: &str| end("incomplete", json!({"status": "incomplete", "incomplete_details": {"reason": reason}}));
    assert_eq!(incomplete("max_output_tokens").unwrap().0.reply.stop, StopReason::Length);
    assert_eq!(incomplete("content_filter").unwrap().0.reply.stop, StopReason::ContentFilter);
    assert_eq!(decode(&[piece("output_text", 0, "a")]).unwrap_err(), StreamError::Truncated);
    let error = json!({"code": "rate_limit_exceeded", "message": "Slow down"});
    let failures = [
        end("failed", json!({"status": "failed", "error": error})),
        decode(&[json!({"type": "error", "code": "rate_limit_exceeded", "message": "Slow down", "param": null})]),
        decode(&[json!({"type": "error", "error": error})]),
    ];
    for failure in failures {
        let StreamError::Provider { code, message, .. } = failure.unwrap_err() else { panic!("another error") };
        assert_eq!((code.as_deref(), message.as_str()), (Some("rate_limit_exceeded"), "Slow down"));
    }
    for response in [json!({}), json!({"status": "in_progress"})] {
        assert!(matches!(end("completed", response).unwrap_err(), StreamError::Invalid { .. }));
    }
    let far = [piece("output_text", 2_000_000, "a"), completed(json!([]))];
    assert_eq!(decode(&far).unwrap().0.reply.text, "a", "an index is not a size");
}

/// M1: a response that is not streamed is decoded like a stream.
#[test]
fn m1_complete_responses_are_decoded() {
    let response = completed(json!([message("Hello")]))["response"].clone();
    let decoded = decode_document(Protocol::Responses, "p", "p/m", response.to_string().as_bytes()).unwrap();
    assert_eq!((decoded.reply.text.as_str(), decoded.reply.stop), ("Hello", StopReason::Stop));
    let error = json!({"error": {"message": "bad", "type": "invalid_request_error", "code": null}});
    let error = decode_document(Protocol::Responses, "p", "p/m", error.to_string().as_bytes()).unwrap_err();
    assert!(matches!(error, StreamError::Provider { .. }), "{error:?}");
}

/// M1: if a server leaves out the positions of items, no call and no text appears twice in the decoded reply. An item
/// without a type is not sent back.
#[test]
fn m1_items_without_positions_are_not_doubled() {
    let call = json!({"type": "function_call", "id": "fc1", "call_id": "c1", "name": "f", "arguments": "{\"a\":1}"});
    let without_position = |event: Value| {
        let mut event = event;
        event.as_object_mut().unwrap().remove("output_index");
        event
    };
    let added = json!({"item": {"type": "function_call", "id": "fc1", "call_id": "c1", "name": "f", "arguments": ""}});
    let events = [
        piece("output_text", 0, "Hello"),
        done(0, &message("Hello")),
        event("output_item.added", 0, added),
        piece("function_call_arguments", 0, "{\"a\":1}"),
        done(0, &call),
        completed(json!([])),
    ];
    let (decoded, text) = decode(&events.map(without_position)).unwrap();
    assert_eq!((text.as_str(), decoded.reply.text.as_str(), decoded.reply.calls.len()), ("Hello", "Hello", 1));
    let (decoded, _) = decode(&[piece("function_call_arguments", 0, "{}"), completed(json!([]))]).unwrap();
    assert_eq!((decoded.reply.calls.len(), decoded.reply.replay), (0, None));
}
