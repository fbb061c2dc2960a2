//! The HTTP API (I3): routes, tokens and rights, event streams, limits and attacks (rows 24, 25, 26 and 29).

mod ag_ui;
mod attacks;
pub(crate) mod client;
mod configuration;
mod connections;
pub(crate) mod console;
mod console_api;
mod endpoints;
mod first_uses;
mod generated_requests;
pub(crate) mod killed;
mod mcp;
mod metrics;
mod openai;
mod operations;
mod problems;
pub(crate) mod process;
mod refusals;
mod streams;
mod trace_context;
mod turns;
mod webhooks;

use crate::support::{TestHost, agent_host, call_reply, script, text_reply, with_tree_grant};
use agent_runtime::{Agent, AgentConfig, LiveAgent, Supervisor, SupervisorOptions};
use agent_serve::{NewToken, Right, Server, ServerOptions, TokenFile};
use client::{Client, encoded};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// A server with its tokens, for one test.
struct TestServer {
    server: Server,
    supervisor: Supervisor,
    tokens: TokenFile,
}

impl TestServer {
    async fn start(test_host: &TestHost, agents: &[&Arc<Agent>]) -> Self {
        Self::start_with(test_host, agents, |options| options).await
    }

    async fn start_with(
        test_host: &TestHost,
        agents: &[&Arc<Agent>],
        change: impl Fn(ServerOptions) -> ServerOptions,
    ) -> Self {
        let named = |agent: &&Arc<Agent>| (agent.config().name.clone(), LiveAgent::new(Arc::clone(*agent)));
        let options = SupervisorOptions {
            idle_timeout: Duration::from_millis(100),
            scan_interval: Duration::from_millis(50),
            ..SupervisorOptions::default()
        };
        let supervisor = Supervisor::start(test_host.host(), agents.iter().map(named).collect(), options);
        let tokens = TokenFile::new(test_host.directory.path().join("tokens.json"));
        let options = ServerOptions::new("127.0.0.1:0".parse().expect("an address"), tokens.clone());
        let server = Server::start(supervisor.clone(), change(options)).await.expect("the server starts");
        Self { server, supervisor, tokens }
    }

    /// Returns a client with a token that has these rights.
    fn client(&self, rights: &[Right]) -> Client {
        self.client_of(NewToken { rights: rights.iter().copied().collect(), ..new_token() })
    }

    fn client_of(&self, new: NewToken) -> Client {
        let token = self.tokens.create(new).expect("the token is created");
        Client::new(self.address(), Some(token))
    }

    fn client_with_all_rights(&self) -> Client {
        self.client(&[Right::Read, Right::Talk, Right::Approve, Right::Administer])
    }

    /// Returns a client without a token.
    fn anonymous(&self) -> Client {
        Client::new(self.address(), None)
    }

    fn address(&self) -> std::net::SocketAddr {
        self.server.address().expect("the server listens on an address")
    }

    async fn stop(self) {
        self.server.shutdown().await;
        self.supervisor.shutdown().await;
    }
}

fn new_token() -> NewToken {
    let name = format!("t{}", uuid::Uuid::new_v4().simple());
    NewToken { name, agents: Vec::new(), rights: [Right::Read, Right::Talk].into(), user: None }
}

/// Maximum time that a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks again and again until the answer is the expected one, and returns it.
async fn until<T>(ask: impl AsyncFn() -> Option<T>) -> T {
    let asked = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.expect("the expected answer arrives")
}

/// Waits until no turn of the session is open.
async fn until_idle(client: &Client, session: &str) -> Value {
    let path = format!("/api/sessions/{}", encoded(session));
    until(async || {
        let details = client.get(&path).await.json(200);
        (details["state"] == "idle").then_some(details)
    })
    .await
}

async fn clerk(test_host: &TestHost, replies: &[Value]) -> Arc<Agent> {
    test_host.agent(AgentConfig::new("clerk"), script(replies)).await
}

