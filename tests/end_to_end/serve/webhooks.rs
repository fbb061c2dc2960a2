//! Webhooks begin sessions: signatures, tokens, repetitions, and attacks (I9, rows 24, 26 and 29).

use super::{TestServer, new_token};
use crate::support::{TestHost, script};
use agent_runtime::{Agent, AgentConfig, SignedMessage, SigningKey, Webhook, WebhookAuthentication};
use agent_serve::{NewToken, Right};
use agent_store::{SessionFilter, SessionIndex};
use serde_json::json;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn key() -> SigningKey {
    SigningKey::parse(KEY).expect("a key")
}

async fn agent(test_host: &TestHost, replies: usize) -> Arc<Agent> {
    let mut config = AgentConfig::new("clerk");
    let mut add = |name: &str, prompt: Option<&str>, authentication| {
        let webhook = Webhook { prompt: prompt.map(Into::into), authentication, user: None };
        config.webhooks.insert(name.to_owned(), webhook);
    };
    add("tickets", Some("A ticket was filed."), WebhookAuthentication::Standard(key()));
    add("pushes", None, WebhookAuthentication::Hub(key()));
    add("open", None, WebhookAuthentication::Token);
    test_host.agent(config, script(&vec![json!({"text": "Done."}); replies])).await
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs()
}

