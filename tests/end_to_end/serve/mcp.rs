//! The endpoint of the server for MCP clients (I4): both versions of the protocol, rights, approvals, and attacks.

use super::client::{Answer, Client};
use super::{TestServer, new_token};
use crate::support::{TestHost, call_reply, script, text_reply, with_tree_grant};
use agent_runtime::{Agent, AgentConfig, Delegate};
use agent_serve::{NewToken, Right};
use agent_store::{SessionFilter, SessionIndex, SessionState};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

const PATH: &str = "/agents/clerk/mcp";
const STATELESS: &str = "2026-07-28";
const WITH_HANDSHAKE: &str = "2025-11-25";
const TALKS: [Right; 2] = [Right::Read, Right::Talk];

/// Returns the messages in an answer, which is JSON or a stream of events.
fn messages(answer: &Answer) -> Vec<Value> {
    let lines =
        answer.body.lines().map(|line| line.strip_prefix("data: ").or(line.strip_prefix("data:")).unwrap_or(line));
    lines.filter_map(|line| serde_json::from_str::<Value>(line).ok()).filter(Value::is_object).collect()
}

/// Returns the answer to the request with the id 1.
fn response(answer: &Answer) -> Value {
    let found =
        messages(answer).into_iter().find(|message| message["id"] == json!(1) && message.get("method").is_none());
    found.unwrap_or_else(|| panic!("{} {}", answer.status, answer.body))
}

async fn post(client: &Client, path: &str, headers: &[(&str, &str)], body: String) -> Answer {
    let accept = [("accept", "application/json, text/event-stream")];
    let headers = accept.iter().chain(headers).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    client.send("POST", path, "application/json", &headers.collect::<Vec<_>>(), body).await
}

fn stateless_request(method: &str, mut params: Value, capabilities: Value) -> String {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": STATELESS,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string()
}

/// Sends a request of the version without a handshake.
async fn stateless(client: &Client, path: &str, method: &str, params: Value, capabilities: Value) -> Answer {
    let name = params["name"].as_str().unwrap_or_default().to_owned();
    let mut headers = vec![("mcp-protocol-version", STATELESS), ("mcp-method", method)];
    if !name.is_empty() {
        headers.push(("mcp-name", &name));
    }
    post(client, path, &headers, stateless_request(method, params, capabilities)).await
}

async fn call(client: &Client, path: &str, tool: &str, arguments: Value) -> Value {
    response(&stateless(client, path, "tools/call", json!({"name": tool, "arguments": arguments}), json!({})).await)
}

fn initialize() -> String {
    let params = json!({
        "protocolVersion": WITH_HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    });
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).to_string()
}

/// Begins a session of the protocol, and returns its id.
async fn open_session(client: &Client) -> Option<String> {
    let answer = post(client, PATH, &[], initialize()).await;
    let header = answer.head.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
    header.map(str::to_owned)
}

fn clerk_config(test_host: &TestHost) -> AgentConfig {
    AgentConfig { name: "clerk".to_owned(), ..with_tree_grant(test_host, "payer") }
}

async fn clerk(test_host: &TestHost) -> Arc<Agent> {
    test_host.agent(clerk_config(test_host), script(&[text_reply("Nobody asks the model.")])).await
}

fn payments(test_host: &TestHost) -> usize {
    std::fs::read_to_string(test_host.tree().join("ledger.txt")).unwrap_or_default().lines().count()
}

/// I4: clients of both versions list and call tools. A session of the protocol belongs to its token.
#[tokio::test(flavor = "multi_thread")]
async fn i4_clients_of_both_versions_use_the_endpoint() {
    let test_host = TestHost::new(&["payer"]).await;
    let server = TestServer::start(&test_host, &[&clerk(&test_host).await]).await;
    let (client, other) = (server.client(&TALKS), server.client(&TALKS));
    let discovered = response(&stateless(&client, PATH, "server/discover", json!({}), json!({})).await);
    assert!(discovered["result"]["capabilities"]["tools"]["listChanged"].is_boolean(), "{discovered}");
    let result = call(&client, PATH, "payer.look", json!({})).await;
    assert_eq!(result["result"]["isError"], json!(false), "{result}");
    let session = open_session(&client).await.expect("a session");
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    let headers = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", WITH_HANDSHAKE)];
    let listed = response(&post(&client, PATH, &headers, list.clone()).await);
    assert!(listed.to_string().contains("payer.look"), "{listed}");
    assert_eq!(post(&other, PATH, &headers, list.clone()).await.status, 404, "a session of another token is unknown");
    let wrong = [("mcp-protocol-version", STATELESS), ("mcp-method", "tools/call")];
    let mismatch = post(&client, PATH, &wrong, stateless_request("tools/list", json!({}), json!({}))).await;
    assert_eq!(mismatch.status, 400, "headers that contradict the body are refused: {}", mismatch.body);
    let session_header = [("mcp-session-id".to_owned(), session.clone())];
    let ended = client.send("DELETE", PATH, "application/json", &session_header, String::new()).await;
    assert!((200..300).contains(&ended.status), "{}", ended.body);
    assert_eq!(post(&client, PATH, &headers, list).await.status, 404);
    server.stop().await;
}

