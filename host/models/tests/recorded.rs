//! Tests that recorded streams of providers are decoded in the same way as by the providers' own client libraries (M1),
//! and that truncated streams are never decoded as complete replies (row 31).
//!
//! The recordings are not part of the project. `AGENT_HOST_RECORDED_STREAMS` names the directory that contains one file
//! for each wire format. If the variable is not set, the tests print a message and do nothing else.

use agent_core::model::{Delta, StopReason};
use agent_models::Protocol;
use agent_models::decode::{DecodedReply, ReplyStream, StreamError};
use serde::Deserialize;
use serde_json::Value;
use std::io::Write;
use std::path::PathBuf;

/// Maximum size in bytes of streams that are cut at every position. Larger streams are cut at random positions and
/// around their end marker.
const MAX_EXHAUSTIVE_BYTES: usize = 1500;

/// The wire formats, each with the file that contains its recordings.
const FILES: [(Protocol, &str); 4] = [
    (Protocol::ChatCompletions, "openai-chat.jsonl"),
    (Protocol::Responses, "openai-responses.jsonl"),
    (Protocol::Anthropic, "anthropic-messages.jsonl"),
    (Protocol::Gemini, "gemini.jsonl"),
];

#[derive(Deserialize)]
struct Recording {
    #[serde(skip, default = "Protocol::default")]
    protocol: Protocol,
    name: String,
    sse: String,
    expect: Option<Expected>,
}

#[derive(Deserialize)]
struct Expected {
    text: String,
    /// Id, name and arguments of each tool call.
    tools: Vec<(Option<String>, String, String)>,
    stop: Option<String>,
    usage: Option<(u64, u64)>,
}

/// Returns all recordings. Prints a message and returns none if the directory is not configured.
fn recordings() -> Vec<Recording> {
    let Some(directory) = std::env::var_os("AGENT_HOST_RECORDED_STREAMS") else {
        // The test runner captures `eprintln!`.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: AGENT_HOST_RECORDED_STREAMS does not name a directory of recorded streams"
        );
        return Vec::new();
    };
    let directory = PathBuf::from(directory);
    let files = FILES.into_iter().map(|(protocol, name)| {
        let file = directory.join(name);
        let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert!(!text.is_empty(), "{} has no streams", file.display());
        (protocol, text)
    });
    let recordings = files.flat_map(|(protocol, text)| {
        let recording = |line| Recording { protocol, ..serde_json::from_str(line).unwrap() };
        text.lines().map(recording).collect::<Vec<_>>()
    });
    recordings.collect()
}

fn decode(protocol: Protocol, bytes: &[u8], chunk_size: usize) -> Result<(DecodedReply, Vec<Delta>), StreamError> {
    let (mut stream, mut deltas) = (ReplyStream::new(protocol, "recorded", "recorded/model"), Vec::new());
    for chunk in bytes.chunks(chunk_size) {
        stream.push(chunk, &mut deltas)?;
    }
    let decoded = stream.finish(&mut deltas)?;
    Ok((decoded, deltas))
}

/// M1: the result is the same as that of the providers' libraries, regardless of the chunk size.
#[test]
fn m1_recorded_streams_match_the_results_of_the_providers_libraries() {
    for Recording { protocol, name, sse, expect } in recordings() {
        let results = [1, 7, 4096].map(|chunk_size| decode(protocol, sse.as_bytes(), chunk_size));
        let [first, second, third] = results.map(|result| result.map(|(decoded, deltas)| (decoded, text_of(&deltas))));
        assert_eq!(first, second, "{name}");
        assert_eq!(second, third, "{name}");
        let Some(expected) = expect else { continue };
        let (decoded, text) = first.unwrap_or_else(|error| panic!("{name}: {error}"));
        // Some recordings contain two replies, whose content blocks are joined in the order of their indexes.
        if sse.matches("event: message_start").count() < 2 {
            assert_eq!(decoded.refusal.as_deref().unwrap_or(&expected.text), text, "{name}: the streamed text");
        }
        check(&name, protocol, &decoded, &expected);
    }
}

fn check(name: &str, protocol: Protocol, DecodedReply { reply, .. }: &DecodedReply, expected: &Expected) {
    assert_eq!(reply.text, expected.text, "{name}");
    let calls: Vec<_> = reply.calls.iter().map(|call| (&call.provider_id, &call.name)).collect();
    assert_eq!(calls, expected.tools.iter().map(|(id, name, _)| (id, name)).collect::<Vec<_>>(), "{name}");
    for (call, (.., arguments)) in reply.calls.iter().zip(&expected.tools) {
        assert_eq!(json(&call.arguments), json(arguments), "{name}");
    }
    assert_eq!(reply.stop, expected_stop(protocol, expected), "{name}");
    if let Some(usage) = expected.usage {
        assert_eq!((reply.usage.prompt_tokens, reply.usage.completion_tokens), usage, "{name}");
    }
}

