//! HTTP requests with limits on size and time, which follow only safe redirects.

use crate::error::{RegistryError, display_text};
use crate::network_scope::{NetworkScope, ScopedResolver, scope_in_url, scope_of_server};
use crate::origin::OriginCredential;
use crate::reference::is_loopback;
use crate::retry::{Attempts, Listener, RetryPolicy, retry_after, status_reason};
use agent_core::redaction::Redaction;
use bytes::Bytes;
use futures::StreamExt;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_RANGE, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, RANGE};
use reqwest::{Client, Method, Response, StatusCode, redirect};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use url::Url;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time between two parts of an answer.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time for a small answer.
const SMALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time for a component.
const LARGE_TIMEOUT: Duration = Duration::from_secs(30 * 60);
const MAX_REDIRECTS: usize = 5;
/// Maximum size of an error answer that is read.
const MAX_ERROR_BYTES: u64 = 64 * 1024;

/// Whether requests without TLS may go to other machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlainHttp {
    /// No; only to this machine.
    #[default]
    LoopbackOnly,
    /// Yes, because the user allowed it.
    Allowed,
}

/// The HTTP client. It is cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    client: Client,
    /// For servers on this machine, without a proxy.
    near: Client,
    /// For redirects by public servers, and by servers in a private network. Each resolves names only to addresses that such a
    /// server could reach itself. They are built when they are first needed.
    redirected: Arc<[OnceLock<Client>; 2]>,
    plain: PlainHttp,
    pub(crate) listener: Listener,
}

/// Through which origins an answer was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The answer comes from the requested origin, and no redirect led to another one.
    SameOrigin,
    /// A redirect led to another origin, even if a further redirect led back.
    OtherOrigin,
}

/// One HTTP request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) url: Url,
    /// Body and media type.
    pub(crate) body: Option<(Bytes, String)>,
    pub(crate) accept: String,
    /// Offset at which the answer should start.
    pub(crate) from: u64,
    pub(crate) credential: Option<OriginCredential>,
    /// A secret in the request apart from the credential.
    pub(crate) secret: Option<String>,
    /// Network scope of the server that named this URL. `None` if a person named it.
    pub(crate) named_by: Option<NetworkScope>,
    pub(crate) retry_policy: RetryPolicy,
}

/// Secrets that were sent and must not be shown, even if the server returns them.
#[derive(Clone)]
struct Secrets(Vec<String>);

/// Shortest secret that is removed from a server's messages. Shorter ones would match ordinary words.
const SHORTEST_SECRET: usize = 3;

impl Request {
    pub(crate) fn new(method: Method, url: Url) -> Self {
        let retry_policy = if method == Method::POST { RetryPolicy::IfNotProcessed } else { RetryPolicy::Always };
        let accept = "*/*".to_owned();
        Self { method, url, body: None, accept, from: 0, credential: None, secret: None, named_by: None, retry_policy }
    }

    fn secrets(&self) -> Secrets {
        let of_credential = self.credential.iter().flat_map(OriginCredential::secrets);
        Secrets(self.secret.iter().cloned().chain(of_credential).collect())
    }

    pub(crate) fn get(url: Url) -> Self {
        Self::new(Method::GET, url)
    }

    pub(crate) fn accepting(self, accept: &str) -> Self {
        Self { accept: accept.to_owned(), ..self }
    }

    pub(crate) fn with_body(self, body: impl Into<Bytes>, media_type: &str) -> Self {
        Self { body: Some((body.into(), media_type.to_owned())), ..self }
    }
}

impl Http {
    pub(crate) fn new(plain: PlainHttp) -> Result<Self, RegistryError> {
        // An error means that the process already has a provider, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let tls = |error: reqwest::Error| RegistryError::Tls(error.to_string());
        // Plain HTTP verifies no certificates, and many containers have none that could be loaded.
        let near = builder().no_proxy().tls_certs_only([]).build().map_err(tls)?;
        // Without certificates, servers on this machine still work; other requests report the problem.
        let client = builder().build().map_err(tls).unwrap_or_else(|_| near.clone());
        Ok(Self { client, near, redirected: Arc::default(), plain, listener: Listener::default() })
    }