/// I3, row 24: requests without a token, with a token for another agent, and from pages of other sites are refused. A token
/// that may only read can list tools, but not call them.
#[tokio::test(flavor = "multi_thread")]
async fn i3_the_endpoint_needs_a_token_and_rights() {
    let test_host = TestHost::new(&["payer"]).await;
    let server = TestServer::start(&test_host, &[&clerk(&test_host).await]).await;
    let list = || stateless_request("tools/list", json!({}), json!({}));
    let headers = [("mcp-protocol-version", STATELESS), ("mcp-method", "tools/list")];
    let bare = Client::new(server.address(), None);
    assert_eq!(post(&bare, PATH, &headers, list()).await.status, 401);
    let foreign = server.client_of(NewToken { agents: vec!["other".to_owned()], ..new_token() });
    assert_eq!(post(&foreign, PATH, &headers, list()).await.status, 404);
    let approver = server.client(&[Right::Approve]);
    assert_eq!(post(&approver, PATH, &headers, list()).await.status, 403);
    let client = server.client(&TALKS);
    assert_eq!(post(&client, "/agents/nobody/mcp", &headers, list()).await.status, 404);
    let rebound = [headers[0], headers[1], ("origin", "http://evil.example")];
    assert_eq!(post(&client, PATH, &rebound, list()).await.status, 403);
    let request = format!("POST {PATH} HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n");
    assert_eq!(client.exchange(request.into_bytes()).await.status, 403);
    let reader = server.client(&[Right::Read]);
    assert_eq!(post(&reader, PATH, &headers, list()).await.status, 200);
    let refused = call(&reader, PATH, "payer.look", json!({})).await;
    assert!(refused["error"]["message"].as_str().is_some_and(|text| text.contains("\"talk\"")), "{refused}");
    server.stop().await;
}

/// L17: a token without the right `approve` is not asked, even if its client could ask, and cannot forge an approval. With
/// the right, the user decides, and another token cannot use the state.
#[tokio::test(flavor = "multi_thread")]
async fn l17_only_tokens_with_the_right_can_approve() {
    let test_host = TestHost::new(&["payer"]).await;
    let server = TestServer::start(&test_host, &[&clerk(&test_host).await]).await;
    let asks = json!({"elicitation": {"form": {}}});
    let payment = json!({"name": "payer.pay", "arguments": {"to": "Ann", "amount": 5}});
    let talker = server.client(&TALKS);
    let waiting = response(&stateless(&talker, PATH, "tools/call", payment.clone(), asks.clone()).await);
    let text = waiting["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{waiting}"));
    assert!(waiting["result"]["isError"] == json!(true) && text.contains("session approve"), "{waiting}");
    let approver = server.client(&[Right::Read, Right::Talk, Right::Approve]);
    let asked = response(&stateless(&approver, PATH, "tools/call", payment.clone(), asks.clone()).await);
    let state = asked["result"]["requestState"].clone();
    let question =
        asked["result"]["inputRequests"].as_object().unwrap_or_else(|| panic!("{asked}")).keys().next().cloned();
    let mut allowed = payment.clone();
    allowed["requestState"] = state;
    allowed["inputResponses"] =
        json!({question.expect("a question"): {"action": "accept", "content": {"decision": "allow_once"}}});
    let forged = response(&stateless(&talker, PATH, "tools/call", allowed.clone(), asks.clone()).await);
    assert_eq!((&forged["error"]["code"], payments(&test_host)), (&json!(-32602), 0), "{forged}");
    let paid = response(&stateless(&approver, PATH, "tools/call", allowed, asks.clone()).await);
    assert_eq!((&paid["result"]["isError"], payments(&test_host)), (&json!(false), 1), "{paid}");
    // Another program approves the call of the first token, which then receives the result by repeating the call.
    let session =
        text.split("session approve ").nth(1).and_then(|rest| rest.split([',', ' ']).next()).expect("a session");
    let path = format!("/api/sessions/{}", super::encoded(session));
    let waits = approver.get(&path).await.json(200)["waits"].clone();
    let decision = json!({"decisions": [{"verdict": "granted", "call": waits[0]["call"]}]});
    approver.post(&format!("{path}/approvals"), decision).await.json(200);
    let repeated = response(&stateless(&talker, PATH, "tools/call", payment, json!({})).await);
    assert_eq!((&repeated["result"]["isError"], payments(&test_host)), (&json!(false), 2), "{repeated}");
    server.stop().await;
}

