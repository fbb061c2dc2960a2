//! Servers over streamable HTTP: one client for each, over the TLS that the whole host uses.

use crate::configuration::{HttpAddress, McpLimits};
use crate::shallow::Shallow;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, StatusCode, redirect};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use std::net::IpAddr;
use url::{Host, Url};

/// Redirects that are followed, all of them within the server.
const MAX_REDIRECTS: usize = 3;
/// Headers that the protocol itself sets.
const RESERVED: &[&str] =
    &["accept", "content-type", "content-length", "host", "mcp-session-id", "mcp-protocol-version", "last-event-id"];

/// Whether the address can be used.
pub(crate) fn check(address: &HttpAddress) -> Result<(), String> {
    parse(&address.url)?;
    headers(address).map(|_| ())
}

/// Prepares the way to the server; nothing is sent yet.
pub(crate) fn transport(
    address: &HttpAddress,
    limits: &McpLimits,
) -> Result<StreamableHttpClientTransport<Shallow>, String> {
    let url = parse(&address.url)?;
    let client = client(&url, headers(address)?, limits)?;
    let config = StreamableHttpClientTransportConfig::with_uri(url.as_str()).max_sse_event_size(limits.message_bytes);
    Ok(StreamableHttpClientTransport::with_client(Shallow(client), config))
}

/// The URL for people: without credentials and query.
pub(crate) fn shown(url: &str) -> String {
    let Ok(mut url) = Url::parse(url) else { return "an address that cannot be read".to_owned() };
    // Neither can fail for a URL with a host.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

fn parse(text: &str) -> Result<Url, String> {
    let example = "write its `url` like `https://mcp.example.com/mcp`";
    let url = Url::parse(text.trim()).map_err(|error| format!("its address is none ({error}): {example}"))?;
    match url.scheme() {
        "http" | "https" if url.has_host() => Ok(url),
        scheme => Err(format!("its address begins with `{scheme}:`, not `http://` or `https://`: {example}")),
    }
}

fn headers(address: &HttpAddress) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &address.headers {
        let parsed = HeaderName::from_bytes(name.as_bytes()).ok().filter(|name| !RESERVED.contains(&name.as_str()));
        let Some(parsed) = parsed else {
            return Err(format!("`{name}` is no header that can be set here: take it out"));
        };
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| format!("the value of its header `{name}` has a character that no header can hold"))?;
        value.set_sensitive(true);
        headers.insert(parsed, value);
    }
    Ok(headers)
}

/// A server on this machine is asked without a proxy. Headers never follow a redirect to another server.
fn client(url: &Url, headers: HeaderMap, limits: &McpLimits) -> Result<Client, String> {
    // An error means that the process has one already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .user_agent(concat!("agent-host/", env!("CARGO_PKG_VERSION")))
        .default_headers(headers)
        .redirect(redirect::Policy::custom(within_the_server))
        .referer(false)
        .connect_timeout(limits.connect_time);
    if is_loopback(url) {
        builder = builder.no_proxy();
    }
    if url.scheme() == "http" {
        // Nothing is to be verified, and there may be no certificates to load: containers often have none.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| {
        format!(
            "no secure connections can be made ({error}): install this system's root certificates (`ca-certificates`)"
        )
    })
}

/// Only redirects that keep method and body: many servers add a slash to their path with one.
fn within_the_server(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let keeps = matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    let first = attempt.previous().first().map(Url::origin);
    if keeps && attempt.previous().len() <= MAX_REDIRECTS && first == Some(attempt.url().origin()) {
        attempt.follow()
    } else {
        attempt.stop()
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => IpAddr::from(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::from(address).is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn i5_addresses_and_headers_that_cannot_be_used_say_so() {
        let address = |url: &str, name: &str, value: &str| HttpAddress {
            url: url.to_owned(),
            headers: BTreeMap::from([(name.to_owned(), value.to_owned())]),
        };
        assert!(check(&address("http://127.0.0.1:1/mcp", "Authorization", "Bearer x")).is_ok());
        for (url, name, value, said) in [
            ("ftp://a/b", "A", "b", "ftp:"),
            ("nonsense", "A", "b", "write its `url`"),
            ("http://a/", "Mcp-Session-Id", "b", "no header"),
            ("http://a/", "a b", "b", "no header"),
            ("http://a/", "A", "line\nend", "character"),
        ] {
            let message = check(&address(url, name, value)).unwrap_err();
            assert!(message.contains(said) && !message.contains("line\n"), "{message}");
        }
    }
}
