//! One provider's client: made once, with its address, headers and secrets.

use super::dialect::{Dialect, is_loopback};
use super::model_list;
use super::redaction;
use crate::configuration::{ModelConfig, ProviderConfig, Secret, known_provider};
use crate::error::{Endpoint, ModelError};
use agent_core::redaction::Redaction;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, redirect};
use std::time::Duration;
use url::Url;

/// Headers that frame a request: set by configuration, they would break it.
const FRAMING: &[&str] = &["content-length", "transfer-encoding", "connection", "host", "te", "upgrade"];

/// What is needed to ask any model of one provider.
pub(crate) struct Connection {
    pub(super) config: ProviderConfig,
    pub(super) dialect: Dialect,
    pub(super) redaction: Redaction,
    pub(super) client: Client,
    pub(super) headers: HeaderMap,
    pub(super) base_url: Url,
}

impl Connection {
    /// Checks the configuration; asks nobody.
    pub(crate) fn new(config: ProviderConfig) -> Result<Self, ModelError> {
        let misconfigured = |problem| ModelError::Misconfigured { provider: config.name.clone(), problem };
        let base_url = parse_base_url(&config.base_url).map_err(misconfigured)?;
        let headers = headers(&config).map_err(misconfigured)?;
        let client = client(&base_url, config.timeouts.connect).map_err(misconfigured)?;
        let dialect = Dialect::of(&config.name, &base_url);
        let redaction = redaction::of(&config, &base_url);
        Ok(Self { config, dialect, redaction, client, headers, base_url })
    }

    /// What stands before the `/` of a model's name.
    pub(super) fn provider(&self) -> &str {
        &self.config.name
    }

    /// Whether the provider is where it is known to be: another server in its place has prices of its own, or none.
    pub(super) fn is_at_home(&self) -> bool {
        let known = known_provider(&self.config.name).and_then(|known| Url::parse(known.base_url).ok());
        known.is_some_and(|known| known.origin() == self.base_url.origin())
    }

    /// What the configuration says of a model.
    pub(super) fn model(&self, name: &str) -> ModelConfig {
        self.config.models.get(name).copied().unwrap_or_default()
    }

    /// The models that the server lists; none where it gives no list in that time.
    pub(crate) async fn models(&self, time: Duration) -> Option<Vec<String>> {
        model_list::ask(&self.client, self.url("models"), self.headers.clone(), time).await
    }

    /// `{base}/{path}`; what the base URL asks behind its path stays behind it.
    pub(super) fn url(&self, path: &str) -> Url {
        below(&self.base_url, path)
    }

    /// For messages.
    pub(super) fn endpoint(&self, model: &str) -> Endpoint {
        self.endpoint_at(model, "chat/completions")
    }

    /// The same of another part of the API.
    pub(super) fn endpoint_at(&self, model: &str, path: &str) -> Endpoint {
        let url = shown(&self.url(path));
        Endpoint { model: format!("{}/{model}", self.config.name), url: Some(url) }
    }
}

/// The URL for people: without credentials and query.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // Neither can fail for a URL with a host.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

/// `{base}/{path}`.
pub(crate) fn below(base_url: &Url, path: &str) -> Url {
    let mut url = base_url.clone();
    url.set_path(&format!("{}/{path}", base_url.path().trim_end_matches('/')));
    url
}

/// A client for that server. It follows no redirects; a server on this machine is asked without a proxy.
pub(crate) fn client(base_url: &Url, connect: Duration) -> Result<Client, String> {
    // An error means that the process has one already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .user_agent(concat!("agent-host/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
        .referer(false)
        .connect_timeout(connect);
    if is_loopback(base_url) {
        builder = builder.no_proxy();
    }
    if base_url.scheme() == "http" {
        // Nothing is to be verified, and there may be no certificates to load: containers often have none.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| {
        let reason = super::failure::innermost(&error);
        format!(
            "no secure connections can be made: {reason}. Install this system's root certificates (`ca-certificates`)"
        )
    })
}

/// Also of people who give the whole address of the API.
fn parse_base_url(text: &str) -> Result<Url, String> {
    let example = "write it like `https://api.openai.com/v1`";
    let text = text.trim();
    let base = text.trim_end_matches('/').trim_end_matches("/chat/completions");
    let url = Url::parse(base).map_err(|error| format!("its base URL is none ({error}): {example}"))?;
    match url.scheme() {
        "http" | "https" if url.has_host() => Ok(url),
        scheme => Err(format!("its base URL begins with `{scheme}:`, not `http://` or `https://`: {example}")),
    }
}

fn headers(config: &ProviderConfig) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if let Some(key) = &config.key {
        let value = secret_value(&format!("Bearer {}", key.reveal().trim())).ok_or_else(|| {
            format!(
                "its key has a character that no header can hold, such as a line end in its middle: {}",
                config.key_advice
            )
        })?;
        headers.insert(AUTHORIZATION, value);
    }
    for (name, value) in &config.headers {
        let parsed = HeaderName::from_bytes(name.as_bytes()).ok().filter(|name| !FRAMING.contains(&name.as_str()));
        let parsed =
            parsed.ok_or_else(|| format!("the header `{name}` cannot be set: take it out of its `headers`"))?;
        let value = secret_value(Secret::reveal(value).trim()).ok_or_else(|| {
            format!("the header `{name}` has a character that no header can hold: correct it in its `headers`")
        })?;
        headers.insert(parsed, value);
    }
    Ok(headers)
}

fn secret_value(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}
