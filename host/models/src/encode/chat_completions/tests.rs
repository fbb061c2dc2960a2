//! Tests of requests in the dialects of individual servers.

use super::dialect::Dialect;
use super::encode;
use crate::encode::Format;
use crate::protocol::Protocol;
use crate::provider::{MediaBytes, MediaSource, NoMedia};
use crate::request_check::tests::{calls, request as plain_request, result, tool};
use agent_core::message::{Content, Digest, Dimensions, Media, Message, Part, Replay, Role};
use agent_core::model::{Downscaled, ModelRequest};
use async_trait::async_trait;
use serde_json::{Value, json};

async fn sent_with(request: &ModelRequest, dialect: Dialect, media: &dyn MediaSource) -> Value {
    let format = Format {
        protocol: Protocol::ChatCompletions,
        dialect,
        effort: None,
        thinking: None,
        images: true,
        without_replay: false,
    };
    let encoded = encode(request, format, media).await.unwrap();
    serde_json::from_slice(&encoded.body).unwrap()
}

async fn sent(request: &ModelRequest, dialect: Dialect) -> Value {
    sent_with(request, dialect, &NoMedia).await
}

fn roles(body: &Value) -> Vec<&str> {
    body["messages"].as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect()
}

/// Builds a request for a conversation that continues after a cancelled turn: a user message, a call, the result of the
/// call, and a second user message.
fn interrupted() -> ModelRequest {
    let done = result("call_1_1_1", "a.b", vec![Content::Text("ok".into())], false);
    let messages = vec![
        Message::text(Role::User, "go"),
        calls(&[("call_1_1_1", "a.b", json!({"x": 1}))]),
        done,
        Message::text(Role::User, "go on"),
    ];
    plain_request(messages, vec![tool("a.b", "", json!({"type": "object"}))])
}

/// Requests to Mistral contain only fields that Mistral knows, because it rejects all other fields. In addition,
/// Mistral requires call ids of nine characters, and an assistant message between a tool message and a user message.
#[tokio::test]
async fn m1_mistral_gets_requests_that_follow_its_rules() {
    let body = sent(&interrupted(), Dialect::Mistral).await;
    assert_eq!(body.get("stream_options"), None);
    assert_eq!(body["max_tokens"], 1000);
    assert_eq!(roles(&body), ["system", "user", "assistant", "tool", "assistant", "user"]);
    let id = body["messages"][2]["tool_calls"][0]["id"].as_str().unwrap();
    assert_eq!((id.len(), &body["messages"][3]["tool_call_id"]), (9, &json!(id)));
    let common = sent(&interrupted(), Dialect::Common).await;
    assert_eq!(common["stream_options"], json!({"include_usage": true}));
    assert_eq!(roles(&common), ["system", "user", "assistant", "tool", "user"]);
    assert_eq!(common["messages"][3]["tool_call_id"], "call_1_1_1");
}

/// The field that limits the tokens of a reply has a different name in OpenAI's dialect.
#[tokio::test]
async fn m1_the_token_limit_field_has_the_name_that_the_server_expects() {
    let body = sent(&interrupted(), Dialect::OpenAi).await;
    assert_eq!((&body["max_completion_tokens"], body.get("max_tokens")), (&json!(1000), None));
    let body = sent(&interrupted(), Dialect::SelfHosted).await;
    assert_eq!((&body["max_tokens"], body.get("max_completion_tokens")), (&json!(1000), None));
}

/// L12: every request contains the output schema, either in `response_format` or, if the server does not accept it
/// there, in the system message.
#[tokio::test]
async fn l12_every_request_contains_the_output_schema() {
    let schema = json!({"type": "object", "required": ["answer"]});
    let with_tools = ModelRequest { output_schema: Some(schema.clone()), ..interrupted() };
    let without_tools = ModelRequest { tools: vec![], ..with_tools.clone() };
    let wanted = json!({"type": "json_schema", "json_schema": {"name": "output", "strict": false, "schema": schema}});
    let cases = [
        (Dialect::Common, Some(&wanted), Some(&wanted)),
        (Dialect::OpenAi, Some(&wanted), Some(&wanted)),
        (Dialect::Mistral, Some(&wanted), Some(&wanted)),
        (Dialect::SelfHosted, None, Some(&wanted)),
        (Dialect::Groq, None, Some(&wanted)),
    ];
    for (dialect, expected_with_tools, expected_without_tools) in cases {
        for (request, expected) in [(&with_tools, expected_with_tools), (&without_tools, expected_without_tools)] {
            let body = sent(request, dialect).await;
            assert_eq!(body.get("response_format"), expected, "{dialect:?}");
            let is_in_system_message = body["messages"][0]["content"].as_str().unwrap().contains(&schema.to_string());
            assert_eq!(is_in_system_message, expected.is_none(), "{dialect:?}");
        }
    }
    let body = sent(&with_tools, Dialect::DeepSeek).await;
    assert_eq!(body["response_format"], json!({"type": "json_object"}));
    assert!(body["messages"][0]["content"].as_str().unwrap().contains("JSON Schema"));
    assert_eq!(sent(&interrupted(), Dialect::Common).await.get("response_format"), None);
}

