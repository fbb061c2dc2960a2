//! Requests that are bounded in size and time, and follow redirects only where those may lead.

use crate::again::{Listener, Repeat, Tries, asked_for, told};
use crate::error::{ShareError, shown};
use crate::origin::OriginCredential;
use crate::reach::{Reach, Within, of_server, written};
use crate::reference::is_loopback;
use agent_core::redaction::Redaction;
use bytes::Bytes;
use futures::StreamExt;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_RANGE, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, RANGE};
use reqwest::{Client, Method, Response, StatusCode, redirect};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use url::Url;

const CONNECT: Duration = Duration::from_secs(10);
/// Between two pieces of an answer.
const STALL: Duration = Duration::from_secs(30);
/// One small answer as a whole.
const SMALL: Duration = Duration::from_secs(60);
/// One component as a whole.
const LARGE: Duration = Duration::from_secs(30 * 60);
const REDIRECTS: usize = 5;
/// Of an error that a server explains.
const EXPLANATION: u64 = 64 * 1024;

/// Whether requests may go without TLS to other machines than this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlainHttp {
    /// To none.
    #[default]
    LoopbackOnly,
    /// Somebody asked for it.
    Allowed,
}

/// The client. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    client: Client,
    /// For this machine's own servers, which are asked without a proxy.
    near: Client,
    /// For redirects of servers that everybody can reach, and of those in a private network: each resolves names to what such a
    /// server could reach itself. They are made when they are first needed.
    redirected: Arc<[OnceLock<Client>; 2]>,
    plain: PlainHttp,
    pub(crate) listener: Listener,
}

/// How an answer was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// It is of the origin that was asked, and no redirect has led through another one.
    SameOrigin,
    /// A redirect has led to another origin, also where a further one led back.
    OtherOrigin,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) url: Url,
    /// What is sent with it, and its media type.
    pub(crate) body: Option<(Bytes, String)>,
    pub(crate) accept: String,
    /// Where the answer shall begin.
    pub(crate) from: u64,
    pub(crate) credential: Option<OriginCredential>,
    /// What else of it is secret, beside the credential.
    pub(crate) secret: Option<String>,
    /// What the server could reach itself that has named this URL. None: a person has named it.
    pub(crate) led_by: Option<Reach>,
    pub(crate) repeat: Repeat,
}

/// What was sent and must not be shown, also where the server sends it back.
#[derive(Clone)]
struct Secrets(Vec<String>);

/// Characters of the shortest password or token that is taken out of a registry's words.
const SHORTEST_LOGIN: usize = 3;

impl Request {
    pub(crate) fn new(method: Method, url: Url) -> Self {
        let repeat = if method == Method::POST { Repeat::IfRefused } else { Repeat::Always };
        let accept = "*/*".to_owned();
        Self { method, url, body: None, accept, from: 0, credential: None, secret: None, led_by: None, repeat }
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
    pub(crate) fn new(plain: PlainHttp) -> Result<Self, ShareError> {
        // An error means that the process has one already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let tls = |error: reqwest::Error| ShareError::Tls(error.to_string());
        // Nothing is verified without TLS, and there may be no certificates to load: containers often have none.
        let near = builder().no_proxy().tls_certs_only([]).build().map_err(tls)?;
        // Without certificates the near ones still work; what needs them says so.
        let client = builder().build().map_err(tls).unwrap_or_else(|_| near.clone());
        Ok(Self { client, near, redirected: Arc::default(), plain, listener: Listener::default() })
    }

    /// `http` for this machine, and where it was asked for; else `https`.
    pub(crate) fn scheme(&self, host: &str) -> &'static str {
        if is_loopback(host) || self.plain == PlainHttp::Allowed { "http" } else { "https" }
    }

    /// Asks, and asks again where that may help (see [`crate::again`]).
    pub(crate) async fn send(&self, request: Request, place: &str) -> Result<Response, ShareError> {
        let mut tries = Tries::new(&self.listener, place);
        loop {
            match self.follow(request.clone(), place).await {
                Ok(response) if request.repeat.after(response.status()) => {
                    if !tries.wait(told(&response), asked_for(response.headers())).await {
                        return Ok(response);
                    }
                }
                Err(ShareError::Cut { reason, .. }) if request.repeat == Repeat::Always => {
                    if !tries.wait(reason.clone(), None).await {
                        return Err(ShareError::Cut { place: place.to_owned(), reason });
                    }
                }
                other => return other,
            }
        }
    }

