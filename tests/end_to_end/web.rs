//! `wasi:http` by grant, with real components and real servers on loopback: which requests go out, to which addresses, with
//! which secrets, and what is cut (P6, P7; rows 7, 15 and 16).

use crate::support::{House, calling, components, events, results, saying, scratch, script, turn};
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

/// A server that answers each request with what `answer` makes of its head.
struct Server {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn new(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound");
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
                    head.push(byte[0]);
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let answer = answer(&head);
                seen.lock().unwrap().push(head);
                // Who hangs up early is the guest's host, at its limit.
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

fn granting(patterns: &[&str]) -> Grants {
    Grants { http: patterns.iter().map(|text| text.parse().expect(text)).collect(), ..Grants::default() }
}

fn agent(grants: Grants) -> AgentConfig {
    let mut config = AgentConfig::new("test");
    config.plugins.insert("web".to_owned(), PluginAllowance { grants, ..PluginAllowance::default() });
    config
}

/// What the model is told of one fetch.
async fn fetch(house: &House, grants: Grants, url: &str) -> (bool, String) {
    let call = calling(&[("web.fetch", json!({"url": url}))]);
    let mut session = house.session(agent(grants), script(&[call, saying("Done.")])).await;
    turn(&mut session, "Go.").await;
    let (_, is_error, text) = results(house, &session).await.remove(0);
    session.close().await.unwrap();
    // Errors are JSON for the model.
    (is_error, text.replace("\\\"", "\""))
}

/// A resolver that answers each question with the next of its answers, the last one for ever.
#[derive(Debug)]
struct Scripted {
    answers: Vec<Vec<SocketAddr>>,
    asked: AtomicUsize,
}

#[async_trait::async_trait]
impl NameResolver for Scripted {
    async fn resolve(&self, _: &str, _: u16) -> std::io::Result<Vec<SocketAddr>> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst);
        Ok(self.answers[asked.min(self.answers.len() - 1)].clone())
    }
}

async fn house_with(answers: Vec<Vec<SocketAddr>>) -> (House, Arc<Scripted>) {
    let mut house = House::new(&["web"]).await;
    let resolver = Arc::new(Scripted { answers, asked: AtomicUsize::new(0) });
    let options = SandboxOptions {
        compiler: None,
        cache_directory: Some(scratch().join("cache")),
        store_directory: Some(house.directory.path().join("store")),
        limits: HostLimits { compile_time: Duration::from_secs(300), ..HostLimits::default() },
        resolver: Some(resolver.clone()),
        vetting: None,
    };
    house.sandbox = Sandbox::new(options).expect("the sandbox starts");
    (house, resolver)
}

/// P6: without a grant nothing is sent, and the denial names plugin, request and the line to add; with that line, it works.
#[tokio::test(flavor = "multi_thread")]
async fn p6_a_request_needs_a_grant() {
    let house = House::new(&["web"]).await;
    let server = Server::new(|_| page("", "The light is lit."));
    let url = server.url("/a?token=123");
    let (is_error, text) = fetch(&house, granting(&["GET http://127.0.0.2"]), &url).await;
    let line = format!("http = [\"GET http://{}\"]", server.address);
    assert!(is_error && text.contains("[plugins.web.grants]") && text.contains(&line), "{text}");
    assert!(!text.contains("token"), "queries are not repeated: {text}");
    assert_eq!(server.heads(), Vec::<String>::new());
    let granted = format!("GET http://{}", server.address);
    let (is_error, text) = fetch(&house, granting(&[&granted]), &url).await;
    assert!(!is_error && text.contains("The light is lit."), "{text}");
    assert!(server.heads()[0].starts_with("GET /a?token=123 HTTP/1.1\r\n"), "{:?}", server.heads());
    let (is_error, _) = fetch(&house, granting(&[&granted.replace("GET", "POST")]), &url).await;
    assert!(is_error, "another method is granted");
    let (is_error, _) = fetch(&house, granting(&[&format!("{granted}/b/")]), &server.url("/b/../a")).await;
    assert!(is_error, "the path climbs out of what is granted");
    assert_eq!(server.heads().len(), 1);
}

