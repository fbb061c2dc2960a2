//! Creates the HTTP transport to a server. Each server has a separate HTTP client, and all these clients use the TLS
//! settings of the host.

use crate::configuration::{HttpAddress, McpLimits};
use crate::depth_limited::DepthLimitedClient;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, StatusCode, redirect};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use std::net::IpAddr;
use url::{Host, Url};

/// Maximum number of redirects that are followed. A redirect must lead to the same origin.
const MAX_REDIRECTS: usize = 3;
/// Headers that the HTTP client or the protocol sets. The configuration must not set these headers.
const RESERVED_HEADERS: &[&str] =
    &["accept", "content-type", "content-length", "host", "mcp-session-id", "mcp-protocol-version", "last-event-id"];

/// Checks the configured URL and headers. If one of them is invalid, returns a description of the error.
pub(crate) fn check(address: &HttpAddress) -> Result<(), String> {
    parse(&address.url)?;
    headers(address).map(|_| ())
}

/// Creates the transport to the server, without sending a request yet.
pub(crate) fn transport(
    address: &HttpAddress,
    limits: &McpLimits,
) -> Result<StreamableHttpClientTransport<DepthLimitedClient>, String> {
    let url = parse(&address.url)?;
    let client = client(&url, headers(address)?, limits)?;
    let config =
        StreamableHttpClientTransportConfig::with_uri(url.as_str()).max_sse_event_size(limits.max_message_bytes());
    Ok(StreamableHttpClientTransport::with_client(DepthLimitedClient(client), config))
}

fn parse(text: &str) -> Result<Url, String> {
    let example = "write it like `https://mcp.example.com/mcp`";
    let url = Url::parse(text.trim()).map_err(|error| format!("its `url` is not valid ({error}): {example}"))?;
    match url.scheme() {
        "http" | "https" if url.has_host() => Ok(url),
        scheme => Err(format!("its `url` begins with `{scheme}:`, not `http://` or `https://`: {example}")),
    }
}

fn headers(address: &HttpAddress) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &address.headers {
        let parsed =
            HeaderName::from_bytes(name.as_bytes()).ok().filter(|name| !RESERVED_HEADERS.contains(&name.as_str()));
        let Some(parsed) = parsed else {
            return Err(format!("the header `{name}` cannot be set here: remove it"));
        };
        let mut value = HeaderValue::from_str(value).map_err(|_| {
            format!("the value of its header `{name}` contains a character that is not allowed in a header")
        })?;
        value.set_sensitive(true);
        headers.insert(parsed, value);
    }
    Ok(headers)
}

/// Creates the HTTP client for one server. The client connects to a server on this machine without a proxy, and it
/// never sends the configured headers to another origin.
fn client(url: &Url, headers: HeaderMap, limits: &McpLimits) -> Result<Client, String> {
    // If the process already has a default cryptography provider, this call returns an error, which can be ignored.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .user_agent(concat!("agent-host/", env!("CARGO_PKG_VERSION")))
        .default_headers(headers)
        .redirect(redirect::Policy::custom(same_origin_redirects))
        .referer(false)
        .connect_timeout(limits.connect_time);
    if is_loopback(url) {
        builder = builder.no_proxy();
    }
    if url.scheme() == "http" {
        // Do not load the system's certificates for HTTP without TLS: they are not needed, and loading them could fail,
        // because containers often contain none.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| {
        format!("TLS cannot be set up ({error}): install the root certificates of this system (`ca-certificates`)")
    })
}

/// Follows a redirect only if it keeps the method and body and leads to the same origin. Such redirects are
/// followed, because many servers redirect each path to the same path with a slash at the end.
fn same_origin_redirects(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let keeps_method = matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    let first = attempt.previous().first().map(Url::origin);
    if keeps_method && attempt.previous().len() <= MAX_REDIRECTS && first == Some(attempt.url().origin()) {
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
    fn i5_invalid_addresses_and_headers_are_explained() {
        let address = |url: &str, name: &str, value: &str| HttpAddress {
            url: url.to_owned(),
            headers: BTreeMap::from([(name.to_owned(), value.to_owned())]),
        };
        assert!(check(&address("http://127.0.0.1:1/mcp", "Authorization", "Bearer x")).is_ok());
        for (url, name, value, expected) in [
            ("ftp://a/b", "A", "b", "ftp:"),
            ("nonsense", "A", "b", "write it like"),
            ("http://a/", "Mcp-Session-Id", "b", "cannot be set"),
            ("http://a/", "a b", "b", "cannot be set"),
            ("http://a/", "A", "line\nend", "character"),
        ] {
            let message = check(&address(url, name, value)).unwrap_err();
            assert!(message.contains(expected) && !message.contains("line\n"), "{message}");
        }
    }
}