    /// `http` for this machine or if the user allowed it, otherwise `https`.
    pub(crate) fn scheme(&self, host: &str) -> &'static str {
        if is_loopback(host) || self.plain == PlainHttp::Allowed { "http" } else { "https" }
    }

    /// Sends a request, and retries it if that may help (see [`crate::retry`]).
    pub(crate) async fn send(&self, request: Request, place: &str) -> Result<Response, RegistryError> {
        let mut attempts = Attempts::new(&self.listener, place);
        loop {
            match self.follow(request.clone(), place).await {
                Ok(response) if request.retry_policy.allows(response.status()) => {
                    if !attempts.wait(status_reason(&response), retry_after(response.headers())).await {
                        return Ok(response);
                    }
                }
                Err(RegistryError::Interrupted { reason, .. }) if request.retry_policy == RetryPolicy::Always => {
                    if !attempts.wait(reason.clone(), None).await {
                        return Err(RegistryError::Interrupted { place: place.to_owned(), reason });
                    }
                }
                other => return other,
            }
        }
    }

    /// Sends a request and follows redirects: never from TLS to plain HTTP, never to an address that the redirecting server
    /// could not reach itself, and never with a credential once another origin was involved (row 42). The answer carries its
    /// [`Route`].
    async fn follow(&self, mut request: Request, place: &str) -> Result<Response, RegistryError> {
        let secrets = request.secrets();
        let (first, mut route) = (request.url.origin(), Route::SameOrigin);
        for _ in 0..=MAX_REDIRECTS {
            self.check(&request.url, place)?;
            // Sending a body takes time; an answer must start soon.
            let timeout = if request.body.is_some() { LARGE_TIMEOUT } else { STALL_TIMEOUT };
            let sent = tokio::time::timeout(timeout, self.once(&request)).await;
            let sent = sent.map_err(|_| RegistryError::Unreachable {
                place: place.to_owned(),
                reason: "the server does not answer in time".to_owned(),
            })?;
            let mut response = sent.map_err(|error| send_error(&error, place))?;
            let status = response.status();
            if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
                response.extensions_mut().insert(secrets);
                response.extensions_mut().insert(route);
                return Ok(response);
            }
            request = follow_redirect(request, &response, place).await?;
            if request.url.origin() != first {
                route = Route::OtherOrigin;
            }
            if route == Route::OtherOrigin {
                request.credential = None;
            }
        }
        let message = format!("the server redirects more than {MAX_REDIRECTS} times");
        Err(RegistryError::Server { place: place.to_owned(), message })
    }

    /// Chooses the client: names in a URL that a server named are resolved only within that server's network scope.
    fn client(&self, request: &Request) -> Result<&Client, reqwest::Error> {
        let host = request.url.host_str().unwrap_or_default();
        let (slot, most) = match request.named_by {
            _ if request.url.scheme() == "http" && is_loopback(host) => return Ok(&self.near),
            None | Some(NetworkScope::ThisMachine) => return Ok(&self.client),
            Some(NetworkScope::Public) => (&self.redirected[0], NetworkScope::Public),
            Some(NetworkScope::PrivateNetwork) => (&self.redirected[1], NetworkScope::PrivateNetwork),
        };
        match slot.get() {
            Some(client) => Ok(client),
            None => {
                let client = builder().dns_resolver(Arc::new(ScopedResolver(most))).build()?;
                Ok(slot.get_or_init(|| client))
            }
        }
    }

    async fn once(&self, request: &Request) -> Result<Response, reqwest::Error> {
        let client = self.client(request)?;
        let mut headers = HeaderMap::new();
        let mut add = |name, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        add(ACCEPT, &request.accept);
        if request.from > 0 {
            add(RANGE, &format!("bytes={}-", request.from));
        }
        if let Some((_, media_type)) = &request.body {
            add(CONTENT_TYPE, media_type);
        }
        let authorization =
            request.credential.as_ref().and_then(|credential| credential.authorization_for(&request.url));
        if let Some(Ok(mut value)) = authorization.map(HeaderValue::from_str) {
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let mut building = client.request(request.method.clone(), request.url.clone()).headers(headers);
        if let Some((body, _)) = &request.body {
            building = building.body(body.clone());
        }
        building.send().await
    }

    /// Checks that a request may go to this URL: with TLS, or to this machine, or because the user allowed plain HTTP.
    pub(crate) fn check(&self, url: &Url, place: &str) -> Result<(), RegistryError> {
        let host = url.host_str().unwrap_or_default();
        let message = |message: String| Err(RegistryError::Server { place: place.to_owned(), message });
        match url.scheme() {
            "https" => Ok(()),
            "http" if is_loopback(host) || self.plain == PlainHttp::Allowed => Ok(()),
            "http" => message(format!(
                "`http://{host}` does not use TLS, so anybody on the network could change the data; --plain-http allows it"
            )),
            scheme => message(format!("`{}:` is not a web address and does not use TLS", display_text(scheme))),
        }
    }
}