/// L16, L17: a call of an agent that works for the offered agent is asked about too, with its own arguments. A token for the
/// offered agent alone is not asked, and cannot approve it.
#[tokio::test(flavor = "multi_thread")]
async fn l16_l17_calls_of_delegates_are_approved_by_the_user() {
    let test_host = TestHost::new(&["payer"]).await;
    let pay = call_reply(&[("payer.pay", json!({"to": "Ann", "amount": 5}))]);
    let paying = AgentConfig { name: "payments".to_owned(), ..with_tree_grant(&test_host, "payer") };
    let paying = test_host.agent(paying, script(&[pay.clone(), text_reply("Paid."), pay, text_reply("Paid.")])).await;
    let mut config = AgentConfig::new("clerk");
    let delegate = Delegate { agent: paying.clone().into(), description: "Pays.".to_owned(), input_schema: None };
    config.delegates.insert("payments".to_owned(), delegate);
    let work = call_reply(&[("payments", json!({"task": "Pay Ann."}))]);
    let clerk = test_host.agent(config, script(&[work.clone(), text_reply("Done."), work, text_reply("Done.")])).await;
    let server = TestServer::start(&test_host, &[&clerk, &paying]).await;
    let (path, asks) = ("/agents/clerk/mcp?expose=agent", json!({"elicitation": {"form": {}}}));
    let prompt = json!({"name": "clerk", "arguments": {"prompt": "Pay Ann."}});
    let rights = || [Right::Read, Right::Talk, Right::Approve].into();
    let limited = server.client_of(NewToken { agents: vec!["clerk".to_owned()], rights: rights(), ..new_token() });
    let waiting = response(&stateless(&limited, path, "tools/call", prompt.clone(), asks.clone()).await);
    assert!(waiting["result"]["inputRequests"].is_null() && waiting["result"]["isError"] == json!(true), "{waiting}");
    assert_eq!(payments(&test_host), 0);
    let approver = server.client_of(NewToken { rights: rights(), ..new_token() });
    let asked = response(&stateless(&approver, path, "tools/call", prompt.clone(), asks.clone()).await);
    let requests = asked["result"]["inputRequests"].as_object().unwrap_or_else(|| panic!("{asked}"));
    let (question, request) = requests.iter().next().expect("a question");
    assert!(request.to_string().contains("payer.pay") && request.to_string().contains("Ann"), "{request}");
    let mut allowed = prompt;
    allowed["requestState"] = asked["result"]["requestState"].clone();
    allowed["inputResponses"] = json!({question: {"action": "accept", "content": {"decision": "allow_once"}}});
    let stolen = response(&stateless(&limited, path, "tools/call", allowed.clone(), asks.clone()).await);
    assert_eq!((&stolen["error"]["code"], payments(&test_host)), (&json!(-32602), 0), "{stolen}");
    let done = response(&stateless(&approver, path, "tools/call", allowed, asks).await);
    assert_eq!((&done["result"]["isError"], payments(&test_host)), (&json!(false), 1), "{done}");
    assert_eq!(done["result"]["structuredContent"]["answer"], "Done.");
    server.stop().await;
}

