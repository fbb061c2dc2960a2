//! Row 42: whatever registries, uploads, token servers and redirects do, a credential is only sent to its own origin.

use crate::{TestClient, component};
use agent_registry::{Credentials, PlainHttp, Registry};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, Response, Uri};
use proptest::prelude::*;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use url::Url;

/// The next answer of one of several servers.
#[derive(Clone, Debug)]
enum Answer {
    /// Redirects to a server, by its number.
    Redirect {
        status: u16,
        to: usize,
        path: &'static str,
    },
    Basic,
    /// Names a token server, by its number.
    Bearer {
        realm: usize,
    },
    Token(&'static str),
    /// Accepts an upload at a server, by its number.
    UploadAt(usize),
    Nothing,
    Json(&'static str),
}

/// A request that a server received.
#[derive(Clone, Debug)]
struct ReceivedRequest {
    server: usize,
    request: String,
}

#[derive(Default)]
struct Script {
    /// Answers by server. A server without further answers returns 404.
    answers: Vec<Vec<Answer>>,
    seen: Vec<ReceivedRequest>,
}

/// Servers on several loopback ports, each of which is a separate origin.
struct Servers {
    addresses: Vec<SocketAddr>,
    script: Arc<Mutex<Script>>,
}

impl Servers {
    async fn start(count: usize) -> Self {
        let script = Arc::new(Mutex::new(Script { answers: vec![Vec::new(); count], seen: Vec::new() }));
        let mut listeners = Vec::new();
        for _ in 0..count {
            listeners.push(tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port"));
        }
        let addresses: Vec<_> = listeners.iter().map(|listener| listener.local_addr().expect("bound")).collect();
        for (server, listener) in listeners.into_iter().enumerate() {
            let (script, addresses) = (Arc::clone(&script), addresses.clone());
            let app = Router::new().fallback(move |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| {
                let request = format!("{method} {uri} {headers:?} {}", String::from_utf8_lossy(&body));
                let mut script = script.lock().expect("the lock is not poisoned");
                script.seen.push(ReceivedRequest { server, request });
                let queue = &mut script.answers[server];
                let answer = if queue.is_empty() { Answer::Nothing } else { queue.remove(0) };
                let response = written(answer, &addresses, server);
                async move { response }
            });
            tokio::spawn(async move { axum::serve(listener, app).await });
        }
        Self { addresses, script }
    }

    fn set(&self, server: usize, answers: &[Answer]) {
        self.script.lock().expect("the lock is not poisoned").answers[server] = answers.to_vec();
    }

    fn seen(&self) -> Vec<ReceivedRequest> {
        std::mem::take(&mut self.script.lock().expect("the lock is not poisoned").seen)
    }

    /// A client with logins for the first two servers: a password, and a refresh token.
    fn client(&self) -> TestClient {
        let auths = format!(
            r#"{{"auths": {{"{}": {{"username": "ann", "password": "{PASSWORD}"}}, "{}": {{"identitytoken": "{REFRESH}"}}}}}}"#,
            self.addresses[0], self.addresses[1]
        );
        TestClient::with(Some(&auths))
    }

    fn reference(&self, server: usize) -> String {
        format!("{}/team/calc:1.0.0", self.addresses[server])
    }
}

const PASSWORD: &str = "very-secret-password";
/// Base64 of `ann:` and the password.
const BASIC: &str = "YW5uOnZlcnktc2VjcmV0LXBhc3N3b3Jk";
const REFRESH: &str = "very-secret-refresh";
const TOKEN: &str = "bought-token";

fn written(answer: Answer, addresses: &[SocketAddr], server: usize) -> Response<Body> {
    let at = |server: usize, path: &str| format!("http://{}{path}", addresses[server % addresses.len()]);
    // The client stores no cookies; the property test would notice.
    let reply = |status: u16| Response::builder().status(status).header("set-cookie", format!("crumb-of-{server}=1"));
    let reply = match answer {
        Answer::Redirect { status, to, path } => reply(status).header("location", at(to, path)).body(Body::empty()),
        Answer::Basic => reply(401).header("www-authenticate", "Basic realm=\"x\"").body(Body::empty()),
        Answer::Bearer { realm } => {
            let challenge = format!("Bearer realm=\"{}\",service=\"s\"", at(realm, "/token"));
            reply(401).header("www-authenticate", challenge).body(Body::empty())
        }
        Answer::Token(token) => reply(200).body(Body::from(format!(r#"{{"token": "{token}"}}"#))),
        Answer::UploadAt(to) => reply(202).header("location", at(to, "/v2/upload?state=a")).body(Body::empty()),
        Answer::Nothing => reply(404).body(Body::empty()),
        Answer::Json(json) => reply(200).body(Body::from(json)),
    };
    reply.expect("a response")
}

/// Numbers of the servers that received a text.
fn who_saw(seen: &[ReceivedRequest], text: &str) -> Vec<usize> {
    let mut servers: Vec<_> = seen.iter().filter(|seen| seen.request.contains(text)).map(|seen| seen.server).collect();
    servers.dedup();
    servers
}

fn redirect(to: usize) -> Answer {
    Answer::Redirect { status: 307, to, path: "/v2/team/calc/manifests/1.0.0" }
}

/// The reported attack: the registry redirects to another port, which asks for the login, in both forms.
#[tokio::test]
async fn redirect_target_gets_no_login() {
    let servers = Servers::start(3).await;
    for challenge in [Answer::Basic, Answer::Bearer { realm: 2 }, Answer::Bearer { realm: 0 }] {
        servers.set(0, &[redirect(2), redirect(2), Answer::Token(TOKEN)]);
        servers.set(2, &[challenge.clone(), challenge.clone(), challenge]);
        let error = servers.client().fetch(&servers.reference(0)).await.expect_err("refused").to_string();
        assert!(error.contains("the registry redirects to http://127.0.0.1:") && error.contains("not sent"), "{error}");
        let seen = servers.seen();
        assert_eq!((who_saw(&seen, BASIC), who_saw(&seen, PASSWORD)), (vec![], vec![]), "{seen:?}");
    }
    // An answer after a redirect back to the registry is not trusted either.
    servers.set(0, &[redirect(2), Answer::Basic]);
    servers.set(2, &[redirect(0)]);
    servers.client().fetch(&servers.reference(0)).await.expect_err("refused");
    assert_eq!(who_saw(&servers.seen(), BASIC), Vec::<usize>::new());
}

/// A login that the registry asked for is not sent after a redirect.
#[tokio::test]
async fn login_is_not_sent_after_a_redirect() {
    let servers = Servers::start(3).await;
    for answers in [[Answer::Basic, redirect(2)], [Answer::Basic, Answer::UploadAt(2)]] {
        servers.set(0, &answers);
        servers.set(2, &[Answer::Basic, Answer::Basic]);
        servers.client().fetch(&servers.reference(0)).await.expect_err("refused");
        assert_eq!(who_saw(&servers.seen(), BASIC), [0]);
    }
    // The registry asks for a login and then sends the upload to another server, which asks for a login too.
    servers.set(0, &[Answer::Basic, Answer::Nothing, Answer::Nothing, Answer::UploadAt(2)]);
    servers.set(2, &[Answer::Basic, Answer::Basic]);
    let error = servers.client().push(&servers.reference(0), &component(10)).await.expect_err("refused").to_string();
    let seen = servers.seen();
    assert!(error.contains("the registry redirects to"), "{error}");
    assert_eq!(who_saw(&seen, BASIC), [0]);
    assert!(seen.iter().any(|seen| seen.server == 2 && seen.request.starts_with("PUT ")), "the upload is attempted");
}

/// A token server of another origin only gets the login if the user allowed it, and never after a redirect.
#[tokio::test]
async fn token_server_gets_the_login_only_if_allowed() {
    let servers = Servers::start(3).await;
    let script = |realm: usize| {
        servers.set(0, &[Answer::Bearer { realm }, Answer::Token(TOKEN), Answer::Nothing]);
        servers.set(2, &[Answer::Token(TOKEN)]);
    };
    script(2);
    let error = servers.client().fetch(&servers.reference(0)).await.expect_err("refused").to_string();
    assert!(error.contains(&format!("--token-server http://{}", servers.addresses[2])), "{error}");
    assert!(who_saw(&servers.seen(), BASIC).is_empty());
    // The registry's own origin, and a server that the user allowed.
    script(0);
    servers.client().fetch(&servers.reference(0)).await.expect_err("the plugin does not exist");
    let seen = servers.seen();
    assert_eq!((who_saw(&seen, BASIC), who_saw(&seen, TOKEN)), (vec![0], vec![0]));
    let client = servers.client();
    let named = Url::parse(&format!("http://{}", servers.addresses[2])).expect("a URL");
    let credentials = Credentials { file: Some(client.folder.path().join("config.json")) };
    let registry = Registry::new(credentials, PlainHttp::LoopbackOnly).expect("a client").with_token_servers(&[named]);
    let client = TestClient { registry, ..client };
    script(2);
    client.fetch(&servers.reference(0)).await.expect_err("the plugin does not exist");
    let seen = servers.seen();
    assert_eq!((who_saw(&seen, BASIC), who_saw(&seen, TOKEN)), (vec![2], vec![0]), "{seen:?}");
    // The allowed server redirects to a third one.
    servers.set(0, &[Answer::Bearer { realm: 2 }]);
    servers.set(2, &[Answer::Redirect { status: 302, to: 1, path: "/token" }]);
    servers.set(1, &[Answer::Basic, Answer::Token(TOKEN)]);
    let error = client.fetch(&servers.reference(0)).await.expect_err("refused").to_string();
    assert!(error.contains("its token server redirects to another server"), "{error}");
    assert_eq!(who_saw(&servers.seen(), BASIC), [2]);
}

/// A web page that redirects to a registry, or asks for a login itself, gets no login.
#[tokio::test]
async fn web_pages_get_no_login() {
    let servers = Servers::start(3).await;
    servers.set(0, &[Answer::Basic, Answer::Json(r#"{"tags": ["1.0.0"]}"#), Answer::Nothing]);
    let untagged = servers.reference(0).replace(":1.0.0", "");
    servers.client().fetch(&untagged).await.expect_err("the plugin does not exist");
    assert_eq!(who_saw(&servers.seen(), BASIC), [0]);
    for challenge in [Answer::Basic, Answer::Bearer { realm: 2 }] {
        servers.set(0, &[challenge.clone(), challenge.clone()]);
        servers.set(2, &[Answer::Redirect { status: 302, to: 0, path: "/calc.wasm" }, challenge]);
        let page = format!("http://{}/calc.wasm", servers.addresses[2]);
        servers.client().fetch(&page).await.expect_err("refused");
        servers
            .client()
            .fetch(&page.replace(&servers.addresses[2].to_string(), &servers.addresses[0].to_string()))
            .await
            .expect_err("refused");
        let seen = servers.seen();
        assert!(!seen.is_empty() && who_saw(&seen, "authorization").is_empty(), "{seen:?}");
    }
}

fn answers() -> impl Strategy<Value = Vec<Answer>> {
    let status = prop_oneof![Just(301_u16), Just(302), Just(303), Just(307), Just(308)];
    let path = prop_oneof![Just("/v2/team/calc/manifests/1.0.0"), Just("/token"), Just("/elsewhere")];
    let answer = prop_oneof![
        4 => (status, 0..4_usize, path).prop_map(|(status, to, path)| Answer::Redirect { status, to, path }),
        2 => Just(Answer::Basic),
        3 => (0..4_usize).prop_map(|realm| Answer::Bearer { realm }),
        2 => Just(Answer::Token(TOKEN)),
        1 => (0..4_usize).prop_map(Answer::UploadAt),
        2 => Just(Answer::Nothing),
        1 => Just(Answer::Json(r#"{"tags": ["1.0.0"]}"#)),
    ];
    proptest::collection::vec(answer, 0..8)
}

/// Property: with random answers of four servers, the login and tokens of the requested registry are only sent to it, and the login of
/// another registry is never sent.
#[test]
fn every_credential_is_sent_to_its_own_origin_only() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let servers = runtime.block_on(Servers::start(4));
    // PROPTEST_CASES can raise the number of cases.
    let cases = ProptestConfig::default().cases.max(400);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    });
    let sent = std::cell::Cell::new([0_usize; 3]);
    let strategy = (0..3_usize, proptest::collection::vec(answers(), 4));
    let result = runner.run(&strategy, |(asked, scripts)| {
        for (server, script) in scripts.iter().enumerate() {
            servers.set(server, script);
        }
        let (client, reference) = (servers.client(), servers.reference(asked));
        runtime.block_on(async {
            let _ = client.fetch(&reference).await;
            let _ = client.push(&reference, &component(10)).await;
            let _ = client.fetch(&reference.replace(":1.0.0", "")).await;
        });
        let seen = servers.seen();
        let of = [(0, BASIC), (0, PASSWORD), (1, REFRESH), (asked, TOKEN)];
        for (owner, secret) in of {
            for server in who_saw(&seen, secret) {
                prop_assert!(server == owner && owner == asked, "{secret} of {owner} was seen by {server}: {seen:?}");
            }
        }
        prop_assert!(who_saw(&seen, "crumb-of-").is_empty(), "{seen:?}");
        let mut counts = sent.get();
        for (count, secret) in counts.iter_mut().zip([BASIC, REFRESH, TOKEN]) {
            *count += who_saw(&seen, secret).len();
        }
        sent.set(counts);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    assert!(sent.get().iter().all(|count| *count > 0), "each kind of credential was sent: {:?}", sent.get());
}
