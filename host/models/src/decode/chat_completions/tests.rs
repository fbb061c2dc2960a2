//! Tests of how replies in different dialects of Chat Completions are decoded.

use crate::Protocol;
use crate::decode::{DecodedReply, ReplyStream, decode_document};
use crate::provider::RawReply;
use agent_core::model::Delta;
use agent_core::model::{StopReason, TokenDetails, Usage};
use serde_json::{Value, json};

/// Decodes a stream of these chunks. Returns the reply and a string that joins all deltas, in which thinking is
/// enclosed in braces.
fn streamed(chunks: &[Value]) -> (DecodedReply, String) {
    let (mut stream, mut deltas) = (ReplyStream::new(Protocol::ChatCompletions, "p", "p/m"), Vec::new());
    for chunk in chunks {
        stream.push(format!("data: {chunk}\n\n").as_bytes(), &mut deltas).unwrap();
    }
    let decoded = stream.finish(&mut deltas).unwrap();
    let rendered = deltas.into_iter().map(|delta| match delta {
        Delta::Text(text) | Delta::Thinking(text) => text,
        Delta::ThinkingStart => "{".to_owned(),
        Delta::ThinkingEnd => "}".to_owned(),
        Delta::Clear => "clear".to_owned(),
    });
    (decoded, rendered.collect())
}

fn delta(delta: Value) -> Value {
    json!({ "choices": [{ "index": 0, "delta": delta }] })
}

fn end(reason: &str) -> Value {
    json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })
}

fn piece(piece: Value) -> Value {
    delta(json!({ "tool_calls": [piece] }))
}

/// Id, name and arguments of a call.
type Call<'c> = (&'c str, &'c str, &'c str);

fn calls(decoded: &DecodedReply) -> Vec<Call<'_>> {
    let fields = decoded
        .reply
        .calls
        .iter()
        .map(|call| (call.provider_id.as_deref().unwrap_or_default(), call.name.as_str(), call.arguments.as_str()));
    fields.collect()
}

/// M1: usage is found in all fields that servers use, and later usage replaces earlier usage.
#[test]
fn m1_usage_is_found_in_all_fields() {
    let usage = |prompt: u64, completion: u64| json!({"prompt_tokens": prompt, "completion_tokens": completion});
    let cases: [(Value, Value); 6] = [
        (json!({"choices": [], "usage": usage(7, 3)}), usage(7, 3)),
        (json!({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": usage(7, 3)}), usage(7, 3)),
        (json!({"choices": [{"delta": {}, "usage": usage(7, 3)}]}), usage(7, 3)),
        (json!({"choices": [{"delta": {}}], "x_groq": {"id": "r", "usage": usage(7, 3)}}), usage(7, 3)),
        (json!({"usage": {"input_tokens": 7, "output_tokens": 3.0}}), json!({"input_tokens": 7, "output_tokens": 3.0})),
        (
            json!({"choices": null, "usage": {"prompt_tokens": 7, "completion_tokens": 3, "a": null}}),
            json!({"prompt_tokens": 7, "completion_tokens": 3, "a": null}),
        ),
    ];
    for (chunk, raw) in cases {
        let earlier = json!({"choices": [{"delta": {"content": "x"}}], "usage": usage(7, 1)});
        let later = json!({"choices": [], "usage": null});
        let (decoded, _) = streamed(&[earlier, chunk.clone(), later, end("stop")]);
        assert_eq!(decoded.reply.usage, Usage::new(7, 3), "{chunk}");
        assert_eq!(decoded.raw["usage"], raw, "{chunk}");
    }
    let usage = json!({
        "prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1},
        "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 2},
    });
    let details = TokenDetails { uncached_prompt: 5, cache_read: 4, cache_write: 1, completion: 5, thinking: 2 };
    let (decoded, _) = streamed(&[json!({"choices": [], "usage": usage}), end("stop")]);
    assert_eq!(decoded.reply.usage, Usage { details: Some(details), ..Usage::new(10, 5) });
    let usage = json!({"prompt_tokens": 10, "prompt_cache_hit_tokens": 400, "completion_tokens": 5});
    let (decoded, _) = streamed(&[json!({"choices": [], "usage": usage}), end("stop")]);
    assert_eq!(decoded.reply.usage.details().cache_read, 10, "no more tokens are cached than the prompt has");
    let (decoded, _) = streamed(&[end("stop"), json!({"usage": {"total_tokens": "many"}})]);
    assert_eq!((decoded.reply.usage, decoded.raw.get("usage")), (Usage::default(), None));
}

/// L21: thinking is read from all fields that servers use. If several fields contain the same thinking, it is read only
/// once, and it never appears in the text of the reply.
#[test]
fn l21_thinking_is_read_from_all_fields() {
    let detail = |text: &str| json!([{"type": "reasoning.text", "text": text}]);
    let answer = delta(json!({"content": "answer"}));
    let cases = [
        vec![delta(json!({"reasoning_content": "a", "content": null})), delta(json!({"reasoning_content": "b"}))],
        vec![delta(json!({"reasoning": "a", "content": ""})), delta(json!({"reasoning": "b"}))],
        vec![delta(json!({"reasoning": "ab", "reasoning_content": "ab", "reasoning_details": detail("ab")}))],
        vec![
            delta(json!({"reasoning_details": detail("a")})),
            delta(json!({"reasoning": null, "reasoning_details": detail("b")})),
        ],
        vec![delta(
            json!({"reasoning_details": [{"type": "reasoning.summary", "summary": "ab"}, {"type": "reasoning.encrypted", "data": "x"}]}),
        )],
        vec![delta(json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "ab"}]}]}))],
        vec![
            delta(json!({"content": "<thi"})),
            delta(json!({"content": "nk>a"})),
            delta(json!({"content": "b</think>\n"})),
        ],
    ];
    for mut chunks in cases {
        let first = chunks[0].clone();
        chunks.extend([answer.clone(), end("stop")]);
        let (decoded, rendered) = streamed(&chunks);
        assert_eq!((decoded.reply.text.as_str(), rendered.as_str()), ("answer", "{ab}answer"), "{first}");
        assert_eq!(decoded.raw["reasoning"], "ab", "{first}");
    }
    let call = piece(json!({"id": "c", "function": {"name": "f", "arguments": "{}"}}));
    let (_, rendered) =
        streamed(&[delta(json!({"reasoning": "a"})), call, delta(json!({"content": "b"})), end("stop")]);
    assert_eq!(rendered, "{a}b");
    let text = "`<think>` is a tag";
    assert_eq!(streamed(&[delta(json!({"content": text})), end("stop")]).1, text);
}

