//! Tests of whole conversations in each wire format.

use super::{Dialect, Encoded, Format, encode};
use crate::effort::Effort;
use crate::provider::{MediaBytes, MediaSource};
use crate::request_check::tests::{calls, request as plain_request, result, tool};
use crate::{ModelError, Protocol};
use agent_core::message::{Content, Digest, Media, Message, Part, Replay, Role};
use agent_core::model::ModelRequest;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;

const NEW_FORMATS: [Protocol; 3] = [Protocol::Responses, Protocol::Anthropic, Protocol::Gemini];

/// A media source in which the bytes of each item are its name.
struct Named;

#[async_trait]
impl MediaSource for Named {
    async fn read(&self, media: &Media) -> Result<MediaBytes, String> {
        let bytes: Arc<[u8]> = media.name.clone().unwrap_or_default().into_bytes().into();
        Ok(MediaBytes { mime_type: media.mime_type.clone(), bytes })
    }
}

fn media(name: &str, mime_type: &str) -> Media {
    let digest = Digest::from_sha256([name.len() as u8; 32]);
    Media { digest, mime_type: mime_type.into(), size: 10, name: Some(name.into()), dimensions: None }
}

fn format(protocol: Protocol) -> Format {
    Format { protocol, dialect: Dialect::Common, effort: None, thinking: None, images: true, without_replay: false }
}

async fn encoded(request: &ModelRequest, protocol: Protocol) -> Encoded {
    encode(request, format(protocol), &Named).await.unwrap()
}

async fn body(request: &ModelRequest, protocol: Protocol) -> Value {
    serde_json::from_slice(&encoded(request, protocol).await.body).unwrap()
}

fn request_of(messages: Vec<Message>) -> ModelRequest {
    plain_request(messages, vec![tool("a.b", "Does it.", json!({"type": "object"}))])
}

/// The items of a reply with thinking and one call, as the provider sends them. `id` is the provider's id of the call.
fn items(protocol: Protocol, id: &str) -> Value {
    match protocol {
        Protocol::ChatCompletions => unreachable!("Chat Completions has no items"),
        Protocol::Responses => json!([
            {"type": "reasoning", "id": "rs", "encrypted_content": format!("secret of {id}"), "summary": []},
            {"type": "message", "id": "m", "role": "assistant", "phase": "commentary",
             "content": [{"type": "output_text", "text": "Look.", "annotations": []}]},
            {"type": "function_call", "id": "fc", "call_id": id, "name": "a_b", "arguments": "{ \"x\": 1}"},
            {"type": "program", "id": "unknown", "code": [1]},
        ]),
        Protocol::Anthropic => json!([
            {"type": "thinking", "thinking": "hm", "signature": format!("secret of {id}")},
            {"type": "text", "text": ""},
            {"type": "text", "text": "Look."},
            {"type": "tool_use", "id": id, "name": "a_b", "input": {"x": 1}, "caller": {"type": "program"}},
            {"type": "container_upload", "file_id": "unknown"},
        ]),
        Protocol::Gemini => json!([
            {"text": "hm", "thought": true},
            {"text": "Look."},
            {"functionCall": {"id": id, "name": "a_b", "args": {"x": 1}}, "thoughtSignature": format!("secret of {id}")},
            {"executableCode": {"code": "unknown"}},
        ]),
    }
}

/// A message of the assistant with the items of [`items`].
fn reply(protocol: Protocol, provider: &str, model: &str, host_id: &str, provider_id: &str) -> Message {
    let mut message = calls(&[(host_id, "a.b", json!({"x": 1}))]);
    message.parts.insert(0, Part::Text("Look.".into()));
    let data = json!({"protocol": protocol.name(), "model": model, "items": items(protocol, provider_id)});
    message.parts.push(Part::Replay(Replay { provider: provider.into(), data }));
    message
}

/// A conversation of `steps` steps. Every second result contains an image.
fn conversation(protocol: Protocol, steps: usize) -> Vec<Message> {
    let mut messages = vec![Message {
        parts: vec![Part::Text("Go.".into()), Part::Media(media("photo.png", "image/png"))],
        ..Message::text(Role::User, "")
    }];
    for step in 0..steps {
        let (host_id, provider_id) = (format!("call_1_{step}_1"), format!("provider_{step}"));
        messages.push(reply(protocol, "scripted", "test", &host_id, &provider_id));
        let mut content = vec![Content::Text(format!("result {step}"))];
        content.extend((step % 2 == 0).then(|| Content::Media(media("chart.png", "image/png"))));
        messages.push(result(&host_id, "a.b", content, step % 5 == 4));
    }
    messages
}