/// I3, L30: a session is created, watched to its end over a stream that reconnects, prompted again, listed and deleted.
#[tokio::test(flavor = "multi_thread")]
async fn i3_a_session_is_used_over_http() {
    let test_host = TestHost::new(&[]).await;
    let words = ["The ", "harbour ", "has ", "12 ", "berths."];
    let replies = [json!({"chunks": words, "delay_ms": 50}), text_reply("Ten metres.")];
    let server = TestServer::start(&test_host, &[&clerk(&test_host, &replies).await]).await;
    let client = server.client_with_all_rights();
    let created = client.post("/api/sessions", json!({"agent": "clerk", "prompt": "How many?"})).await.json(201);
    let (session, events) = (created["session"].as_str().unwrap(), created["events"].as_str().unwrap());
    let (mut text, mut last, mut connections) = (String::new(), "0".to_owned(), 0);
    'reading: loop {
        connections += 1;
        let mut stream = client.stream(events, &last).await;
        for _ in 0..3 {
            let event = stream.next().await.expect("the stream goes on");
            last = event.id.clone();
            match event.name.as_str() {
                "stream_token" => text.push_str(event.data["text"].as_str().unwrap()),
                "reply" => text = event.data["text"].as_str().unwrap().to_owned(),
                "loop_end" => break 'reading,
                _ => {}
            }
        }
    }
    assert_eq!((text, connections > 2), (words.concat(), true));
    let path = format!("/api/sessions/{}", encoded(session));
    let accepted = client.post(&format!("{path}/prompts"), json!({"prompt": "How deep?"})).await.json(202);
    assert_eq!(accepted, json!({"status": "started", "turn": 2}));
    let mut stream = client.stream(events, &last).await;
    while stream.next().await.expect("the stream goes on").name != "loop_end" {}
    let messages = client.get(&format!("{path}/messages")).await.json(200);
    let roles: Vec<_> =
        messages["messages"].as_array().unwrap().iter().map(|message| message["role"].clone()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
    let listed = client.get("/api/sessions?agent=clerk&state=idle").await.json(200);
    assert_eq!(
        (listed["sessions"][0]["session"].as_str(), &listed["sessions"][0]["turns"]),
        (Some(session), &json!(2))
    );
    drop(stream);
    let deleted = async {
        while client.delete(&path).await.status == 503 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), deleted).await.expect("an idle session is closed and deleted");
    assert_eq!(client.get(&path).await.json(404)["code"], "not_found");
    server.stop().await;
}

/// I3, L30: many readers that disconnect again and again lose no event, and receive none twice.
#[tokio::test(flavor = "multi_thread")]
async fn l30_many_interrupted_readers_receive_each_event_once() {
    let test_host = TestHost::new(&[]).await;
    let pieces: Vec<String> = (0..40).map(|piece| format!("piece {piece}, ")).collect();
    let agent = clerk(&test_host, &[json!({"chunks": pieces, "delay_ms": 5})]).await;
    let many = |options: ServerOptions| ServerOptions { streams_per_token: 100, ..options };
    let server = TestServer::start_with(&test_host, &[&agent], many).await;
    let client = server.client(&[Right::Read, Right::Talk]);
    let readers = (0..40).map(|reader| streams::read_first_turn(&client, "clerk", 1 + reader % 9));
    for received in futures::future::join_all(readers).await {
        received.check(&pieces.concat());
    }
    server.stop().await;
}