/// The system messages at the beginning of the conversation are joined with the sections of the request, and later
/// system messages stay in place. If the joined text is empty, the request contains no system message.
#[tokio::test]
async fn l22_leading_system_messages_are_joined() {
    let system = |text: &str| Message::text(Role::System, text);
    let user = || Message::text(Role::User, "go");
    let request = plain_request(vec![system("First."), system("Second."), user(), system("Later."), user()], vec![]);
    let request = ModelRequest { system: vec!["A.".into(), String::new(), "B.".into()], ..request };
    let body = sent(&request, Dialect::Common).await;
    assert_eq!(body["messages"][0], json!({"role": "system", "content": "A.\n\nB.\n\nFirst.\n\nSecond."}));
    assert_eq!(roles(&body), ["system", "user", "system", "user"]);
    let without_system_text = ModelRequest { system: vec![], ..plain_request(vec![user()], vec![]) };
    assert_eq!(roles(&sent(&without_system_text, Dialect::Common).await), ["user"]);
}

/// L14: if the tool of a call in the conversation is not offered or does not exist, the request contains a tool name
/// that the provider accepts.
#[tokio::test]
async fn l14_tools_that_are_not_offered_get_valid_names() {
    let messages = vec![
        Message::text(Role::User, "go"),
        calls(&[("c1", "weather.forecast", json!({})), ("c2", "made up!", json!("")), ("c3", "", json!([1]))]),
        result("c1", "weather.forecast", vec![], false),
        result("c2", "made up!", vec![], true),
        result("c3", "", vec![], true),
    ];
    let body = sent(&plain_request(messages, vec![]), Dialect::Common).await;
    let call = |index: usize| &body["messages"][2]["tool_calls"][index]["function"];
    assert_eq!(call(0), &json!({"name": "weather_forecast", "arguments": "{}"}));
    assert_eq!(call(1), &json!({"name": "made_up_", "arguments": "{}"}));
    assert_eq!(call(2), &json!({"name": "_", "arguments": "{\"not_an_object\":[1]}"}));
    assert_eq!(body["messages"][2]["content"], Value::Null);
    assert_eq!(body["messages"][3], json!({"role": "tool", "tool_call_id": "c1", "content": ""}));
}

/// Builds a request whose assistant message has two calls and replay data of the given provider.
fn replayed(provider: &str, data: Value) -> ModelRequest {
    let mut message = calls(&[("c1", "a", json!({})), ("c2", "a", json!({}))]);
    message.parts.push(Part::Replay(Replay { provider: provider.into(), data }));
    let user = || Message::text(Role::User, "go");
    let results = [result("c1", "a", vec![], false), result("c2", "a", vec![], false)];
    plain_request([vec![user(), message], results.to_vec(), vec![user()]].concat(), vec![])
}

/// Replay data is sent only to the provider and the model from which the data came. Data that an earlier version of the
/// host stored does not contain the model's name.
#[tokio::test]
async fn m1_replay_data_is_sent_only_to_its_model() {
    let signed = json!({"google": {"thought_signature": "s"}});
    let data = json!({
        "message": {"reasoning_content": "hm", "role": "x"},
        "tool_calls": [{"id": "p1", "extra_content": signed}, {"id": "p2"}]
    });
    let body = sent(&replayed("scripted", data.clone()), Dialect::DeepSeek).await;
    let message = &body["messages"][2];
    assert_eq!((&message["reasoning_content"], &message["role"]), (&json!("hm"), &json!("assistant")));
    assert_eq!(
        (&message["tool_calls"][0]["extra_content"], message["tool_calls"][1].get("extra_content")),
        (&signed, None)
    );
    assert_eq!((&message["tool_calls"][0]["id"], &body["messages"][3]["tool_call_id"]), (&json!("c1"), &json!("c1")));
    let with_model = |model: &str| {
        let mut data = data.clone();
        data["model"] = json!(model);
        data
    };
    let model = replayed("scripted", json!({})).model.name;
    let body = sent(&replayed("scripted", with_model(&model)), Dialect::DeepSeek).await;
    assert_eq!(body["messages"][2]["reasoning_content"], "hm");
    let others = [("deepseek", data.clone()), ("scripted", with_model("another")), ("scripted", json!({"items": []}))];
    for (provider, data) in others {
        let body = sent(&replayed(provider, data), Dialect::DeepSeek).await;
        assert_eq!(body["messages"][2].get("reasoning_content"), None);
        assert_eq!(body["messages"][2]["tool_calls"][0].get("extra_content"), None);
    }
}

