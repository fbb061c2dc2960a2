//! Requests that are bounded in size and time, and follow redirects only where those may lead.

use crate::error::{ShareError, shown};
use crate::reference::is_loopback;
use bytes::Bytes;
use futures::StreamExt;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_RANGE, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, RANGE};
use reqwest::{Client, Method, Response, StatusCode, redirect};
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
    plain: PlainHttp,
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
    pub(crate) authorization: Option<String>,
}

impl Request {
    pub(crate) fn new(method: Method, url: Url) -> Self {
        Self { method, url, body: None, accept: "*/*".to_owned(), from: 0, authorization: None }
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
        let builder = || {
            Client::builder()
                .user_agent(concat!("agent-host/", env!("CARGO_PKG_VERSION")))
                .redirect(redirect::Policy::none())
                .referer(false)
                .connect_timeout(CONNECT)
        };
        let tls = |error: reqwest::Error| ShareError::Tls(error.to_string());
        // Nothing is verified without TLS, and there may be no certificates to load: containers often have none.
        let near = builder().no_proxy().tls_certs_only([]).build().map_err(tls)?;
        // Without certificates the near ones still work; what needs them says so.
        let client = builder().build().map_err(tls).unwrap_or_else(|_| near.clone());
        Ok(Self { client, near, plain })
    }

    /// `http` for this machine, and where it was asked for; else `https`.
    pub(crate) fn scheme(&self, host: &str) -> &'static str {
        if is_loopback(host) || self.plain == PlainHttp::Allowed { "http" } else { "https" }
    }

    /// Asks, and follows redirects: never from TLS to none, and never with credentials to another server.
    pub(crate) async fn send(&self, mut request: Request, place: &str) -> Result<Response, ShareError> {
        for _ in 0..=REDIRECTS {
            self.check(&request.url, place)?;
            // What is sent takes its time; an answer begins soon.
            let patience = if request.body.is_some() { LARGE } else { STALL };
            let unreachable = |reason: String| ShareError::Unreachable { place: place.to_owned(), reason };
            let sent = tokio::time::timeout(patience, self.once(&request)).await;
            let sent = sent.map_err(|_| unreachable("it does not answer in time".to_owned()))?;
            let response = sent.map_err(|error| unreachable(reason(&error)))?;
            let status = response.status();
            if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
                return Ok(response);
            }
            request = redirected(request, &response, place)?;
        }
        Err(ShareError::Server { place: place.to_owned(), said: format!("it redirects more than {REDIRECTS} times") })
    }

    async fn once(&self, request: &Request) -> Result<Response, reqwest::Error> {
        let host = request.url.host_str().unwrap_or_default();
        let client = if request.url.scheme() == "http" && is_loopback(host) { &self.near } else { &self.client };
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
        if let Some(authorization) = &request.authorization
            && let Ok(mut value) = HeaderValue::from_str(authorization)
        {
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let mut building = client.request(request.method.clone(), request.url.clone()).headers(headers);
        if let Some((body, _)) = &request.body {
            building = building.body(body.clone());
        }
        building.send().await
    }

    fn check(&self, url: &Url, place: &str) -> Result<(), ShareError> {
        let host = url.host_str().unwrap_or_default();
        match url.scheme() {
            "https" => Ok(()),
            "http" if is_loopback(host) || self.plain == PlainHttp::Allowed => Ok(()),
            _ => Err(ShareError::Server {
                place: place.to_owned(),
                said: format!(
                    "`{}://{host}` has no TLS, so that anybody on the way could change what comes; --plain-http allows that",
                    url.scheme()
                ),
            }),
        }
    }
}

fn redirected(request: Request, response: &Response, place: &str) -> Result<Request, ShareError> {
    let said = |said: String| ShareError::Server { place: place.to_owned(), said };
    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    let url = location.and_then(|location| request.url.join(location).ok());
    let url = url.ok_or_else(|| said(format!("it redirects ({}) to nowhere", response.status())))?;
    if request.url.scheme() == "https" && url.scheme() != "https" {
        return Err(said(format!("it redirects to `{}`, which has no TLS; it is not followed", host_of(&url))));
    }
    if !matches!(request.method, Method::GET | Method::HEAD) {
        return Err(said(format!("it redirects what is sent to `{}`; it is not followed", host_of(&url))));
    }
    let stays = url.origin() == request.url.origin();
    let authorization = request.authorization.filter(|_| stays);
    Ok(Request { url, authorization, ..request })
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
                Some(piece) => take(piece.map_err(|error| unreachable(reason(&error)))?).await?,
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

/// What a server says of an error, in one line: the registry's own words where there are some.
pub(crate) async fn explained(response: Response) -> String {
    let status = response.status();
    let text = body(response, EXPLANATION, "").await.unwrap_or_default();
    let json: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    let error = &json["errors"][0];
    let words = [&error["code"], &error["message"], &json["details"], &json["error"]];
    let words: Vec<_> = words.iter().filter_map(|word| word.as_str()).map(shown).collect();
    if words.is_empty() { format!("it answers {status}") } else { format!("it answers {status}: {}", words.join(", ")) }
}
