//! Attacks on the OpenAI-compatible API: wrong tokens and rights, hostile bodies and media, and hoarded requests (rows 25, 26).

use super::{CHAT, GIF, chat, post_in, session_of, user};
use crate::serve::client::Client;
use crate::serve::{TestServer, clerk, new_token, until};
use crate::support::{TestHost, script, text_reply};
use agent_runtime::AgentConfig;
use agent_serve::{NewToken, Right, ServerOptions};
use serde_json::{Value, json};
use std::time::Duration;

/// I3: each error below `/v1/` has the form of OpenAI's API, also for missing tokens, wrong rights and unknown routes.
#[tokio::test(flavor = "multi_thread")]
async fn i3_every_error_has_openais_form() {
    let test_host = TestHost::new(&[]).await;
    let agent = clerk(&test_host, &[text_reply("One.")]).await;
    let hidden = test_host.agent(AgentConfig::new("hidden"), script(&[text_reply("One.")])).await;
    let server = TestServer::start(&test_host, &[&agent, &hidden]).await;
    let (anonymous, silent) = (server.anonymous(), server.client(&[Right::Read]));
    let mute = server.client(&[Right::Talk]);
    let clerk_only = server.client_of(NewToken { agents: vec!["clerk".to_owned()], ..new_token() });
    let hello = || chat("clerk", &[user("Hi.")]);
    let error =
        async |client: &Client, body: Value, status: u16| client.post(CHAT, body).await.json(status)["error"].clone();
    let missing = error(&anonymous, hello(), 401).await;
    assert_eq!(
        (&missing["code"], &missing["type"], &missing["param"]),
        (&json!("invalid_api_key"), &json!("authentication_error"), &Value::Null)
    );
    assert_eq!(error(&silent, hello(), 403).await["type"], "permission_error");
    assert_eq!(error(&mute, hello(), 403).await["type"], "permission_error", "the answer would be readable");
    let unknown = error(&clerk_only, chat("hidden", &[user("Hi.")]), 404).await;
    assert_eq!(unknown["code"], "model_not_found");
    assert_eq!(clerk_only.get("/v1/models/hidden").await.json(404)["error"]["code"], "model_not_found");
    assert_eq!(clerk_only.get("/v1/models").await.json(200)["data"].as_array().unwrap().len(), 1);
    assert_eq!(clerk_only.get("/v1/nothing").await.json(404)["error"]["type"], "invalid_request_error");
    assert_eq!(clerk_only.get(CHAT).await.json(405)["error"]["code"], "method_not_allowed");
    assert!(clerk_only.get("/v1/models/%ff").await.json(400)["error"].is_object());
    let form = clerk_only.send("POST", CHAT, "text/plain", &[], hello().to_string()).await;
    assert_eq!(form.json(415)["error"]["code"], "not_json");
    let evil =
        format!("{}origin: https://evil.example\r\nconnection: close\r\n\r\n", clerk_only.request("GET", "/v1/models"));
    assert_eq!(clerk_only.exchange(evil.into_bytes()).await.json(403)["error"]["code"], "wrong_origin");
    server.stop().await;
}

/// I3: another token's session is not found, and a session belongs to its agent.
#[tokio::test(flavor = "multi_thread")]
async fn i3_the_header_gives_no_access_to_foreign_sessions() {
    let test_host = TestHost::new(&[]).await;
    let agent = clerk(&test_host, &[text_reply("Secret.")]).await;
    let other = test_host.agent(AgentConfig::new("other"), script(&[text_reply("One.")])).await;
    let server = TestServer::start(&test_host, &[&agent, &other]).await;
    let of_user = |user: &str| NewToken { user: Some(user.to_owned()), ..new_token() };
    let (ann, bob) = (server.client_of(of_user("ann")), server.client_of(of_user("bob")));
    let session = session_of(&ann.post(CHAT, chat("clerk", &[user("Hi.")])).await);
    let next = || chat("clerk", &[user("And?")]);
    for foreign in [session.as_str(), "clerk/none", "", "../etc/passwd", "' OR 1=1", "clerk/%00"] {
        let answer = post_in(&bob, foreign, CHAT, next()).await;
        assert_eq!(answer.json(404)["error"]["code"], "not_found", "{foreign}");
        assert!(!answer.body.contains("Secret"), "{}", answer.body);
    }
    assert_eq!(
        post_in(&ann, &session, CHAT, chat("other", &[user("And?")])).await.json(400)["error"]["param"],
        "model"
    );
    let twice = [("X-Agent-Session".to_owned(), session.clone()), ("X-Agent-Session".to_owned(), session.clone())];
    assert_eq!(ann.send("POST", CHAT, "application/json", &twice, next().to_string()).await.status, 400);
    server.stop().await;
}