/// I4: an agent is offered as a tool. A token with a user cannot continue the session of another user.
#[tokio::test(flavor = "multi_thread")]
async fn i4_sessions_of_other_users_cannot_be_continued() {
    let test_host = TestHost::new(&["payer"]).await;
    let replies = [call_reply(&[("payer.look", json!({}))]), text_reply("I looked."), text_reply("Again.")];
    let agent = test_host.agent(clerk_config(&test_host), script(&replies)).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let path = "/agents/clerk/mcp?expose=agent";
    let of = |user: &str| server.client_of(NewToken { user: Some(user.to_owned()), ..new_token() });
    let (ann, bob) = (of("ann"), of("bob"));
    let answer = call(&ann, path, "clerk", json!({"prompt": "Look."})).await;
    let structured = &answer["result"]["structuredContent"];
    assert_eq!(structured["answer"], json!("I looked."), "{answer}");
    let next = json!({"prompt": "And?", "session": structured["session"]});
    let refused = call(&bob, path, "clerk", next.clone()).await;
    assert_eq!(refused["error"]["code"], json!(-32602), "{refused}");
    let answer = call(&ann, path, "clerk", next).await;
    assert_eq!(answer["result"]["structuredContent"]["answer"], json!("Again."), "{answer}");
    server.stop().await;
}

/// Rows 25 and 26: sessions of the protocol, bodies, nesting and open streams are limited.
#[tokio::test(flavor = "multi_thread")]
async fn row_25_sessions_bodies_and_streams_are_limited() {
    let test_host = TestHost::new(&["payer"]).await;
    let server = TestServer::start(&test_host, &[&clerk(&test_host).await]).await;
    let (client, other) = (server.client(&TALKS), server.client(&TALKS));
    let mut opened = Vec::new();
    for _ in 0..1_000 {
        opened.extend(open_session(&client).await);
    }
    assert_eq!(opened.len(), 64, "a token has at most 64 sessions that are in use");
    assert_eq!(post(&client, PATH, &[], initialize()).await.json(429)["code"], json!("too_many_sessions"));
    assert!(open_session(&other).await.is_some(), "other tokens are not affected");
    let huge = stateless_request("tools/call", json!({"name": "payer.look", "x": "y".repeat(5 << 20)}), json!({}));
    assert_eq!(post(&client, PATH, &[("mcp-protocol-version", STATELESS)], huge).await.status, 413);
    let deep = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{}{}}}",
        "[".repeat(5_000),
        "]".repeat(5_000)
    );
    let refused = post(&client, PATH, &[("mcp-protocol-version", STATELESS)], deep).await;
    assert!((400..500).contains(&refused.status), "{} {}", refused.status, refused.body);
    // Streams that are never read count towards the limit of the token.
    let body =
        stateless_request("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}), json!({}));
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(server.address()).await.expect("a connection");
        let head = format!(
            "{}accept: application/json, text/event-stream\r\ncontent-type: application/json\r\nmcp-protocol-version: \
             {STATELESS}\r\nmcp-method: subscriptions/listen\r\ncontent-length: {}\r\n\r\n{body}",
            other.request("POST", PATH),
            body.len()
        );
        stream.write_all(head.as_bytes()).await.expect("the request is sent");
        let mut first = [0; 15];
        tokio::io::AsyncReadExt::read_exact(&mut stream, &mut first).await.expect("an answer");
        assert_eq!(String::from_utf8_lossy(&first), "HTTP/1.1 200 OK");
        streams.push(stream);
    }
    let headers = [("mcp-protocol-version", STATELESS), ("mcp-method", "subscriptions/listen")];
    assert_eq!(post(&other, PATH, &headers, body).await.status, 429);
    server.stop().await;
}

/// L29, row 25: clients that begin calls and go away leave no open turn, and the server keeps answering.
#[tokio::test(flavor = "multi_thread")]
async fn l29_clients_that_go_away_cancel_their_calls() {
    let test_host = TestHost::new(&["probe"]).await;
    let agent = test_host.agent(AgentConfig::new("clerk"), script(&[text_reply("Nobody asks the model.")])).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let client = server.client(&TALKS);
    let params = json!({"name": "probe.sleep", "arguments": {"ms": 60_000}});
    let body = stateless_request("tools/call", params, json!({}));
    let mut connections = Vec::new();
    for _ in 0..40 {
        let mut stream = TcpStream::connect(server.address()).await.expect("a connection");
        let head = format!(
            "{}accept: application/json, text/event-stream\r\ncontent-type: application/json\r\nmcp-protocol-version: \
             {STATELESS}\r\nmcp-method: tools/call\r\nmcp-name: probe.sleep\r\ncontent-length: {}\r\n\r\n{body}",
            client.request("POST", PATH),
            body.len()
        );
        stream.write_all(head.as_bytes()).await.expect("the request is sent");
        connections.push(stream);
    }
    let states = || async {
        let sessions =
            test_host.store.sessions(SessionFilter::default(), 500).await.expect("the sessions can be listed");
        sessions.into_iter().map(|session| session.state).collect::<Vec<_>>()
    };
    let begun = async {
        while states().await.iter().filter(|state| **state == SessionState::Running).count() < 8 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), begun).await.expect("eight calls run at the same time");
    drop(connections);
    let ended = async {
        while states().await.iter().any(|state| *state != SessionState::Cancelled) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ended).await.expect("all calls are cancelled");
    assert!(states().await.len() < 20, "calls that waited for others never began");
    let result = call(&client, PATH, "probe.echo", json!({"text": "still here"})).await;
    assert_eq!(result["result"]["isError"], json!(false), "{result}");
    server.stop().await;
}

