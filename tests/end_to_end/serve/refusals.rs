//! Refused requests are recorded in the audit log, at a bounded rate (O3, row 44).

use super::{TestServer, clerk, encoded, new_token};
use crate::support::{TestHost, text_reply};
use agent_serve::{NewToken, Right};
use agent_store::{Audit, AuditAction, verify_store};
use serde_json::json;

/// A recorded refusal.
#[derive(Debug)]
struct Refusal {
    protocol: String,
    token: Option<String>,
    request: String,
    object: Option<String>,
    code: String,
    count: u64,
}

async fn refusals(test_host: &TestHost) -> Vec<Refusal> {
    let entries = test_host.store.audit_entries(0, 0, 1_000).await.unwrap();
    let refusal = |action| match action {
        AuditAction::RequestRefused { protocol, token, request, object, code, count } => {
            Some(Refusal { protocol, token, request, object, code, count })
        }
        _ => None,
    };
    entries.into_iter().filter_map(|entry| refusal(entry.action)).collect()
}

/// O3, row 24, row 56: requests without a token, without a right, from a foreign page, and for the session of another user
/// are recorded, and the entries contain no token.
#[tokio::test(flavor = "multi_thread")]
async fn o3_refused_requests_are_recorded() {
    let test_host = TestHost::new(&[]).await;
    let agent = clerk(&test_host, &[text_reply("One.")]).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let named = |name: &str, rights: &[Right], user: Option<&str>| {
        let (name, rights) = (name.to_owned(), rights.iter().copied().collect());
        server.client_of(NewToken { name, rights, user: user.map(str::to_owned), ..new_token() })
    };
    let (reader, ann) =
        (named("reader", &[Right::Read], None), named("of-ann", &[Right::Read, Right::Talk], Some("ann")));
    let bob = named("of-bob", &[Right::Read, Right::Talk], Some("bob"));
    let created = ann.post("/api/sessions", json!({"agent": "clerk", "prompt": "Go."})).await.json(201);
    let session = created["session"].as_str().expect("an id").to_owned();
    assert_eq!(server.anonymous().get("/api/sessions").await.status, 401);
    let unknown = super::client::Client::new(server.address(), Some("aht_canary_7f3a".to_owned()));
    assert_eq!(unknown.get("/api/sessions?secret=canary").await.status, 401);
    assert_eq!(reader.post("/api/sessions", json!({"agent": "clerk", "prompt": "Go."})).await.status, 403);
    let foreign = [("origin".to_owned(), "https://evil.example".to_owned())];
    let refused = reader.send("GET", "/api/sessions", "application/json", &foreign, String::new()).await;
    assert_eq!(refused.status, 403);
    assert_eq!(bob.get(&format!("/api/sessions/{}", encoded(&session))).await.status, 404);
    assert_eq!(bob.get("/api/sessions/clerk%2Fnothing").await.status, 404);
    let webhook = server.anonymous().send("POST", "/webhooks/clerk/x", "application/json", &[], "{}".to_owned()).await;
    assert_eq!(webhook.status, 401);
    server.stop().await;
    let found = refusals(&test_host).await;
    let total = |protocol: &str, token: Option<&str>, request: &str, code: &str| -> u64 {
        let is_same = |refusal: &&Refusal| {
            let found = (refusal.protocol.as_str(), refusal.token.as_deref(), refusal.request.as_str());
            found == (protocol, token, request) && refusal.code == code
        };
        found.iter().filter(is_same).map(|refusal| refusal.count).sum()
    };
    let anonymous = "a request without a valid token";
    assert_eq!(total("http", None, anonymous, "unauthorized"), 2, "{found:?}");
    assert_eq!(total("http", None, anonymous, "wrong_origin"), 1, "{found:?}");
    assert_eq!(total("webhook", None, anonymous, "unauthorized"), 1, "{found:?}");
    assert_eq!(total("http", Some("reader"), "POST /api/sessions", "forbidden"), 1, "{found:?}");
    assert_eq!(total("http", Some("of-bob"), "the use of a session", "not_found"), 1, "{found:?}");
    assert!(found.iter().any(|refusal| refusal.object.as_deref() == Some(session.as_str())), "{found:?}");
    assert!(!format!("{found:?}").contains("canary"), "{found:?}");
    verify_store(&*test_host.store, None).await.unwrap();
}

/// Row 44: a flood of requests without a token adds few entries, and none of the requests is left out of the counts.
#[tokio::test(flavor = "multi_thread")]
async fn row_44_a_flood_of_refused_requests_adds_few_entries() {
    let test_host = TestHost::new(&[]).await;
    let server = TestServer::start(&test_host, &[&clerk(&test_host, &[text_reply("Never.")]).await]).await;
    let anonymous = server.anonymous();
    for number in 0..300 {
        assert_eq!(anonymous.get(&format!("/api/sessions/{number}?x={number}")).await.status, 401);
    }
    server.stop().await;
    let found = refusals(&test_host).await;
    assert!(found.len() <= 4, "{found:?}");
    assert_eq!(found.iter().map(|refusal| refusal.count).sum::<u64>(), 300);
}
