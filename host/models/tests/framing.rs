//! Tests of event stream framing that the recorded streams do not cover (M1, row 31): line endings, chunk boundaries,
//! size limits, and errors instead of events.

use agent_core::model::{Delta, StopReason};
use agent_models::Protocol;
use agent_models::decode::{DecodedReply, REPLY_LIMIT, ReplyStream, StreamError, decode_document};
use agent_models::sse::{Decoder, EVENT_LIMIT};
use proptest::prelude::*;
use serde_json::json;
use std::time::{Duration, Instant};

const HELLO: &str = r#"{"choices":[{"index":0,"delta":{"content":"hällo "}}]}"#;
const WORLD: &str = r#"{"choices":[{"index":0,"delta":{"content":"wörld 🌍"},"finish_reason":"stop"}]}"#;

/// Decodes a reply from chunks. Returns the result and the deltas, with adjacent deltas of the same kind joined.
fn decode<'b>(chunks: impl IntoIterator<Item = &'b [u8]>) -> (Result<DecodedReply, StreamError>, Vec<Delta>) {
    let (mut stream, mut deltas) = (ReplyStream::new(Protocol::ChatCompletions, "p", "p/m"), Vec::new());
    for chunk in chunks {
        if let Err(error) = stream.push(chunk, &mut deltas) {
            return (Err(error), joined(deltas));
        }
    }
    let decoded = stream.finish(&mut deltas);
    (decoded, joined(deltas))
}

/// Decodes a body in one chunk and returns the text of the reply.
fn text(body: &[u8]) -> Result<String, StreamError> {
    decode([body]).0.map(|decoded| decoded.reply.text)
}

/// Joins adjacent deltas of the same kind, because it does not matter how a text is split.
fn joined(deltas: Vec<Delta>) -> Vec<Delta> {
    let mut joined: Vec<Delta> = Vec::new();
    for delta in deltas {
        match (joined.last_mut(), delta) {
            (Some(Delta::Text(text)), Delta::Text(more)) => text.push_str(&more),
            (Some(Delta::Thinking(thinking)), Delta::Thinking(more)) => thinking.push_str(&more),
            (_, delta) => joined.push(delta),
        }
    }
    joined
}

/// M1: all kinds of line endings, a byte-order mark, comments, and missing last lines are accepted.
#[test]
fn m1_all_forms_of_event_streams_are_decoded() {
    let stream = format!("data: {HELLO}\n\ndata: {WORLD}\n\ndata: [DONE]\n\n");
    let bodies = [
        stream.clone(),
        stream.replace('\n', "\r\n"),
        stream.replace('\n', "\r"),
        stream.replace("\n\n", "\r\r\n"),
        format!("\u{feff}{stream}"),
        format!("\n\r\n \n{stream}"),
        stream.replace("data: ", "data:"),
        stream.replace("data:", ": ping\nid: 7\nretry: 10\nunknown\nevent: message\ndata:"),
        stream.replace("\n\n", "\n\n:\n\n: PROCESSING\n\n"),
        stream.replace("\"choices\":", "\ndata: \"choices\":\ndata: "),
        stream.replace("\"choices\":", "\ndata: \"choices\":\ndata: ").replace('\n', "\r\n"),
        stream.replace("data: [DONE]\n\n", ""),
        stream.trim_end().to_owned(),
        stream.replace("\n\ndata: [DONE]\n\n", ""),
        stream.replace("data: [DONE]\n\n", "data: [DONE"),
        stream.replace("\n\n", "\n"),
        stream.replace("data: [DONE]\n\n", &format!("data: [DONE]\n\ndata: {HELLO}\n\n")),
    ];
    for body in &bodies {
        assert_eq!(text(body.as_bytes()).as_deref(), Ok("hällo wörld 🌍"), "{body}");
        for size in 1..12 {
            assert_eq!(decode(body.as_bytes().chunks(size)), decode([body.as_bytes()]), "by {size} bytes: {body}");
        }
    }
}

/// A body, with the expected names and data of its events.
type Framed<'f> = (&'f [u8], &'f [(&'f str, &'f str)]);

