//! Tests that recorded streams of providers are decoded in the same way as by the providers' own client libraries (M1),
//! and that truncated streams are never decoded as complete replies (row 31).
//!
//! The recordings are not part of the project. `AGENT_HOST_RECORDED_STREAMS` names the directory that contains
//! `openai-chat.jsonl`. If the variable is not set, the tests print a message and do nothing else.

use agent_core::model::{Delta, StopReason};
use agent_models::chat_stream::{ChatStream, DecodedReply, StreamError};
use serde::Deserialize;
use serde_json::Value;
use std::io::Write;
use std::path::PathBuf;

/// Maximum size in bytes of streams that are cut at every position. Larger streams are cut at random positions and
/// around their end marker.
const MAX_EXHAUSTIVE_BYTES: usize = 1500;

#[derive(Deserialize)]
struct Recording {
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
    let file = PathBuf::from(directory).join("openai-chat.jsonl");
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let recordings: Vec<Recording> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!recordings.is_empty(), "{} has no streams", file.display());
    recordings
}

fn decode(bytes: &[u8], chunk_size: usize) -> Result<(DecodedReply, Vec<Delta>), StreamError> {
    let (mut stream, mut deltas) = (ChatStream::new("recorded", "recorded/model"), Vec::new());
    for chunk in bytes.chunks(chunk_size) {
        stream.push(chunk, &mut deltas)?;
    }
    let decoded = stream.finish(&mut deltas)?;
    Ok((decoded, deltas))
}

/// M1: the result is the same as that of the providers' libraries, regardless of the chunk size.
#[test]
fn m1_recorded_streams_match_the_results_of_the_providers_libraries() {
    for Recording { name, sse, expect } in recordings() {
        let results = [1, 7, 4096].map(|chunk_size| decode(sse.as_bytes(), chunk_size));
        let [first, second, third] = results.map(|result| result.map(|(decoded, deltas)| (decoded, text_of(&deltas))));
        assert_eq!(first, second, "{name}");
        assert_eq!(second, third, "{name}");
        let Some(expected) = expect else { continue };
        let (decoded, text) = first.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(decoded.refusal.as_deref().unwrap_or(&expected.text), text, "{name}: the streamed text");
        check(&name, &decoded, &expected);
    }
}

fn check(name: &str, DecodedReply { reply, .. }: &DecodedReply, expected: &Expected) {
    assert_eq!(reply.text, expected.text, "{name}");
    let calls: Vec<_> = reply.calls.iter().map(|call| (&call.provider_id, &call.name)).collect();
    assert_eq!(calls, expected.tools.iter().map(|(id, name, _)| (id, name)).collect::<Vec<_>>(), "{name}");
    for (call, (.., arguments)) in reply.calls.iter().zip(&expected.tools) {
        assert_eq!(json(&call.arguments), json(arguments), "{name}");
    }
    // The library of one provider reports no stop reason, because it does not read the object at the end of the stream.
    let stop = expected.stop.as_deref().unwrap_or("stop");
    let found = match reply.stop {
        StopReason::Stop => "stop",
        StopReason::ToolCalls => "tool_calls",
        StopReason::Length => "length",
        StopReason::ContentFilter => "content_filter",
    };
    assert_eq!(found, stop, "{name}");
    if let Some(usage) = expected.usage {
        assert_eq!((reply.usage.prompt_tokens, reply.usage.completion_tokens), usage, "{name}");
    }
}

/// Parses arguments as JSON. Arguments of a truncated call become a JSON string.
fn json(arguments: &str) -> Value {
    match arguments {
        "" => Value::Object(Default::default()),
        arguments => serde_json::from_str(arguments).unwrap_or_else(|_| arguments.into()),
    }
}

fn text_of(deltas: &[Delta]) -> String {
    let texts = deltas.iter().filter_map(|delta| match delta {
        Delta::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// M3, row 31: a truncated stream is decoded as complete only if it contains the end marker.
#[test]
fn m3_truncated_streams_are_never_complete() {
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    for Recording { name, sse, .. } in recordings() {
        let (bytes, end) = (sse.as_bytes(), end_of_marker(&sse));
        let mut lengths: Vec<usize> = (end.saturating_sub(40)..(end + 40).min(bytes.len())).collect();
        if bytes.len() <= MAX_EXHAUSTIVE_BYTES {
            lengths.extend(0..bytes.len());
        } else {
            // The random positions are the same in every run of the test.
            lengths.extend(std::iter::repeat_with(|| next_random(&mut random) % bytes.len()).take(40));
        }
        for length in lengths {
            let is_complete = decode(&bytes[..length], 4096).is_ok();
            assert!(!is_complete || length >= end, "{name}: complete after {length} of {} bytes", bytes.len());
        }
        assert_eq!(
            decode(bytes, 4096).is_ok(),
            end <= bytes.len(),
            "{name}: complete exactly if there is an end marker"
        );
    }
}

fn next_random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(0xBF58_476D_1CE4_E5B9).rotate_left(29).wrapping_add(0x94D0_49BB_1331_11EB);
    *state as usize
}

/// Returns the position after the first end marker, or a position after the end of the stream if there is no end
/// marker.
fn end_of_marker(sse: &str) -> usize {
    let mut position = 0;
    for line in sse.split_inclusive('\n') {
        let data = line.trim_end().strip_prefix("data:").map(str::trim).unwrap_or_default();
        let chunk: Value = serde_json::from_str(data).unwrap_or_default();
        let choices = chunk["choices"].as_array().into_iter().flatten();
        let mut reasons = choices.filter(|choice| choice["index"] == 0).map(|choice| &choice["finish_reason"]);
        if data == "[DONE]" || reasons.any(Value::is_string) {
            return position + line.trim_end().len();
        }
        position += line.len();
    }
    sse.len() + 1
}