/// Returns the JSON text of the messages without cache markers.
fn messages_text(body: &Value, protocol: Protocol) -> String {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.remove("cache_control");
                fields.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let list = match protocol {
        Protocol::Responses => "input",
        Protocol::Gemini => "contents",
        Protocol::ChatCompletions | Protocol::Anthropic => "messages",
    };
    let mut messages = body[list].clone();
    strip(&mut messages);
    let text = messages.to_string();
    text.strip_suffix(']').unwrap().to_owned()
}

/// M1, P4: in a conversation of 40 steps, each request begins with the bytes of the request before it, every item of
/// every reply is sent back unchanged, and every result refers to the provider's id of its call.
#[tokio::test]
async fn m1_long_conversations_keep_their_prefix_and_lose_nothing() {
    for protocol in NEW_FORMATS {
        let mut previous = String::new();
        for steps in 1..=40 {
            let encoded = encoded(&request_of(conversation(protocol, steps)), protocol).await;
            assert_eq!(encoded.notes, Vec::<String>::new(), "{protocol}");
            let body: Value = serde_json::from_slice(&encoded.body).unwrap();
            let text = messages_text(&body, protocol);
            assert!(text.starts_with(&previous), "{protocol} after {steps} steps");
            previous = text;
        }
        let empty_text = json!({"type": "text", "text": ""}).to_string();
        for step in 0..40 {
            let id = format!("provider_{step}");
            for item in items(protocol, &id).as_array().unwrap() {
                let item = item.to_string();
                assert!(item == empty_text || previous.contains(&item), "{protocol}: {item}");
            }
            let expected = match protocol {
                Protocol::Responses => format!(r#"{{"type":"function_call_output","call_id":"{id}","#),
                Protocol::Anthropic => format!(r#"{{"type":"tool_result","tool_use_id":"{id}","#),
                _ => format!(r#""id":"{id}"}}}}"#),
            };
            assert_eq!(previous.matches(&expected).count(), 1, "{protocol}: {expected}");
        }
        let image = base64_of("chart.png");
        assert_eq!(previous.matches(&image).count(), 20, "{protocol}: images in results");
    }
}

fn base64_of(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// M1: after a change of the provider, the format or the model, after an edit, or after a rejection, the provider's
/// data are not sent, calls and results still belong together, and a note names the reason.
#[tokio::test]
async fn m1_replies_that_cannot_be_sent_back_are_written_again() {
    for protocol in NEW_FORMATS {
        let with = |reply: Message| request_of(vec![Message::text(Role::User, "go"), reply, done()]);
        let mut edited = reply(protocol, "scripted", "test", "c1", "p1");
        edited.parts[0] = Part::Text("Edited.".into());
        let mut other_arguments = reply(protocol, "scripted", "test", "c1", "p1");
        other_arguments.parts[1] = calls(&[("c1", "a.b", json!({"x": 2}))]).parts.remove(0);
        let other_format = NEW_FORMATS.into_iter().find(|other| *other != protocol).unwrap();
        let cases = [
            (reply(protocol, "another", "test", "c1", "p1"), "another provider receives the request"),
            (reply(other_format, "scripted", "test", "c1", "p1"), "the request is in another wire format"),
            (reply(protocol, "scripted", "old", "c1", "p1"), "another model receives the request"),
            (edited, "the reply was changed after it was stored"),
            (other_arguments, "the reply was changed after it was stored"),
        ];
        for (reply, reason) in cases {
            let encoded = encoded(&with(reply), protocol).await;
            assert!(encoded.notes.len() == 1 && encoded.notes[0].ends_with(reason), "{protocol}: {:?}", encoded.notes);
            check_plain(&String::from_utf8(encoded.body).unwrap(), protocol);
        }
        let format = Format { without_replay: true, ..format(protocol) };
        let request = with(reply(protocol, "scripted", "test", "c1", "p1"));
        let encoded = encode(&request, format, &Named).await.unwrap();
        assert!(encoded.notes[0].ends_with("the provider rejected it"), "{:?}", encoded.notes);
        check_plain(&String::from_utf8(encoded.body).unwrap(), protocol);
    }
}

fn done() -> Message {
    result("c1", "a.b", vec![Content::Text("ok".into())], false)
}

fn check_plain(body: &str, protocol: Protocol) {
    assert!(!body.contains("secret of") && !body.contains("unknown") && !body.contains("p1"), "{protocol}: {body}");
    let ids = if protocol == Protocol::Gemini { 0 } else { 2 };
    assert_eq!(body.matches("\"c1\"").count(), ids, "{protocol}: {body}");
}

/// M1: a conversation that began in one format continues in every other format.
#[tokio::test]
async fn m1_a_fallback_works_between_all_formats() {
    for from in NEW_FORMATS {
        let messages = conversation(from, 5);
        for to in Protocol::ALL {
            let mut request = request_of(messages.clone());
            request.model.provider = "fallback".into();
            let body = body(&request, to).await;
            let text = messages_text(&body, to);
            let (calls, results) = match to {
                Protocol::ChatCompletions => ("\"type\":\"function\"", "\"role\":\"tool\""),
                Protocol::Responses => ("\"type\":\"function_call\"", "\"type\":\"function_call_output\""),
                Protocol::Anthropic => ("\"type\":\"tool_use\"", "\"type\":\"tool_result\""),
                Protocol::Gemini => ("\"functionCall\"", "\"functionResponse\""),
            };
            assert_eq!((text.matches(calls).count(), text.matches(results).count()), (5, 5), "{from} to {to}");
            assert!(!text.contains("secret of"), "{from} to {to}");
        }
    }
}

/// M1: a request in the format of an API has the fields that this API defines.
#[tokio::test]
async fn m1_requests_have_the_fields_of_their_api() {
    let mut request = request_of(vec![Message::text(Role::System, "More."), Message::text(Role::User, "go")]);
    request.output_schema = Some(json!({"type": "object"}));
    let original = request.clone();
    let effort = |protocol, model: &str| {
        let mut request = original.clone();
        request.model.name = model.to_owned();
        async move {
            let format = Format { effort: Some(Effort::High), ..format(protocol) };
            let body: Value = serde_json::from_slice(&encode(&request, format, &Named).await.unwrap().body).unwrap();
            body
        }
    };
    let responses = effort(Protocol::Responses, "gpt-5").await;
    assert_eq!((&responses["store"], &responses["stream"]), (&json!(false), &json!(true)));
    assert_eq!(responses["include"], json!(["reasoning.encrypted_content"]));
    assert_eq!(responses["reasoning"], json!({"effort": "high", "summary": "auto"}));
    assert_eq!(responses["instructions"], "You help.\n\nMore.");
    assert_eq!(responses["tools"][0]["name"], "a_b");
    assert_eq!(responses["text"]["format"]["schema"], json!({"type": "object"}));
    assert_eq!(body(&request, Protocol::Responses).await.get("include"), None, "the model is not known to think");
    let anthropic = effort(Protocol::Anthropic, "claude-opus-5").await;
    assert_eq!((&anthropic["max_tokens"], &anthropic["thinking"]), (&json!(1000), &json!({"type": "adaptive"})));
    assert_eq!(anthropic["system"][0]["cache_control"], json!({"type": "ephemeral"}));
    assert!(anthropic["system"][0]["text"].as_str().unwrap().contains("JSON Schema"));
    assert_eq!(
        anthropic["tools"][0],
        json!({"name": "a_b", "description": "Does it.", "input_schema": {"type": "object"}})
    );
    let gemini = effort(Protocol::Gemini, "gemini-3-pro").await;
    assert_eq!(gemini["generationConfig"]["thinkingConfig"], json!({"thinkingLevel": "high", "includeThoughts": true}));
    assert_eq!(gemini["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"], json!({"type": "object"}));
    assert_eq!(gemini["generationConfig"].get("responseJsonSchema"), None, "the request has tools");
    request.tools.clear();
    let gemini = body(&request, Protocol::Gemini).await;
    assert_eq!(gemini["generationConfig"]["responseJsonSchema"], json!({"type": "object"}));
    assert_eq!(gemini["systemInstruction"]["parts"][0]["text"], "You help.\n\nMore.");
    assert_eq!(effort(Protocol::ChatCompletions, "m").await["reasoning_effort"], "high");
}

/// M1, P4: media that an API accepts are sent, also in results. Other media are replaced by a
/// description, and a note reports the replacement.
#[tokio::test]
async fn p4_media_are_sent_or_described() {
    let kinds = ["image/png", "application/pdf", "audio/wav", "image/tiff"];
    let parts: Vec<Part> = kinds.iter().map(|kind| Part::Media(media(kind, kind))).collect();
    let contents: Vec<Content> = kinds.iter().map(|kind| Content::Media(media(kind, kind))).collect();
    let user = Message { parts, ..Message::text(Role::User, "") };
    let request = request_of(vec![user, calls(&[("c1", "a.b", json!({}))]), result("c1", "a.b", contents, false)]);
    for (protocol, accepted) in
        [(Protocol::Responses, 2), (Protocol::Anthropic, 2), (Protocol::Gemini, 3), (Protocol::ChatCompletions, 3)]
    {
        let encoded = encoded(&request, protocol).await;
        let text = String::from_utf8(encoded.body).unwrap();
        for (position, kind) in kinds.iter().enumerate() {
            let expected = if position < accepted { 2 } else { 0 };
            assert_eq!(text.matches(&base64_of(kind)).count(), expected, "{protocol}: {kind}");
        }
        assert_eq!(text.matches("this model cannot view it").count(), 2 * (4 - accepted), "{protocol}");
        if protocol != Protocol::ChatCompletions {
            assert_eq!(encoded.notes.len(), 4 - accepted, "{protocol}: {:?}", encoded.notes);
        }
    }
}

/// M1: results come directly after their calls, first in their message, and a conversation begins with the user.
#[tokio::test]
async fn m1_messages_have_the_order_that_each_api_requires() {
    let both = calls(&[("c1", "a.b", json!({})), ("c2", "a.b", json!({}))]);
    let second = result("c2", "a.b", vec![Content::Text("two".into())], true);
    let messages =
        vec![both, done(), second, Message::text(Role::User, "and now"), Message::text(Role::Assistant, "I")];
    let anthropic = body(&request_of(messages.clone()), Protocol::Anthropic).await;
    let roles: Vec<_> = anthropic["messages"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "user"], "the last message is not continued");
    let types: Vec<_> =
        anthropic["messages"][2]["content"].as_array().unwrap().iter().map(|block| &block["type"]).collect();
    assert_eq!(types, ["tool_result", "tool_result", "text"]);
    assert_eq!(anthropic["messages"][2]["content"][1]["is_error"], true);
    let mut request = request_of(messages);
    request.model.name = "gemini-3-pro".into();
    let gemini = body(&request, Protocol::Gemini).await;
    let roles: Vec<_> = gemini["contents"].as_array().unwrap().iter().map(|content| &content["role"]).collect();
    assert_eq!(roles, ["user", "model", "user", "model"]);
    let calls = &gemini["contents"][1]["parts"];
    assert_eq!(calls[0]["thoughtSignature"], "skip_thought_signature_validator");
    assert_eq!(calls[1].get("thoughtSignature"), None, "only the first call has a signature");
    assert_eq!(gemini["contents"][2]["parts"][1]["functionResponse"]["response"], json!({"error": "two"}));
}

/// M1: an interrupted reply is the last message of the next request, so that the provider continues it.
#[tokio::test]
async fn m1_an_interrupted_reply_is_continued() {
    let items = json!([{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}]);
    let data = json!({"protocol": "anthropic", "model": "test", "items": items});
    let paused = Message {
        parts: vec![Part::Replay(Replay { provider: "scripted".into(), data })],
        ..Message::text(Role::Assistant, "")
    };
    let request = request_of(vec![Message::text(Role::User, "go"), paused]);
    let anthropic = body(&request, Protocol::Anthropic).await;
    assert_eq!(anthropic["messages"][1], json!({"role": "assistant", "content": items}));
    for protocol in [Protocol::ChatCompletions, Protocol::Gemini, Protocol::Responses] {
        let text = messages_text(&body(&request, protocol).await, protocol);
        assert!(!text.contains("web_search") && !text.contains("\"content\":\"\""), "{protocol}: {text}");
    }
}

/// M1: cache markers are set after the system text and after each of the last two messages of the user.
#[tokio::test]
async fn m1_cache_markers_are_at_the_stable_end() {
    let body = body(&request_of(conversation(Protocol::Anthropic, 4)), Protocol::Anthropic).await;
    let messages = body["messages"].as_array().unwrap();
    let marked: Vec<usize> =
        (0..messages.len()).filter(|position| messages[*position].to_string().contains("cache_control")).collect();
    assert_eq!(marked, [messages.len() - 3, messages.len() - 1]);
    assert_eq!(body.to_string().matches("cache_control").count(), 3, "the API accepts four markers");
}

/// Row 26: if a media item cannot be read, encoding fails with an error that names the item.
#[tokio::test]
async fn row_26_unreadable_media_are_errors() {
    let user = Message { parts: vec![Part::Media(media("x", "image/png"))], ..Message::text(Role::User, "") };
    for protocol in Protocol::ALL {
        let error = encode(&request_of(vec![user.clone()]), format(protocol), &crate::NoMedia).await.unwrap_err();
        assert!(matches!(error, ModelError::UnreadableMedia { .. }), "{protocol}: {error}");
    }
}
