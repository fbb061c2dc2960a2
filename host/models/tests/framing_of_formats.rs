//! Tests of the framing of streams in the formats of OpenAI Responses, Anthropic Messages and Gemini (M1, row 31):
//! line endings, chunk boundaries, size limits, random bytes, and errors instead of events.

use agent_core::model::Delta;
use agent_models::Protocol;
use agent_models::decode::{DecodedReply, REPLY_LIMIT, ReplyStream, StreamError, decode_document};
use proptest::prelude::*;

/// A reply in one format: its events without line endings, and a way to make the piece of its text longer.
struct Sample {
    protocol: Protocol,
    events: &'static [&'static str],
    /// Position of the event with the first piece of the text, which contains `hällo `.
    text_event: usize,
}

const SAMPLES: [Sample; 3] = [
    Sample {
        protocol: Protocol::Responses,
        events: &[
            r#"{"type":"response.created","response":{"id":"r","status":"in_progress"}}"#,
            r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"delta":"hm"}"#,
            r#"{"type":"response.output_text.delta","output_index":1,"delta":"hällo "}"#,
            r#"{"type":"response.output_text.delta","output_index":1,"delta":"wörld 🌍"}"#,
            r#"{"type":"response.function_call_arguments.delta","output_index":2,"delta":"{\"a\":"}"#,
            r#"{"type":"response.output_item.done","output_index":2,"item":{"type":"function_call","call_id":"c","name":"f","arguments":"{\"a\":1}"}}"#,
            r#"{"type":"response.completed","response":{"status":"completed","output":[],"usage":{"input_tokens":3,"output_tokens":4}}}"#,
        ],
        text_event: 2,
    },
    Sample {
        protocol: Protocol::Anthropic,
        events: &[
            r#"{"type":"message_start","message":{"id":"m","content":[],"usage":{"input_tokens":3,"output_tokens":1}}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hällo "}}"#,
            r#"{"type":"ping"}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"wörld 🌍"}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"c","name":"f","input":{}}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\":1}"}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":4}}"#,
            r#"{"type":"message_stop"}"#,
        ],
        text_event: 2,
    },
    Sample {
        protocol: Protocol::Gemini,
        events: &[
            r#"{"candidates":[{"content":{"parts":[{"text":"hm","thought":true}],"role":"model"},"index":0}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":"hällo "}],"role":"model"},"index":0}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":"wörld 🌍"}],"role":"model"},"index":0}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"functionCall":{"id":"c","name":"f","args":{"a":1}}}]}}]}"#,
            r#"{"candidates":[{"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":4}}"#,
        ],
        text_event: 1,
    },
];

impl Sample {
    /// Returns the sample as a stream in which `first_piece` replaces the first piece of the reply's text.
    fn stream(&self, first_piece: &str) -> String {
        let events = self.events.iter().map(|event| format!("data: {}\n\n", event.replace("hällo ", first_piece)));
        events.collect()
    }
}

fn decode<'b>(
    protocol: Protocol,
    chunks: impl IntoIterator<Item = &'b [u8]>,
) -> Result<(DecodedReply, String), StreamError> {
    let (mut stream, mut deltas) = (ReplyStream::new(protocol, "p", "p/m"), Vec::new());
    for chunk in chunks {
        stream.push(chunk, &mut deltas)?;
    }
    let decoded = stream.finish(&mut deltas)?;
    let text = deltas.into_iter().filter_map(|delta| if let Delta::Text(text) = delta { Some(text) } else { None });
    Ok((decoded, text.collect()))
}

/// M1: all kinds of line endings, a byte-order mark, comments, event names and a missing last blank line are accepted,
/// and chunks may end anywhere.
#[test]
fn m1_all_forms_of_event_streams_are_decoded() {
    for sample in &SAMPLES {
        let stream = sample.stream("hällo ");
        let bodies = [
            stream.clone(),
            stream.replace('\n', "\r\n"),
            stream.replace('\n', "\r"),
            format!("\u{feff}{stream}"),
            stream.replace("data: ", "data:"),
            stream.replace("data:", ": ping\nid: 7\nretry: 10\ndata:"),
            stream.replace("\n\n", "\n\n:\n\n: PROCESSING\n\n"),
            stream.trim_end().to_owned(),
            stream.replace("\n\n", "\n"),
            format!("{stream}data: [DONE]\n\n"),
        ];
        for body in &bodies {
            let (decoded, text) = decode(sample.protocol, [body.as_bytes()]).unwrap();
            assert_eq!((text.as_str(), decoded.reply.text.as_str()), ("hällo wörld 🌍", "hällo wörld 🌍"), "{body}");
            assert_eq!(decoded.reply.calls.len(), 1, "{body}");
            assert_eq!((decoded.reply.usage.prompt_tokens, decoded.reply.usage.completion_tokens), (3, 4), "{body}");
            for size in 1..12 {
                let in_chunks = decode(sample.protocol, body.as_bytes().chunks(size)).unwrap();
                assert_eq!(in_chunks, (decoded.clone(), text.clone()), "by {size} bytes: {body}");
            }
        }
    }
}