/// Returns the stop reason that corresponds to the stop reason of the provider's library.
fn expected_stop(protocol: Protocol, expected: &Expected) -> StopReason {
    // The library of one provider reports no stop reason, because it does not read the object at the end of the stream.
    let stop = expected.stop.as_deref().unwrap_or("stop");
    match (protocol, stop) {
        (_, "length" | "max_tokens" | "MAX_TOKENS") => StopReason::Length,
        (_, "content_filter" | "refusal") => StopReason::ContentFilter,
        (Protocol::ChatCompletions | Protocol::Anthropic, "tool_calls" | "tool_use") => StopReason::ToolCalls,
        // The reply of two joined recordings has the calls of the first one and the stop reason of the second one.
        (_, "stop" | "end_turn" | "stop_sequence" | "completed" | "STOP") if !expected.tools.is_empty() => {
            StopReason::ToolCalls
        }
        (_, "stop" | "end_turn" | "stop_sequence" | "completed" | "STOP") => StopReason::Stop,
        (protocol, stop) => panic!("{protocol}: the stop reason `{stop}` is unknown"),
    }
}

/// Parses arguments as JSON. Arguments of a truncated call become a JSON string.
fn json(arguments: &str) -> Value {
    match arguments {
        "" => Value::Object(Default::default()),
        arguments => serde_json::from_str(arguments).unwrap_or_else(|_| arguments.into()),
    }
}

/// Returns the text that a user sees after all deltas.
fn text_of(deltas: &[Delta]) -> String {
    let mut text = String::new();
    for delta in deltas {
        match delta {
            Delta::Text(piece) => text.push_str(piece),
            Delta::Clear => text.clear(),
            Delta::ThinkingStart | Delta::Thinking(_) | Delta::ThinkingEnd => {}
        }
    }
    text
}

/// M3, row 31: a truncated stream is decoded as complete only if it contains the end marker.
#[test]
fn m3_truncated_streams_are_never_complete() {
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    for Recording { protocol, name, sse, expect } in recordings() {
        let (bytes, end) = (sse.as_bytes(), end_of_marker(protocol, &sse));
        let mut lengths: Vec<usize> = (end.saturating_sub(40)..(end + 40).min(bytes.len())).collect();
        if bytes.len() <= MAX_EXHAUSTIVE_BYTES {
            lengths.extend(0..bytes.len());
        } else {
            // The random positions are the same in every run of the test.
            lengths.extend(std::iter::repeat_with(|| next_random(&mut random) % bytes.len()).take(40));
        }
        for length in lengths {
            let is_complete = decode(protocol, &bytes[..length], 4096).is_ok();
            assert!(!is_complete || length >= end, "{name}: complete after {length} of {} bytes", bytes.len());
        }
        if expect.is_some() || protocol == Protocol::ChatCompletions {
            let is_complete = decode(protocol, bytes, 4096).is_ok();
            assert_eq!(is_complete, end <= bytes.len(), "{name}: complete exactly if there is an end marker");
        }
    }
}

fn next_random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(0xBF58_476D_1CE4_E5B9).rotate_left(29).wrapping_add(0x94D0_49BB_1331_11EB);
    *state as usize
}

/// Returns the position after the first end marker, or a position after the end of the stream if there is no end
/// marker.
fn end_of_marker(protocol: Protocol, sse: &str) -> usize {
    let mut position = 0;
    for line in sse.split_inclusive('\n') {
        let data = line.trim_end().strip_prefix("data:").map(str::trim).unwrap_or_default();
        if is_end_marker(protocol, data) {
            return position + line.trim_end().len();
        }
        position += line.len();
    }
    sse.len() + 1
}

fn is_end_marker(protocol: Protocol, data: &str) -> bool {
    let event: Value = serde_json::from_str(data).unwrap_or_default();
    let has_reason = |list: &str, field: &str| {
        let items = event[list].as_array().into_iter().flatten();
        items.filter(|item| item["index"].as_u64().unwrap_or(0) == 0).any(|item| item[field].is_string())
    };
    match protocol {
        Protocol::ChatCompletions => data == "[DONE]" || has_reason("choices", "finish_reason"),
        Protocol::Responses => matches!(event["type"].as_str(), Some("response.completed" | "response.incomplete")),
        Protocol::Anthropic => event["type"] == "message_stop",
        Protocol::Gemini => has_reason("candidates", "finishReason"),
    }
}