/// Changes the first token in the server's file, and waits until the server has noticed it.
async fn change_token(server: &TestServer, change: fn(&mut Value)) {
    let text = std::fs::read_to_string(server.tokens.path()).expect("a file");
    let mut tokens: Value = serde_json::from_str(&text).expect("JSON");
    change(&mut tokens["tokens"][0]);
    // The server recognises a changed file by its time and its size.
    tokio::time::sleep(Duration::from_millis(20)).await;
    std::fs::write(server.tokens.path(), tokens.to_string()).expect("written");
    tokio::time::sleep(Duration::from_millis(1_100)).await;
}

/// I3, row 24: if a token loses a right, an agent or its user, or is revoked, its sessions of the protocol end, a running call is
/// cancelled, and nothing that it may no longer do is possible with a session that was opened before.
#[tokio::test(flavor = "multi_thread")]
async fn row_24_sessions_lose_the_rights_that_their_token_loses() {
    type Change = fn(&mut Value);
    let narrowed: Change = |token| token["rights"] = json!(["read"]);
    let of_user: Change = |token| token["user"] = json!("ann");
    let of_agent: Change = |token| token["agents"] = json!(["other"]);
    let revoked: Change = |token| token["digest"] = json!("0".repeat(64));
    for (name, change, status) in
        [("narrowed", narrowed, 200), ("user", of_user, 200), ("agent", of_agent, 404), ("revoked", revoked, 401)]
    {
        let test_host = TestHost::new(&["probe"]).await;
        let agent = test_host.agent(AgentConfig::new("clerk"), script(&[text_reply("Nobody asks the model.")])).await;
        let server = TestServer::start(&test_host, &[&agent]).await;
        let client = server.client(&TALKS);
        let session = open_session(&client).await.expect("a session");
        let headers = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", WITH_HANDSHAKE)];
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string();
        post(&client, PATH, &headers, initialized).await;
        let request = |tool: &str, arguments: Value| {
            let params = json!({"name": tool, "arguments": arguments});
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string()
        };
        let echo = request("probe.echo", json!({"text": "a"}));
        let before = response(&post(&client, PATH, &headers, echo.clone()).await);
        assert_eq!(before["result"]["isError"], json!(false), "{name}: {before}");
        let (running, sleep) = (client.clone(), request("probe.sleep", json!({"ms": 50_000})));
        let owned = session.clone();
        let running = tokio::spawn(async move {
            let headers = [("mcp-session-id", owned.as_str()), ("mcp-protocol-version", WITH_HANDSHAKE)];
            post(&running, PATH, &headers, sleep).await
        });
        let states = || async {
            let sessions =
                test_host.store.sessions(SessionFilter::default(), 500).await.expect("the sessions are listed");
            sessions.into_iter().map(|session| session.state).collect::<Vec<_>>()
        };
        super::until(async || states().await.contains(&SessionState::Running).then_some(())).await;

        change_token(&server, change).await;
        let after = post(&client, PATH, &headers, echo.clone()).await;
        assert_ne!(after.status, 200, "{name}: the session has ended: {}", after.body);
        let without_session = post(
            &client,
            PATH,
            &[("mcp-protocol-version", STATELESS), ("mcp-method", "tools/list")],
            stateless_request("tools/list", json!({}), json!({})),
        )
        .await;
        assert_eq!(without_session.status, status, "{name}: {}", without_session.body);
        if name == "narrowed" {
            let refused = call(&client, PATH, "probe.echo", json!({"text": "a"})).await;
            assert!(refused["error"]["message"].as_str().is_some_and(|text| text.contains("\"talk\"")), "{refused}");
        }
        super::until(async || states().await.iter().all(|state| *state != SessionState::Running).then_some(())).await;
        assert!(states().await.contains(&SessionState::Cancelled), "{name}: the running call is cancelled");
        running.await.expect("the request ends");
        server.stop().await;
    }
}
