//! Outgoing HTTP requests (`wasi:http`) with real components and real servers on loopback. The tests cover grants,
//! addresses, secrets, connections, and limits on responses (P6, P7; rows 7, 15 and 16).

use crate::support::{
    SharedCompiledCode, TestHost, agent_host, call_reply, components, events, results, run_turn, script, text_reply,
};
use agent_plugins::{
    CallLimits, Generation, Grants, HostLimits, NameResolver, Sandbox, SandboxOptions, Secret, SecretTemplate,
};
use agent_runtime::{AgentConfig, PluginAllowance};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A server that passes the head of each request to `answer` and sends the result as the response.
struct Server {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn new(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound");
        let heads = Arc::new(Mutex::new(Vec::new()));
        let recorder = Arc::clone(&heads);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
                    head.push(byte[0]);
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let answer = answer(&head);
                recorder.lock().unwrap().push(head);
                // Writing fails if the host closes the connection early because the response exceeds a limit.
                let _ = stream.write_all(&answer);
            }
        });
        Self { address, heads }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn page(headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\n{headers}\r\n{body}")
        .into_bytes()
}

fn http_grants(patterns: &[&str]) -> Grants {
    Grants { http: patterns.iter().map(|text| text.parse().expect(text)).collect(), ..Grants::default() }
}

fn agent(grants: Grants) -> AgentConfig {
    let mut config = AgentConfig::new("test");
    config.plugins.insert("web".to_owned(), PluginAllowance { grants, ..PluginAllowance::default() });
    config
}

/// Runs a turn that fetches the URL. Returns whether the result of the fetch is an error, and the text of the result.
async fn fetch(test_host: &TestHost, grants: Grants, url: &str) -> (bool, String) {
    let call = call_reply(&[("web.fetch", json!({"url": url}))]);
    let mut session = test_host.session(agent(grants), script(&[call, text_reply("Done.")])).await;
    run_turn(&mut session, "Go.").await;
    let (_, is_error, text) = results(test_host, &session).await.remove(0);
    session.close().await.unwrap();
    // An error is returned as JSON, so its quotation marks are escaped.
    (is_error, text.replace("\\\"", "\""))
}

/// A name resolver that returns its answers in order, one answer per query. After all
/// answers were returned, each further query gets the last answer.
#[derive(Debug)]
struct ScriptedResolver {
    answers: Vec<Vec<SocketAddr>>,
    lookups: AtomicUsize,
}

#[async_trait::async_trait]
impl NameResolver for ScriptedResolver {
    async fn resolve(&self, _: &str, _: u16) -> std::io::Result<Vec<SocketAddr>> {
        let lookups = self.lookups.fetch_add(1, Ordering::SeqCst);
        Ok(self.answers[lookups.min(self.answers.len() - 1)].clone())
    }
}

async fn test_host_with_resolver(answers: Vec<Vec<SocketAddr>>) -> (TestHost, Arc<ScriptedResolver>) {
    let mut test_host = TestHost::new(&["web"]).await;
    let resolver = Arc::new(ScriptedResolver { answers, lookups: AtomicUsize::new(0) });
    let options = SandboxOptions {
        compiler: None,
        cache_directory: Some(SharedCompiledCode::shared().to_owned()),
        installed_code: None,
        scratch_directory: None,
        store_directory: Some(test_host.directory.path().join("store")),
        limits: HostLimits { compile_time: Duration::from_secs(300), ..HostLimits::default() },
        resolver: Some(resolver.clone()),
        verifier: None,
    };
    test_host.sandbox = Sandbox::new(options).expect("the sandbox starts");
    (test_host, resolver)
}

