//! The routes that the web console uses (I3): sign-ins, files, transcript, inbox, undo, retry, forks, export, search and rendering.

use super::client::{Client, encoded};
use super::{TestServer, clerk, new_token, until, until_idle};
use crate::support::{TestHost, call_reply, script, text_reply, with_tree_grant};
use agent_serve::{NewToken, Right};
use serde_json::{Value, json};

/// Begins a session, and returns its path.
async fn begin(client: &Client, agent: &str, prompt: &str) -> (String, String) {
    let created = client.post("/api/sessions", json!({"agent": agent, "prompt": prompt})).await.json(201);
    let session = created["session"].as_str().expect("an id").to_owned();
    let path = format!("/api/sessions/{}", encoded(&session));
    (session, path)
}

/// Waits until something waits for a person.
async fn inbox_item(client: &Client) -> Value {
    until(async || {
        let items = client.get("/api/inbox").await.json(200)["items"].clone();
        items.as_array().filter(|items| !items.is_empty()).map(|items| items[0].clone())
    })
    .await
}

/// Row 24: a sign-in replaces its token, cannot begin another one, and ends with its token. A code begins one sign-in.
#[tokio::test(flavor = "multi_thread")]
async fn row_24_a_sign_in_stands_for_its_token() {
    let test_host = TestHost::new(&[]).await;
    let server = TestServer::start(&test_host, &[&clerk(&test_host, &[text_reply("One.")]).await]).await;
    let owner =
        server.client_of(NewToken { user: Some("ann".to_owned()), rights: [Right::Read].into(), ..new_token() });
    let begun = owner.post("/api/sign-ins", json!({})).await.json(201);
    let secret = begun["secret"].as_str().expect("a secret").to_owned();
    assert!(secret.starts_with("ahs_") && begun["expires"].as_str().is_some_and(|time| time.ends_with('Z')), "{begun}");
    let signed_in = Client::new(server.address(), Some(secret));
    assert_eq!(signed_in.get("/api/token").await.json(200), begun["token"]);
    assert_eq!((&begun["token"]["user"], &begun["token"]["rights"]), (&json!("ann"), &json!(["read"])));
    assert_eq!(signed_in.get("/api/agents").await.status, 200);
    assert_eq!(signed_in.post("/api/sessions", json!({"agent": "clerk", "prompt": "Hi."})).await.status, 403);
    assert_eq!(signed_in.post("/api/sign-ins", json!({})).await.json(403)["code"], "forbidden");
    assert_eq!(signed_in.delete("/api/sign-ins").await.status, 204);
    assert_eq!(signed_in.get("/api/token").await.status, 401);
    let code = server.server.create_sign_in_code(&owner.token().expect("a token"));
    let anonymous = server.anonymous();
    let begun = anonymous.post("/api/sign-ins/code", json!({"code": code})).await.json(201);
    assert_eq!(anonymous.post("/api/sign-ins/code", json!({"code": code})).await.json(403)["code"], "wrong_code");
    let unknown = server.server.create_sign_in_code("aht_unknown");
    assert_eq!(anonymous.post("/api/sign-ins/code", json!({"code": unknown})).await.status, 403);
    let signed_in = Client::new(server.address(), begun["secret"].as_str().map(str::to_owned));
    assert_eq!(signed_in.get("/api/agents").await.status, 200);
    let name = begun["token"]["name"].as_str().expect("a name");
    server.tokens.revoke(name).expect("revoked");
    until(async || (signed_in.get("/api/agents").await.status == 401).then_some(())).await;
    server.stop().await;
}