/// Row 15: a name that has an address of the inside is refused before anything connects, unless that is granted; so is one of
/// several addresses.
#[tokio::test(flavor = "multi_thread")]
async fn row_15_names_of_the_inside() {
    let server = Server::new(|_| page("", "inside"));
    let port = server.address.port();
    let public: SocketAddr = "192.0.2.1:80".parse().unwrap();
    for addresses in [vec![server.address], vec![public, server.address], vec!["169.254.169.254:80".parse().unwrap()]] {
        let (house, _) = house_with(vec![addresses]).await;
        let (is_error, text) =
            fetch(&house, granting(&["GET http://*:*"]), &format!("http://rebind.example:{port}/")).await;
        assert!(is_error && text.contains("rebind.example"), "{text}");
        assert!(text.contains("http = [\"") && text.contains(" is a") && !text.contains("*:*"), "{text}");
    }
    assert_eq!(server.heads(), Vec::<String>::new(), "nothing connected");
    for url in [
        format!("http://2130706433:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://0x7f.1:{port}/"),
    ] {
        let (house, _) = house_with(vec![vec![]]).await;
        let (is_error, text) = fetch(&house, granting(&["GET http://*:*"]), &url).await;
        assert!(is_error, "{url}: {text}");
    }
    assert_eq!(server.heads(), Vec::<String>::new(), "nothing connected");
    let (house, _) = house_with(vec![vec![server.address]]).await;
    let (is_error, text) =
        fetch(&house, granting(&["private GET http://*.example:*"]), &format!("http://in.example:{port}/")).await;
    assert!(!is_error && text.contains("inside"), "{text}");
}

/// Row 15: a name is resolved once, and the connection goes to what was checked, whatever the name is a moment later.
#[tokio::test(flavor = "multi_thread")]
async fn row_15_a_name_that_changes_after_the_check() {
    let (good, evil) = (Server::new(|_| page("", "good")), Server::new(|_| page("", "evil")));
    let (house, resolver) = house_with(vec![vec![good.address], vec![evil.address]]).await;
    let url = format!("http://changing.example:{}/", good.address.port());
    let (is_error, text) = fetch(&house, granting(&["private GET http://changing.example:*"]), &url).await;
    assert!(!is_error && text.contains("good"), "{text}");
    assert_eq!((resolver.asked.load(Ordering::SeqCst), evil.heads().len()), (1, 0));
}

/// Row 15: the host follows no redirect; the plugin's own request for the target is judged like any other.
#[tokio::test(flavor = "multi_thread")]
async fn row_15_a_redirect_to_the_inside() {
    let house = House::new(&["web"]).await;
    let inside = Server::new(|_| page("", "inside"));
    let target = inside.url("/secret");
    let outside = Server::new(move |_| {
        format!("HTTP/1.1 302 Found\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n").into_bytes()
    });
    let granted = format!("GET http://{}", outside.address);
    let (is_error, text) = fetch(&house, granting(&[&granted]), &outside.url("/")).await;
    assert!(is_error && text.contains("is not granted"), "{text}");
    assert_eq!((outside.heads().len(), inside.heads().len()), (1, 0));
}

/// P7, row 16: the host puts a secret into requests for its hosts and for no others; what a server repeats of it is masked,
/// and it stands nowhere in what is stored.
#[tokio::test(flavor = "multi_thread")]
async fn row_16_secrets_are_put_in_by_the_host() {
    const SECRET: &str = "zX81-very-secret-value";
    let house = House::new(&["web"]).await;
    let echo = || Server::new(|head| page(&format!("x-echo: {SECRET}\r\n"), &format!("you sent {SECRET}: {head}")));
    let (mine, other) = (echo(), echo());
    let mut grants = granting(&["GET http://127.0.0.1:*"]);
    let template = SecretTemplate {
        name: "WEB_TOKEN".to_owned(),
        hosts: vec![format!("http://{}", mine.address)],
        header: "User-Agent".to_owned(),
        format: "Bearer {}".to_owned(),
    };
    grants.secrets.push(Secret::new(template, SECRET).expect("a secret"));
    let calls = [("web.fetch", json!({"url": mine.url("/a")})), ("web.fetch", json!({"url": other.url("/b")}))];
    let mut session = house.session(agent(grants), script(&[calling(&calls), saying("Done.")])).await;
    turn(&mut session, "Go.").await;
    let head = mine.heads().remove(0);
    assert!(head.contains(&format!("user-agent: Bearer {SECRET}\r\n")), "{head}");
    assert_eq!(head.matches("user-agent").count(), 1, "the plugin's own header is replaced: {head}");
    assert!(head.contains("accept-encoding: identity"), "{head}");
    assert!(!other.heads()[0].contains(SECRET), "{:?}", other.heads());
    let results = results(&house, &session).await;
    let stars = "*".repeat(SECRET.len());
    assert!(results[0].2.contains(&format!("you sent {stars}")), "{results:?}");
    let events = format!("{:?}", events(&house, &session).await);
    assert!(events.contains(&stars) && !results[0].2.contains(SECRET), "{results:?}");
    // Every known secret of the agent is masked, whoever says it: also the server that it was never sent to.
    assert!(results[1].2.contains(&format!("you sent {stars}")) && !results[1].2.contains(SECRET), "{results:?}");
    session.close().await.unwrap();
    let stored = stored_bytes(house.directory.path());
    let is_stored = |text: &str| stored.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(is_stored("you sent"), "the search finds what is there");
    assert!(!is_stored(SECRET), "the secret is masked wherever it is stored");
}

