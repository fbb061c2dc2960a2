//! Sends HTTP requests, with limits on the size and the time of responses. Only safe redirects are followed.

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
/// Maximum time to wait for the start of a response or for the next part of its body.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time to receive the body of a small response.
const SMALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time to receive a component, or to send a request with a body.
const LARGE_TIMEOUT: Duration = Duration::from_secs(30 * 60);
const MAX_REDIRECTS: usize = 5;
/// Maximum number of bytes that are read from an error response.
const MAX_ERROR_BYTES: u64 = 64 * 1024;

/// Whether requests without TLS may go to other machines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PlainHttp {
    /// Requests without TLS may go only to this machine.
    #[default]
    LoopbackOnly,
    /// Requests without TLS may go to any machine, because the user allowed it.
    Allowed,
    /// Requests without TLS may also go to these hosts, such as `registry.local`, on any port.
    Hosts(Vec<String>),
}

impl PlainHttp {
    /// Whether requests without TLS may go to this host, which may have a port.
    fn allows(&self, host: &str) -> bool {
        match self {
            PlainHttp::LoopbackOnly => is_loopback(host),
            PlainHttp::Allowed => true,
            PlainHttp::Hosts(hosts) => {
                let name = |host: &str| Url::parse(&format!("http://{host}")).ok()?.host_str().map(str::to_owned);
                is_loopback(host)
                    || name(host).is_some_and(|host| hosts.iter().any(|allowed| name(allowed) == Some(host.clone())))
            }
        }
    }
}

/// An HTTP client. Cloning the client is cheap.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    client: Client,
    /// Client that connects to servers on this machine without a proxy.
    loopback_client: Client,
    /// Two clients for redirects: the first client follows redirects from public servers, and the second client follows
    /// redirects from servers in a private network. Each client resolves names only to addresses that the redirecting
    /// server could reach itself. A client is built when it is first needed.
    redirect_clients: Arc<[OnceLock<Client>; 2]>,
    plain_http: PlainHttp,
    pub(crate) listener: Listener,
}

/// Whether a redirect led a request to another origin before the response was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The response comes from the requested origin, and no redirect led to another origin.
    SameOrigin,
    /// A redirect led to another origin, even if a later redirect led back to the requested origin.
    OtherOrigin,
}

/// An HTTP request that can be sent several times.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) url: Url,
    /// Body of the request, and the media type of the body.
    pub(crate) body: Option<(Bytes, String)>,
    pub(crate) accept: String,
    /// Offset in bytes at which the response should start.
    pub(crate) offset: u64,
    pub(crate) credential: Option<OriginCredential>,
    /// A secret in the request other than the credential, such as a refresh token. The secret is removed from
    /// error messages.
    pub(crate) secret: Option<String>,
    /// Network scope of the server that provided `url`. `None` if the user provided `url`.
    pub(crate) named_by: Option<NetworkScope>,
    pub(crate) retry_policy: RetryPolicy,
}

/// Secrets that were sent to a server. These secrets must not be displayed, even if the server returns them.
#[derive(Clone)]
struct Secrets(Vec<String>);

/// Minimum length of a secret that is removed from a server's messages. Shorter secrets could be parts of
/// ordinary words.
const MIN_SECRET_LENGTH: usize = 3;

impl Request {
    pub(crate) fn new(method: Method, url: Url) -> Self {
        let retry_policy = if method == Method::POST { RetryPolicy::IfNotProcessed } else { RetryPolicy::Always };
        let accept = "*/*".to_owned();
        Self {
            method,
            url,
            body: None,
            accept,
            offset: 0,
            credential: None,
            secret: None,
            named_by: None,
            retry_policy,
        }
    }

    fn secrets(&self) -> Secrets {
        let credential_secrets = self.credential.iter().flat_map(OriginCredential::secrets);
        Secrets(self.secret.iter().cloned().chain(credential_secrets).collect())
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
    pub(crate) fn new(plain_http: PlainHttp) -> Result<Self, RegistryError> {
        // If the process already has a default cryptography provider, this call returns an error, which can be ignored.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let tls = |error: reqwest::Error| RegistryError::Tls(error.to_string());
        // Do not load certificates, because plain HTTP does not need them and many containers contain none.
        let loopback_client = builder().no_proxy().tls_certs_only([]).build().map_err(tls)?;
        // If the certificates cannot be loaded, requests to this machine still work, and other requests report the
        // problem.
        let client = builder().build().map_err(tls).unwrap_or_else(|_| loopback_client.clone());
        Ok(Self {
            client,
            loopback_client,
            redirect_clients: Arc::default(),
            plain_http,
            listener: Listener::default(),
        })
    }

    /// Returns the URL scheme for a host. The scheme is `http` if the host is this machine or if the user allowed
    /// plain HTTP; otherwise it is `https`.
    pub(crate) fn scheme(&self, host: &str) -> &'static str {
        if self.plain_http.allows(host) { "http" } else { "https" }
    }