/// All `data` lines belong to the event, including empty lines, as the standard requires.
#[test]
fn m1_events_contain_all_their_data_lines() {
    let cases: [Framed<'_>; 6] = [
        (b"data\n\ndata\ndata\n\ndata:", &[("", ""), ("", "\n"), ("", "")]),
        (b"event: a\ndata: x\ndata:  y\n\ndata: z\n\n", &[("a", "x\n y"), ("", "z")]),
        (b"event: a\n\ndata: x\n\n", &[("", "x")]),
        (b"error: {}\n\n", &[("error", "{}")]),
        (b"\xEF\xBBdata: x\n\ndata: y\n\n", &[("", "y")]),
        (b"data: \xFFx\n\n", &[("", "\u{FFFD}x")]),
    ];
    for (body, expected) in cases {
        for size in 1..=body.len() {
            let (mut decoder, mut found) = (Decoder::default(), Vec::new());
            for mut chunk in body.chunks(size) {
                while let Some(event) = decoder.next(&mut chunk).unwrap() {
                    found.push((event.name.into_owned(), event.data.into_owned()));
                }
            }
            found.extend(decoder.end().map(|event| (event.name.into_owned(), event.data.into_owned())));
            let expected: Vec<_> =
                expected.iter().map(|(name, data)| ((*name).to_owned(), (*data).to_owned())).collect();
            assert_eq!(found, expected, "{:?} by {size}", String::from_utf8_lossy(body));
        }
    }
}

/// Row 31: a stream without an end marker is incomplete, no matter where it ends.
#[test]
fn m3_a_stream_without_an_end_marker_is_truncated() {
    let half_event = &WORLD[..WORLD.len() / 2];
    let bodies = [
        String::new(),
        "\n".to_owned(),
        ": PROCESSING\n\n".to_owned(),
        "da".to_owned(),
        "data: [DONE]\n\n".to_owned(),
        "data: {\"choices\":[]}\n\ndata: [DONE]\n\n".to_owned(),
        format!("data: {HELLO}\n\n"),
        format!("data: {HELLO}\n\ndata: {half_event}"),
        "{\"choices\":[{\"message\":{\"content\":\"half".to_owned(),
    ];
    for body in bodies {
        assert_eq!(text(body.as_bytes()), Err(StreamError::Truncated), "{body}");
    }
    let ended_by_done = format!("data: {HELLO}\n\ndata: [DONE]");
    assert_eq!(text(ended_by_done.as_bytes()).as_deref(), Ok("hällo "));
}

