//! Checks of requests in all wire formats.

use super::server::Received;
use agent_models::Protocol;
use serde_json::Value;

fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns the messages of a request, without the markers of Anthropic's prompt cache, which move.
pub(super) fn messages(request: &Received) -> Vec<Value> {
    let field = match request.protocol {
        Protocol::ChatCompletions | Protocol::Anthropic => "messages",
        Protocol::Responses => "input",
        Protocol::Gemini => "contents",
    };
    let mut messages = array(&request.json()[field]).to_vec();
    messages.iter_mut().for_each(remove_cache_markers);
    messages
}

fn remove_cache_markers(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("cache_control");
            fields.values_mut().for_each(remove_cache_markers);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_cache_markers),
        _ => {}
    }
}

/// The ids of the calls and of the results of a request, in their order. Gemini's calls may have no ids, so their names
/// are returned.
fn calls_and_results(request: &Received) -> (Vec<String>, Vec<String>) {
    let (mut calls, mut results) = (Vec::new(), Vec::new());
    let id = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for message in messages(request) {
        match request.protocol {
            Protocol::ChatCompletions => {
                calls.extend(array(&message["tool_calls"]).iter().map(|call| id(&call["id"])));
                results.extend((message["role"] == "tool").then(|| id(&message["tool_call_id"])));
            }
            Protocol::Responses => {
                let kind = message["type"].as_str().unwrap_or_default();
                calls.extend((kind == "function_call").then(|| id(&message["call_id"])));
                results.extend((kind == "function_call_output").then(|| id(&message["call_id"])));
            }
            Protocol::Anthropic => {
                for block in array(&message["content"]) {
                    calls.extend((block["type"] == "tool_use").then(|| id(&block["id"])));
                    results.extend((block["type"] == "tool_result").then(|| id(&block["tool_use_id"])));
                }
            }
            Protocol::Gemini => {
                for part in array(&message["parts"]) {
                    calls.extend(part.get("functionCall").map(|call| id(&call["name"])));
                    results.extend(part.get("functionResponse").map(|result| id(&result["name"])));
                }
            }
        }
    }
    (calls, results)
}

/// Checks that each call of the request has exactly one result.
pub(super) fn check_pairs(request: &Received) {
    let (mut calls, mut results) = calls_and_results(request);
    if request.protocol != Protocol::Gemini {
        let mut unique = calls.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), calls.len(), "an id occurs twice: {}", request.text());
    }
    calls.sort();
    results.sort();
    assert_eq!(calls, results, "{}: {}", request.protocol, request.text());
}

/// Returns the number of results in a request.
pub(super) fn result_count(request: &Received) -> usize {
    calls_and_results(request).1.len()
}

/// Checks that the later request begins with the same messages as the earlier one. Messages that contained media may
/// differ, because seen media are masked. Returns the number of messages that differ.
pub(super) fn check_prefix(earlier: &Received, later: &Received) -> usize {
    let (before, after) = (messages(earlier), messages(later));
    assert!(after.len() >= before.len(), "{}", later.text());
    let strip = |request: &Received| {
        let mut json = request.json();
        for field in ["messages", "input", "contents"] {
            json.as_object_mut().expect("an object").remove(field);
        }
        remove_cache_markers(&mut json);
        json
    };
    assert_eq!(strip(earlier), strip(later), "the fields before the messages are the same");
    let (mut changed, mut after) = (0, after.iter());
    for old in &before {
        // In Chat Completions, the images of a result are in a message of their own, which is not sent after they are
        // masked.
        let is_left_out = has_only_images(earlier.protocol, old) && after.as_slice().first() != Some(old);
        if is_left_out {
            changed += 1;
            continue;
        }
        let new = after.next().expect("the later request is longer");
        // The new message is equal to the old message, adds parts to it, or masks media that it contained.
        let is_continued = ["content", "parts"].iter().any(|field| {
            let (old, new) = (array(&old[field]), array(&new[field]));
            !old.is_empty() && new.starts_with(old)
        });
        if old != new && !is_continued {
            let (old, new) = (old.to_string(), new.to_string());
            assert!(old.contains("iVBOR") || old.contains(": below]"), "{}: {old} became {new}", later.protocol);
            assert!(!new.contains("iVBOR"), "{}: {old} became {new}", later.protocol);
            changed += 1;
        }
    }
    changed
}

/// Whether this is the message with the images of a tool's result in Chat Completions.
fn has_only_images(protocol: Protocol, message: &Value) -> bool {
    protocol == Protocol::ChatCompletions && message["role"] == "user" && message.to_string().contains("iVBOR")
}
