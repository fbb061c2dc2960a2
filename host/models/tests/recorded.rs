//! Decodes recorded streams of providers as their own client libraries do (M1), and never takes a truncated one for
//! complete (row 31).
//!
//! The recordings are not part of the project. `AGENT_HOST_RECORDED_STREAMS` names the directory that contains
//! `openai-chat.jsonl`; without it, the tests are skipped with a message.

use agent_core::model::{Delta, StopReason};
use agent_models::chat_stream::{ChatStream, DecodedReply, StreamError};
use serde::Deserialize;
use serde_json::Value;
use std::io::Write;
use std::path::PathBuf;

/// Streams up to this size are cut at every byte. Larger ones are cut at random positions and around their end mark.
const SMALL: usize = 1500;

#[derive(Deserialize)]
struct Recording {
    name: String,
    sse: String,
    expect: Option<Expected>,
}

#[derive(Deserialize)]
struct Expected {
    text: String,
    /// Id, name, arguments.
    tools: Vec<(Option<String>, String, String)>,
    stop: Option<String>,
    usage: Option<(u64, u64)>,
}

/// Returns all recordings, or skips the test with a message.
fn recordings() -> Vec<Recording> {
    let Some(folder) = std::env::var_os("AGENT_HOST_RECORDED_STREAMS") else {
        // The test runner captures `eprintln!`.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: AGENT_HOST_RECORDED_STREAMS does not name a directory of recorded streams"
        );
        return Vec::new();
    };
    let file = PathBuf::from(folder).join("openai-chat.jsonl");
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let recordings: Vec<Recording> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!recordings.is_empty(), "{} has no streams", file.display());
    recordings
}

fn decode(bytes: &[u8], chunk: usize) -> Result<(DecodedReply, Vec<Delta>), StreamError> {
    let (mut stream, mut deltas) = (ChatStream::new("recorded", "recorded/model"), Vec::new());
    for chunk in bytes.chunks(chunk) {
        stream.push(chunk, &mut deltas)?;
    }
    let decoded = stream.finish(&mut deltas)?;
    Ok((decoded, deltas))
}

/// M1
#[test]
fn m1_recorded_streams_decode_like_their_own_libraries() {
    for Recording { name, sse, expect } in recordings() {
        let results = [1, 7, 4096].map(|chunk| decode(sse.as_bytes(), chunk));
        let [first, second, third] = results.map(|result| result.map(|(decoded, deltas)| (decoded, text_of(&deltas))));
        assert_eq!(first, second, "{name}");
        assert_eq!(second, third, "{name}");
        let Some(expected) = expect else { continue };
        let (decoded, text) = first.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(decoded.refusal.as_deref().unwrap_or(&expected.text), text, "{name}: what was streamed");
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
    // One provider ends its streams with an object that its library does not read, so the library reports no stop
    // reason.
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

/// Parses arguments as JSON, or returns them as a string if the call was truncated.
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

/// M3, row 31: a truncated stream is complete only if its end mark has already arrived.
#[test]
fn m3_truncated_streams_are_never_complete() {
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    for Recording { name, sse, .. } in recordings() {
        let (bytes, end) = (sse.as_bytes(), end_mark(&sse));
        let mut places: Vec<usize> = (end.saturating_sub(40)..(end + 40).min(bytes.len())).collect();
        if bytes.len() <= SMALL {
            places.extend(0..bytes.len());
        } else {
            // Any distribution works, as long as it is the same in every run.
            places.extend(std::iter::repeat_with(|| next_random(&mut random) % bytes.len()).take(40));
        }
        for place in places {
            let is_whole = decode(&bytes[..place], 4096).is_ok();
            assert!(!is_whole || place >= end, "{name}: whole when cut at {place} of {}", bytes.len());
        }
        assert_eq!(decode(bytes, 4096).is_ok(), end <= bytes.len(), "{name}: whole just where it has an end mark");
    }
}

fn next_random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(0xBF58_476D_1CE4_E5B9).rotate_left(29).wrapping_add(0x94D0_49BB_1331_11EB);
    *state as usize
}

/// Returns where the data with the first end mark ends, or a position after the end if there is none.
fn end_mark(sse: &str) -> usize {
    let mut place = 0;
    for line in sse.split_inclusive('\n') {
        let data = line.trim_end().strip_prefix("data:").map(str::trim).unwrap_or_default();
        let chunk: Value = serde_json::from_str(data).unwrap_or_default();
        let choices = chunk["choices"].as_array().into_iter().flatten();
        let mut reasons = choices.filter(|choice| choice["index"] == 0).map(|choice| &choice["finish_reason"]);
        if data == "[DONE]" || reasons.any(Value::is_string) {
            return place + line.trim_end().len();
        }
        place += line.len();
    }
    sse.len() + 1
}