/// Row 31: errors are recognised in responses that started with status 200.
#[test]
fn m3_errors_instead_of_a_reply_are_recognised() {
    let provider = |status, code: Option<&str>, message: &str| {
        Err(StreamError::Provider { status, code: code.map(str::to_owned), message: message.to_owned() })
    };
    let hello = format!("data: {HELLO}\n\n");
    let cases = [
        (
            r#"{"error": {"message": "slow down", "code": "rate_limit"}}"#.to_owned(),
            None,
            Some("rate_limit"),
            "slow down",
        ),
        ("\n\n [{\"error\": {\"code\": 503, \"message\": \"full\"}}]".to_owned(), Some(503), None, "full"),
        (r#"{"detail": "Not Found"}"#.to_owned(), None, None, "Not Found"),
        (format!("{hello}data: {{\"error\": {{\"message\": \"m\", \"code\": 502}}}}\n\n"), Some(502), None, "m"),
        (format!("{hello}data: [{{\"error\": {{\"message\": \"m\"}}}}]\n\n"), None, None, "m"),
        (format!("{hello}event: error\ndata: it broke\n\n"), None, None, "it broke"),
        (format!("{hello}event: error\ndata: {{\"message\": \"m\"}}"), None, None, "m"),
        (format!("{hello}error: {{\"code\": 500, \"message\": \"m\"}}\n\n"), Some(500), None, "m"),
        (format!("{hello}data: {{\"object\": \"error\", \"message\": \"m\"}}\n\n"), None, None, "m"),
        (
            format!("{hello}data: {{\"choices\":[{{\"index\":0,\"error\":{{\"message\":\"m\"}}}}]}}\n\n"),
            None,
            None,
            "m",
        ),
    ];
    for (body, status, code, message) in cases {
        assert_eq!(text(body.as_bytes()), provider(status, code, message), "{body}");
    }
    let body = format!("{hello}data: {}\n\n", WORLD.replace("\"stop\"", "\"network_error\""));
    let message = "the provider ended the reply with finish_reason `network_error`";
    assert_eq!(text(body.as_bytes()), provider(None, Some("network_error"), message));
}

/// M5: if a body is not a reply, the error quotes the beginning of the body.
#[test]
fn m5_errors_quote_bodies_that_are_not_replies() {
    let cases = [
        (
            "<html>\n<body>Sign in</body></html>",
            "it is neither an event stream nor JSON: `<html> <body>Sign in</body></html>`",
        ),
        ("data: oops\n\n", "it is not JSON (expected value at line 1 column 1): `oops`"),
        ("data: {\"a\": \n\n", "one event is incomplete JSON: `{\"a\":`"),
        ("data: 7\n\n", "it is not a JSON object: `7`"),
        ("{\"a\": 1}", "the JSON has no `choices`: `{\"a\": 1}`"),
        (
            "data: {\"choices\": 7}\n\n",
            "it is not a Chat Completions reply (invalid type: integer `7`, expected a list at line 1 column 12): `{\"choices\": 7}`",
        ),
    ];
    for (body, expected) in cases {
        assert_eq!(text(body.as_bytes()).unwrap_err().to_string(), expected, "{body}");
    }
    assert_eq!(text(format!("event: ping\ndata: pong\n\ndata: {WORLD}\n\n").as_bytes()).as_deref(), Ok("wörld 🌍"));
}

/// Row 31: an event of 10 MB is rejected, and an event of exactly the maximum size is decoded.
#[test]
fn m3_the_size_of_an_event_is_limited() {
    let overhead = WORLD.len() + "data: ".len();
    for (length, fits) in [(EVENT_LIMIT - overhead, true), (10_000_000, false)] {
        let event = format!("data: {}\n\n", WORLD.replace("wörld 🌍", &"x".repeat(length)));
        let too_large = StreamError::TooLarge { what: "one event of the reply", limit: EVENT_LIMIT };
        let expected = if fits { Ok(length) } else { Err(too_large) };
        assert_eq!(text(event.as_bytes()).map(|text| text.len()), expected);
        assert_eq!(decode(event.as_bytes().chunks(65_536)).0.map(|decoded| decoded.reply.text.len()), expected);
    }
    let many_lines = "data: x\n".repeat(EVENT_LIMIT / 2 + 1);
    assert!(matches!(decode(many_lines.as_bytes().chunks(65_536)).0, Err(StreamError::TooLarge { .. })));
}

/// Row 31: an endless body is rejected, whether it consists of text, of calls or of one document.
#[test]
fn m3_the_size_of_a_reply_is_limited() {
    // Passes the same chunk to the decoder repeatedly until the decoder returns an error. Returns the number of chunks
    // and the error.
    let endless = |chunk: &str| {
        let (mut stream, mut deltas) = (ReplyStream::new(Protocol::ChatCompletions, "p", "p/m"), Vec::new());
        let pushes =
            (1..=REPLY_LIMIT).map(|count| (count, stream.push(chunk.as_bytes(), &mut std::mem::take(&mut deltas))));
        pushes.into_iter().find_map(|(count, result)| result.err().map(|error| (count, error))).unwrap()
    };
    let piece = "x".repeat(1 << 20);
    let too_large = StreamError::TooLarge { what: "the reply", limit: REPLY_LIMIT };
    assert_eq!(endless(&format!("data: {}\n\n", HELLO.replace("hällo ", &piece))), (17, too_large.clone()));
    let thinking = HELLO.replace("content", "reasoning").replace("hällo ", &piece);
    assert_eq!(endless(&format!("data: {thinking}\n\n")), (17, too_large.clone()));
    let call = json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}}]});
    assert_eq!(endless(&format!("data: {call}\n\n")), (17, too_large.clone()));
    assert_eq!(endless(&format!("{{{piece}")).1, too_large);
    let call = r#"{"choices":[{"delta":{"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}}]}"#;
    assert_eq!(endless(&format!("data: {call}\n\n")), (1025, StreamError::TooMany { what: "tool calls", limit: 1024 }));
}