fn stored_bytes(directory: &std::path::Path) -> Vec<u8> {
    let files = std::fs::read_dir(directory).unwrap().flatten().filter(|entry| entry.path().is_file());
    files.flat_map(|entry| std::fs::read(entry.path()).unwrap()).collect()
}

/// A server that keeps its connections, and counts those that it has had and those that are open.
struct Keeping {
    address: SocketAddr,
    had: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
}

impl Keeping {
    fn new() -> Self {
        Self::answering(usize::MAX)
    }

    /// One that hears a request after so many on the same connection, and closes it without an answer.
    fn answering(most: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound");
        let (had, open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, counted_open) = (Arc::clone(&had), Arc::clone(&open));
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::SeqCst);
                counted_open.fetch_add(1, Ordering::SeqCst);
                let open = Arc::clone(&counted_open);
                std::thread::spawn(move || {
                    let (mut head, mut byte, mut heard) = (Vec::new(), [0], 0);
                    while stream.read(&mut byte).is_ok_and(|read| read == 1) {
                        head.push(byte[0]);
                        if head.ends_with(b"\r\n\r\n") {
                            head.clear();
                            heard += 1;
                            if heard > most {
                                break;
                            }
                            stream.write_all(&page("", "still here")).expect("it is read");
                        }
                    }
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, had, open }
    }

    fn had(&self) -> usize {
        self.had.load(Ordering::SeqCst)
    }

    /// Waits until no connection is open.
    async fn left_alone(&self) {
        let alone = async {
            while self.open.load(Ordering::SeqCst) > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), alone).await.expect("all connections are closed");
    }
}

/// P8: connections are kept for the next request of the same agent's plugin, not for another agent, and not beyond the grant
/// that they were made under.
#[tokio::test(flavor = "multi_thread")]
async fn p8_connections_are_kept_for_one_agents_plugin() {
    let house = House::new(&["web"]).await;
    let server = Keeping::new();
    let plugin = house.generation().await.plugin("web").expect("loaded").clone();
    let setup =
        |patterns: &[&str]| agent_plugins::PluginSetup::new(plugin.clone(), granting(patterns), CallLimits::default());
    let url = server_url(&server);
    let fetched = async |setup: &agent_plugins::PluginSetup, agent: &str| {
        let request = request(agent, json!({"url": url}));
        let report = house.sandbox.call_tool(setup, request, &agent_plugins::Ports::default()).await;
        report.result.expect("an answer")
    };
    let granted = setup(&["GET http://127.0.0.1:*"]);
    for _ in 0..3 {
        assert!(fetched(&granted, "one").await.is_ok());
    }
    assert_eq!(server.had(), 1, "three calls, one connection");
    assert!(fetched(&granted, "two").await.is_ok());
    assert_eq!(server.had(), 2, "another agent has its own");
    let revoked = setup(&["GET http://127.0.0.2:*"]);
    assert!(fetched(&revoked, "one").await.is_err());
    drop(granted);
    server.left_alone().await;
    assert_eq!(server.had(), 2);
}