/// I3, L17: an approval over HTTP needs its own right, and continues the turn. With this right, a caller sees which files the
/// waiting call would change.
#[tokio::test(flavor = "multi_thread")]
async fn i3_l17_an_approval_over_http_needs_the_right() {
    let test_host = TestHost::new(&["payer"]).await;
    let pay = call_reply(&[("payer.pay", json!({"to": "ann", "amount": 3}))]);
    let agent = test_host.agent(with_tree_grant(&test_host, "payer"), script(&[pay, text_reply("Paid.")])).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let (talker, approver) = (server.client(&[Right::Read, Right::Talk]), server.client(&[Right::Approve]));
    let created = talker.post("/api/sessions", json!({"agent": "test", "prompt": "Pay."})).await.json(201);
    let mut stream = talker.stream(created["events"].as_str().unwrap(), "0").await;
    let suspended = loop {
        let event = stream.next().await.expect("the stream goes on");
        if event.name == "suspended" {
            break event.data;
        }
    };
    let path = format!("/api/sessions/{}", encoded(created["session"].as_str().unwrap()));
    assert_eq!(talker.get(&path).await.json(200)["waits"], suspended["waits"]);
    let decisions = json!({"decisions": [{"verdict": "granted", "call": suspended["waits"][0]["call"]}]});
    let (rehearsals, call) = (format!("{path}/rehearsals"), json!({"call": suspended["waits"][0]["call"]}));
    assert_eq!(talker.post(&rehearsals, call.clone()).await.json(403)["code"], "forbidden");
    assert_eq!(approver.post(&rehearsals, json!({"call": "call_9_9_9"})).await.status, 409);
    let changes = approver.post(&rehearsals, call.clone()).await.json(200)["changes"].clone();
    assert_eq!(changes.as_array().map(Vec::len), Some(1), "{changes}");
    assert!(changes[0]["path"].as_str().unwrap().ends_with("/ledger.txt") && changes[0]["old"].is_null(), "{changes}");
    assert!(changes[0]["new"].as_str().unwrap().contains("ann 3"), "{changes}");
    assert!(!test_host.tree().join("ledger.txt").exists(), "a rehearsal changes nothing");
    let approvals = format!("{path}/approvals");
    assert_eq!(talker.post(&approvals, decisions.clone()).await.json(403)["code"], "forbidden");
    assert_eq!(approver.post(&approvals, json!({"decisions": []})).await.json(422)["code"], "invalid");
    assert_eq!(approver.post(&approvals, decisions.clone()).await.json(200)["status"], "stored");
    while stream.next().await.expect("the stream goes on").name != "loop_end" {}
    assert!(std::fs::read_to_string(test_host.tree().join("ledger.txt")).unwrap().contains("ann"));
    assert_eq!(approver.post(&approvals, decisions).await.status, 409, "the call has its result");
    assert_eq!(approver.post(&rehearsals, call).await.status, 409, "the call does not wait for an approval");
    server.stop().await;
}

/// I6, row 29: the answer of a service arrives as an event, in both formats. It has one effect.
#[tokio::test(flavor = "multi_thread")]
async fn i6_row_29_an_answer_of_a_service_has_one_effect() {
    for binary in [false, true] {
        let test_host = TestHost::new(&[]).await;
        let mut config = AgentConfig::new("buyer");
        config.services.insert("pay".into(), agent_runtime::ServiceConfig::new("com.example.pay".parse().unwrap()));
        let end = json!({"text": "Paid.", "expect": {"last_contains": "R-7"}});
        let agent = test_host.agent(config, script(&[call_reply(&[("pay", json!({}))]), end])).await;
        let server = TestServer::start(&test_host, &[&agent]).await;
        let client = server.client(&[Right::Read, Right::Talk]);
        let created = client.post("/api/sessions", json!({"agent": "buyer", "prompt": "Buy."})).await.json(201);
        let session = created["session"].as_str().unwrap();
        let mut stream = client.stream(created["events"].as_str().unwrap(), "0").await;
        let call = loop {
            let event = stream.next().await.expect("the stream goes on");
            if event.name == "suspended" {
                break event.data["waits"][0]["call"].as_str().unwrap().to_owned();
            }
        };
        let answer = async |receipt: &str, subject: &str| {
            let attributes = [
                ("specversion", "1.0"),
                ("id", "e1"),
                ("source", "/test"),
                ("type", "paid"),
                ("subject", subject),
                ("parentid", &call),
            ];
            let data = json!({"receipt": receipt});
            if binary {
                let headers: Vec<_> =
                    attributes.iter().map(|(name, value)| (format!("ce-{name}"), (*value).to_owned())).collect();
                return client.send("POST", "/api/events", "application/json", &headers, data.to_string()).await;
            }
            let mut event: Value = attributes.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
            event["data"] = data;
            client.send("POST", "/api/events", "application/cloudevents+json", &[], event.to_string()).await
        };
        assert_eq!(answer("R-7", "buyer/other").await.status, 404);
        assert_eq!(answer("R-7", session).await.json(200)["status"], "stored");
        assert_eq!(answer("R-7", session).await.json(200)["status"], "duplicate");
        assert_eq!(answer("R-8", session).await.json(200)["status"], "late");
        while stream.next().await.expect("the stream goes on").name != "loop_end" {}
        server.stop().await;
    }
}