/// Row 31: when more bytes arrive, the decoder does not read the earlier bytes again. If it did, this test would take
/// minutes instead of a fraction of a second.
#[test]
fn m3_decoding_time_is_linear_in_the_size_of_an_event() {
    let event = format!("data: {}\n\n", WORLD.replace("wörld 🌍", &"x".repeat(8_000_000)));
    let start = Instant::now();
    assert!(decode(event.as_bytes().chunks(16)).0.is_ok());
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

/// M1: the `index` of a call is a key and not a position. A large index does not allocate memory. The indexes may start
/// at any number, may repeat and may be missing.
#[test]
fn m1_call_indexes_are_keys_and_not_positions() {
    let call = |index: serde_json::Value, id: &str, name: &str, arguments: &str| {
        let mut call = json!({"id": id, "function": {"name": name, "arguments": arguments}});
        if !index.is_null() {
            call["index"] = index;
        }
        format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}))
    };
    let none = serde_json::Value::Null;
    let expected = [("a", "f", "{\"x\":1}"), ("b", "g", "{}")];
    let huge = json!(u64::MAX);
    let cases = [
        [call(json!(2_000_000), "a", "f", "{\"x\""), call(json!(2_000_000), "", "", ":1}"), call(huge, "b", "g", "{}")],
        [call(none.clone(), "a", "f", "{\"x\""), call(none.clone(), "", "", ":1}"), call(none.clone(), "b", "g", "{}")],
        [call(json!(0), "a", "f", "{\"x\""), call(json!(0), "", "", ":1}"), call(json!(0), "b", "g", "{}")],
        [call(json!(1), "a", "f", "{\"x\""), call(json!(1), "a", "f", ":1}"), call(json!(2), "b", "g", "{}")],
        [call(json!(1), "a", "f", "{\"x\""), call(json!(0), "b", "g", "{}"), call(json!(1), "", "", ":1}")],
    ];
    for case in cases {
        let body = format!("{}data: [DONE]\n\n", case.concat());
        let reply = decode([body.as_bytes()]).0.unwrap().reply;
        let calls = reply
            .calls
            .iter()
            .map(|call| (call.provider_id.as_deref().unwrap_or_default(), call.name.as_str(), call.arguments.as_str()));
        assert_eq!(calls.collect::<Vec<_>>(), expected, "{body}");
        assert_eq!(reply.stop, StopReason::ToolCalls);
    }
}

/// M1: a JSON document is decoded as a reply, even if blank lines precede it as in responses of DeepSeek.
#[test]
fn m1_a_json_document_is_decoded() {
    let body = format!("\n\n\n{}", WORLD.replace("delta", "message"));
    let decoded = decode_document(Protocol::ChatCompletions, "p", "p/m", body.as_bytes()).unwrap();
    assert_eq!((decoded.reply.text.as_str(), decoded.reply.stop), ("wörld 🌍", StopReason::Stop));
    assert_eq!(decode(body.as_bytes().chunks(3)), (Ok(decoded), vec![Delta::Text("wörld 🌍".into())]));
}

/// Valid and invalid fragments of streams.
const FRAGMENTS: &[&str] = &[
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\\n<think>ü\"}}]}",
    "data: {\"choices\":[{\"delta\":{\"content\":\"b</think>🌍\",\"reasoning\":\"r\"}}]}",
    "data:{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]}}]}",
    "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"arguments\":\"}\"}}]},\"finish_reason\":\"length\"}]}",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}",
    "data: {\"choices\":",
    "data: [DONE]",
    "{\"choices\":[{\"message\":{\"content\":\"d\"}}]}",
    ": comment",
    "event: ping",
    "event: error",
    "data: {\"error\":\"e\"}",
    "data: no json",
    "\u{feff}",
    " ",
    "id: 1",
    "\n",
    "\n\n",
    "\r\n\r\n",
    "\r",
    "\n\n",
];

proptest! {
    /// M1: the decoded reply does not depend on the chunk boundaries.
    #[test]
    fn m1_chunk_boundaries_do_not_affect_the_reply(
        fragments in prop::collection::vec(prop::sample::select(FRAGMENTS), 0..24),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..24),
    ) {
        let body = fragments.concat().into_bytes();
        let mut boundaries: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
        boundaries.extend([0, body.len()]);
        boundaries.sort_unstable();
        let chunks = boundaries.windows(2).map(|ends| &body[ends[0]..ends[1]]);
        prop_assert_eq!(decode(chunks), decode([&body[..]]));
    }

    /// M1: no input causes a panic, and random bytes are not decoded as a reply.
    #[test]
    fn m1_random_bytes_are_not_a_reply(
        noise in prop::collection::vec(any::<u8>(), 0..400),
        insertion in any::<prop::sample::Index>(),
    ) {
        prop_assert!(decode(noise.chunks(7)).0.is_err());
        let mut body = format!("data: {HELLO}\n\ndata: {WORLD}\n\n").into_bytes();
        let position = insertion.index(body.len());
        body.splice(position..position, noise);
        let _ = decode(body.chunks(5));
        let _ = decode_document(Protocol::ChatCompletions, "p", "p/m", &body[7..]);
    }
}