/// M3, row 31: a stream that is cut anywhere is never a complete reply.
#[test]
fn m3_cut_streams_are_never_complete() {
    for sample in &SAMPLES {
        let stream = sample.stream("hällo ");
        let end = stream.trim_end().len();
        for length in 0..end {
            assert!(decode(sample.protocol, [&stream.as_bytes()[..length]]).is_err(), "{} bytes of {stream}", length);
        }
    }
}

/// M3, row 31: a reply larger than the limit is rejected, whether it consists of text, calls or one document.
#[test]
fn m3_the_size_of_a_reply_is_limited() {
    for sample in &SAMPLES {
        let piece = "x".repeat(1 << 20);
        let before: String =
            sample.events[..sample.text_event].iter().map(|event| format!("data: {event}\n\n")).collect();
        let event = format!("data: {}\n\n", sample.events[sample.text_event].replace("hällo ", &piece));
        let (mut stream, mut deltas) = (ReplyStream::new(sample.protocol, "p", "p/m"), Vec::new());
        stream.push(before.as_bytes(), &mut deltas).unwrap();
        let pushes = (0..40).map(|_| stream.push(event.as_bytes(), &mut Vec::new()));
        let error = pushes.into_iter().find_map(Result::err).expect("the reply is too large");
        assert_eq!(error, StreamError::TooLarge { what: "the reply", limit: REPLY_LIMIT }, "{}", sample.protocol);
        let document = format!("{{{}", " ".repeat(REPLY_LIMIT));
        let error = decode(sample.protocol, document.as_bytes().chunks(1 << 20)).unwrap_err();
        assert_eq!(error, StreamError::TooLarge { what: "the reply", limit: REPLY_LIMIT });
    }
}

/// M3: a body that is a JSON error instead of a stream, and an error event in the middle of a stream, are errors.
#[test]
fn m3_errors_in_place_of_events_are_errors() {
    for sample in &SAMPLES {
        let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded","code":529}}"#;
        let begin = format!("data: {}\n\n", sample.events[0]);
        let bodies =
            [error.to_owned(), format!("{begin}event: error\ndata: {error}\n\n"), format!("{begin}data: {error}\n\n")];
        for body in bodies {
            let stream = format!("{body}{}", if body == error { "" } else { "data: [DONE]\n\n" });
            let failed = decode(sample.protocol, [stream.as_bytes()]).unwrap_err();
            assert!(
                matches!(&failed, StreamError::Provider { message, .. } if message == "Overloaded"),
                "{body}: {failed:?}"
            );
        }
        assert!(decode(sample.protocol, [&b"<html>"[..]]).is_err());
        assert_eq!(decode(sample.protocol, []).unwrap_err(), StreamError::Truncated);
    }
}

proptest! {
    /// M1, row 26: the result does not depend on the chunk boundaries, even if bytes of the stream are changed, and no
    /// input causes a panic.
    #[test]
    fn m1_chunk_boundaries_do_not_affect_the_reply(
        sample in 0..SAMPLES.len(),
        order in prop::collection::vec(0_usize..10, 0..14),
        noise in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        size in 1_usize..60,
    ) {
        let Sample { protocol, events, .. } = &SAMPLES[sample];
        let events = order.iter().map(|position| format!("data: {}\n\n", events[position % events.len()]));
        let mut body = events.collect::<String>().into_bytes();
        for (position, byte) in noise.iter().filter(|_| !order.is_empty()) {
            let position = position.index(body.len());
            body[position] = *byte;
        }
        let whole = decode(*protocol, [&body[..]]);
        let pieces = decode(*protocol, body.chunks(size));
        prop_assert_eq!(whole.is_ok(), pieces.is_ok());
        if let (Ok(whole), Ok(pieces)) = (whole, pieces) {
            prop_assert_eq!(whole, pieces);
        }
        let _ = decode_document(*protocol, "p", "p/m", &body);
    }
}