/// Row 24: the files of the console need no token and contain no data. The browser may run only them, and only from a name of the
/// server.
#[tokio::test(flavor = "multi_thread")]
async fn row_24_the_files_of_the_console_are_limited() {
    let test_host = TestHost::new(&[]).await;
    let server = TestServer::start(&test_host, &[&clerk(&test_host, &[text_reply("One.")]).await]).await;
    let anonymous = server.anonymous();
    assert_eq!(anonymous.get("/").await.status, 307);
    let page = anonymous.get("/console/").await;
    let head = page.head.to_ascii_lowercase();
    assert_eq!(page.status, 200);
    for expected in [
        "content-type: text/html; charset=utf-8",
        "script-src 'self';",
        "require-trusted-types-for 'script'; trusted-types 'none'",
        "frame-ancestors 'none'",
        "referrer-policy: no-referrer",
        "x-content-type-options: nosniff",
        "cross-origin-opener-policy: same-origin",
    ] {
        assert!(head.contains(expected), "{expected}: {head}");
    }
    assert!(!head.contains("unsafe"), "{head}");
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).expect("a tag").to_owned();
    let known = vec![("if-none-match".to_owned(), tag)];
    assert_eq!(anonymous.send("GET", "/console/", "text/plain", &known, String::new()).await.status, 304);
    for path in [
        "/console/../Cargo.toml",
        "/console/%2e%2e/Cargo.toml",
        "/console/core",
        "/console/none.js",
        "/console//etc/passwd",
    ] {
        let answer = anonymous.get(path).await;
        assert!(matches!(answer.status, 400 | 401 | 404), "{path}: {}", answer.status);
    }
    let request = "GET /console/ HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n";
    assert_eq!(anonymous.exchange(request.as_bytes().to_vec()).await.status, 403);
    server.stop().await;
}

/// I3: the transcript has rendered replies, and the calls with their results and costs. It is read in parts from both ends.
#[tokio::test(flavor = "multi_thread")]
async fn i3_the_transcript_shows_messages_and_calls() {
    let test_host = TestHost::new(&["probe"]).await;
    let replies =
        [call_reply(&[("probe.echo", json!({"text": "ahoy"}))]), text_reply("# Done\n\n`x`"), text_reply("Two.")];
    let server = TestServer::start(&test_host, &[&clerk(&test_host, &replies).await]).await;
    let client = server.client_with_all_rights();
    let (session, path) = begin(&client, "clerk", "Say <b>ahoy</b>.").await;
    until_idle(&client, &session).await;
    let shown = client.get(&format!("{path}/transcript")).await.json(200);
    let messages = shown["messages"].as_array().expect("messages");
    let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().unwrap_or_default()).collect();
    assert_eq!(roles, ["user", "assistant", "assistant"], "{shown}");
    assert_eq!(messages[0]["parts"], json!([{"kind": "text", "text": "Say <b>ahoy</b>.", "omitted_bytes": 0}]));
    let call = &shown["calls"][0];
    assert_eq!(
        (&call["name"], &call["state"], &call["arguments"]),
        (&json!("probe.echo"), &json!("finished"), &json!({"text": "ahoy"}))
    );
    assert!(
        call["result"]["content"].to_string().contains("ahoy") && call["result"]["cost"]["wall_us"].as_u64() > Some(0),
        "{call}"
    );
    assert!(messages[1]["parts"].as_array().expect("parts").contains(&json!({"kind": "call", "call": call["id"]})));
    let reply = &messages[2]["parts"][0];
    assert_eq!(reply["blocks"][0], json!({"line": 0, "node": {"tag": "h1", "children": ["Done"]}}));
    assert_eq!(
        (&shown["state"], &shown["has_earlier"], &shown["last_message"]),
        (&json!("idle"), &json!(false), &json!(4))
    );
    assert!(
        shown["recent"].as_array().is_some_and(|events| events.iter().any(|event| event["type"] == "loop_end")),
        "{shown}"
    );
    let last = client.get(&format!("{path}/transcript?limit=1")).await.json(200);
    assert_eq!((&last["messages"][0]["id"], &last["has_earlier"]), (&json!(4), &json!(true)));
    let before = client.get(&format!("{path}/transcript?before=4&limit=2")).await.json(200);
    assert_eq!((&before["messages"][0]["id"], &before["has_earlier"]), (&json!(2), &json!(true)));
    let after = client.get(&format!("{path}/transcript?after=4")).await.json(200);
    assert_eq!((&after["messages"], &after["last_message"]), (&json!([]), &json!(4)));
    for query in ["before=1&after=1", "limit=0", "limit=101", "after=18446744073709551615", "other=1"] {
        assert_eq!(client.get(&format!("{path}/transcript?{query}")).await.status, 422, "{query}");
    }
    let stranger = server.client_of(NewToken { user: Some("bob".to_owned()), ..new_token() });
    assert_eq!(stranger.get(&format!("{path}/transcript")).await.status, 404);
    server.stop().await;
}