/// M1: content is decoded in each of its forms: as a string, as a list of parts, and in the same chunk as the
/// finish reason.
#[test]
fn m1_content_of_all_forms_is_decoded() {
    let parts = json!([{"type": "text", "text": "a"}, {"type": "reference", "reference_ids": [1]}, {"type": "text", "text": "b"}]);
    let last = json!({"choices": [{"delta": {"content": "c"}, "finish_reason": "stop"}]});
    let repeated = json!({"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": "stop"}]});
    let alternative = json!({"choices": [{"index": 1, "delta": {"content": "another"}, "finish_reason": "length"}]});
    let (decoded, _) = streamed(&[delta(json!({"content": parts})), alternative, last, repeated]);
    assert_eq!((decoded.reply.text.as_str(), decoded.reply.stop), ("abc", StopReason::Stop));

    let cumulative = |text: &str, whole_text: &str| {
        let (delta, message) = (json!({"content": text}), json!({"content": whole_text}));
        json!({"choices": [{"delta": delta, "message": message}]})
    };
    let last = json!({"choices": [{"message": {"content": "ab"}, "finish_reason": "stop"}]});
    assert_eq!(streamed(&[cumulative("a", "a"), cumulative("b", "ab"), last]).0.reply.text, "ab");

    let duplicate_key = r#"data: {"choices":[{"delta":{"content":"x","content":"y"},"finish_reason":"stop"}]}"#;
    let (mut stream, mut deltas) = (ReplyStream::new(Protocol::ChatCompletions, "p", "p/m"), Vec::new());
    stream.push(format!("{duplicate_key}\n\n").as_bytes(), &mut deltas).unwrap();
    assert_eq!(stream.finish(&mut deltas).unwrap().reply.text, "y", "the last value of a key is used");
}

/// M1: a refusal is streamed as text and stored separately from the text of the decoded reply. The raw reply has the
/// refusal as its text.
#[test]
fn m1_a_refusal_is_separate_from_the_text() {
    let chunks = [delta(json!({"content": null, "refusal": "I "})), delta(json!({"refusal": "won't"})), end("stop")];
    let (decoded, rendered) = streamed(&chunks);
    assert_eq!(
        (decoded.reply.text.as_str(), decoded.refusal.as_deref(), rendered.as_str()),
        ("", Some("I won't"), "I won't")
    );
    assert_eq!(decoded.raw["refusal"], "I won't");
    let reply = RawReply::from(decoded).reply;
    assert_eq!((reply.text.as_str(), reply.stop), ("I won't", StopReason::Stop));
    let (decoded, _) = streamed(&[delta(json!({"content": "text", "refusal": ""})), end("stop")]);
    assert_eq!((RawReply::from(decoded.clone()).reply.text.as_str(), decoded.refusal), ("text", None));
}

