//! Sends outgoing events to an HTTP server, as the HTTP protocol binding of CloudEvents 1.0 describes it.

use crate::signature::{SignedMessage, SigningKey};
use agent_core::outgoing_event::OutgoingEvent;
use agent_core::redaction::Redaction;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, StatusCode, redirect};
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use url::Url;

/// Maximum number of bytes of an error response that are shown to users.
const SHOWN_ERROR_BYTES: usize = 300;

/// How an event is written into an HTTP request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContentMode {
    /// The body is the whole event as JSON, with the content type `application/cloudevents+json`.
    #[default]
    Structured,
    /// The body is the data of the event, and each attribute is a header such as `ce-id`. A signature covers the id and the
    /// data, but not the other attributes.
    Binary,
}

/// The server that receives the events of an agent.
#[derive(Clone)]
pub struct HttpSinkConfig {
    /// The address to which each event is sent with the method POST. Redirects are not followed.
    pub url: Url,
    /// How an event is written into a request.
    pub mode: ContentMode,
    /// Further headers of each request, by name.
    pub headers: BTreeMap<String, String>,
    /// Further headers of each request whose values are secrets, by name. The secrets are removed from error messages.
    pub secret_headers: BTreeMap<String, String>,
    /// Key with which each request is signed. `None` means that requests are not signed.
    pub signing_key: Option<SigningKey>,
    /// Maximum time of a request, from the connection to the end of the response.
    pub timeout: Duration,
}

/// Sends events to a server. The debug output contains no values of headers, which may be secrets.
pub struct HttpSink {
    config: HttpSinkConfig,
    headers: HeaderMap,
    redaction: Redaction,
    client: Client,
}

/// Why a server cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSink {
    /// The name or the value of a header is invalid.
    #[error("the header `{0}` is invalid")]
    Header(String),
    /// The TLS library cannot be initialised.
    #[error("TLS cannot be used: {0}")]
    Tls(String),
}

/// Why the server did not accept an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct HttpSinkError {
    /// Whether the server has answered that it does not accept this event. Other events may still be accepted.
    pub is_rejected: bool,
    /// What happened.
    message: String,
}

impl HttpSink {
    /// Creates a sink.
    pub fn new(config: HttpSinkConfig) -> Result<Self, InvalidSink> {
        // If the process already has a default cryptography provider, this call returns an error, which can be ignored.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().redirect(redirect::Policy::none()).timeout(config.timeout).build();
        let client = client.map_err(|error| InvalidSink::Tls(innermost_reason(&error)))?;
        let mut headers = HeaderMap::new();
        for (name, value) in config.headers.iter().chain(&config.secret_headers) {
            let invalid = || InvalidSink::Header(name.clone());
            let value = HeaderValue::from_str(value).map_err(|_| invalid())?;
            headers.insert(HeaderName::try_from(name).map_err(|_| invalid())?, value);
        }
        let redaction = Redaction::new(config.secret_headers.values().map(String::as_str));
        Ok(Self { config, headers, redaction, client })
    }

    /// Returns the address of the server, for messages to users.
    pub fn url(&self) -> &Url {
        &self.config.url
    }

    /// Sends an event. If the server has accepted the event and the host does not notice it, the event is sent again with
    /// the same id.
    pub(crate) async fn send(&self, event: &OutgoingEvent) -> Result<(), HttpSinkError> {
        let (mut headers, body) = match self.config.mode {
            ContentMode::Structured => structured(event),
            ContentMode::Binary => binary(event),
        };
        headers.extend(self.headers.clone());
        if let Some(key) = &self.config.signing_key {
            add_signature(&mut headers, key, event, &body);
        }
        let sent = self.client.post(self.config.url.clone()).headers(headers).body(body).send().await;
        let response = sent.map_err(|error| HttpSinkError {
            is_rejected: false,
            message: format!("cannot send the event to {}: {}", self.config.url, innermost_reason(&error)),
        })?;
        match response.status() {
            status if status.is_success() => Ok(()),
            status => Err(HttpSinkError {
                is_rejected: is_rejection(status),
                message: format!("{} answered {status}{}", self.config.url, self.shown_body(response).await),
            }),
        }
    }

    /// Returns the beginning of the body of an error response, for messages to users.
    async fn shown_body(&self, mut response: Response) -> String {
        let mut bytes = Vec::new();
        while bytes.len() < SHOWN_ERROR_BYTES
            && let Ok(Some(piece)) = response.chunk().await
        {
            bytes.extend_from_slice(&piece);
        }
        bytes.truncate(SHOWN_ERROR_BYTES);
        let text = self.redaction.text(String::from_utf8_lossy(&bytes).into_owned());
        let text: String = text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect();
        if text.trim().is_empty() { String::new() } else { format!(": {}", text.trim()) }
    }
}

impl fmt::Debug for HttpSink {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HttpSinkConfig { url, mode, headers, secret_headers, signing_key, timeout } = &self.config;
        let secret_headers: Vec<_> = secret_headers.keys().collect();
        let shown = (url.as_str(), mode, headers, secret_headers, signing_key, timeout);
        formatter.debug_tuple("HttpSink").field(&shown).finish()
    }
}

