//! The connection to one provider: an HTTP client that is created once, and the address, headers and secrets of
//! the provider.

use super::model_list;
use super::redaction::redaction_for;
use crate::configuration::{ModelConfig, ProviderConfig, Secret, known_provider};
use crate::encode::{Dialect, is_loopback};
use crate::error::{Endpoint, ModelError};
use crate::protocol::Protocol;
use agent_core::redaction::Redaction;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, redirect};
use std::time::Duration;
use url::Url;

/// Paths of APIs that are removed from the end of a base URL.
const PATHS: &[&str] = &["/chat/completions", "/responses", "/messages"];

/// Version of the Anthropic API, from <https://docs.anthropic.com/en/api/versioning>.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// Headers that the HTTP client sets itself, so the configuration must not set these headers.
const RESERVED_HEADERS: &[&str] = &["content-length", "transfer-encoding", "connection", "host", "te", "upgrade"];

/// The HTTP client and the data that are needed to send a request to any model of a given provider.
pub(crate) struct Connection {
    pub(super) config: ProviderConfig,
    pub(super) dialect: Dialect,
    pub(super) redaction: Redaction,
    pub(super) client: Client,
    pub(super) headers: HeaderMap,
    pub(super) base_url: Url,
}

impl Connection {
    /// Checks the configuration and creates the HTTP client, without contacting the provider.
    pub(crate) fn new(config: ProviderConfig) -> Result<Self, ModelError> {
        let misconfigured = |problem| ModelError::InvalidConfig { provider: config.name.clone(), problem };
        let base_url = parse_base_url(&config.base_url).map_err(misconfigured)?;
        let headers = headers(&config).map_err(misconfigured)?;
        let client = build_client(&base_url, config.timeouts.connect).map_err(misconfigured)?;
        let dialect = Dialect::for_server(&config.name, &base_url);
        let redaction = redaction_for(&config, &base_url);
        Ok(Self { config, dialect, redaction, client, headers, base_url })
    }

    /// Returns the name of the provider, which is the part of a model's name before the `/`.
    pub(super) fn provider(&self) -> &str {
        &self.config.name
    }

    /// Returns whether the base URL is the provider's official address. If the base URL is a different address, another
    /// server is configured under the provider's name, and the prices of this server may differ.
    pub(super) fn is_official_address(&self) -> bool {
        let known = known_provider(&self.config.name).and_then(|known| Url::parse(known.base_url).ok());
        known.is_some_and(|known| known.origin() == self.base_url.origin())
    }

    /// Returns the configured window and price of a model.
    pub(super) fn model(&self, name: &str) -> ModelConfig {
        self.config.models.get(name).copied().unwrap_or_default()
    }

    /// Requests the list of models from the server. Returns `None` if no list arrives within `timeout`.
    pub(crate) async fn models(&self, timeout: Duration) -> Option<Vec<String>> {
        let mut url = self.url("models");
        // Without this parameter, Anthropic returns pages of 20 models, and Gemini returns pages of 50 models.
        let page = match self.config.protocol {
            Protocol::ChatCompletions | Protocol::Responses => None,
            Protocol::Anthropic => Some("limit"),
            Protocol::Gemini => Some("pageSize"),
        };
        if let Some(page) = page {
            url.query_pairs_mut().append_pair(page, "1000");
        }
        model_list::fetch(&self.client, url, self.headers.clone(), timeout).await
    }

    /// Returns the URL `{base}/{path}` with the query of the base URL.
    pub(super) fn url(&self, path: &str) -> Url {
        join_path(&self.base_url, path)
    }

    /// Returns the URL to which requests to the model are sent.
    pub(super) fn reply_url(&self, model: &str) -> Url {
        match self.config.protocol {
            Protocol::ChatCompletions => self.url("chat/completions"),
            Protocol::Responses => self.url("responses"),
            Protocol::Anthropic => self.url("messages"),
            Protocol::Gemini => {
                let mut url = self.url("models");
                let name = model.strip_prefix("models/").unwrap_or(model);
                // The URL has a host, so it also has path segments.
                if let Ok(mut segments) = url.path_segments_mut() {
                    segments.extend(format!("{name}:streamGenerateContent").split('/'));
                }
                url.query_pairs_mut().append_pair("alt", "sse");
                url
            }
        }
    }