fn builder() -> reqwest::ClientBuilder {
    Client::builder()
        .user_agent(concat!("agent-host/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
        .referer(false)
        .connect_timeout(CONNECT_TIMEOUT)
}

async fn follow_redirect(request: Request, response: &Response, place: &str) -> Result<Request, RegistryError> {
    let message = |message: String| RegistryError::Server { place: place.to_owned(), message };
    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    let url = location.and_then(|location| request.url.join(location).ok());
    let url =
        url.ok_or_else(|| message(format!("the server redirects ({}) without a valid address", response.status())))?;
    let named_by = scope_of_server(&request.url).await;
    check_redirect_target((&request.url, named_by), &url).map_err(|why| {
        message(format!("the server redirects to `{}`, {why}; the redirect was not followed", host_of(&url)))
    })?;
    if !matches!(request.method, Method::GET | Method::HEAD) {
        let problem = format!("the server redirects an upload to `{}`; the redirect was not followed", host_of(&url));
        return Err(message(problem));
    }
    // A chain of redirects cannot leave the network scope of its first server.
    let named_by = request.named_by.map_or(named_by, |first| first.min(named_by));
    Ok(Request { url, named_by: Some(named_by), ..request })
}

/// Returns the route of an answer. If it is unknown, the strictest one.
pub(crate) fn route(response: &Response) -> Route {
    response.extensions().get().copied().unwrap_or(Route::OtherOrigin)
}

/// Checks whether a server in this network scope may send requests from one URL to another: never from TLS to plain HTTP, and
/// never to an address that it could not reach itself. Names are checked again when they are resolved.
pub(crate) fn check_redirect_target((from, network_scope): (&Url, NetworkScope), to: &Url) -> Result<(), &'static str> {
    if !matches!(to.scheme(), "http" | "https") {
        return Err("which is not a web address and does not use TLS");
    }
    if from.scheme() == "https" && to.scheme() != "https" {
        return Err("which does not use TLS");
    }
    if !to.username().is_empty() || to.password().is_some() {
        return Err("which contains a user name or a password");
    }
    match scope_in_url(to) {
        Some(NetworkScope::ThisMachine) if network_scope < NetworkScope::ThisMachine => {
            Err("which only this machine can reach")
        }
        Some(NetworkScope::PrivateNetwork) if network_scope < NetworkScope::PrivateNetwork => {
            Err("which only a private network can reach")
        }
        _ => Ok(()),
    }
}

/// Distinguishes servers that cannot be reached from interrupted connections; only the latter are retried.
fn send_error(error: &reqwest::Error, place: &str) -> RegistryError {
    let (place, reason) = (place.to_owned(), reason(error));
    match error.is_connect() || error.is_timeout() || error.is_builder() {
        true => RegistryError::Unreachable { place, reason },
        false => RegistryError::Interrupted { place, reason },
    }
}

fn host_of(url: &Url) -> String {
    display_text(&format!("{}://{}", url.scheme(), url.host_str().unwrap_or_default()))
}

/// The innermost reason of an error.
fn reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "the server does not answer in time".to_owned();
    }
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    display_text(&innermost.to_string())
}

/// Reads the whole body, up to a maximum size.
pub(crate) async fn body(response: Response, most: u64, place: &str) -> Result<Bytes, RegistryError> {
    let too_large = |size| RegistryError::TooLarge { place: place.to_owned(), size, most };
    if let Some(length) = response.content_length().filter(|length| *length > most) {
        return Err(too_large(length));
    }
    let mut bytes = Vec::new();
    let read = read_parts(response, place, async |piece| {
        bytes.extend_from_slice(&piece);
        if bytes.len() as u64 > most { Err(too_large(bytes.len() as u64)) } else { Ok(()) }
    });
    let too_late =
        || RegistryError::Unreachable { place: place.to_owned(), reason: "the answer takes too long".to_owned() };
    tokio::time::timeout(SMALL_TIMEOUT, read).await.map_err(|_| too_late())??;
    Ok(Bytes::from(bytes))
}

