//! A registry over HTTP on loopback with configurable faults. The tests of this crate and the end-to-end tests of the
//! host use this registry.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response, StatusCode, Uri};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

/// Faults that the test registry simulates, and requirements for requests to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// For each of the next responses with a blob, the number of bytes after which the registry interrupts the
    /// response. Later responses are complete.
    pub cut_after: Vec<usize>,
    /// Whether the registry ignores the `Range` header of requests for blobs and sends the whole blob.
    pub ignore_ranges: bool,
    /// If this is not `None`, the registry flips a bit in each blob that is larger than this number of bytes.
    pub flip_blobs_over: Option<usize>,
    /// Number of spaces that the registry adds to each manifest.
    pub pad_manifests: usize,
    /// Origin to which the registry redirects requests for blobs. A redirect keeps the path of the request.
    pub redirect_blobs: Option<String>,
    /// User name and password that the registry requires. `None` if the registry requires no login.
    pub login: Option<(String, String)>,
    /// Whether clients must exchange the login for a token.
    pub tokens: bool,
    /// Whether the registry lists referrers.
    pub referrers: bool,
    /// Maximum number of referrers on one page. `None` means that one page contains all referrers.
    pub referrers_per_page: Option<usize>,
    /// Whether referrers are listed without the annotations of their manifests.
    pub hide_annotations: bool,
    /// Status and `Retry-After` header of the next responses. The message in each of these responses repeats the
    /// credential from the request.
    pub refuse: Vec<(u16, &'static str)>,
    /// The registry interrupts this number of responses that contain a manifest, beginning with the next one.
    pub cut_manifests: usize,
    /// Error statuses of the next uploads, and whether the registry stores the uploaded bytes in spite of the error.
    pub fail_uploads: Vec<(u16, FailedUpload)>,
    /// Origin to which the registry asks clients to send uploads. `None` if clients send uploads to the
    /// registry itself.
    pub upload_to: Option<String>,
    /// URL of the token server that the registry names. `None` if the registry is its own token server.
    pub realm: Option<String>,
    /// Whether requests for the list of tags are refused.
    pub hide_tags: bool,
    /// Invalid tags that the registry adds to its lists of tags.
    pub strange_tags: Vec<String>,
}

/// Whether the registry stores the bytes of a failed upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailedUpload {
    /// The registry stores the bytes and then reports an error.
    Stored,
    /// The registry reports an error and does not store the bytes.
    Lost,
}

#[derive(Default)]
struct Contents {
    /// Blobs, keyed by repository and digest.
    blobs: BTreeMap<(String, String), Bytes>,
    /// Web pages, keyed by path.
    pages: BTreeMap<String, Bytes>,
    /// Media type and bytes of each manifest, keyed by the repository and by the tag or digest.
    manifests: BTreeMap<(String, String), (String, Bytes)>,
    faults: Faults,
    requests: Vec<String>,
}

/// A registry that runs until it is dropped.
#[derive(Clone)]
pub(crate) struct TestRegistry {
    address: SocketAddr,
    contents: Arc<Mutex<Contents>>,
    _thread: Arc<StopOnDrop>,
}

struct StopOnDrop(Option<tokio::sync::oneshot::Sender<()>>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        let _ = self.0.take().map(|stop| stop.send(()));
    }
}