/// I3: a token sees only its agents and its user.
#[tokio::test(flavor = "multi_thread")]
async fn i3_a_token_is_limited_to_its_agents_and_user() {
    let test_host = TestHost::new(&[]).await;
    let clerk = clerk(&test_host, &[text_reply("One.")]).await;
    let other = test_host.agent(AgentConfig::new("other"), script(&[text_reply("One.")])).await;
    let server = TestServer::start(&test_host, &[&clerk, &other]).await;
    let all = server.client_with_all_rights();
    let ann = server.client_of(NewToken { agents: vec!["clerk".into()], user: Some("ann".into()), ..new_token() });
    let create = |agent: &str| json!({"agent": agent, "prompt": "Hi."});
    let own = ann.post("/api/sessions", create("clerk")).await.json(201)["session"].as_str().unwrap().to_owned();
    assert_eq!(ann.post("/api/sessions", create("other")).await.status, 404);
    assert_eq!(ann.post("/api/sessions", json!({"agent": "clerk", "prompt": "Hi.", "user": "bob"})).await.status, 403);
    let foreign = [
        all.post("/api/sessions", json!({"agent": "clerk", "prompt": "Hi.", "user": "bob"})).await.json(201),
        all.post("/api/sessions", create("other")).await.json(201),
    ];
    for foreign in &foreign {
        let path = format!("/api/sessions/{}", encoded(foreign["session"].as_str().unwrap()));
        assert_eq!(ann.get(&path).await.status, 404);
        assert_eq!(ann.get(&format!("{path}/messages")).await.status, 404);
        assert_eq!(ann.get(&format!("{path}/events")).await.status, 404);
        assert_eq!(ann.post(&format!("{path}/prompts"), json!({"prompt": "Hi."})).await.status, 404);
        assert_eq!(ann.post(&format!("{path}/cancel"), json!({})).await.status, 404);
        assert_eq!(all.get(&path).await.status, 200);
    }
    let listed = ann.get("/api/sessions").await.json(200);
    assert_eq!((listed["sessions"].as_array().unwrap().len(), &listed["sessions"][0]["session"]), (1, &json!(own)));
    assert_eq!(ann.get("/api/agents").await.json(200)["agents"].as_array().unwrap().len(), 1);
    assert_eq!(ann.get("/api/agents/other").await.status, 404);
    server.stop().await;
}