/// Returns the headers of a message that is signed at this time.
fn signed(id: &str, timestamp: u64, body: &str) -> Vec<(String, String)> {
    let signature = key().sign(SignedMessage { id, timestamp, body: body.as_bytes() });
    let headers =
        [("webhook-id", id.to_owned()), ("webhook-timestamp", timestamp.to_string()), ("webhook-signature", signature)];
    headers.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

async fn session_count(test_host: &TestHost) -> usize {
    test_host.store.sessions(SessionFilter::default(), 100).await.expect("sessions are listed").len()
}

const JSON: &str = "application/json";

/// I9, row 29: a signed request begins a session without a token, and its repetition begins none.
#[tokio::test(flavor = "multi_thread")]
async fn i9_row_29_a_signed_webhook_begins_one_session() {
    let test_host = TestHost::new(&[]).await;
    let agent = agent(&test_host, 2).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let anonymous = server.anonymous();
    let body = json!({"title": "The crane is stuck", "number": 7}).to_string();
    let post = async |headers: Vec<(String, String)>| {
        anonymous.send("POST", "/webhooks/clerk/tickets", JSON, &headers, body.clone()).await
    };
    let begun = post(signed("msg_1", now(), &body)).await.json(202);
    assert_eq!(begun["status"], "started");
    let session = begun["session"].as_str().expect("an id").to_owned();
    assert!(session.starts_with("clerk/webhook-"), "{session}");
    let again = post(signed("msg_1", now() - 5, &body)).await.json(202);
    assert_eq!((&again["status"], &again["session"]), (&json!("duplicate"), &begun["session"]));
    let path = format!("/api/sessions/{}/messages", super::encoded(&session));
    let client = server.client_with_all_rights();
    super::until_idle(&client, &session).await;
    let messages = client.get(&path).await.json(200);
    assert_eq!(messages["messages"][0]["parts"][0]["text"], "A ticket was filed.");
    assert_eq!(messages["messages"][0]["parts"][1]["json"]["number"], 7);
    assert_eq!(post(signed("msg_2", now(), &body)).await.json(202)["status"], "started");
    assert_eq!(session_count(&test_host).await, 2);
    server.stop().await;
}

/// I9, row 29: the body identifies a request whose signature contains no id, and CloudEvents have ids of their own.
#[tokio::test(flavor = "multi_thread")]
async fn i9_row_29_repetitions_are_recognised_in_every_form() {
    let test_host = TestHost::new(&[]).await;
    let agent = agent(&test_host, 4).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let anonymous = server.anonymous();
    let body = json!({"ref": "refs/heads/main"}).to_string();
    // Computed with an independent implementation of HMAC-SHA256.
    let signature = hub_signature(body.as_bytes());
    let headers = vec![("x-hub-signature-256".to_owned(), signature)];
    for status in ["started", "duplicate"] {
        let answer = anonymous.send("POST", "/webhooks/clerk/pushes", JSON, &headers, body.clone()).await;
        assert_eq!(answer.json(202)["status"], status);
    }
    let client = server.client(&[Right::Talk]);
    let event = |id: &str| json!({"specversion": "1.0", "id": id, "source": "/s", "type": "t", "data": {"a": 1}});
    for (id, status) in [("1", "started"), ("1", "duplicate"), ("2", "started")] {
        let content_type = "application/cloudevents+json";
        let answer = client.send("POST", "/webhooks/clerk/open", content_type, &[], event(id).to_string()).await;
        assert_eq!(answer.json(202)["status"], status, "structured {id}");
    }
    let binary = [("ce-id", "1"), ("ce-source", "/s"), ("ce-type", "t"), ("ce-specversion", "1.0")];
    let binary = binary.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let answer = client.send("POST", "/webhooks/clerk/open", JSON, &binary, "{}".to_owned()).await;
    assert_eq!(answer.json(202)["status"], "duplicate", "the event is the same in binary mode");
    for _ in 0..2 {
        let answer = client.send("POST", "/webhooks/clerk/open", JSON, &[], "{}".to_owned()).await;
        assert_eq!(answer.json(202)["status"], "started", "a request without an id is always new");
    }
    server.stop().await;
}

/// Signs a body in the form of `X-Hub-Signature-256`, with HMAC as RFC 2104 defines it.
fn hub_signature(body: &[u8]) -> String {
    use agent_store::digest_of;
    let sha256 = |bytes: &[u8]| -> Vec<u8> {
        let hex = digest_of(bytes).hex().to_owned();
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal")).collect()
    };
    let mut block =
        base64::Engine::decode(&base64::engine::general_purpose::STANDARD, &KEY["whsec_".len()..]).expect("a key");
    block.resize(64, 0);
    let padded = |pad: u8| block.iter().map(|byte| byte ^ pad).collect::<Vec<_>>();
    let inner = sha256(&[padded(0x36), body.to_vec()].concat());
    let outer = digest_of(&[padded(0x5c), inner].concat());
    format!("sha256={}", outer.hex())
}

/// Row 24, I9: requests without a valid signature or token begin nothing, and do not tell which webhooks exist.
#[tokio::test(flavor = "multi_thread")]
async fn row_24_unauthenticated_webhooks_begin_nothing() {
    let test_host = TestHost::new(&[]).await;
    let agent = agent(&test_host, 1).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let anonymous = server.anonymous();
    let body = "{\"a\":1}".to_owned();
    let mut answers = Vec::new();
    let other_body = signed("msg_1", now(), "{\"a\":2}");
    let mut other_id = signed("msg_1", now(), &body);
    other_id[0].1 = "msg_2".to_owned();
    let mut doubled = signed("msg_1", now(), &body);
    doubled.push(("webhook-id".to_owned(), "msg_3".to_owned()));
    let forged =
        [Vec::new(), other_body, other_id, signed("msg_1", now() - 600, &body), signed("msg_1", now() + 600, &body)];
    for headers in forged {
        let answer = anonymous.send("POST", "/webhooks/clerk/tickets", JSON, &headers, body.clone()).await;
        assert_eq!(answer.json(401)["code"], "unauthorized");
    }
    let answer = anonymous.send("POST", "/webhooks/clerk/tickets", JSON, &doubled, body.clone()).await;
    assert_eq!(answer.json(400)["code"], "bad_request");
    for path in ["/webhooks/clerk/tickets", "/webhooks/clerk/none", "/webhooks/none/tickets", "/webhooks/clerk/open"] {
        let answer = anonymous.send("POST", path, JSON, &[], body.clone()).await;
        assert!(answer.head.to_ascii_lowercase().contains("connection: close"), "{}", answer.head);
        answers.push(answer.json(401));
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "the answers do not differ: {answers:?}");
    let reader = server.client(&[Right::Read]);
    assert_eq!(reader.post("/webhooks/clerk/open", json!({})).await.status, 403, "the right `talk` is needed");
    let stranger = server.client_of(NewToken { agents: vec!["other".to_owned()], ..new_token() });
    assert_eq!(stranger.post("/webhooks/clerk/open", json!({})).await.status, 404);
    let talker = server.client(&[Right::Talk]);
    assert_eq!(talker.post("/webhooks/clerk/none", json!({})).await.status, 404);
    assert_eq!(talker.get("/webhooks/clerk/open").await.status, 405);
    assert_eq!(session_count(&test_host).await, 0);
    server.stop().await;
}

/// Row 26: bodies that are too large, too deep, or not JSON are refused with a clear error.
#[tokio::test(flavor = "multi_thread")]
async fn row_26_webhooks_refuse_unusable_bodies() {
    let test_host = TestHost::new(&[]).await;
    let agent = agent(&test_host, 1).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let client = server.client(&[Right::Talk]);
    let post = async |content_type, body: String| {
        client.send("POST", "/webhooks/clerk/open", content_type, &[], body).await.status
    };
    assert_eq!(post(JSON, "a".repeat(2 << 20)).await, 413);
    assert_eq!(post(JSON, "[".repeat(100_000)).await, 400);
    assert_eq!(post(JSON, "{\"a\":".to_owned()).await, 400);
    assert_eq!(post(JSON, "\"\\ud800\"".to_owned()).await, 400);
    assert_eq!(post("text/plain", "{}".to_owned()).await, 415);
    assert_eq!(post("application/cloudevents+json", "{}".to_owned()).await, 422);
    assert_eq!(session_count(&test_host).await, 0);
    assert_eq!(post(JSON, "\"a\\u0000b'; DROP TABLE sessions; --\"".to_owned()).await, 202);
    server.stop().await;
}