impl TestRegistry {
    /// Starts the registry on its own thread, so that tests without a runtime can use it.
    pub(crate) fn start() -> Self {
        let contents = Arc::<Mutex<Contents>>::default();
        let (started, address) = std::sync::mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let served = Arc::clone(&contents);
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("the runtime is created");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
                let address = listener.local_addr().expect("the address is valid");
                started.send(address).expect("the test waits");
                let app = Router::new().fallback(respond).with_state((served, address));
                tokio::select! {
                    served = axum::serve(listener, app) => served.expect("the server runs"),
                    _ = stopped => {}
                }
            });
        });
        let address = address.recv().expect("the server starts");
        Self { address, contents, _thread: Arc::new(StopOnDrop(Some(stop))) }
    }

    /// Returns the host of the registry in the form `127.0.0.1:PORT`.
    pub(crate) fn host(&self) -> String {
        self.address.to_string()
    }

    /// Changes the faults of the registry.
    pub(crate) fn set(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.contents().faults);
    }

    /// Returns the requests that arrived since the last call of this function, each as `METHOD PATH` followed by the
    /// values of its `Range` and `Authorization` headers.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.contents().requests)
    }

    /// Returns a manifest or an index by tag or digest.
    pub(crate) fn manifest(&self, repository: &str, name: &str) -> Option<Bytes> {
        let key = (repository.to_owned(), name.to_owned());
        self.contents().manifests.get(&key).map(|(_, bytes)| bytes.clone())
    }

    /// Returns all manifests and indexes of a repository, each with the tag or digest under which it is stored.
    pub(crate) fn manifests(&self, repository: &str) -> Vec<(String, Bytes)> {
        let contents = self.contents();
        let all = contents.manifests.iter().filter(|((other, _), _)| other == repository);
        all.map(|((_, name), (_, bytes))| (name.clone(), bytes.clone())).collect()
    }

    /// Stores a manifest or an index under `name` and under its digest, as a client other than this crate could do.
    pub(crate) fn put_manifest(&self, repository: &str, name: &str, (media_type, bytes): (&str, Vec<u8>)) {
        let digest = agent_plugins::digest_of(&bytes).to_string();
        let stored = (media_type.to_owned(), Bytes::from(bytes));
        for name in [name.to_owned(), digest] {
            self.contents().manifests.insert((repository.to_owned(), name), stored.clone());
        }
    }

    /// Stores a blob under its digest.
    pub(crate) fn put_blob(&self, repository: &str, bytes: &[u8]) {
        let digest = agent_plugins::digest_of(bytes).to_string();
        self.contents().blobs.insert((repository.to_owned(), digest), Bytes::copy_from_slice(bytes));
    }

    /// Stores bytes that the server returns as the web page at this path.
    pub(crate) fn put_page(&self, path: &str, bytes: &[u8]) {
        self.contents().pages.insert(path.to_owned(), Bytes::copy_from_slice(bytes));
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().expect("the lock is not poisoned")
    }
}

type Served = (Arc<Mutex<Contents>>, SocketAddr);