/// I3: each route in the OpenAPI document requires a token that has the necessary right. A revoked token is refused after a short time.
#[tokio::test(flavor = "multi_thread")]
async fn i3_every_route_needs_a_token_and_a_right() {
    let test_host = TestHost::new(&[]).await;
    let server = TestServer::start(&test_host, &[&clerk(&test_host, &[text_reply("One.")]).await]).await;
    let all = server.client_with_all_rights();
    let document = all.get("/openapi.json").await.json(200);
    assert_eq!(document, serde_json::to_value(agent_serve::openapi()).unwrap());
    let nothing = server.client(&[]);
    let (anonymous, wrong) = (Client::new(server.address(), None), Client::new(server.address(), Some("aht_x".into())));
    let mut routes = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let (method, path) =
                (method.to_uppercase(), path.replace("{session}", "clerk%2F1").replace("{agent}", "clerk"));
            let path = path.replace("{model}", "clerk").replace("{digest}", "sha256:0").replace("{id}", "resp_1");
            let is_public = path == "/health" || path == "/ready";
            // What a token allows, and the sign-in that stands for it, need no right.
            let needs_no_right = path == "/api/token" || path == "/api/sign-ins";
            if path == "/api/sign-ins/code" {
                // A code stands for the token. This one does not exist.
                assert_eq!(anonymous.post(&path, json!({"code": "ahc_1"})).await.status, 403);
                continue;
            }
            let body = if method == "GET" { String::new() } else { body_of(&path).to_string() };
            for (client, status) in [(&anonymous, 401), (&wrong, 401), (&nothing, 403)] {
                let allowed = match method.as_str() {
                    "POST" => 201,
                    "DELETE" => 204,
                    _ => 200,
                };
                let is_allowed = is_public || (needs_no_right && status == 403);
                let expected = if is_allowed { allowed } else { status };
                let answer = client.send(&method, &path, "application/json", &event_headers(&path), body.clone()).await;
                assert_eq!(answer.status, expected, "{method} {path}: {}", answer.body);
            }
            routes += 1;
        }
    }
    assert!(routes >= 15, "{routes}");
    let created = all.post("/api/sessions", json!({"agent": "clerk", "prompt": "Hi."})).await.json(201);
    let mut stream = all.stream(created["events"].as_str().unwrap(), "0").await;
    let name = server.tokens.tokens().unwrap()[0].name.clone();
    server.tokens.revoke(&name).unwrap();
    while stream.next().await.is_some() {}
    assert_eq!(all.get("/api/agents").await.status, 401, "the stream of a revoked token ends, too");
    server.stop().await;
}

/// Returns a body that the route accepts, so that only the token and the right can be refused.
fn body_of(path: &str) -> Value {
    match path.rsplit('/').next().unwrap_or_default() {
        "sessions" => json!({"agent": "clerk", "prompt": "Hi."}),
        "prompts" => json!({"prompt": "Hi."}),
        "completions" => json!({"model": "clerk", "messages": [{"role": "user", "content": "Hi."}]}),
        "responses" => json!({"model": "clerk", "input": "Hi."}),
        "approvals" => json!({"decisions": [{"verdict": "denied", "call": "call_1_1_1"}]}),
        "rehearsals" => json!({"call": "call_1_1_1"}),
        "answers" => json!({"call": "call_1_1_1", "text": "yes"}),
        "markdown" | "code" => json!({"text": "a"}),
        "ag-ui" => json!({"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "Hi."}]}),
        "replays" => json!({"plugin": "text"}),
        "calls" => json!({"tool": "text.count", "arguments": {}}),
        "configuration" | "check" => json!({"text": ""}),
        "resolutions" => json!({"decision": "retry", "call": "call_1_1_1"}),
        "first-uses" => json!({"question": "1", "answer": "no"}),
        _ => json!({}),
    }
}

fn event_headers(path: &str) -> Vec<(String, String)> {
    let attributes = [
        ("ce-specversion", "1.0"),
        ("ce-id", "e1"),
        ("ce-source", "/test"),
        ("ce-type", "paid"),
        ("ce-subject", "clerk/1"),
    ];
    let is_event = path == "/api/events";
    attributes.into_iter().filter(|_| is_event).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// I3, P14: agents of different files with the same name are refused, because sessions belong to a name.
#[test]
fn i3_p14_two_agents_with_one_name_are_not_served() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["one.toml", "two.toml"] {
        std::fs::write(folder.path().join(file), "name = \"clerk\"\nplugin_directory = \".\"\nmodel = \"offline\"\n")
            .unwrap();
    }
    let program = agent_host()
        .args(["serve", "--agent", "one.toml", "--agent", "two.toml", "--listen", "127.0.0.1:0", "--data", "data"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&program.stderr);
    assert_eq!(program.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("two agents have the name `clerk`"), "{stderr}");
}
