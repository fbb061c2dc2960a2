//! Tests of replies in the format of Gemini.

use crate::Protocol;
use crate::decode::test_support::stream;
use crate::decode::{DecodedReply, StreamError, decode_document};
use agent_core::model::{StopReason, TokenDetails, Usage};
use serde_json::{Value, json};

fn decode(events: &[Value]) -> Result<(DecodedReply, String), StreamError> {
    stream(Protocol::Gemini, events)
}

fn parts(parts: Value) -> Value {
    json!({"candidates": [{"index": 0, "content": {"role": "model", "parts": parts}}], "responseId": "r1"})
}

fn end(reason: &str) -> Value {
    json!({"candidates": [{"finishReason": reason}]})
}

/// M1: all kinds of parts are decoded, and all parts are stored as they were sent. Adjacent texts are joined.
#[test]
fn m1_parts_are_decoded_and_stored() {
    let code = json!({"executableCode": {"code": "1+1"}, "thoughtSignature": "s3"});
    let usage = json!({"usageMetadata": {
        "promptTokenCount": 100, "cachedContentTokenCount": 60, "toolUsePromptTokenCount": 3,
        "candidatesTokenCount": 10, "thoughtsTokenCount": 20,
    }});
    let (decoded, text) = decode(&[
        parts(json!([{"text": "I think", "thought": true}])),
        parts(json!([{"text": ".", "thought": true}])),
        parts(json!([{"text": "Look"}])),
        parts(json!([{"text": "ing"}, {"text": "", "thoughtSignature": "s1"}, {"text": "."}])),
        parts(json!([
            {"functionCall": {"id": "c1", "name": "f", "args": {"b": 1, "a": 2}}, "thoughtSignature": "s2"},
            {"functionCall": {"name": "g"}},
            code,
        ])),
        json!({"candidates": [{"index": 1, "content": {"parts": [{"text": "another candidate"}]}}]}),
        end("STOP"),
        usage,
    ])
    .unwrap();
    assert_eq!(text, "{I think.}Looking.");
    let reply = decoded.reply;
    assert_eq!((reply.text.as_str(), reply.stop), ("Looking.", StopReason::ToolCalls));
    let calls: Vec<_> = reply.calls.iter().map(|call| (call.provider_id.as_deref(), call.arguments.as_str())).collect();
    assert_eq!(calls, [(Some("c1"), "{\"b\":1,\"a\":2}"), (None, "")]);
    let items = json!([
        {"text": "I think.", "thought": true}, {"text": "Looking"}, {"text": "", "thoughtSignature": "s1"},
        {"text": "."},
        {"functionCall": {"id": "c1", "name": "f", "args": {"b": 1, "a": 2}}, "thoughtSignature": "s2"},
        {"functionCall": {"name": "g"}}, code,
    ]);
    assert_eq!(reply.replay.unwrap().data, json!({"protocol": "gemini", "model": "m", "items": items}));
    let details = TokenDetails { uncached_prompt: 43, cache_read: 60, cache_write: 0, completion: 30, thinking: 20 };
    assert_eq!(reply.usage, Usage { details: Some(details), ..Usage::new(100, 10) });
}

/// M1: the arguments of calls can arrive in pieces.
#[test]
fn m1_calls_in_pieces_are_assembled() {
    let piece = |call: Value| parts(json!([{"functionCall": call}]));
    let begin = json!({"functionCall": {"name": "f", "willContinue": true}, "thoughtSignature": "s"});
    let argument = |text: &str| {
        let pieces = json!([{"jsonPath": "$.city", "stringValue": text, "willContinue": true}]);
        piece(json!({"partialArgs": pieces, "willContinue": true}))
    };
    let (decoded, _) = decode(&[
        parts(json!([begin])),
        argument("Bos"),
        argument("ton"),
        piece(json!({})),
        piece(json!({"name": "f", "willContinue": true})),
        argument("Rome"),
        piece(json!({})),
        end("STOP"),
    ])
    .unwrap();
    let arguments: Vec<_> = decoded.reply.calls.iter().map(|call| call.arguments.as_str()).collect();
    assert_eq!(arguments, ["{\"city\":\"Boston\"}", "{\"city\":\"Rome\"}"]);
    let first = json!({"functionCall": {"name": "f", "args": {"city": "Boston"}}, "thoughtSignature": "s"});
    assert_eq!(decoded.reply.replay.unwrap().data["items"][0], first);
}

/// M1, M3, row 31: each way in which a reply can end is converted to a stop reason or an error.
#[test]
fn m1_ends_of_replies_are_converted() {
    let text = parts(json!([{"text": "a"}]));
    let stop = |reason: &str| decode(&[text.clone(), end(reason)]).map(|(decoded, _)| decoded.reply.stop);
    let cases = [
        ("STOP", StopReason::Stop),
        ("MAX_TOKENS", StopReason::Length),
        ("SAFETY", StopReason::ContentFilter),
        ("RECITATION", StopReason::ContentFilter),
        ("A_NEW_REASON", StopReason::Stop),
    ];
    for (reason, expected) in cases {
        assert_eq!(stop(reason), Ok(expected), "{reason}");
    }
    let blocked = json!({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 1}});
    let malformed = json!({"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "print(f())"}]});
    let error = json!({"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}});
    let failures = [
        (vec![blocked], Some("SAFETY"), "the provider blocked the prompt (SAFETY)"),
        (
            vec![malformed],
            Some("MALFORMED_FUNCTION_CALL"),
            "the model did not write a valid reply (MALFORMED_FUNCTION_CALL): print(f())",
        ),
        (vec![text.clone(), error], Some("UNAVAILABLE"), "busy"),
    ];
    for (events, expected_code, expected_message) in failures {
        let StreamError::Provider { code, message, .. } = decode(&events).unwrap_err() else { panic!("{events:?}") };
        assert_eq!((code.as_deref(), message.as_str()), (expected_code, expected_message));
    }
    assert_eq!(decode(std::slice::from_ref(&text)).unwrap_err(), StreamError::Truncated);
    let open_call = parts(json!([{"functionCall": {"name": "f", "willContinue": true}}]));
    assert_eq!(decode(&[open_call, end("STOP")]).unwrap_err(), StreamError::Truncated, "the arguments are incomplete");
    assert_eq!(decode(&[text.clone(), end("FINISH_REASON_UNSPECIFIED")]).unwrap_err(), StreamError::Truncated);
    assert!(matches!(stop("OTHER"), Err(StreamError::Provider { .. })));
    let (decoded, _) = decode(&[end("STOP")]).unwrap();
    assert_eq!((decoded.reply.text.as_str(), decoded.reply.stop), ("", StopReason::Stop), "an empty candidate");
}

/// M1: replies that are not streamed are decoded like streams.
#[test]
fn m1_complete_responses_are_decoded() {
    let response = json!({"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}]});
    let streamed = json!([parts(json!([{"text": "a"}])), end("STOP")]);
    for body in [response, streamed] {
        let decoded = decode_document(Protocol::Gemini, "p", "p/m", body.to_string().as_bytes()).unwrap();
        assert_eq!((decoded.reply.text.as_str(), decoded.reply.replay), ("a", None));
    }
    for error in
        [json!({"error": {"code": 400, "message": "bad"}}), json!([{"error": {"code": 400, "message": "bad"}}])]
    {
        let error = decode_document(Protocol::Gemini, "p", "p/m", error.to_string().as_bytes()).unwrap_err();
        assert!(matches!(error, StreamError::Provider { status: Some(400), .. }), "{error:?}");
    }
}