/// P6: Without a grant, no request is sent, and the denial names the plugin, the request and the configuration line to
/// add. After the user added that configuration line, the request is sent.
#[tokio::test(flavor = "multi_thread")]
async fn p6_a_request_needs_a_grant() {
    let test_host = TestHost::new(&["web"]).await;
    let server = Server::new(|_| page("", "The light is lit."));
    let url = server.url("/a?token=123");
    let (is_error, text) = fetch(&test_host, http_grants(&["GET http://127.0.0.2"]), &url).await;
    let line = format!("http = [\"GET http://{}\"]", server.address);
    assert!(is_error && text.contains("[plugins.web.grants]") && text.contains(&line), "{text}");
    assert!(!text.contains("token"), "the denial does not contain the query: {text}");
    assert_eq!(server.heads(), Vec::<String>::new());
    let granted = format!("GET http://{}", server.address);
    let (is_error, text) = fetch(&test_host, http_grants(&[&granted]), &url).await;
    assert!(!is_error && text.contains("The light is lit."), "{text}");
    assert!(server.heads()[0].starts_with("GET /a?token=123 HTTP/1.1\r\n"), "{:?}", server.heads());
    let (is_error, _) = fetch(&test_host, http_grants(&[&granted.replace("GET", "POST")]), &url).await;
    assert!(is_error, "only another method is granted");
    let (is_error, _) = fetch(&test_host, http_grants(&[&format!("{granted}/b/")]), &server.url("/b/../a")).await;
    assert!(is_error, "the path leaves the granted prefix");
    assert_eq!(server.heads().len(), 1);
}

/// Row 15: A name that resolves to an internal address is refused before the host connects, even if its other addresses
/// are public. If a grant allows internal addresses, the host connects to the name.
#[tokio::test(flavor = "multi_thread")]
async fn row_15_refuses_names_that_resolve_to_internal_addresses() {
    let server = Server::new(|_| page("", "inside"));
    let port = server.address.port();
    let public: SocketAddr = "192.0.2.1:80".parse().unwrap();
    for addresses in [vec![server.address], vec![public, server.address], vec!["169.254.169.254:80".parse().unwrap()]] {
        let (test_host, _) = test_host_with_resolver(vec![addresses]).await;
        let (is_error, text) =
            fetch(&test_host, http_grants(&["GET http://*:*"]), &format!("http://rebind.example:{port}/")).await;
        assert!(is_error && text.contains("rebind.example"), "{text}");
        assert!(text.contains("http = [\"") && text.contains(" is a") && !text.contains("*:*"), "{text}");
    }
    assert_eq!(server.heads(), Vec::<String>::new(), "no connection was made");
    for url in [
        format!("http://2130706433:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://0x7f.1:{port}/"),
    ] {
        let (test_host, _) = test_host_with_resolver(vec![vec![]]).await;
        let (is_error, text) = fetch(&test_host, http_grants(&["GET http://*:*"]), &url).await;
        assert!(is_error, "{url}: {text}");
    }
    assert_eq!(server.heads(), Vec::<String>::new(), "no connection was made");
    let (test_host, _) = test_host_with_resolver(vec![vec![server.address]]).await;
    let (is_error, text) =
        fetch(&test_host, http_grants(&["private GET http://*.example:*"]), &format!("http://in.example:{port}/"))
            .await;
    assert!(!is_error && text.contains("inside"), "{text}");
}

/// Row 15: A name is resolved once, and the host connects to the address that it checked, even if the name resolves to
/// another address later.
#[tokio::test(flavor = "multi_thread")]
async fn row_15_connects_to_the_checked_address() {
    let (good, evil) = (Server::new(|_| page("", "good")), Server::new(|_| page("", "evil")));
    let (test_host, resolver) = test_host_with_resolver(vec![vec![good.address], vec![evil.address]]).await;
    let url = format!("http://changing.example:{}/", good.address.port());
    let (is_error, text) = fetch(&test_host, http_grants(&["private GET http://changing.example:*"]), &url).await;
    assert!(!is_error && text.contains("good"), "{text}");
    assert_eq!((resolver.lookups.load(Ordering::SeqCst), evil.heads().len()), (1, 0));
}