/// Checks that each list of chunks is decoded to the expected calls.
fn check_calls(cases: Vec<(Vec<Value>, Vec<Call<'_>>)>) {
    for (mut chunks, expected) in cases {
        chunks.push(end("stop"));
        let (decoded, _) = streamed(&chunks);
        assert_eq!(calls(&decoded), expected);
        assert_eq!(decoded.reply.stop, StopReason::ToolCalls, "the stop reason of a reply with calls is `ToolCalls`");
    }
}

/// M1: the pieces of a call are joined, no matter how the server identifies the call.
#[test]
fn m1_pieces_of_calls_are_joined() {
    let cases: Vec<(Vec<Value>, Vec<Call<'_>>)> = vec![
        // Some pieces repeat the name of the call, and in one piece the name is null.
        (
            vec![
                piece(json!({"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}})),
                piece(json!({"index": 0, "id": null, "function": {"name": null, "arguments": "{\"x\":"}})),
                piece(json!({"index": 0, "id": "", "function": {"name": "f", "arguments": "\"}{\""}})),
                piece(json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "}"}})),
                piece(json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}})),
            ],
            vec![("a", "f", "{\"x\":\"}{\"}")],
        ),
        // A brace in a string after an escaped quote does not end the arguments.
        (
            vec![
                piece(json!({"index": 0, "function": {"name": "f", "arguments": "{\"x\":\"\\\"}"}})),
                piece(json!({"index": 0, "function": {"name": "f", "arguments": "\"}"}})),
            ],
            vec![("", "f", "{\"x\":\"\\\"}\"}")],
        ),
        // The server repeats the complete call at the end of the stream. The repetition must not become a second call.
        (
            vec![
                piece(json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"x\":"}})),
                piece(json!({"index": 0, "function": {"arguments": "1}"}})),
                piece(json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"x\":1}"}})),
            ],
            vec![("a", "f", "{\"x\":1}")],
        ),
        // Each piece of one call has a different id.
        (
            vec![
                piece(json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}})),
                piece(json!({"index": 0, "id": "b", "function": {"arguments": "{\"x\""}})),
                piece(json!({"index": 0, "id": "c", "function": {"name": "f", "arguments": ":1}"}})),
            ],
            vec![("a", "f", "{\"x\":1}")],
        ),
        // The id is a number, an index is a string, and some pieces are empty.
        (
            vec![
                piece(json!({"index": "0", "id": 17, "function": {"name": "f", "arguments": "{}"}})),
                piece(json!({"index": 1, "function": {}})),
                delta(json!({"tool_calls": [null]})),
            ],
            vec![("17", "f", "{}")],
        ),
    ];
    check_calls(cases);
}

/// M1: calls are distinguished by whatever the server sends: the index, the id, the name or complete arguments.
#[test]
fn m1_calls_are_distinguished() {
    let cases: Vec<(Vec<Value>, Vec<Call<'_>>)> = vec![
        // The arguments are objects, the calls have no indexes and no ids, and two calls have the same name.
        (
            vec![delta(json!({"tool_calls": [
                {"function": {"name": "f", "arguments": {"x": 1}}},
                {"function": {"name": "f", "arguments": {"x": 2}}},
                {"function": {"name": "g"}}
            ]}))],
            vec![("", "f", "{\"x\":1}"), ("", "f", "{\"x\":2}"), ("", "g", "")],
        ),
        // All indexes are 0 in the next three cases. The calls differ in their ids in the first case, in their names in
        // the second, and in their arguments in the third.
        (
            vec![
                piece(json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}})),
                piece(json!({"index": 0, "id": "b", "function": {"name": "f", "arguments": ""}})),
            ],
            vec![("a", "f", ""), ("b", "f", "")],
        ),
        (
            vec![
                piece(json!({"index": 0, "id": "", "function": {"name": "f", "arguments": ""}})),
                piece(json!({"index": 0, "id": "", "function": {"name": "g", "arguments": "{}"}})),
            ],
            vec![("", "f", ""), ("", "g", "{}")],
        ),
        (
            vec![
                piece(json!({"index": 0, "id": "same", "function": {"name": "f", "arguments": "{\"x\":1}"}})),
                piece(json!({"index": 0, "id": "same", "function": {"name": "f", "arguments": "{\"x\":2}"}})),
            ],
            vec![("same", "f", "{\"x\":1}"), ("same", "f", "{\"x\":2}")],
        ),
        // The pieces of two calls alternate, and only the ids distinguish the calls.
        (
            vec![
                piece(json!({"id": "a", "function": {"name": "f", "arguments": "{"}})),
                piece(json!({"id": "b", "function": {"name": "g", "arguments": "{"}})),
                piece(json!({"id": "a", "function": {"arguments": "}"}})),
                piece(json!({"id": "b", "function": {"arguments": "}"}})),
            ],
            vec![("a", "f", "{}"), ("b", "g", "{}")],
        ),
    ];
    check_calls(cases);
}