    /// Returns the endpoint to which requests to the model are sent, which error messages show.
    pub(super) fn endpoint(&self, model: &str) -> Endpoint {
        let url = display_url(&self.reply_url(model));
        Endpoint { model: format!("{}/{model}", self.config.name), url: Some(url) }
    }

    /// Returns the endpoint of the API at `path`, such as `embeddings`, which error messages show.
    pub(super) fn endpoint_at(&self, model: &str, path: &str) -> Endpoint {
        let url = display_url(&self.url(path));
        Endpoint { model: format!("{}/{model}", self.config.name), url: Some(url) }
    }
}

/// Returns the URL in the form that messages show, without credentials, query and fragment.
pub(super) fn display_url(url: &Url) -> String {
    let mut url = url.clone();
    // These two calls fail only if the URL has no host, and a URL without a host contains neither a user name nor
    // a password.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

/// Returns the URL `{base}/{path}` with the query of the base URL.
pub(crate) fn join_path(base_url: &Url, path: &str) -> Url {
    let mut url = base_url.clone();
    url.set_path(&format!("{}/{path}", base_url.path().trim_end_matches('/')));
    url
}

/// Creates an HTTP client for the server at `base_url`. The client does not follow redirects, and it connects to a
/// server on this machine without a proxy. `connect` is the maximum time to establish a connection.
pub(crate) fn build_client(base_url: &Url, connect: Duration) -> Result<Client, String> {
    // If the process already has a default cryptography provider, this call returns an error, which can be ignored.
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
        // Do not load the system's certificates for HTTP without TLS: they are not needed, and loading them could fail,
        // because containers often contain none.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| {
        let reason = super::transport_error::root_cause(&error);
        format!("TLS cannot be set up: {reason}. Install the root certificates of this system (`ca-certificates`)")
    })
}

/// Parses the configured base URL. If the URL ends with `/chat/completions`, this ending is removed.
fn parse_base_url(text: &str) -> Result<Url, String> {
    let example = "write it like `https://api.openai.com/v1`";
    let text = text.trim();
    let base = text.trim_end_matches('/');
    let base = PATHS.iter().find_map(|path| base.strip_suffix(path)).unwrap_or(base);
    let url = Url::parse(base).map_err(|error| format!("its base URL is not valid ({error}): {example}"))?;
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
    if config.protocol == Protocol::Anthropic {
        headers.insert("anthropic-version", HeaderValue::from_static(ANTHROPIC_VERSION));
    }
    if let Some(key) = &config.key {
        let (name, prefix) = match config.protocol {
            Protocol::ChatCompletions | Protocol::Responses => (AUTHORIZATION, "Bearer "),
            Protocol::Anthropic => (HeaderName::from_static("x-api-key"), ""),
            Protocol::Gemini => (HeaderName::from_static("x-goog-api-key"), ""),
        };
        let value = secret_value(&format!("{prefix}{}", key.reveal().trim())).ok_or_else(|| {
            format!(
                "its key contains a character that is not allowed in a header, such as a line break: {}",
                config.key_advice
            )
        })?;
        headers.insert(name, value);
    }
    for (name, value) in &config.headers {
        let parsed =
            HeaderName::from_bytes(name.as_bytes()).ok().filter(|name| !RESERVED_HEADERS.contains(&name.as_str()));
        let parsed = parsed.ok_or_else(|| format!("the header `{name}` cannot be set: remove it from `headers`"))?;
        let value = secret_value(Secret::reveal(value).trim()).ok_or_else(|| {
            format!("the header `{name}` contains a character that is not allowed in a header: correct it in `headers`")
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