    /// Asks, and follows redirects: never from TLS to none, never to what the redirecting server could not reach itself, and
    /// never with a credential once another origin was involved (row 42). The answer carries its [`Route`].
    async fn follow(&self, mut request: Request, place: &str) -> Result<Response, ShareError> {
        let secrets = request.secrets();
        let (first, mut route) = (request.url.origin(), Route::SameOrigin);
        for _ in 0..=REDIRECTS {
            self.check(&request.url, place)?;
            // What is sent takes its time; an answer begins soon.
            let patience = if request.body.is_some() { LARGE } else { STALL };
            let sent = tokio::time::timeout(patience, self.once(&request)).await;
            let sent = sent.map_err(|_| ShareError::Unreachable {
                place: place.to_owned(),
                reason: "it does not answer in time".to_owned(),
            })?;
            let mut response = sent.map_err(|error| unsent(&error, place))?;
            let status = response.status();
            if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
                response.extensions_mut().insert(secrets);
                response.extensions_mut().insert(route);
                return Ok(response);
            }
            request = redirected(request, &response, place).await?;
            if request.url.origin() != first {
                route = Route::OtherOrigin;
            }
            if route == Route::OtherOrigin {
                request.credential = None;
            }
        }
        Err(ShareError::Server { place: place.to_owned(), said: format!("it redirects more than {REDIRECTS} times") })
    }

    /// The client for a request: a name that a server has led to is resolved within what that server could reach.
    fn client(&self, request: &Request) -> Result<&Client, reqwest::Error> {
        let host = request.url.host_str().unwrap_or_default();
        let (slot, most) = match request.led_by {
            _ if request.url.scheme() == "http" && is_loopback(host) => return Ok(&self.near),
            None | Some(Reach::ThisMachine) => return Ok(&self.client),
            Some(Reach::Public) => (&self.redirected[0], Reach::Public),
            Some(Reach::PrivateNetwork) => (&self.redirected[1], Reach::PrivateNetwork),
        };
        match slot.get() {
            Some(client) => Ok(client),
            None => {
                let client = builder().dns_resolver(Arc::new(Within(most))).build()?;
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

    /// Whether a request may go to this URL: with TLS, or to this machine, or because a person has asked for it.
    pub(crate) fn check(&self, url: &Url, place: &str) -> Result<(), ShareError> {
        let host = url.host_str().unwrap_or_default();
        let said = |said: String| Err(ShareError::Server { place: place.to_owned(), said });
        match url.scheme() {
            "https" => Ok(()),
            "http" if is_loopback(host) || self.plain == PlainHttp::Allowed => Ok(()),
            "http" => said(format!(
                "`http://{host}` has no TLS, so that anybody on the way could change what comes; --plain-http allows that"
            )),
            scheme => said(format!("`{}:` is no address of the web, and has no TLS", shown(scheme))),
        }
    }
}

fn builder() -> reqwest::ClientBuilder {
    Client::builder()
        .user_agent(concat!("agent-host/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
        .referer(false)
        .connect_timeout(CONNECT)
}

async fn redirected(request: Request, response: &Response, place: &str) -> Result<Request, ShareError> {
    let said = |said: String| ShareError::Server { place: place.to_owned(), said };
    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    let url = location.and_then(|location| request.url.join(location).ok());
    let url = url.ok_or_else(|| said(format!("it redirects ({}) to nowhere", response.status())))?;
    let led_by = of_server(&request.url).await;
    may_lead((&request.url, led_by), &url)
        .map_err(|why| said(format!("it redirects to `{}`, {why}; it is not followed", host_of(&url))))?;
    if !matches!(request.method, Method::GET | Method::HEAD) {
        return Err(said(format!("it redirects what is sent to `{}`; it is not followed", host_of(&url))));
    }
    // A chain of redirects reaches no further than its first server.
    let led_by = request.led_by.map_or(led_by, |first| first.min(led_by));
    Ok(Request { url, led_by: Some(led_by), ..request })
}

/// How an answer was reached. Where nothing is known, nothing is allowed.
pub(crate) fn route(response: &Response) -> Route {
    response.extensions().get().copied().unwrap_or(Route::OtherOrigin)
}

/// Whether a server, which has this reach, may send us from one address to another: never from TLS to none, and never to what it
/// could not reach itself. A name is checked again when it is resolved.
pub(crate) fn may_lead((from, reach): (&Url, Reach), to: &Url) -> Result<(), &'static str> {
    if !matches!(to.scheme(), "http" | "https") {
        return Err("which is no address of the web, and has no TLS");
    }
    if from.scheme() == "https" && to.scheme() != "https" {
        return Err("which has no TLS");
    }
    if !to.username().is_empty() || to.password().is_some() {
        return Err("which has a user or a password in it");
    }
    match written(to) {
        Some(Reach::ThisMachine) if reach < Reach::ThisMachine => Err("which only this machine can reach"),
        Some(Reach::PrivateNetwork) if reach < Reach::PrivateNetwork => Err("which only an inner network can reach"),
        _ => Ok(()),
    }
}

/// Nobody is there, or somebody was and is no more: only that is worth another try.
fn unsent(error: &reqwest::Error, place: &str) -> ShareError {
    let (place, reason) = (place.to_owned(), reason(error));
    match error.is_connect() || error.is_timeout() || error.is_builder() {
        true => ShareError::Unreachable { place, reason },
        false => ShareError::Cut { place, reason },
    }
}

fn host_of(url: &Url) -> String {
    shown(&format!("{}://{}", url.scheme(), url.host_str().unwrap_or_default()))
}

/// Why it could not be sent, from the innermost reason.
fn reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "it does not answer in time".to_owned();
    }
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    shown(&innermost.to_string())
}

/// The whole body, if it is not larger than it may be.
pub(crate) async fn body(response: Response, most: u64, place: &str) -> Result<Bytes, ShareError> {
    let too_large = |size| ShareError::TooLarge { place: place.to_owned(), size, most };
    if let Some(length) = response.content_length().filter(|length| *length > most) {
        return Err(too_large(length));
    }
    let mut bytes = Vec::new();
    let read = pieces(response, place, async |piece| {
        bytes.extend_from_slice(&piece);
        if bytes.len() as u64 > most { Err(too_large(bytes.len() as u64)) } else { Ok(()) }
    });
    let late = || ShareError::Unreachable { place: place.to_owned(), reason: "its answer takes too long".to_owned() };
    tokio::time::timeout(SMALL, read).await.map_err(|_| late())??;
    Ok(Bytes::from(bytes))
}

/// The pieces of a body, one after the other, for who counts them.
pub(crate) async fn pieces(
    response: Response,
    place: &str,
    mut take: impl AsyncFnMut(Bytes) -> Result<(), ShareError>,
) -> Result<(), ShareError> {
    let unreachable = |reason: String| ShareError::Unreachable { place: place.to_owned(), reason };
    let read = async {
        let mut pieces = response.bytes_stream();
        loop {
            let next = tokio::time::timeout(STALL, pieces.next()).await;
            match next.map_err(|_| unreachable("it has stopped answering".to_owned()))? {
                None => return Ok(()),
                Some(piece) => take(piece.map_err(|error| unsent(&error, place))?).await?,
            }
        }
    };
    tokio::time::timeout(LARGE, read).await.map_err(|_| unreachable("it takes more than 30 minutes".to_owned()))?
}

/// Where the answer begins, as `Content-Range` says.
pub(crate) fn begins_at(response: &Response) -> Option<u64> {
    let range = response.headers().get(CONTENT_RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split('-').next()?.trim().parse().ok()
}

/// What a server says of an error, in one line: the registry's own words where there are some, and nothing of what was sent
/// to it in confidence.
pub(crate) async fn explained(response: Response) -> String {
    let status = response.status();
    let later = asked_for(response.headers()).filter(|_| Repeat::IfRefused.after(status));
    let later = later.map(|wait| format!("; it wants to be asked again in {} s", wait.as_secs())).unwrap_or_default();
    let secrets = response.extensions().get::<Secrets>().cloned().map(|Secrets(secrets)| secrets).unwrap_or_default();
    let redaction = Redaction::new(secrets.iter().map(String::as_str));
    let text = body(response, EXPLANATION, "").await.unwrap_or_default();
    let json: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    let error = &json["errors"][0];
    let words = [&error["code"], &error["message"], &json["details"], &json["error"]];
    let words = words.iter().filter_map(|word| word.as_str());
    let words: Vec<_> = words.map(|word| shown(&redaction.text(without_short(&secrets, word)))).collect();
    let words = if words.is_empty() { String::new() } else { format!(": {}", words.join(", ")) };
    format!("it answers {status}{words}{later}")
}

/// The text without those secrets that [`Redaction`] takes for words because they are short.
fn without_short(secrets: &[String], text: &str) -> String {
    let values = secrets.iter().map(|secret| secret.rsplit(' ').next().unwrap_or_default());
    values
        .filter(|value| value.len() >= SHORTEST_LOGIN)
        .fold(text.to_owned(), |text, value| text.replace(value, "(secret)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rows 18 and 42: nobody is sent through us to what only we can reach.
    #[test]
    fn servers_do_not_lead_inside() {
        let leads = |from: &str, to: &str| {
            let (from, to) = (Url::parse(from).expect(from), Url::parse(to).expect(to));
            may_lead((&from, written(&from).unwrap_or(Reach::Public)), &to).is_ok()
        };
        for to in ["https://b.example/x", "https://1.1.1.1/x", "https://a.example:8443/"] {
            assert!(leads("https://a.example/", to), "{to}");
        }
        assert!(leads("http://127.0.0.1:5000/", "http://localhost:5001/"));
        assert!(leads("http://10.0.0.1/", "https://a.example/") && leads("https://10.0.0.1/", "https://10.0.0.2/"));
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
            assert!(!leads("https://a.example/", to), "{to}");
        }
        assert!(!leads("http://10.0.0.1/", "http://127.0.0.1:9200/"), "also without TLS");
    }
}