/// M1: in a complete reply, each item of `tool_calls` is a separate call, even if items are equal.
#[test]
fn m1_each_item_of_a_document_is_a_call() {
    let item = json!({"function": {"name": "f", "arguments": ""}});
    let body =
        json!({"choices": [{"message": {"content": null, "tool_calls": [item, item]}, "finish_reason": "tool_calls"}]});
    let decoded = decode_document(Protocol::ChatCompletions, "p", "p/m", body.to_string().as_bytes()).unwrap();
    assert_eq!(calls(&decoded), [("", "f", ""), ("", "f", "")]);
}

/// M1: the stop reasons of all servers are converted to the host's stop reasons.
#[test]
fn m1_stop_reasons_are_mapped() {
    use StopReason::{ContentFilter, Length, Stop, ToolCalls};
    let cases = [
        ("stop", Stop, ToolCalls),
        ("STOP", Stop, ToolCalls),
        ("end_turn", Stop, ToolCalls),
        ("tool_calls", Stop, ToolCalls),
        ("function_call", Stop, ToolCalls),
        ("length", Length, Length),
        ("MAX_TOKENS", Length, Length),
        ("model_length", Length, Length),
        ("content_filter", ContentFilter, ContentFilter),
        ("SAFETY", ContentFilter, ContentFilter),
        ("sensitive", ContentFilter, ContentFilter),
        ("a_new_word", Stop, ToolCalls),
    ];
    let call = piece(json!({"id": "c", "function": {"name": "f", "arguments": "{\"x\": \"trunc"}}));
    for (reason, without_calls, with_calls) in cases {
        let (decoded, _) = streamed(&[delta(json!({"content": "x"})), end(reason), end("stop")]);
        assert_eq!(decoded.reply.stop, without_calls, "{reason}");
        let (decoded, _) = streamed(&[call.clone(), end(reason), end("")]);
        assert_eq!(decoded.reply.stop, with_calls, "{reason}");
        assert_eq!(
            (calls(&decoded), &decoded.raw["finish_reason"]),
            (vec![("c", "f", "{\"x\": \"trunc")], &json!(reason))
        );
    }
}

/// M1: the data that must be sent back to DeepSeek and Gemini is collected only from replies with calls.
#[test]
fn m1_replay_data_is_collected() {
    let signature = json!({"google": {"thought_signature": "s1"}});
    let thinking = delta(json!({"reasoning_content": "\nhm "}));
    let more = delta(json!({"reasoning_content": "so", "extra_content": {"google": {"thought": true}}}));
    let first =
        piece(json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}, "extra_content": signature}));
    let second = piece(json!({"index": 1, "function": {"name": "g", "arguments": "{}"}}));
    let (decoded, _) = streamed(&[thinking.clone(), more, first, second, end("tool_calls")]);
    let replay = decoded.reply.replay.unwrap();
    assert_eq!(replay.provider, "p");
    let expected = json!({
        "model": "m",
        "message": {"reasoning_content": "\nhm so", "extra_content": {"google": {"thought": true}}},
        "tool_calls": [{"id": "a", "extra_content": signature}, {}],
    });
    assert_eq!(replay.data, expected);
    let (decoded, _) = streamed(&[thinking, delta(json!({"content": "x"})), end("stop")]);
    assert_eq!(decoded.reply.replay, None);
}

/// D1: long values are truncated or left out of the data for the step record.
#[test]
fn d1_recorded_data_is_limited() {
    let long_text = "ä".repeat(50_000);
    let chunk = json!({"id": long_text, "model": "served",
        "choices": [{"delta": {"reasoning": long_text, "refusal": long_text}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "more": long_text}});
    let (decoded, _) = streamed(&[chunk, end("stop")]);
    assert!(decoded.raw.to_string().len() < 140_000, "{}", decoded.raw.to_string().len());
    assert_eq!((&decoded.raw["model"], &decoded.raw["reasoning_bytes"]), (&json!("served"), &json!(100_000)));
    assert_eq!(decoded.reply.model, "p/m");
}