/// If the provider's reasoning refers to the provider's ids of calls, calls and results are sent with these ids. If the
/// reasoning refers to no such id, calls and results are sent with the host's ids.
#[tokio::test]
async fn m1_provider_ids_are_used_if_reasoning_refers_to_them() {
    let data = |first_call_id: &str, reasoning_id: &str| {
        json!({
            "message": {"reasoning_details": [{"type": "reasoning.encrypted", "id": reasoning_id, "data": "x"}]},
            "tool_calls": [{"id": first_call_id}, {"id": "p2"}]
        })
    };
    let cases = [
        (data("p1", "p1"), ["p1", "p2"]),
        (data("p1", "other"), ["c1", "c2"]),
        (data("p2", "p2"), ["c1", "c2"]),
        (data("", "p2"), ["c1", "c2"]),
        (json!({"message": "odd", "tool_calls": 1}), ["c1", "c2"]),
        (json!(null), ["c1", "c2"]),
    ];
    for (data, expected) in cases {
        let body = sent(&replayed("scripted", data), Dialect::Common).await;
        let calls = &body["messages"][2]["tool_calls"];
        assert_eq!([&calls[0]["id"], &calls[1]["id"]], expected);
        assert_eq!([&body["messages"][3]["tool_call_id"], &body["messages"][4]["tool_call_id"]], expected);
    }
}

/// A media source that returns the same three bytes for every media item, with the given media type.
struct FixedMedia(&'static str);

#[async_trait]
impl MediaSource for FixedMedia {
    async fn read(&self, _: &Media) -> Result<MediaBytes, String> {
        Ok(MediaBytes { mime_type: self.0.into(), bytes: b"abc".to_vec().into() })
    }
}

fn media(mime_type: &str, size: u64) -> Media {
    let name = Some("Report 1".to_owned());
    Media { digest: Digest::from_sha256([7; 32]), mime_type: mime_type.into(), size, dimensions: None, name }
}

/// P4: a downscaled image is sent with the media type that it has after downscaling.
#[tokio::test]
async fn p4_downscaled_media_are_sent_with_their_new_type() {
    // The stored image exceeds the size limit of a request, but the downscaled image does not.
    let image = media("image/png", 1 << 40);
    let parts = vec![Part::Media(image.clone())];
    let to = Dimensions { width: 1, height: 1 };
    let request = plain_request(vec![Message { role: Role::User, parts, seen_count: 0 }], vec![]);
    let request = ModelRequest { downscaled: vec![Downscaled { media: image, to }], ..request };
    let body = sent_with(&request, Dialect::Common, &FixedMedia("image/jpeg")).await;
    let content = &body["messages"][1]["content"];
    assert_eq!(content[0], json!({"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,YWJj"}}));
    let body = sent_with(&request, Dialect::Common, &FixedMedia("image/bmp")).await;
    assert!(body["messages"][1]["content"][0]["text"].as_str().unwrap().ends_with("cannot view it]"));
}

/// Audio and documents are sent if the server accepts them. If the server does not accept audio or documents, it
/// receives a description of them instead.
#[tokio::test]
async fn p4_audio_and_documents_are_sent_or_described() {
    let parts = vec![Part::Media(media("audio/x-wav", 3)), Part::Media(media("application/pdf", 3))];
    let request = plain_request(vec![Message { role: Role::User, parts, seen_count: 0 }], vec![]);
    let body = sent_with(&request, Dialect::OpenAi, &FixedMedia("audio/x-wav")).await;
    let content = &body["messages"][1]["content"];
    assert_eq!(content[0], json!({"type": "input_audio", "input_audio": {"data": "YWJj", "format": "wav"}}));
    let body = sent_with(&request, Dialect::OpenAi, &FixedMedia("application/pdf")).await;
    let file = json!({"filename": "Report 1.pdf", "file_data": "data:application/pdf;base64,YWJj"});
    assert_eq!(body["messages"][1]["content"][1], json!({"type": "file", "file": file}));
    let body = sent(&request, Dialect::Groq).await;
    insta::assert_snapshot!(body["messages"][1]["content"].as_str().unwrap(), @"
        [audio/x-wav, `Report 1`, sha256:0707070707070707070707070707070707070707070707070707070707070707, 3 bytes: this model cannot view it]

        [application/pdf, `Report 1`, sha256:0707070707070707070707070707070707070707070707070707070707070707, 3 bytes: this model cannot view it]
        ");
}
