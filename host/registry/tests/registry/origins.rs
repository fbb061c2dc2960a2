//! Row 42: a credential is sent only to its own origin, regardless of the responses of registries, upload servers,
//! token servers and redirects.

use crate::{TestClient, component};
use agent_registry::{Credentials, PlainHttp, Registry};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, Response, Uri};
use proptest::prelude::*;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use url::Url;

/// A response that one of the test servers sends.
#[derive(Clone, Debug)]
enum ServerResponse {
    /// Redirects the client to the server with the number `to`.
    Redirect {
        status: u16,
        to: usize,
        path: &'static str,
    },
    Basic,
    /// Requires a token from the server with the number `realm`.
    Bearer {
        realm: usize,
    },
    Token(&'static str),
    /// Accepts the start of an upload, and asks the client to send the bytes to the server with this number.
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
    /// Responses of each server, keyed by the number of the server. A server without further responses returns 404.
    responses: Vec<Vec<ServerResponse>>,
    requests: Vec<ReceivedRequest>,
}

/// Servers on several loopback ports. Each server is a separate origin.
struct Servers {
    addresses: Vec<SocketAddr>,
    script: Arc<Mutex<Script>>,
}

impl Servers {
    async fn start(count: usize) -> Self {
        let script = Arc::new(Mutex::new(Script { responses: vec![Vec::new(); count], requests: Vec::new() }));
        let mut listeners = Vec::new();
        for _ in 0..count {
            listeners.push(tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free"));
        }
        let addresses: Vec<_> =
            listeners.iter().map(|listener| listener.local_addr().expect("the listener has an address")).collect();
        for (server, listener) in listeners.into_iter().enumerate() {
            let (script, addresses) = (Arc::clone(&script), addresses.clone());
            let app = Router::new().fallback(move |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| {
                let request = format!("{method} {uri} {headers:?} {}", String::from_utf8_lossy(&body));
                let mut script = script.lock().expect("the lock is not poisoned");
                script.requests.push(ReceivedRequest { server, request });
                let queue = &mut script.responses[server];
                let response = if queue.is_empty() { ServerResponse::Nothing } else { queue.remove(0) };
                let response = http_response(response, &addresses, server);
                async move { response }
            });
            tokio::spawn(async move { axum::serve(listener, app).await });
        }
        Self { addresses, script }
    }

    fn set(&self, server: usize, responses: &[ServerResponse]) {
        self.script.lock().expect("the lock is not poisoned").responses[server] = responses.to_vec();
    }

    fn take_requests(&self) -> Vec<ReceivedRequest> {
        std::mem::take(&mut self.script.lock().expect("the lock is not poisoned").requests)
    }

    /// Returns a client with logins for the first two servers: a password for the first server and a refresh token for
    /// the second server.
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
const TOKEN: &str = "obtained-token";

fn http_response(response: ServerResponse, addresses: &[SocketAddr], server: usize) -> Response<Body> {
    let at = |server: usize, path: &str| format!("http://{}{path}", addresses[server % addresses.len()]);
    // Send a cookie to check that the client stores no cookies. The property test fails if a cookie is sent back.
    let reply = |status: u16| Response::builder().status(status).header("set-cookie", format!("crumb-of-{server}=1"));
    let reply = match response {
        ServerResponse::Redirect { status, to, path } => {
            reply(status).header("location", at(to, path)).body(Body::empty())
        }
        ServerResponse::Basic => reply(401).header("www-authenticate", "Basic realm=\"x\"").body(Body::empty()),
        ServerResponse::Bearer { realm } => {
            let challenge = format!("Bearer realm=\"{}\",service=\"s\"", at(realm, "/token"));
            reply(401).header("www-authenticate", challenge).body(Body::empty())
        }
        ServerResponse::Token(token) => reply(200).body(Body::from(format!(r#"{{"token": "{token}"}}"#))),
        ServerResponse::UploadAt(to) => reply(202).header("location", at(to, "/v2/upload?state=a")).body(Body::empty()),
        ServerResponse::Nothing => reply(404).body(Body::empty()),
        ServerResponse::Json(json) => reply(200).body(Body::from(json)),
    };
    reply.expect("the response is valid")
}

/// Returns the positions of the servers that received a request that contains `text`.
fn receivers_of(seen: &[ReceivedRequest], text: &str) -> Vec<usize> {
    let mut servers: Vec<_> = seen.iter().filter(|seen| seen.request.contains(text)).map(|seen| seen.server).collect();
    servers.dedup();
    servers
}

fn redirect(to: usize) -> ServerResponse {
    ServerResponse::Redirect { status: 307, to, path: "/v2/team/calc/manifests/1.0.0" }
}

/// If the registry redirects the client to a server on another port, and this server requires a login with Basic or
/// bearer authentication, the server does not receive the registry's login. The test repeats an attack that was
/// reported.
#[tokio::test]
async fn redirect_target_does_not_get_the_login() {
    let servers = Servers::start(3).await;
    for challenge in [ServerResponse::Basic, ServerResponse::Bearer { realm: 2 }, ServerResponse::Bearer { realm: 0 }] {
        servers.set(0, &[redirect(2), redirect(2), ServerResponse::Token(TOKEN)]);
        servers.set(2, &[challenge.clone(), challenge.clone(), challenge]);
        let error = servers.client().fetch(&servers.reference(0)).await.expect_err("it is refused").to_string();
        assert!(error.contains("the registry redirects to http://127.0.0.1:") && error.contains("not sent"), "{error}");
        let seen = servers.take_requests();
        assert_eq!((receivers_of(&seen, BASIC), receivers_of(&seen, PASSWORD)), (vec![], vec![]), "{seen:?}");
    }
    // If the other server redirects the client back to the registry, the registry's response is not trusted either.
    servers.set(0, &[redirect(2), ServerResponse::Basic]);
    servers.set(2, &[redirect(0)]);
    servers.client().fetch(&servers.reference(0)).await.expect_err("it is refused");
    assert_eq!(receivers_of(&servers.take_requests(), BASIC), Vec::<usize>::new());
}

/// A login that the registry required is not sent after a redirect.
#[tokio::test]
async fn login_is_not_sent_after_a_redirect() {
    let servers = Servers::start(3).await;
    for responses in [[ServerResponse::Basic, redirect(2)], [ServerResponse::Basic, ServerResponse::UploadAt(2)]] {
        servers.set(0, &responses);
        servers.set(2, &[ServerResponse::Basic, ServerResponse::Basic]);
        servers.client().fetch(&servers.reference(0)).await.expect_err("it is refused");
        assert_eq!(receivers_of(&servers.take_requests(), BASIC), [0]);
    }
    // The registry requires a login and then redirects the upload to another server. The other server also requires a
    // login, but does not receive the registry's login.
    servers.set(
        0,
        &[ServerResponse::Basic, ServerResponse::Nothing, ServerResponse::Nothing, ServerResponse::UploadAt(2)],
    );
    servers.set(2, &[ServerResponse::Basic, ServerResponse::Basic]);
    let error =
        servers.client().push(&servers.reference(0), &component(10)).await.expect_err("it is refused").to_string();
    let seen = servers.take_requests();
    assert!(error.contains("the registry redirects to"), "{error}");
    assert_eq!(receivers_of(&seen, BASIC), [0]);
    assert!(seen.iter().any(|seen| seen.server == 2 && seen.request.starts_with("PUT ")), "the upload is attempted");
}

/// A token server of another origin receives the login only if the user allowed it, and never after a redirect.
#[tokio::test]
async fn token_server_gets_the_login_only_if_allowed() {
    let servers = Servers::start(3).await;
    let script = |realm: usize| {
        servers.set(0, &[ServerResponse::Bearer { realm }, ServerResponse::Token(TOKEN), ServerResponse::Nothing]);
        servers.set(2, &[ServerResponse::Token(TOKEN)]);
    };
    script(2);
    let error = servers.client().fetch(&servers.reference(0)).await.expect_err("it is refused").to_string();
    assert!(error.contains(&format!("--token-server http://{}", servers.addresses[2])), "{error}");
    assert!(receivers_of(&servers.take_requests(), BASIC).is_empty());
    // A token server receives the login if it has the registry's own origin, or if the user allowed the token server.
    script(0);
    servers.client().fetch(&servers.reference(0)).await.expect_err("the plugin does not exist");
    let seen = servers.take_requests();
    assert_eq!((receivers_of(&seen, BASIC), receivers_of(&seen, TOKEN)), (vec![0], vec![0]));
    let client = servers.client();
    let allowed = Url::parse(&format!("http://{}", servers.addresses[2])).expect("the URL is valid");
    let credentials = Credentials { file: Some(client.folder.path().join("config.json")) };
    let registry = Registry::new(credentials, PlainHttp::LoopbackOnly)
        .expect("the client is created")
        .with_token_servers(&[allowed]);
    let client = TestClient { registry, ..client };
    script(2);
    client.fetch(&servers.reference(0)).await.expect_err("the plugin does not exist");
    let seen = servers.take_requests();
    assert_eq!((receivers_of(&seen, BASIC), receivers_of(&seen, TOKEN)), (vec![2], vec![0]), "{seen:?}");
    // The allowed server redirects to a third server, which receives no login.
    servers.set(0, &[ServerResponse::Bearer { realm: 2 }]);
    servers.set(2, &[ServerResponse::Redirect { status: 302, to: 1, path: "/token" }]);
    servers.set(1, &[ServerResponse::Basic, ServerResponse::Token(TOKEN)]);
    let error = client.fetch(&servers.reference(0)).await.expect_err("it is refused").to_string();
    assert!(error.contains("its token server redirects to another server"), "{error}");
    assert_eq!(receivers_of(&servers.take_requests(), BASIC), [2]);
}

/// A web page does not receive a login, even if it redirects to a registry or itself requires a login.
#[tokio::test]
async fn web_pages_do_not_receive_a_login() {
    let servers = Servers::start(3).await;
    servers.set(0, &[ServerResponse::Basic, ServerResponse::Json(r#"{"tags": ["1.0.0"]}"#), ServerResponse::Nothing]);
    let untagged = servers.reference(0).replace(":1.0.0", "");
    servers.client().fetch(&untagged).await.expect_err("the plugin does not exist");
    assert_eq!(receivers_of(&servers.take_requests(), BASIC), [0]);
    for challenge in [ServerResponse::Basic, ServerResponse::Bearer { realm: 2 }] {
        servers.set(0, &[challenge.clone(), challenge.clone()]);
        servers.set(2, &[ServerResponse::Redirect { status: 302, to: 0, path: "/calc.wasm" }, challenge]);
        let page = format!("http://{}/calc.wasm", servers.addresses[2]);
        servers.client().fetch(&page).await.expect_err("it is refused");
        servers
            .client()
            .fetch(&page.replace(&servers.addresses[2].to_string(), &servers.addresses[0].to_string()))
            .await
            .expect_err("it is refused");
        let seen = servers.take_requests();
        assert!(!seen.is_empty() && receivers_of(&seen, "authorization").is_empty(), "{seen:?}");
    }
}

fn responses() -> impl Strategy<Value = Vec<ServerResponse>> {
    let status = prop_oneof![Just(301_u16), Just(302), Just(303), Just(307), Just(308)];
    let path = prop_oneof![Just("/v2/team/calc/manifests/1.0.0"), Just("/token"), Just("/elsewhere")];
    let response = prop_oneof![
        4 => (status, 0..4_usize, path).prop_map(|(status, to, path)| ServerResponse::Redirect { status, to, path }),
        2 => Just(ServerResponse::Basic),
        3 => (0..4_usize).prop_map(|realm| ServerResponse::Bearer { realm }),
        2 => Just(ServerResponse::Token(TOKEN)),
        1 => (0..4_usize).prop_map(ServerResponse::UploadAt),
        2 => Just(ServerResponse::Nothing),
        1 => Just(ServerResponse::Json(r#"{"tags": ["1.0.0"]}"#)),
    ];
    proptest::collection::vec(response, 0..8)
}

/// Property: with random responses of four servers, the login and the tokens of the requested registry are sent only to
/// that registry, and the login of another registry is never sent.
#[test]
fn every_credential_is_sent_to_its_own_origin_only() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("the runtime is created");
    let servers = runtime.block_on(Servers::start(4));
    // The environment variable PROPTEST_CASES can raise the number of cases.
    let cases = ProptestConfig::default().cases.max(400);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    });
    let sent = std::cell::Cell::new([0_usize; 3]);
    let strategy = (0..3_usize, proptest::collection::vec(responses(), 4));
    let result = runner.run(&strategy, |(requested, scripts)| {
        for (server, script) in scripts.iter().enumerate() {
            servers.set(server, script);
        }
        let (client, reference) = (servers.client(), servers.reference(requested));
        runtime.block_on(async {
            let _ = client.fetch(&reference).await;
            let _ = client.push(&reference, &component(10)).await;
            let _ = client.fetch(&reference.replace(":1.0.0", "")).await;
        });
        let seen = servers.take_requests();
        let owners = [(0, BASIC), (0, PASSWORD), (1, REFRESH), (requested, TOKEN)];
        for (owner, secret) in owners {
            for server in receivers_of(&seen, secret) {
                prop_assert!(
                    server == owner && owner == requested,
                    "{secret} of {owner} was received by {server}: {seen:?}"
                );
            }
        }
        prop_assert!(receivers_of(&seen, "crumb-of-").is_empty(), "{seen:?}");
        let mut counts = sent.get();
        for (count, secret) in counts.iter_mut().zip([BASIC, REFRESH, TOKEN]) {
            *count += receivers_of(&seen, secret).len();
        }
        sent.set(counts);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    assert!(sent.get().iter().all(|count| *count > 0), "each kind of credential was sent: {:?}", sent.get());
}