/// Row 15: The host does not follow redirects. If the plugin itself requests the target of a redirect, the host checks
/// this request like any other request.
#[tokio::test(flavor = "multi_thread")]
async fn row_15_does_not_follow_a_redirect_to_an_internal_address() {
    let test_host = TestHost::new(&["web"]).await;
    let inside = Server::new(|_| page("", "inside"));
    let target = inside.url("/secret");
    let outside = Server::new(move |_| {
        format!("HTTP/1.1 302 Found\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n").into_bytes()
    });
    let granted = format!("GET http://{}", outside.address);
    let (is_error, text) = fetch(&test_host, http_grants(&[&granted]), &outside.url("/")).await;
    assert!(is_error && text.contains("is not granted"), "{text}");
    assert_eq!((outside.heads().len(), inside.heads().len()), (1, 0));
}

/// P7, row 16: The host adds a secret only to requests for the hosts of that secret. If a server returns the secret,
/// the host masks it, and never stores it.
#[tokio::test(flavor = "multi_thread")]
async fn row_16_the_host_adds_secrets_to_requests() {
    const SECRET: &str = "zX81-very-secret-value";
    let test_host = TestHost::new(&["web"]).await;
    let echo = || Server::new(|head| page(&format!("x-echo: {SECRET}\r\n"), &format!("you sent {SECRET}: {head}")));
    let (mine, other) = (echo(), echo());
    let mut grants = http_grants(&["GET http://127.0.0.1:*"]);
    let template = SecretTemplate {
        name: "WEB_TOKEN".to_owned(),
        hosts: vec![format!("http://{}", mine.address)],
        header: "User-Agent".to_owned(),
        format: "Bearer {}".to_owned(),
    };
    grants.secrets.push(Secret::new(template, SECRET).expect("a secret"));
    let calls = [("web.fetch", json!({"url": mine.url("/a")})), ("web.fetch", json!({"url": other.url("/b")}))];
    let mut session = test_host.session(agent(grants), script(&[call_reply(&calls), text_reply("Done.")])).await;
    run_turn(&mut session, "Go.").await;
    let head = mine.heads().remove(0);
    assert!(head.contains(&format!("user-agent: Bearer {SECRET}\r\n")), "{head}");
    assert_eq!(head.matches("user-agent").count(), 1, "the plugin's own header is replaced: {head}");
    assert!(head.contains("accept-encoding: identity"), "{head}");
    assert!(!other.heads()[0].contains(SECRET), "{:?}", other.heads());
    let results = results(&test_host, &session).await;
    let stars = "*".repeat(SECRET.len());
    assert!(results[0].2.contains(&format!("you sent {stars}")), "{results:?}");
    let events = format!("{:?}", events(&test_host, &session).await);
    assert!(events.contains(&stars) && !results[0].2.contains(SECRET), "{results:?}");
    // Every secret of the agent is masked in every response, even if the server never received the secret.
    assert!(results[1].2.contains(&format!("you sent {stars}")) && !results[1].2.contains(SECRET), "{results:?}");
    session.close().await.unwrap();
    let stored = stored_bytes(test_host.directory.path());
    let is_stored = |text: &str| stored.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(is_stored("you sent"), "the search finds stored text");
    assert!(!is_stored(SECRET), "the secret is masked wherever it is stored");
}

fn stored_bytes(directory: &std::path::Path) -> Vec<u8> {
    let files = std::fs::read_dir(directory).unwrap().flatten().filter(|entry| entry.path().is_file());
    files.flat_map(|entry| std::fs::read(entry.path()).unwrap()).collect()
}

/// A server that keeps its connections open. The server counts all connections that it has accepted and the connections
/// that are open now.
struct KeepAliveServer {
    address: SocketAddr,
    connection_count: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
}

impl KeepAliveServer {
    fn new() -> Self {
        Self::answering(usize::MAX)
    }

    /// Starts a server that answers at most `max_requests` requests on a connection. If another request arrives on the
    /// same connection, the server closes the connection without a response.
    fn answering(max_requests: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound");
        let (connection_count, open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, counted_open) = (Arc::clone(&connection_count), Arc::clone(&open));
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::SeqCst);
                counted_open.fetch_add(1, Ordering::SeqCst);
                let open = Arc::clone(&counted_open);
                std::thread::spawn(move || {
                    let (mut head, mut byte, mut request_count) = (Vec::new(), [0], 0);
                    while stream.read(&mut byte).is_ok_and(|read| read == 1) {
                        head.push(byte[0]);
                        if head.ends_with(b"\r\n\r\n") {
                            head.clear();
                            request_count += 1;
                            if request_count > max_requests {
                                break;
                            }
                            stream.write_all(&page("", "still here")).expect("the client reads the answer");
                        }
                    }
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, connection_count, open }
    }