/// Row 26: hostile bodies and media get a clear error, and begin no session.
#[tokio::test(flavor = "multi_thread")]
async fn row_26_hostile_bodies_and_media_are_refused() {
    let test_host = TestHost::new(&[]).await;
    let server = TestServer::start(&test_host, &[&clerk(&test_host, &[text_reply("One.")]).await]).await;
    let client = server.client(&[Right::Read, Right::Talk]);
    let send = async |body: String| client.send("POST", CHAT, "application/json", &[], body).await;
    let image = |url: &str| {
        let content = json!([{"type": "image_url", "image_url": {"url": url}}]);
        chat("clerk", &[json!({"role": "user", "content": content})]).to_string()
    };
    let deep = format!("{}1{}", "[".repeat(200_000), "]".repeat(200_000));
    let megabytes = |count: usize| "A".repeat(count << 20);
    let cases = [
        ("no JSON", "{".to_owned(), 400),
        ("a list", "[]".to_owned(), 400),
        ("no messages", r#"{"model": "clerk"}"#.to_owned(), 400),
        ("deep messages", format!(r#"{{"model": "clerk", "messages": {deep}}}"#), 400),
        ("deep tools", format!(r#"{{"model": "clerk", "messages": [], "tools": {deep}}}"#), 400),
        (
            "a lone surrogate",
            r#"{"model": "clerk", "messages": [{"role": "user", "content": "\ud800"}]}"#.to_owned(),
            400,
        ),
        ("a URL", image("https://example.com/a.png"), 400),
        ("the metadata service", image("http://169.254.169.254/latest"), 400),
        ("no image", image(&format!("data:image/png;base64,{}", megabytes(10))), 400),
        ("a page", image("data:text/html;base64,PHNjcmlwdD4="), 400),
        ("the wrong type", image(&GIF.replace("gif", "png")), 400),
        ("no base64", image("data:image/gif;base64,%00%00"), 400),
        ("a type with a line break", image("data:image/gif\r\nx: y;base64,R0lGODlh"), 400),
        ("too much text", chat("clerk", &[user(&megabytes(2))]).to_string(), 413),
        ("too much of everything", image(&format!("data:image/png;base64,{}", megabytes(33))), 413),
    ];
    for (what, body, status) in cases {
        let error = send(body).await.json(status)["error"].clone();
        assert!(error["message"].as_str().is_some_and(|message| message.len() < 2_000), "{what}: {error}");
    }
    let ignored =
        format!(r#"{{"model": "clerk", "unknown": {deep}, "messages": [{{"role": "user", "content": "Hi."}}]}}"#);
    let status = send(ignored).await.status;
    assert!(status == 200 || status == 400, "unknown fields are ignored, or too deep: {status}");
    let strange = "'; DROP TABLE sessions; -- \u{0} \u{202e} NEAR(a b)";
    let answer = client.post(CHAT, chat("clerk", &[user(strange)])).await;
    let path = format!("/api/sessions/{}/messages", super::encoded(&session_of(&answer)));
    assert_eq!(client.get(&path).await.json(200)["messages"][0]["parts"][0]["text"], strange);
    let sessions = client.get("/api/sessions").await.json(200)["sessions"].as_array().unwrap().len();
    assert!(sessions <= 2, "refused requests begin no session: {sessions}");
    server.stop().await;
}

/// Row 25: a token can keep only a limited number of requests open, and its other requests work.
#[tokio::test(flavor = "multi_thread")]
async fn row_25_hoarded_replies_are_limited() {
    let test_host = TestHost::new(&[]).await;
    let slow = json!({"chunks": vec!["word "; 600], "delay_ms": 100});
    let agent = clerk(&test_host, &[slow]).await;
    let limits = |options: ServerOptions| ServerOptions { replies_per_token: 1, replies: 2, ..options };
    let server = TestServer::start_with(&test_host, &[&agent], limits).await;
    let (client, other) = (server.client(&[Right::Read, Right::Talk]), server.client(&[Right::Read, Right::Talk]));
    let hoarder = client.clone();
    let hoarded = tokio::spawn(async move { hoarder.post(CHAT, chat("clerk", &[user("Go.")])).await });
    // Otherwise, the second request could come first.
    until(async || {
        let sessions = client.get("/api/sessions").await.json(200)["sessions"].clone();
        sessions.as_array().is_some_and(|sessions| !sessions.is_empty()).then_some(())
    })
    .await;
    let limited = async {
        loop {
            let mut body = chat("clerk", &[user("Go.")]);
            body["stream"] = json!(true);
            let asked = tokio::time::timeout(Duration::from_secs(1), client.post(CHAT, body)).await;
            match asked {
                Ok(answer) if answer.status == 429 => return answer.json(429),
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let limited = tokio::time::timeout(Duration::from_secs(60), limited).await.expect("the second request is refused");
    assert_eq!(
        (&limited["error"]["code"], &limited["error"]["type"]),
        (&json!("rate_limit_exceeded"), &json!("rate_limit_error"))
    );
    assert_eq!(client.get("/v1/models").await.status, 200, "requests that wait for no reply still work");
    assert_eq!(other.get("/v1/models").await.status, 200);
    hoarded.abort();
    server.stop().await;
}

/// I3: parameters whose neglect would mislead a client are refused. Others are ignored.
#[tokio::test(flavor = "multi_thread")]
async fn i3_parameters_that_would_mislead_are_refused() {
    let test_host = TestHost::new(&[]).await;
    let server = TestServer::start(&test_host, &[&clerk(&test_host, &[text_reply("One.")]).await]).await;
    let client = server.client(&[Right::Read, Right::Talk]);
    let with = |mut body: Value, name: &str, value: Value| {
        body[name] = value;
        body
    };
    for (name, value) in [
        ("n", json!(2)),
        ("functions", json!([{"name": "f"}])),
        ("tool_choice", json!("required")),
        ("response_format", json!({"type": "json_schema", "json_schema": {}})),
        ("logprobs", json!(true)),
        ("stop", json!(["\n"])),
        ("logit_bias", json!({"50256": -100})),
        ("modalities", json!(["text", "audio"])),
    ] {
        let error =
            client.post(CHAT, with(chat("clerk", &[user("Hi.")]), name, value)).await.json(400)["error"].clone();
        assert_eq!((&error["code"], &error["param"]), (&json!("unsupported_parameter"), &json!(name)));
    }
    let response = || json!({"model": "clerk", "input": "Hi."});
    for (name, value) in [
        ("tools[0]", json!([{"type": "web_search"}])),
        ("conversation", json!("conv_1")),
        ("prompt", json!({"id": "p"})),
        ("max_tool_calls", json!(1)),
        ("include", json!(["message.output_text.logprobs"])),
    ] {
        let field = name.trim_end_matches("[0]");
        let error = client.post("/v1/responses", with(response(), field, value)).await.json(400)["error"].clone();
        assert_eq!((&error["code"], &error["param"]), (&json!("unsupported_parameter"), &json!(name)));
    }
    let items = json!([{"type": "function_call_output", "call_id": "c", "output": "1"}]);
    assert_eq!(client.post("/v1/responses", with(response(), "input", items)).await.status, 400);
    let mut harmless = chat("clerk", &[user("Hi.")]);
    for (name, value) in [
        ("n", json!(1)),
        ("tools", json!([])),
        ("tool_choice", json!("none")),
        ("temperature", json!(0.1)),
        ("top_p", json!(1)),
        ("max_tokens", json!(5)),
        ("max_completion_tokens", json!(5)),
        ("seed", json!(7)),
        ("user", json!("ann")),
        ("metadata", json!({"a": "b"})),
        ("response_format", json!({"type": "text"})),
        ("unknown", json!({"a": [1]})),
    ] {
        harmless[name] = value;
    }
    assert_eq!(client.post(CHAT, harmless).await.json(200)["choices"][0]["message"]["content"], "One.");
    server.stop().await;
}