/// I3, D5: a session is undone, retried, forked and exported over HTTP.
#[tokio::test(flavor = "multi_thread")]
async fn i3_d5_sessions_are_undone_retried_forked_and_exported() {
    let test_host = TestHost::new(&[]).await;
    let replies = [text_reply("One."), text_reply("Two."), text_reply("Two again.")];
    let server = TestServer::start(&test_host, &[&clerk(&test_host, &replies).await]).await;
    let client = server.client_with_all_rights();
    let (session, path) = begin(&client, "clerk", "First.").await;
    until_idle(&client, &session).await;
    client.post(&format!("{path}/prompts"), json!({"prompt": "Second."})).await.json(202);
    until(async || (until_idle(&client, &session).await["turns"] == 2).then_some(())).await;
    assert_eq!(client.post(&format!("{path}/retry"), json!({})).await.json(202), json!({"turn": 3}));
    let shown = until(async || {
        let shown = client.get(&format!("{path}/transcript")).await.json(200);
        (shown["state"] == "idle" && shown["turns"] == 3).then_some(shown)
    })
    .await;
    let texts: Vec<_> = shown["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .map(|message| (message["parts"][0]["text"].as_str().unwrap_or_default(), message["hidden"].as_str()))
        .collect();
    let expected = [
        ("First.", None),
        ("One.", None),
        ("Second.", Some("undone")),
        ("Two.", Some("undone")),
        ("Second.", None),
        ("Two again.", None),
    ];
    assert_eq!(texts, expected);
    let forked = client.post(&format!("{path}/forks"), json!({"message": 2})).await.json(201);
    assert_eq!(forked["messages"], 2);
    let copy = format!("/api/sessions/{}", encoded(forked["session"].as_str().expect("an id")));
    assert_eq!(client.get(&format!("{copy}/transcript")).await.json(200)["messages"].as_array().map(Vec::len), Some(2));
    let exported = client.get(&format!("{path}/export")).await;
    assert!(exported.head.to_ascii_lowercase().contains("content-disposition: attachment"), "{}", exported.head);
    assert!(exported.body.contains("Two again.") && exported.body.contains(&session), "the document has the session");
    assert_eq!(client.post(&format!("{path}/undo"), json!({})).await.status, 204);
    let shown = client.get(&format!("{path}/transcript")).await.json(200);
    assert_eq!(shown["messages"][5]["hidden"], "undone");
    assert_eq!(client.post(&format!("{path}/forks"), json!({"message": 99})).await.json(409)["code"], "conflict");
    let reader = server.client(&[Right::Read]);
    for route in ["undo", "retry", "forks"] {
        assert_eq!(reader.post(&format!("{path}/{route}"), json!({})).await.status, 403, "{route}");
    }
    server.stop().await;
}

/// I3, L17: the inbox shows the exact call and its digest to those who may see the agent. The second of two decisions is late.
#[tokio::test(flavor = "multi_thread")]
async fn i3_l17_the_inbox_lists_what_waits() {
    let test_host = TestHost::new(&["payer"]).await;
    let pay = call_reply(&[("payer.pay", json!({"to": "ann", "amount": 3}))]);
    let agent = test_host.agent(with_tree_grant(&test_host, "payer"), script(&[pay, text_reply("Decided.")])).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let client = server.client_with_all_rights();
    let (session, path) = begin(&client, "test", "Pay ann.").await;
    let item = inbox_item(&client).await;
    assert_eq!(
        (&item["kind"], &item["session"], &item["tool"]),
        (&json!("approval"), &json!(session), &json!("payer.pay"))
    );
    assert_eq!((&item["arguments"], &item["editable"]), (&json!({"to": "ann", "amount": 3}), &json!(true)));
    assert!(item["source"]["plugin"]["digest"].as_str().is_some_and(|digest| digest.starts_with("sha256:")), "{item}");
    assert!(item["because"].is_string() && item["traits"]["needs_approval"] == true, "{item}");
    let others = [
        NewToken { agents: vec!["another".to_owned()], ..new_token() },
        NewToken { user: Some("bob".to_owned()), ..new_token() },
    ];
    for other in others {
        assert_eq!(server.client_of(other).get("/api/inbox").await.json(200)["items"], json!([]));
    }
    let decide = |verdict: &str| json!({"decisions": [{"call": item["call"], "verdict": verdict}]});
    let first = client.post(&format!("{path}/approvals"), decide("granted")).await.json(200);
    assert_eq!(first["status"], "stored");
    let second = client.post(&format!("{path}/approvals"), decide("denied")).await;
    assert!(second.status == 409 || second.status == 404 || second.json(200)["status"] == "late", "{}", second.body);
    until_idle(&client, &session).await;
    assert_eq!(client.get("/api/inbox").await.json(200)["items"], json!([]));
    server.stop().await;
}

/// I3: the inbox is read in parts, the session that waits longest first. However many sessions wait, each is listed once, and the
/// oldest is in the first part.
#[tokio::test(flavor = "multi_thread")]
async fn i3_the_inbox_is_read_in_parts() {
    let test_host = TestHost::new(&["payer"]).await;
    let pay = call_reply(&[("payer.pay", json!({"to": "ann", "amount": 3}))]);
    let agent = test_host.agent(with_tree_grant(&test_host, "payer"), script(&[pay, text_reply("Decided.")])).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let client = server.client_with_all_rights();
    let mut begun = Vec::new();
    for number in 0..7 {
        let (session, path) = begin(&client, "test", &format!("Pay ann {number}.")).await;
        until(async || (client.get(&path).await.json(200)["state"] == "suspended").then_some(())).await;
        begun.push(session);
    }
    for limit in [1, 3, 7, 200] {
        let (mut listed, mut after) = (Vec::new(), String::new());
        loop {
            let part = client.get(&format!("/api/inbox?limit={limit}{after}")).await.json(200);
            let items = part["items"].as_array().expect("items");
            assert!(items.len() <= limit, "{part}");
            listed.extend(items.iter().map(|item| item["session"].as_str().expect("a session").to_owned()));
            let Some(next) = part["next"].as_str() else { break };
            after = format!("&after={next}");
        }
        assert_eq!(listed, begun, "{limit}");
    }
    for query in ["limit=0", "limit=201", "after=x", "after=1", "after=1.x", "present=perhaps", "more=1"] {
        assert_eq!(client.get(&format!("/api/inbox?{query}")).await.status, 422, "{query}");
    }
    server.stop().await;
}

/// I3: a search finds only messages of sessions that the token may see.
#[tokio::test(flavor = "multi_thread")]
async fn i3_messages_are_searched_with_the_rights_of_the_token() {
    let test_host = TestHost::new(&[]).await;
    let server =
        TestServer::start(&test_host, &[&clerk(&test_host, &[text_reply("The harbourmaster waves.")]).await]).await;
    let client = server.client_with_all_rights();
    let (session, _) = begin(&client, "clerk", "Who waves?").await;
    until_idle(&client, &session).await;
    let found = client.get("/api/messages?query=harbourmaster").await.json(200);
    assert_eq!(
        (&found["messages"][0]["session"], &found["messages"][0]["role"]),
        (&json!(session), &json!("assistant"))
    );
    let stranger = server.client_of(NewToken { user: Some("bob".to_owned()), ..new_token() });
    assert_eq!(stranger.get("/api/messages?query=harbourmaster").await.json(200), json!({"messages": []}));
    for query in ["", "?limit=3", "?query=a&limit=0"] {
        assert_eq!(client.get(&format!("/api/messages{query}")).await.status, 422, "{query}");
    }
    server.stop().await;
}

/// I3: texts are rendered as elements, code as pieces, and two texts as a difference.
#[tokio::test(flavor = "multi_thread")]
async fn i3_texts_are_rendered_without_markup() {
    let test_host = TestHost::new(&[]).await;
    let server = TestServer::start(&test_host, &[&clerk(&test_host, &[text_reply("One.")]).await]).await;
    let client = server.client(&[Right::Read]);
    let blocks = client.post("/api/render/markdown", json!({"text": "a <b>c</b>\n\n- d"})).await.json(200);
    let expected = json!({"blocks": [
        {"line": 0, "node": {"tag": "p", "children": ["a <b>c</b>"]}},
        {"line": 2, "node": {"tag": "ul", "children": [{"tag": "li", "children": ["d"]}]}},
    ]});
    assert_eq!(blocks, expected);
    let code = client.post("/api/render/code", json!({"text": "fn f()", "language": "rs"})).await.json(200);
    assert_eq!(code, json!({"tokens": [["keyword", "fn "], ["function", "f"], ["", "()"]]}));
    let lines = client.post("/api/render/difference", json!({"old": "a\nb\n", "new": "a\nc\n"})).await.json(200);
    let kinds: Vec<_> = lines["lines"].as_array().expect("lines").iter().map(|line| line["kind"].clone()).collect();
    assert_eq!(kinds, ["same", "removed", "added"]);
    assert_eq!(client.post("/api/render/markdown", json!({"text": "a".repeat(2 << 20)})).await.status, 413);
    server.stop().await;
}

/// Row 24, I3: a right is not got around by another route. Reading does not include the operator's instructions, and talking does
/// not include reading. What applies to everybody is not changed by a token for one user.
#[tokio::test(flavor = "multi_thread")]
async fn row_24_no_route_goes_around_a_right() {
    let test_host = TestHost::new(&["text"]).await;
    let agent = clerk(&test_host, &[text_reply("One."), text_reply("Two.")]).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let all = server.client_with_all_rights();
    let (session, path) = begin(&all, "clerk", "Hi.").await;
    until_idle(&all, &session).await;
    let reader = server.client(&[Right::Read]);
    assert_eq!(reader.get(&format!("{path}/export")).await.status, 403, "the document contains the prompts");
    assert_eq!(all.get(&format!("{path}/export")).await.status, 200);
    let run = json!({"threadId": session, "runId": "r", "state": null, "tools": [], "context": [], "forwardedProps": null,
        "messages": [{"id": "m", "role": "user", "content": "Hi."}]});
    let talker = server.client(&[Right::Talk]);
    assert_eq!(talker.post("/agents/clerk/ag-ui", run).await.status, 403, "the stream begins with the messages");
    let rights = [Right::Read, Right::Administer].into();
    let of_user = server.client_of(NewToken { user: Some("bob".to_owned()), rights, ..new_token() });
    let rollback = "/api/agents/clerk/plugins/text/rollback";
    let answer = of_user.post(rollback, json!({})).await;
    assert_eq!(answer.status, 403, "the plugin belongs to all users: {}", answer.body);
    server.stop().await;
}

/// Row 26: the inbox stays small, whatever waits in it.
#[tokio::test(flavor = "multi_thread")]
async fn row_26_long_arguments_are_not_in_the_inbox() {
    let test_host = TestHost::new(&["payer"]).await;
    let pay = call_reply(&[("payer.pay", json!({"to": "a".repeat(100_000), "amount": 3}))]);
    let config = agent_runtime::AgentConfig { name: "clerk".to_owned(), ..with_tree_grant(&test_host, "payer") };
    let agent = test_host.agent(config, script(&[pay, text_reply("Paid.")])).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let client = server.client_with_all_rights();
    begin(&client, "clerk", "Pay.").await;
    let item = inbox_item(&client).await;
    assert_eq!(item["arguments"], Value::Null);
    assert!(item["omitted_bytes"].as_u64().is_some_and(|size| size > 100_000), "{item}");
    server.stop().await;
}