    fn connection_count(&self) -> usize {
        self.connection_count.load(Ordering::SeqCst)
    }

    /// Waits until the server has no open connection.
    async fn wait_until_idle(&self) {
        let no_open_connection = async {
            while self.open.load(Ordering::SeqCst) > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), no_open_connection).await.expect("all connections are closed");
    }
}

/// P8: A connection is reused for the next request if the same plugin makes it for the same agent. A connection is not
/// reused for another agent or after the grant was revoked.
#[tokio::test(flavor = "multi_thread")]
async fn p8_another_agent_does_not_reuse_a_connection() {
    let test_host = TestHost::new(&["web"]).await;
    let server = KeepAliveServer::new();
    let plugin = test_host.generation().await.plugin("web").expect("loaded").clone();
    let setup = |patterns: &[&str]| {
        agent_plugins::PluginSetup::new(plugin.clone(), http_grants(patterns), CallLimits::default())
    };
    let url = server_url(&server);
    let fetched = async |setup: &agent_plugins::PluginSetup, agent: &str| {
        let request = request(agent, json!({"url": url}));
        let report = test_host.sandbox.call_tool(setup, request, &agent_plugins::Ports::default()).await;
        report.result.expect("an answer")
    };
    let granted = setup(&["GET http://127.0.0.1:*"]);
    for _ in 0..3 {
        assert!(fetched(&granted, "one").await.is_ok());
    }
    assert_eq!(server.connection_count(), 1, "three calls use one connection");
    assert!(fetched(&granted, "two").await.is_ok());
    assert_eq!(server.connection_count(), 2, "another agent has its own connection");
    let revoked = setup(&["GET http://127.0.0.2:*"]);
    assert!(fetched(&revoked, "one").await.is_err());
    drop(granted);
    server.wait_until_idle().await;
    assert_eq!(server.connection_count(), 2);
}

/// P8: If a server closes a connection that is idle or that the host is about to reuse, no request fails.
#[tokio::test(flavor = "multi_thread")]
async fn p8_reconnects_after_the_server_closed_a_connection() {
    let test_host = TestHost::new(&["web"]).await;
    let (closes_after_answer, closes_on_reuse) = (Server::new(|_| page("", "once")), KeepAliveServer::answering(1));
    let plugin = test_host.generation().await.plugin("web").expect("loaded").clone();
    let setup =
        agent_plugins::PluginSetup::new(plugin, http_grants(&["GET http://127.0.0.1:*"]), CallLimits::default());
    for url in [server_url(&closes_on_reuse), closes_after_answer.url("/")] {
        for _ in 0..20 {
            let request = request("one", json!({"url": url}));
            let report = test_host.sandbox.call_tool(&setup, request, &agent_plugins::Ports::default()).await;
            assert!(report.result.as_ref().is_ok_and(Result::is_ok), "{url}: {report:?}");
        }
    }
    assert_eq!(closes_on_reuse.connection_count(), 20, "each call opened one connection");
}

fn server_url(server: &KeepAliveServer) -> String {
    format!("http://{}/", server.address)
}

/// P5: The HTTP requests of a plugin contain the trace context of the turn.
#[tokio::test(flavor = "multi_thread")]
async fn p5_requests_contain_the_trace_context() {
    let test_host = TestHost::new(&["web"]).await;
    let server = Server::new(|_| page("", "seen"));
    let (is_error, text) = fetch(&test_host, http_grants(&["GET http://127.0.0.1:*"]), &server.url("/")).await;
    assert!(!is_error, "{text}");
    let head = server.heads().remove(0);
    let trace = head.lines().find_map(|line| line.strip_prefix("traceparent: ")).unwrap_or_default();
    let parts: Vec<_> = trace.split('-').map(str::len).collect();
    assert_eq!(parts, [2, 32, 16, 2], "{head}");
}

