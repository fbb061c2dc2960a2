//! Tests of the requests that a server receives.

use crate::client::{CountingMedia, ask_with, call, media_item, model, request, result};
use crate::server::{Server, streamed};
use agent_core::message::{Content, Message, Part, Role};
use agent_core::model::{ModelRequest, OfferedTool};
use agent_models::ModelError;
use serde_json::json;
use std::sync::atomic::Ordering;

fn offered(author_name: &str, name: &str) -> OfferedTool {
    OfferedTool {
        name: name.into(),
        author_name: author_name.into(),
        description: "Does it.".into(),
        input_schema: json!({ "type": "object", "properties": { "z": { "type": "string" }, "a": {} }, "required": ["z"] }),
    }
}

/// Builds a request with parallel calls, images in results and in a user message, masked media, JSON, and invalid
/// arguments.
fn conversation_request() -> ModelRequest {
    let plan = media_item("plan.png", "image/png", 6);
    let user = vec![
        Part::Text("## memory\n\nLikes plans.".into()),
        Part::Text("Compare these.".into()),
        Part::Media(plan.clone()),
        Part::Media(media_item("scan.tiff", "image/tiff", 9)),
        Part::Json(json!({ "b": 1, "a": [2] })),
    ];
    let first_reply = vec![
        Part::Text("I look.".into()),
        call("call_1_1_1", "image.open", json!({ "path": "b.png", "a": 1 })),
        call("call_1_1_2", "image.open", json!({ "path": "c.png" })),
        call("call_1_1_3", "no such tool", json!("{broken")),
    ];
    let opened = |name| vec![Content::Text("opened".into()), Content::Media(media_item(name, "image/png", 3))];
    let messages = vec![
        Message { role: Role::User, parts: user, seen_count: 1 },
        Message { role: Role::Assistant, parts: first_reply, seen_count: 1 },
        result("call_1_1_1", "image.open", opened("b.png"), false),
        result("call_1_1_2", "image.open", [opened("cc.png"), vec![Content::Json(json!({ "n": 1 }))]].concat(), false),
        result("call_1_1_3", "no such tool", vec![Content::Text("there is no such tool".into())], true),
        Message { role: Role::Assistant, parts: vec![call("call_1_2_1", "text.count", json!({}))], seen_count: 1 },
        result("call_1_2_1", "text.count", vec![Content::Text("[image masked: seen already]".into())], false),
        Message::text(Role::Assistant, "They differ."),
        Message::text(Role::User, "How?"),
    ];
    let tools = vec![offered("image.open", "image_open"), offered("text.count", "text_count_2")];
    let schema = json!({ "type": "object", "required": ["answer"], "properties": { "answer": { "type": "string" } } });
    ModelRequest { tools, output_schema: Some(schema), ..request(messages) }
}

/// Returns the body of the HTTP request that the model sends.
async fn sent_body(request: &ModelRequest) -> Vec<u8> {
    let server = Server::always(streamed("hello"));
    ask_with(&model(&server), request, &CountingMedia::default()).await.0.unwrap();
    server.requests().remove(0).body
}

/// M1, L12, L14, P4: checks the JSON that is sent for a request with all kinds of content.
#[tokio::test]
async fn m1_a_conversation_is_encoded() {
    let body: serde_json::Value = serde_json::from_slice(&sent_body(&conversation_request()).await).unwrap();
    insta::assert_json_snapshot!("a_conversation_on_the_wire", body);
}

/// L22: the same messages produce the same bytes, and a longer conversation starts with the bytes of the shorter one.
#[tokio::test]
async fn l22_growing_conversations_share_a_prefix() {
    let complete = conversation_request();
    let bytes = sent_body(&complete).await;
    assert_eq!(bytes, sent_body(&complete).await);
    // A request can end after the user message, after the results of the first or second reply, and after the answer.
    for length in [1, 5, 7, 8] {
        let shorter = ModelRequest { messages: complete.messages[..length].to_vec(), ..complete.clone() };
        let shorter = sent_body(&shorter).await;
        let (beginning, end) = shorter.split_at(shorter.len() - 2);
        assert_eq!(end, b"]}");
        assert!(bytes.starts_with(beginning), "after {length} messages");
    }
}

/// The size of a request is limited. A media item is not read if it would make the request exceed the limit.
#[tokio::test]
async fn the_error_for_a_request_that_is_too_large_names_the_largest_parts() {
    let mebibyte = 1024 * 1024;
    let media = [media_item("a.png", "image/png", 30 * mebibyte), media_item("big.png", "image/png", 20 * mebibyte)];
    let parts = media.map(Part::Media).to_vec();
    let message = Message { role: Role::User, parts, seen_count: 0 };
    let (server, source) = (Server::always(streamed("hello")), CountingMedia::default());
    let error = ask_with(&model(&server), &request(vec![message]), &source).await.0.unwrap_err();
    insta::assert_snapshot!(error, @"the request to test/some/model would exceed 67108864 bytes; its largest parts: image/png, `a.png`, 050505050505 (41943040 bytes), image/png, `big.png`, 070707070707 (27962028 bytes). Mask or scale down media, or start a new session");
    assert!(!error.retryable());
    assert_eq!((source.read_count.load(Ordering::SeqCst), server.requests().len()), (1, 0));
}

#[tokio::test]
async fn the_error_names_unreadable_media() {
    let message =
        Message { role: Role::User, parts: vec![Part::Media(media_item("gone.png", "image/png", 3))], seen_count: 0 };
    let server = Server::always(streamed("hello"));
    let error = ask_with(&model(&server), &request(vec![message]), &CountingMedia::default()).await.0.unwrap_err();
    insta::assert_snapshot!(error, @"image/png, `gone.png`, 080808080808, which is part of the request to test/some/model, cannot be read: it is missing from the blob store. Mask it with a media policy, or start a new session");
    assert!(server.requests().is_empty());
}

/// A malformed request, which is a bug of the host, is rejected before it is sent to the provider.
#[tokio::test]
async fn an_invalid_request_is_not_sent() {
    let broken = vec![Message { role: Role::Assistant, parts: vec![call("c1", "a", json!({}))], seen_count: 1 }];
    let server = Server::always(streamed("hello"));
    let error = ask_with(&model(&server), &request(broken), &CountingMedia::default()).await.0.unwrap_err();
    assert!(matches!(error, ModelError::InvalidRequest { .. }), "{error:?}");
    assert!(server.requests().is_empty());
}