/// Passes the parts of a body to `take` as they arrive.
pub(crate) async fn read_parts(
    response: Response,
    place: &str,
    mut take: impl AsyncFnMut(Bytes) -> Result<(), RegistryError>,
) -> Result<(), RegistryError> {
    let unreachable = |reason: String| RegistryError::Unreachable { place: place.to_owned(), reason };
    let read = async {
        let mut pieces = response.bytes_stream();
        loop {
            let next = tokio::time::timeout(STALL_TIMEOUT, pieces.next()).await;
            match next.map_err(|_| unreachable("the server stopped sending".to_owned()))? {
                None => return Ok(()),
                Some(piece) => take(piece.map_err(|error| send_error(&error, place))?).await?,
            }
        }
    };
    let too_late = |_| unreachable("the transfer takes more than 30 minutes".to_owned());
    tokio::time::timeout(LARGE_TIMEOUT, read).await.map_err(too_late)?
}

/// Returns the offset at which the answer starts, from `Content-Range`.
pub(crate) fn range_start(response: &Response) -> Option<u64> {
    let range = response.headers().get(CONTENT_RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split('-').next()?.trim().parse().ok()
}

/// Describes an error answer in one line: the status, the registry's own words, and when to retry. Secrets that were sent are
/// removed from it.
pub(crate) async fn error_text(response: Response) -> String {
    let status = response.status();
    let later = retry_after(response.headers()).filter(|_| RetryPolicy::IfNotProcessed.allows(status));
    let later = later.map(|wait| format!("; it asks to retry after {} s", wait.as_secs())).unwrap_or_default();
    let secrets = response.extensions().get::<Secrets>().cloned().map(|Secrets(secrets)| secrets).unwrap_or_default();
    let redaction = Redaction::new(secrets.iter().map(String::as_str));
    let text = body(response, MAX_ERROR_BYTES, "").await.unwrap_or_default();
    let json: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    let error = &json["errors"][0];
    let words = [&error["code"], &error["message"], &json["details"], &json["error"]];
    let words = words.iter().filter_map(|word| word.as_str());
    let words: Vec<_> =
        words.map(|word| display_text(&redaction.text(without_short_secrets(&secrets, word)))).collect();
    let words = if words.is_empty() { String::new() } else { format!(": {}", words.join(", ")) };
    format!("the server answered {status}{words}{later}")
}

/// Removes short secrets, which [`Redaction`] leaves because they could be ordinary words.
fn without_short_secrets(secrets: &[String], text: &str) -> String {
    let values = secrets.iter().map(|secret| secret.rsplit(' ').next().unwrap_or_default());
    values
        .filter(|value| value.len() >= SHORTEST_SECRET)
        .fold(text.to_owned(), |text, value| text.replace(value, "(secret)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rows 18 and 42: a server cannot redirect requests to addresses that it could not reach itself.
    #[test]
    fn redirects_do_not_lead_to_private_addresses() {
        let is_allowed = |from: &str, to: &str| {
            let (from, to) = (Url::parse(from).expect(from), Url::parse(to).expect(to));
            check_redirect_target((&from, scope_in_url(&from).unwrap_or(NetworkScope::Public)), &to).is_ok()
        };
        for to in ["https://b.example/x", "https://1.1.1.1/x", "https://a.example:8443/"] {
            assert!(is_allowed("https://a.example/", to), "{to}");
        }
        assert!(is_allowed("http://127.0.0.1:5000/", "http://localhost:5001/"));
        assert!(
            is_allowed("http://10.0.0.1/", "https://a.example/")
                && is_allowed("https://10.0.0.1/", "https://10.0.0.2/")
        );
        for to in [
            "http://b.example/",
            "file:///etc/passwd",
            "ftp://b.example/",
            "data:text/plain,x",
            "https://user@b.example/",
            "https://:secret@b.example/",
            "https://10.0.0.1/x",
            "https://192.168.1.1/",
            "https://127.0.0.1/",
            "https://2130706433/",
            "https://[::ffff:127.0.0.1]/",
            "https://[::1]/",
            "https://localhost./",
            "https://a.localhost/",
            "https://0.0.0.0/",
            "https://169.254.169.254/latest",
            "https://[fe80::1]/",
        ] {
            assert!(!is_allowed("https://a.example/", to), "{to}");
        }
        assert!(!is_allowed("http://10.0.0.1/", "http://127.0.0.1:9200/"), "plain HTTP has the same limits");
    }
}