/// P8: a server that closes its connections without a word costs no request: neither where it has closed one that waits, nor
/// where it does so just when it is used again.
#[tokio::test(flavor = "multi_thread")]
async fn p8_a_connection_that_the_server_closed_is_made_again() {
    let house = House::new(&["web"]).await;
    let (at_once, when_used) = (Server::new(|_| page("", "once")), Keeping::answering(1));
    let plugin = house.generation().await.plugin("web").expect("loaded").clone();
    let setup = agent_plugins::PluginSetup::new(plugin, granting(&["GET http://127.0.0.1:*"]), CallLimits::default());
    for url in [server_url(&when_used), at_once.url("/")] {
        for _ in 0..20 {
            let request = request("one", json!({"url": url}));
            let report = house.sandbox.call_tool(&setup, request, &agent_plugins::Ports::default()).await;
            assert!(report.result.as_ref().is_ok_and(Result::is_ok), "{url}: {report:?}");
        }
    }
    assert_eq!(when_used.had(), 20, "each was made again once");
}

fn server_url(server: &Keeping) -> String {
    format!("http://{}/", server.address)
}

/// P5: requests carry the turn's trace context.
#[tokio::test(flavor = "multi_thread")]
async fn p5_requests_carry_the_trace() {
    let house = House::new(&["web"]).await;
    let server = Server::new(|_| page("", "seen"));
    let (is_error, text) = fetch(&house, granting(&["GET http://127.0.0.1:*"]), &server.url("/")).await;
    assert!(!is_error, "{text}");
    let head = server.heads().remove(0);
    let trace = head.lines().find_map(|line| line.strip_prefix("traceparent: ")).unwrap_or_default();
    let parts: Vec<_> = trace.split('-').map(str::len).collect();
    assert_eq!(parts, [2, 32, 16, 2], "{head}");
}

/// Row 7: an endless answer is cut, and so are endless headers; the call ends with an error and nothing hangs.
#[tokio::test(flavor = "multi_thread")]
async fn row_7_endless_answers() {
    let house = House::new(&["web"]).await;
    let body = Server::new(|_| {
        let mut answer = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n".to_vec();
        answer.resize(24 << 20, b'x');
        answer
    });
    let headers = Server::new(|_| format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(64 << 10)).into_bytes());
    let grants = || granting(&["GET http://127.0.0.1:*"]);
    let (is_error, text) = fetch(&house, grants(), &body.url("/")).await;
    assert!(is_error && text.contains("more than"), "{text}");
    let (is_error, text) = fetch(&house, grants(), &headers.url("/")).await;
    assert!(is_error, "{text}");
}

/// Row 7: an answer that is no HTTP fails its call, and nobody reads of the host's own code there, however it was started.
#[test]
fn row_7_a_broken_answer_says_nothing_of_the_host() {
    let broken = Server::new(|_| {
        let mut answer =
            b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n5;".to_vec();
        answer.resize(1 << 20, b'x');
        answer
    });
    let data = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_agent-host"))
        .args(["plugin", "call", components().join("web.wasm").to_str().unwrap(), "web.fetch"])
        .args([json!({"url": broken.url("/")}).to_string(), format!("--grant=web:http=GET http://{}", broken.address)])
        .env("AGENT_HOST_DATA", data.path())
        .env("RUST_BACKTRACE", "1")
        .output()
        .unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!output.status.success() && said.contains("the answer broke off"), "{said}");
    assert!(!said.contains("backtrace") && !said.contains(".rs:"), "{said}");
}

/// Limits: 60 requests a minute for each agent and plugin.
#[tokio::test(flavor = "multi_thread")]
async fn requests_per_minute() {
    let house = House::new(&["web"]).await;
    let server = Server::new(|_| page("", "ok"));
    let generation: Generation = house.generation().await;
    let plugin = generation.plugin("web").expect("loaded").clone();
    let setup = agent_plugins::PluginSetup::new(plugin, granting(&["GET http://127.0.0.1:*"]), CallLimits::default());
    let fetched = async |agent: &str| {
        let request = request(agent, json!({"url": server.url("/")}));
        let report = house.sandbox.call_tool(&setup, request, &agent_plugins::Ports::default()).await;
        report.result
    };
    for number in 0..60 {
        assert!(matches!(fetched("one").await, Ok(Ok(_))), "request {number}");
    }
    let refused = fetched("one").await.expect_err("one too many");
    let expected = format!("{} was stopped at its limit: 60 requests per minute", setup.plugin().identity());
    assert!(refused.to_string().contains(&expected), "{refused}");
    assert!(matches!(fetched("two").await, Ok(Ok(_))), "another agent has its own");
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