async fn respond(
    State((contents, address)): State<Served>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let mut contents = contents.lock().expect("the lock is not poisoned");
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let (path, query) = (uri.path().to_owned(), uri.query().unwrap_or_default().to_owned());
    let range = header("range");
    let authorization = header("authorization");
    contents.requests.push(format!("{method} {path} {range}{authorization}").trim_end().to_owned());
    if !contents.faults.refuse.is_empty() {
        let (code, later) = contents.faults.refuse.remove(0);
        let message = format!("not now, {authorization}");
        let code = StatusCode::from_u16(code).expect("the status is valid");
        let mut refused = error(code, "TOOMANYREQUESTS", &message);
        if !later.is_empty() {
            refused.headers_mut().insert("retry-after", later.parse().expect("the header is valid"));
        }
        return refused;
    }
    if path == "/token" {
        return token(&contents.faults, &authorization, &query);
    }
    if let Some(refused) = refused(&contents.faults, &authorization, address) {
        return refused;
    }
    if let Some(page) = contents.pages.get(&path) {
        return reply(StatusCode::OK).body(Body::from(page.clone())).unwrap();
    }
    let Some((repository, kind, name)) = split_path(&path) else { return status(StatusCode::NOT_FOUND) };
    let key = (repository.clone(), name.clone());
    match (method.as_str(), kind.as_str()) {
        ("GET" | "HEAD", "blobs") => blob(&mut contents, &key, &range, &path),
        ("POST", "blobs") => {
            let origin = contents.faults.upload_to.clone().unwrap_or_default();
            let location = format!("{origin}/v2/{repository}/blobs/uploads/one?state=a");
            reply(StatusCode::ACCEPTED).header("location", location).body(Body::empty()).unwrap()
        }
        ("PUT", "blobs") => {
            let digest = query.split("digest=").nth(1).unwrap_or_default().replace("%3A", ":");
            let has_digest = agent_plugins::digest_of(&body).to_string() == digest;
            let failing = (!contents.faults.fail_uploads.is_empty()).then(|| contents.faults.fail_uploads.remove(0));
            if let Some((code, failed_upload)) = failing {
                if failed_upload == FailedUpload::Stored {
                    contents.blobs.insert((repository, digest), body);
                }
                return status(StatusCode::from_u16(code).expect("the status is valid"));
            }
            contents.blobs.insert((repository, digest), body);
            status(if has_digest { StatusCode::CREATED } else { StatusCode::BAD_REQUEST })
        }
        ("PUT", "manifests") => {
            let digest = agent_plugins::digest_of(&body).to_string();
            for name in [name, digest.clone()] {
                contents.manifests.insert((repository.clone(), name), (header("content-type"), body.clone()));
            }
            reply(StatusCode::CREATED).header("docker-content-digest", digest).body(Body::empty()).unwrap()
        }
        ("GET", "manifests") => match contents.manifests.get(&key) {
            None => error(StatusCode::NOT_FOUND, "MANIFEST_UNKNOWN", "manifest unknown"),
            Some((media_type, bytes)) => {
                let padded = [bytes.as_ref(), &vec![b' '; contents.faults.pad_manifests]].concat();
                let building = reply(StatusCode::OK).header("content-type", media_type);
                if contents.faults.cut_manifests > 0 {
                    let building = building.header("content-length", padded.len());
                    let half = Bytes::copy_from_slice(&padded[..padded.len() / 2]);
                    contents.faults.cut_manifests -= 1;
                    return building.body(interrupted_body(half)).unwrap();
                }
                building.body(Body::from(padded)).unwrap()
            }
        },
        ("GET", "tags") if contents.faults.hide_tags => status(StatusCode::METHOD_NOT_ALLOWED),
        ("GET", "tags") => tags(&contents, &repository),
        ("GET", "referrers") if contents.faults.referrers => referrers(&contents, &repository, (&name, &query)),
        _ => status(StatusCode::NOT_FOUND),
    }
}

/// Splits a path of the form `/v2/REPOSITORY/KIND/NAME`.
fn split_path(path: &str) -> Option<(String, String, String)> {
    let rest = path.strip_prefix("/v2/")?;
    for kind in ["manifests", "blobs", "tags", "referrers"] {
        if let Some((repository, name)) = rest.split_once(&format!("/{kind}/")) {
            return Some((repository.to_owned(), kind.to_owned(), name.to_owned()));
        }
    }
    None
}

fn blob(contents: &mut Contents, key: &(String, String), range: &str, path: &str) -> Response<Body> {
    if let Some(origin) = contents.faults.redirect_blobs.clone() {
        return reply(StatusCode::TEMPORARY_REDIRECT)
            .header("location", format!("{origin}{path}"))
            .body(Body::empty())
            .unwrap();
    }
    let Some(mut bytes) = contents.blobs.get(key).map(|bytes| bytes.to_vec()) else {
        return error(StatusCode::NOT_FOUND, "BLOB_UNKNOWN", "blob unknown");
    };
    if contents.faults.flip_blobs_over.is_some_and(|size| bytes.len() > size) {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    }
    let size = bytes.len();
    let from: usize =
        range.strip_prefix("bytes=").and_then(|range| range.trim_end_matches('-').parse().ok()).unwrap_or(0);
    let from = if contents.faults.ignore_ranges { 0 } else { from.min(size) };
    let rest = bytes.split_off(from);
    let mut building =
        reply(if from > 0 { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK }).header("content-length", rest.len());
    if from > 0 {
        building = building.header("content-range", format!("bytes {from}-{}/{size}", size - 1));
    }
    let cut = if contents.faults.cut_after.is_empty() { None } else { Some(contents.faults.cut_after.remove(0)) };
    let body = match cut {
        Some(cut) if cut < rest.len() => interrupted_body(Bytes::copy_from_slice(&rest[..cut])),
        _ => Body::from(rest),
    };
    building.body(body).unwrap()
}