/// Row 7: If the body or the headers of a response are endless, the host stops reading the response. The plugin's call
/// ends with an error and does not hang.
#[tokio::test(flavor = "multi_thread")]
async fn row_7_cuts_endless_responses() {
    let test_host = TestHost::new(&["web"]).await;
    let body = Server::new(|_| {
        let mut answer = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n".to_vec();
        answer.resize(24 << 20, b'x');
        answer
    });
    let headers = Server::new(|_| format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(64 << 10)).into_bytes());
    let grants = || http_grants(&["GET http://127.0.0.1:*"]);
    let (is_error, text) = fetch(&test_host, grants(), &body.url("/")).await;
    assert!(is_error && text.contains("more than"), "{text}");
    let (is_error, text) = fetch(&test_host, grants(), &headers.url("/")).await;
    assert!(is_error, "{text}");
}

/// Row 7: If a server's response is not HTTP, the plugin's call fails. The error contains no backtrace of the host,
/// even if `RUST_BACKTRACE` is set.
#[test]
fn row_7_an_invalid_response_reveals_no_host_code() {
    let broken = Server::new(|_| {
        let mut answer =
            b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n5;".to_vec();
        answer.resize(1 << 20, b'x');
        answer
    });
    let data = tempfile::tempdir().unwrap();
    let output = agent_host()
        .args(["plugin", "call", components().join("web.wasm").to_str().unwrap(), "web.fetch"])
        .args([json!({"url": broken.url("/")}).to_string(), format!("--grant=web:http=GET http://{}", broken.address)])
        .env("AGENT_HOST_DATA", data.path())
        .env("RUST_BACKTRACE", "1")
        .output()
        .unwrap();
    let printed = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!output.status.success() && printed.contains("the response was interrupted"), "{printed}");
    assert!(!printed.contains("backtrace") && !printed.contains(".rs:"), "{printed}");
}

/// A plugin can send at most 60 requests per minute for one agent.
#[tokio::test(flavor = "multi_thread")]
async fn requests_per_minute_are_limited() {
    let test_host = TestHost::new(&["web"]).await;
    let server = Server::new(|_| page("", "ok"));
    let generation: Generation = test_host.generation().await;
    let plugin = generation.plugin("web").expect("loaded").clone();
    let setup =
        agent_plugins::PluginSetup::new(plugin, http_grants(&["GET http://127.0.0.1:*"]), CallLimits::default());
    let fetched = async |agent: &str| {
        let request = request(agent, json!({"url": server.url("/")}));
        let report = test_host.sandbox.call_tool(&setup, request, &agent_plugins::Ports::default()).await;
        report.result
    };
    for number in 0..60 {
        assert!(matches!(fetched("one").await, Ok(Ok(_))), "request {number}");
    }
    let refused = fetched("one").await.expect_err("the 61st request is refused");
    let expected = format!("{} was stopped at its limit: 60 requests per minute", setup.plugin().identity());
    assert!(refused.to_string().contains(&expected), "{refused}");
    assert!(matches!(fetched("two").await, Ok(Ok(_))), "another agent has its own limit");
    assert_eq!(server.heads().len(), 61);
}

fn request(agent: &str, args: Value) -> agent_plugins::ToolCallRequest<'static> {
    let scope = agent_core::plugin::Scope {
        agent: agent.to_owned(),
        session: "s".to_owned(),
        delegated_by: None,
        user: None,
        turn: 1,
        trace: agent_core::plugin::TraceContext { traceparent: String::new(), tracestate: None },
    };
    let id = agent_core::message::CallId("call_1_1_1".to_owned());
    let context = agent_plugins::ToolCallContext { id, attempt: 1, time_limit: Duration::from_secs(30), scope };
    agent_plugins::ToolCallRequest { name: "web.fetch", args: args.to_string(), context }
}