/// Returns whether a status means that the server will not accept the same event later.
fn is_rejection(status: StatusCode) -> bool {
    let is_temporary =
        matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS);
    // A server that does not know the sender rejects all events, until somebody changes the configuration.
    let is_for_all = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND);
    status.is_client_error() && !is_temporary && !is_for_all
}

fn structured(event: &OutgoingEvent) -> (HeaderMap, Vec<u8>) {
    let content_type = HeaderValue::from_static("application/cloudevents+json; charset=UTF-8");
    (HeaderMap::from_iter([(CONTENT_TYPE, content_type)]), serde_json::to_vec(event).unwrap_or_default())
}

fn binary(event: &OutgoingEvent) -> (HeaderMap, Vec<u8>) {
    let attributes = serde_json::to_value(event).unwrap_or_default();
    let mut headers = HeaderMap::new();
    for (name, value) in attributes.as_object().into_iter().flatten() {
        let (name, value) = match (&**name, value.as_str()) {
            ("data", _) | (_, None) => continue,
            ("datacontenttype", Some(value)) => (CONTENT_TYPE, value.to_owned()),
            (name, Some(value)) => match HeaderName::try_from(format!("ce-{name}")) {
                Ok(name) => (name, encoded(value)),
                Err(_) => continue,
            },
        };
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    }
    (headers, event.data.as_ref().map(|data| data.to_string().into_bytes()).unwrap_or_default())
}

/// Encodes the value of an attribute for a header. Characters other than visible ASCII characters, and `"` and `%`, are
/// percent-encoded.
fn encoded(value: &str) -> String {
    let mut encoded = String::with_capacity(value.len());
    for character in value.chars() {
        if character.is_ascii_graphic() && !matches!(character, '"' | '%') {
            encoded.push(character);
            continue;
        }
        for byte in character.encode_utf8(&mut [0; 4]).bytes() {
            // Writing to a `String` cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

fn add_signature(headers: &mut HeaderMap, key: &SigningKey, event: &OutgoingEvent, body: &[u8]) {
    let timestamp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let signature = key.sign(SignedMessage { id: &event.id, timestamp, body });
    let signed = [
        ("webhook-id", event.id.clone()),
        ("webhook-timestamp", timestamp.to_string()),
        ("webhook-signature", signature),
    ];
    for (name, value) in signed {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

/// Returns the innermost reason of an error, because the outer errors only say that a request failed. The address is
/// part of the message already.
fn innermost_reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "the server did not answer in time".to_owned();
    }
    let mut reason: &dyn Error = error;
    while let Some(source) = reason.source() {
        reason = source;
    }
    reason.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::event_type::ServiceEventType;
    use agent_core::outgoing_event::EventAttributes;
    use agent_core::plugin::TraceContext;
    use serde_json::json;

    fn event() -> OutgoingEvent {
        let attributes = EventAttributes {
            id: "call_1_1_1".to_owned(),
            source: "agent-host/clerk".to_owned(),
            subject: "clerk/größe \"1\"".to_owned(),
            time: Some("2026-11-27T16:00:00Z".to_owned()),
            domain: None,
            trace: TraceContext { traceparent: "00-a-b-01".to_owned(), tracestate: None },
        };
        let event_type = ServiceEventType::parse("com.example.work").expect("the type is valid");
        OutgoingEvent::to_service(&event_type, attributes, json!({"amount": 3}))
    }

    /// I9: in binary mode, attributes are headers, and the body is the data.
    #[test]
    fn i9_binary_mode_puts_the_attributes_into_headers() {
        let (headers, body) = binary(&event());
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        assert_eq!(header("content-type"), Some("application/json"));
        assert_eq!(header("ce-specversion"), Some("1.0"));
        assert_eq!((header("ce-id"), header("ce-type")), (Some("call_1_1_1"), Some("com.example.work")));
        assert_eq!(header("ce-subject"), Some("clerk/gr%C3%B6%C3%9Fe%20%221%22"));
        assert_eq!((header("ce-traceparent"), header("ce-data"), header("ce-domain")), (Some("00-a-b-01"), None, None));
        assert_eq!(body, br#"{"amount":3}"#);
    }

    /// I9: in structured mode, the body is the whole event.
    #[test]
    fn i9_structured_mode_sends_the_whole_event() {
        let (headers, body) = structured(&event());
        assert_eq!(headers[CONTENT_TYPE], "application/cloudevents+json; charset=UTF-8");
        assert_eq!(serde_json::from_slice::<OutgoingEvent>(&body).ok(), Some(event()));
    }

    #[test]
    fn i9_only_some_client_errors_are_final() {
        let rejected = |status: u16| StatusCode::from_u16(status).map(is_rejection).expect("a status");
        for status in [400, 409, 410, 413, 415, 422] {
            assert!(rejected(status), "{status}");
        }
        for status in [301, 401, 403, 404, 408, 425, 429, 500, 503] {
            assert!(!rejected(status), "{status}");
        }
    }
}