/// Returns a body that sends one part and then interrupts the connection.
fn interrupted_body(piece: Bytes) -> Body {
    let pieces = futures::stream::iter([Ok(piece), Err(std::io::Error::other("cut"))]);
    // Wait before the error, so that the first part is sent before the connection ends.
    Body::from_stream(futures::StreamExt::then(pieces, |piece| async move {
        if piece.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        piece
    }))
}

fn tags(contents: &Contents, repository: &str) -> Response<Body> {
    let names = contents.manifests.keys().filter(|(other, name)| other == repository && !name.contains(':'));
    let names: Vec<_> = names.map(|(_, name)| name).chain(&contents.faults.strange_tags).cloned().collect();
    if names.is_empty() {
        return error(StatusCode::NOT_FOUND, "NAME_UNKNOWN", "repository name not known to registry");
    }
    reply(StatusCode::OK).body(Body::from(serde_json::json!({"name": repository, "tags": names}).to_string())).unwrap()
}

fn referrers(contents: &Contents, repository: &str, (subject, query): (&str, &str)) -> Response<Body> {
    let mut found = Vec::new();
    for ((other, name), (media_type, bytes)) in &contents.manifests {
        let json: serde_json::Value = serde_json::from_slice(bytes).unwrap_or_default();
        if other == repository && name.starts_with("sha256:") && json["subject"]["digest"] == subject {
            found.push(serde_json::json!({"mediaType": media_type, "digest": name, "size": bytes.len(), "artifactType": json["artifactType"]}));
            if let (Some(entry), false) =
                (found.last_mut(), contents.faults.hide_annotations || json["annotations"].is_null())
            {
                entry["annotations"] = json["annotations"].clone();
            }
        }
    }
    let from: usize = query.split("from=").nth(1).and_then(|from| from.parse().ok()).unwrap_or_default();
    let page_size = contents.faults.referrers_per_page.unwrap_or(usize::MAX);
    let is_last = found.len().saturating_sub(from) <= page_size;
    let found: Vec<_> = found.into_iter().skip(from).take(page_size).collect();
    let index = serde_json::json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": found});
    let reply = reply(StatusCode::OK);
    let reply = match is_last {
        true => reply,
        false => reply
            .header("link", format!("</v2/{repository}/referrers/{subject}?from={}>; rel=\"next\"", from + page_size)),
    };
    reply.body(Body::from(index.to_string())).unwrap()
}

fn refused(faults: &Faults, authorization: &str, address: SocketAddr) -> Option<Response<Body>> {
    let (user, password) = faults.login.as_ref()?;
    if faults.tokens {
        let realm = faults.realm.clone().unwrap_or_else(|| format!("http://{address}/token"));
        let challenge = format!(r#"Bearer realm="{realm}",service="test""#);
        return (authorization != "Bearer a-token").then(|| unauthorized(&challenge));
    }
    (authorization != basic(user, password)).then(|| unauthorized(r#"Basic realm="test""#))
}

fn unauthorized(challenge: &str) -> Response<Body> {
    let json = r#"{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}"#;
    reply(StatusCode::UNAUTHORIZED).header("www-authenticate", challenge).body(Body::from(json)).unwrap()
}

fn token(faults: &Faults, authorization: &str, query: &str) -> Response<Body> {
    let is_authorised = faults.login.as_ref().is_some_and(|(user, password)| authorization == basic(user, password));
    if !is_authorised || !query.contains("service=test") || !query.contains("scope=repository%3A") {
        return status(StatusCode::UNAUTHORIZED);
    }
    reply(StatusCode::OK).body(Body::from(r#"{"token":"a-token","expires_in":60}"#)).unwrap()
}

fn basic(user: &str, password: &str) -> String {
    use base64::Engine;
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}")))
}

fn reply(status: StatusCode) -> axum::http::response::Builder {
    Response::builder().status(status)
}

fn status(status: StatusCode) -> Response<Body> {
    reply(status).body(Body::empty()).unwrap()
}

fn error(status: StatusCode, code: &str, message: &str) -> Response<Body> {
    let json = serde_json::json!({"errors": [{"code": code, "message": message}]});
    reply(status).body(Body::from(json.to_string())).unwrap()
}