    /// Sends a request, and retries it if a retry may succeed (see [`crate::retry`]).
    pub(crate) async fn send(&self, request: Request, place: &str) -> Result<Response, RegistryError> {
        let mut attempts = Attempts::new(&self.listener, place);
        loop {
            match self.send_following_redirects(request.clone(), place).await {
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

    /// Sends a request and follows redirects. A redirect is never followed from TLS to plain HTTP, or to an address
    /// that the redirecting server could not reach itself. After a redirect to another origin, no credential is sent
    /// (row 42). The response contains its [`Route`] as an extension.
    async fn send_following_redirects(&self, mut request: Request, place: &str) -> Result<Response, RegistryError> {
        let secrets = request.secrets();
        let (first_origin, mut route) = (request.url.origin(), Route::SameOrigin);
        for _ in 0..=MAX_REDIRECTS {
            self.check(&request.url, place)?;
            // A request with a body gets more time, because sending the body takes time.
            let timeout = if request.body.is_some() { LARGE_TIMEOUT } else { STALL_TIMEOUT };
            let sent = tokio::time::timeout(timeout, self.send_once(&request)).await;
            let sent = sent.map_err(|_| RegistryError::Unreachable {
                place: place.to_owned(),
                reason: "the server did not respond in time".to_owned(),
            })?;
            let mut response = sent.map_err(|error| send_error(&error, place))?;
            let status = response.status();
            if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
                response.extensions_mut().insert(secrets);
                response.extensions_mut().insert(route);
                return Ok(response);
            }
            request = follow_redirect(request, &response, place).await?;
            if request.url.origin() != first_origin {
                route = Route::OtherOrigin;
            }
            if route == Route::OtherOrigin {
                request.credential = None;
            }
        }
        let message = format!("the server redirects more than {MAX_REDIRECTS} times");
        Err(RegistryError::Server { place: place.to_owned(), message })
    }

    /// Chooses the client for a request. If a server provided the URL, its host name is resolved only within the
    /// network scope of that server.
    fn client(&self, request: &Request) -> Result<&Client, reqwest::Error> {
        let host = request.url.host_str().unwrap_or_default();
        let (slot, scope) = match request.named_by {
            _ if request.url.scheme() == "http" && is_loopback(host) => return Ok(&self.loopback_client),
            None | Some(NetworkScope::ThisMachine) => return Ok(&self.client),
            Some(NetworkScope::Public) => (&self.redirect_clients[0], NetworkScope::Public),
            Some(NetworkScope::PrivateNetwork) => (&self.redirect_clients[1], NetworkScope::PrivateNetwork),
        };
        match slot.get() {
            Some(client) => Ok(client),
            None => {
                let client = builder().dns_resolver(Arc::new(ScopedResolver(scope))).build()?;
                Ok(slot.get_or_init(|| client))
            }
        }
    }

    async fn send_once(&self, request: &Request) -> Result<Response, reqwest::Error> {
        let client = self.client(request)?;
        let mut headers = HeaderMap::new();
        let mut add = |name, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        add(ACCEPT, &request.accept);
        if request.offset > 0 {
            add(RANGE, &format!("bytes={}-", request.offset));
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

    /// Checks that a request may be sent to this URL. If the URL does not use TLS, it must refer to this machine,
    /// unless the user allowed plain HTTP.
    pub(crate) fn check(&self, url: &Url, place: &str) -> Result<(), RegistryError> {
        let host = url.host_str().unwrap_or_default();
        let message = |message: String| Err(RegistryError::Server { place: place.to_owned(), message });
        match url.scheme() {
            "https" => Ok(()),
            "http" if self.plain_http.allows(host) => Ok(()),
            "http" => message(format!(
                "`http://{host}` does not use TLS, so anybody on the network could change the data; use --plain-http to \
                 allow this"
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
    // Keep the scope that allows fewer addresses, so that a chain of redirects cannot reach addresses that the first
    // server in the chain could not reach.
    let named_by = request.named_by.map_or(named_by, |first| first.min(named_by));
    Ok(Request { url, named_by: Some(named_by), ..request })
}

/// Returns the route of a response, which states whether a redirect led to another origin. If the route is unknown,
/// returns [`Route::OtherOrigin`], because fewer operations are allowed for this route.
pub(crate) fn route(response: &Response) -> Route {
    response.extensions().get().copied().unwrap_or(Route::OtherOrigin)
}

/// Checks whether a server in this network scope may redirect requests from one URL to another. The server must not
/// redirect from TLS to plain HTTP, or to an address that it could not reach itself. This function does not resolve
/// host names. The addresses of a host name are checked when the next request resolves the name.
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

/// Converts an error that occurred while a request was sent. The returned error distinguishes a server that cannot be
/// reached from an interrupted connection, because a request is retried only if the connection was interrupted.
fn send_error(error: &reqwest::Error, place: &str) -> RegistryError {
    let (place, reason) = (place.to_owned(), innermost_reason(error));
    match error.is_connect() || error.is_timeout() || error.is_builder() {
        true => RegistryError::Unreachable { place, reason },
        false => RegistryError::Interrupted { place, reason },
    }
}

fn host_of(url: &Url) -> String {
    display_text(&format!("{}://{}", url.scheme(), url.host_str().unwrap_or_default()))
}

/// Returns the innermost cause of an error as text.
fn innermost_reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "the server did not respond in time".to_owned();
    }
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    display_text(&innermost.to_string())
}

/// Reads the whole body of a response, up to a maximum size.
pub(crate) async fn read_body(response: Response, max_bytes: u64, place: &str) -> Result<Bytes, RegistryError> {
    let too_large = |size| RegistryError::TooLarge { place: place.to_owned(), size, limit: max_bytes };
    if let Some(length) = response.content_length().filter(|length| *length > max_bytes) {
        return Err(too_large(length));
    }
    let mut bytes = Vec::new();
    let read = read_parts(response, place, |piece| {
        bytes.extend_from_slice(&piece);
        if bytes.len() as u64 > max_bytes { Err(too_large(bytes.len() as u64)) } else { Ok(()) }
    });
    let too_late =
        || RegistryError::Unreachable { place: place.to_owned(), reason: "the response takes too long".to_owned() };
    tokio::time::timeout(SMALL_TIMEOUT, read).await.map_err(|_| too_late())??;
    Ok(Bytes::from(bytes))
}

/// Passes each part of a body to `take` when it is received.
pub(crate) async fn read_parts(
    response: Response,
    place: &str,
    mut take: impl FnMut(Bytes) -> Result<(), RegistryError>,
) -> Result<(), RegistryError> {
    let unreachable = |reason: String| RegistryError::Unreachable { place: place.to_owned(), reason };
    let read = async {
        let mut pieces = response.bytes_stream();
        loop {
            let next = tokio::time::timeout(STALL_TIMEOUT, pieces.next()).await;
            match next.map_err(|_| unreachable("the server stopped sending data".to_owned()))? {
                None => return Ok(()),
                Some(piece) => take(piece.map_err(|error| send_error(&error, place))?)?,
            }
        }
    };
    let too_late = |_| unreachable("the transfer takes more than 30 minutes".to_owned());
    tokio::time::timeout(LARGE_TIMEOUT, read).await.map_err(too_late)?
}

/// Reads the `Content-Range` header of the response, and returns the offset at which the response starts.
pub(crate) fn range_start(response: &Response) -> Option<u64> {
    let range = response.headers().get(CONTENT_RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split('-').next()?.trim().parse().ok()
}

/// Describes an error response in one line: the status, the registry's messages, and the time that the registry asks
/// clients to wait before a retry. Secrets that the request contained are removed from the messages.
pub(crate) async fn error_text(response: Response) -> String {
    let status = response.status();
    let later = retry_after(response.headers()).filter(|_| RetryPolicy::IfNotProcessed.allows(status));
    let later = later.map(|wait| format!("; it asks to retry after {} s", wait.as_secs())).unwrap_or_default();
    let secrets = response.extensions().get::<Secrets>().cloned().map(|Secrets(secrets)| secrets).unwrap_or_default();
    let redaction = Redaction::new(secrets.iter().map(String::as_str));
    let text = read_body(response, MAX_ERROR_BYTES, "").await.unwrap_or_default();
    let json: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    let error = &json["errors"][0];
    let messages = [&error["code"], &error["message"], &json["details"], &json["error"]];
    let messages = messages.iter().filter_map(|message| message.as_str());
    let messages: Vec<_> =
        messages.map(|message| display_text(&redaction.text(without_short_secrets(&secrets, message)))).collect();
    let messages = if messages.is_empty() { String::new() } else { format!(": {}", messages.join(", ")) };
    format!("the server answered {status}{messages}{later}")
}

/// Removes all secrets of at least [`MIN_SECRET_LENGTH`] bytes from a text. [`Redaction`] does not remove
/// short secrets.
fn without_short_secrets(secrets: &[String], text: &str) -> String {
    let values = secrets.iter().map(|secret| secret.rsplit(' ').next().unwrap_or_default());
    values
        .filter(|value| value.len() >= MIN_SECRET_LENGTH)
        .fold(text.to_owned(), |text, value| text.replace(value, "(secret)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_allowed_for_single_hosts() {
        let plain = PlainHttp::Hosts(vec!["registry.local".to_owned(), "[fd00::1]".to_owned()]);
        for host in ["registry.local", "REGISTRY.local:5000", "[fd00::1]:5000", "127.0.0.1:5000", "localhost"] {
            assert!(plain.allows(host), "{host}");
        }
        for host in
            ["evil.example", "registry.local.evil.example", "x.registry.local", "registry.local@evil.example", ""]
        {
            assert!(!plain.allows(host), "{host}");
        }
        assert!(PlainHttp::Allowed.allows("evil.example") && !PlainHttp::LoopbackOnly.allows("registry.local"));
    }

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
