//! Reads the message, the request id and the retry delay from an error response of a provider, and adds advice for
//! the user.

use super::connection::Connection;
use super::exchange::{Exchange, content_type};
use super::model_list;
use crate::error::{Cause, ErrorOrigin, ModelError, ProviderError};
use agent_core::visible::visible;
use reqwest::Response;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde_json::Value;
use std::time::{Duration, SystemTime};

/// Maximum number of bytes that are read from the body of an error response.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// Maximum time to read the body of an error response. If reading takes longer, the error is reported without the
/// provider's message.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of characters that are quoted from a provider's error message.
const MAX_MESSAGE_CHARACTERS: usize = 1000;

/// Maximum time to request the server's list of models, from which the advice about an unknown model suggests
/// similar names.
const LIST_TIMEOUT: Duration = Duration::from_secs(2);

/// Response headers in which servers send the id that they gave to a request.
const REQUEST_ID_HEADERS: &[&str] =
    &["x-request-id", "request-id", "x-groq-request-id", "apim-request-id", "mistral-correlation-id", "cf-ray"];

/// Reads an error response and converts the response to an error that contains advice for the user.
pub(super) async fn read(exchange: &Exchange<'_>, response: Response) -> ModelError {
    let (status, headers, declared) = (response.status(), response.headers().clone(), content_type(&response));
    let body = read_body(exchange, response).await;
    let json: Option<Value> = serde_json::from_slice(&body).ok();
    let delay_in_body = json.as_ref().and_then(retry_delay);
    let error = json.and_then(|body| find_error(&body));
    // An HTML page with the status of a temporary error comes from a gateway whose upstream server is unavailable. Any
    // other HTML page means that the address is wrong.
    let is_temporary = matches!(status.as_u16(), 408 | 429 | 500..=599);
    if error.is_none() && !is_temporary && body.trim_ascii_start().starts_with(b"<") {
        return exchange.unexpected_response(status, &declared, &body);
    }
    let (code, mut message) = error.unwrap_or_else(|| (None, text_of_body(&body)));
    message = quote(exchange, &message);
    if message.is_empty() {
        message = status.canonical_reason().unwrap_or("no reason given").to_owned();
    }
    let code = code.map(|code| exchange.excerpt(code.as_bytes()));
    let provider_error =
        ProviderError::new(exchange.endpoint.clone(), ErrorOrigin::Status(status.as_u16()), code, message);
    let request_id =
        REQUEST_ID_HEADERS.iter().find_map(|name| headers.get(*name)).map(|id| exchange.excerpt(id.as_bytes()));
    let provider_error = ProviderError {
        request_id,
        retry_after: retry_after(&headers, SystemTime::now()).or(delay_in_body),
        ..provider_error
    };
    let mut provider_error = with_advice(exchange.connection, provider_error);
    if provider_error.cause == Cause::Request && names_thinking_setting(&provider_error.message) {
        let table = format!("[providers.{}.models.\"{}\"]", exchange.connection.provider(), exchange.model);
        provider_error.advice = Some(format!("Change or remove `effort` in {table} of agent.toml"));
    }
    if provider_error.cause == Cause::Model {
        provider_error.advice = Some(model_advice(exchange).await);
    }
    ModelError::Provider(Box::new(provider_error))
}

/// Adds advice for the user. The advice depends on the configuration, and may for example name the environment variable
/// that must contain the key.
pub(super) fn with_advice(connection: &Connection, provider_error: ProviderError) -> ProviderError {
    let config = &connection.config;
    let has_no_key = config.key.is_none() && config.headers.is_empty();
    let advice = match provider_error.cause {
        Cause::Key if has_no_key => {
            Some(format!("The provider requires a key, but none is configured: {}", config.key_advice))
        }
        Cause::Key => Some(format!("Check the key and its permissions: {}", config.key_advice)),
        Cause::Address => Some(format!(
            "Check the base URL `{}`, which for most servers ends in `/v1`, and the model's name",
            super::connection::display_url(&connection.url("")).trim_end_matches('/')
        )),
        _ => None,
    };
    ProviderError { advice: advice.or(provider_error.advice), ..provider_error }
}

/// Returns a provider's message in a form that can be quoted: without secrets and truncated to the maximum length.
pub(super) fn quote(exchange: &Exchange<'_>, message: &str) -> String {
    let is_allowed = |character: &char| !character.is_control() || matches!(character, '\n' | '\t');
    let message = exchange.connection.redaction.text(message.trim().chars().filter(is_allowed).collect());
    let message = visible(&message);
    match message.char_indices().nth(MAX_MESSAGE_CHARACTERS) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.into_owned(),
    }
}

/// Returns whether the provider's message is about a setting of the model's thinking.
fn names_thinking_setting(message: &str) -> bool {
    let settings = ["reasoning_effort", "reasoning.effort", "thinking", "budget_tokens", "output_config", "effort"];
    settings.iter().any(|setting| message.contains(setting))
}

/// Finds the delay after which Gemini allows a retry. The delay is a string such as `34.5s` in the details of the error
/// (<https://cloud.google.com/apis/design/errors>).
fn retry_delay(body: &Value) -> Option<Duration> {
    let error = body.get("error").or_else(|| body.get(0)?.get("error"))?;
    let seconds = error.get("details")?.as_array()?.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
    let seconds: f64 = seconds.strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Reads the body until a limit on its size or on the time is reached. If the connection fails earlier, returns the
/// bytes that have already arrived.
async fn read_body(exchange: &Exchange<'_>, mut response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    let read = async {
        while let Ok(Some(bytes)) = exchange.next_chunk(&mut response).await {
            body.extend_from_slice(&bytes);
            if body.len() >= MAX_BODY_BYTES {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(BODY_TIMEOUT, read).await;
    body.truncate(MAX_BODY_BYTES);
    body
}

/// Finds the error code and the message in the body of an error response. Each server has its own
/// structure for errors, and the function knows the structures of many servers.
fn find_error(body: &Value) -> Option<(Option<String>, String)> {
    let text = |value: &Value| match value {
        Value::String(text) if !text.trim().is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let message = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Object(_) => find_error(value).map(|(_, message)| message).or_else(|| Some(value.to_string())),
        Value::Array(items) if !items.is_empty() => {
            let messages =
                items.iter().map(|item| find_error(item).map_or_else(|| item.to_string(), |(_, message)| message));
            Some(messages.collect::<Vec<_>>().join("; "))
        }
        _ => None,
    };
    match body {
        Value::String(text) => Some((None, text.clone())),
        Value::Array(items) => items.iter().find_map(find_error),
        Value::Object(fields) => {
            let inner = fields.get("error").filter(|error| error.is_object());
            let fields = inner.and_then(Value::as_object).unwrap_or(fields);
            let names = ["message", "error", "detail", "msg", "errors", "error_description"];
            let message = names.iter().find_map(|name| fields.get(*name).and_then(message))?;
            let code = ["code", "type", "status"].iter().find_map(|name| fields.get(*name).and_then(text));
            Some((code, message))
        }
        _ => None,
    }
}

/// Returns the text of a body that is not a JSON error. If the body is an HTML page, its tags are removed.
fn text_of_body(body: &[u8]) -> String {
    let body = String::from_utf8_lossy(body);
    match body.trim() {
        "null" | "{}" => String::new(),
        page if page.starts_with('<') => without_tags(page),
        text => text.to_owned(),
    }
}

fn without_tags(page: &str) -> String {
    let mut words = String::new();
    let mut in_tag = false;
    for character in page.chars() {
        match character {
            '<' => in_tag = true,
            '>' => {
                in_tag = false;
                words.push(' ');
            }
            character if !in_tag => words.push(character),
            _ => {}
        }
    }
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Upper bound of the wait that is read from a header, in seconds. Larger values are reduced to this bound, because a
/// `Duration` might not be able to represent them and no caller waits that long.
const MAX_REQUESTED_SECONDS: f64 = 1e9;

/// Returns the time that the server asks the host to wait before a retry, if a header contains this time.
/// `retry-after-ms`, which some providers send, contains milliseconds. `retry-after` contains seconds or a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let is_number = |text: &&str| text.starts_with(|first: char| first.is_ascii_digit() || first == '.');
    let number = |text: &str| Some(text.trim()).filter(is_number)?.parse::<f64>().ok();
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let milliseconds = header("retry-after-ms").and_then(number).map(|milliseconds| milliseconds / 1000.0);
    let text = header(RETRY_AFTER.as_str());
    let seconds = milliseconds.or_else(|| text.and_then(number));
    if let Some(wait) = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds.min(MAX_REQUESTED_SECONDS)).ok())
    {
        return Some(wait);
    }
    let date = text.and_then(|text| httpdate::parse_http_date(text.trim()).ok())?;
    Some(date.duration_since(now).unwrap_or_default())
}

/// Returns advice for the user about a model that the server does not know. The advice suggests similar names from the
/// server's list of models.
async fn model_advice(exchange: &Exchange<'_>) -> String {
    let Exchange { connection, model, .. } = exchange;
    let list = connection.models(LIST_TIMEOUT).await;
    let similar_names = model_list::nearest(model, &list.unwrap_or_default());
    let provider = &connection.config.name;
    let suggestions: Vec<String> = similar_names.iter().map(|name| format!("`{provider}/{name}`")).collect();
    let suggestions = connection.redaction.text(suggestions.join(", "));
    if suggestions.is_empty() {
        format!("The server has no model `{model}`, or the key does not allow it: check the name")
    } else {
        format!(
            "The server has no model `{model}`, or the key does not allow it. The most similar names that it lists: {suggestions}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// M3: the delay in the body of an error of Gemini is found, and invalid delays are ignored.
    #[test]
    fn m3_the_retry_delay_in_a_body_is_found() {
        let body = |delay: &str| {
            let details = serde_json::json!([{"@type": "other"}, {"@type": "RetryInfo", "retryDelay": delay}]);
            serde_json::json!({"error": {"code": 429, "details": details}})
        };
        assert_eq!(retry_delay(&body("34.5s")), Some(Duration::from_millis(34_500)));
        assert_eq!(retry_delay(&serde_json::json!([body("2s")])), Some(Duration::from_secs(2)));
        for delay in ["", "s", "-1s", "NaNs", "1e300s", "5"] {
            assert_eq!(retry_delay(&body(delay)), None, "{delay}");
        }
    }

    use serde_json::json;

    /// M5: the message is found in all known structures of error responses.
    #[test]
    fn m5_messages_of_all_shapes_are_found() {
        let cases = [
            (json!({"error": {"message": "no", "type": "t", "code": "c"}}), Some((Some("c"), "no"))),
            (json!({"error": {"message": "no", "type": "t", "code": null}}), Some((Some("t"), "no"))),
            (json!({"error": "no"}), Some((None, "no"))),
            (json!({"message": "no", "code": 3280}), Some((Some("3280"), "no"))),
            (json!({"detail": "no"}), Some((None, "no"))),
            (
                json!({"detail": [{"loc": ["body"], "msg": "field required"}, {"msg": "b"}]}),
                Some((None, "field required; b")),
            ),
            (json!({"object": "error", "message": {"detail": [{"msg": "no"}]}, "type": "x"}), Some((Some("x"), "no"))),
            (json!([{"error": {"code": 400, "message": "no", "status": "INVALID"}}]), Some((Some("400"), "no"))),
            (json!("no"), Some((None, "no"))),
            (json!({"error": {"code": 1}}), None),
            (json!({}), None),
        ];
        for (body, expected) in cases {
            let expected = expected.map(|(code, message)| (code.map(str::to_owned), message.to_owned()));
            assert_eq!(find_error(&body), expected, "{body}");
        }
    }

    /// M3: the wait is read from all forms of the `Retry-After` header.
    #[test]
    fn m3_all_forms_of_retry_after_are_read() {
        let now = httpdate::parse_http_date("Fri, 20 Nov 2026 12:00:00 GMT").unwrap();
        let cases = [
            (vec![("retry-after", "7")], Some(7000)),
            (vec![("retry-after", " 1.5 ")], Some(1500)),
            (vec![("retry-after", "Fri, 20 Nov 2026 12:00:09 GMT")], Some(9000)),
            (vec![("retry-after", "Fri, 20 Nov 2026 11:00:00 GMT")], Some(0)),
            (vec![("retry-after-ms", "250"), ("retry-after", "7")], Some(250)),
            (vec![("retry-after-ms", "x"), ("retry-after", "7")], Some(7000)),
            (vec![("retry-after", "99999999999999999999999999")], Some(1_000_000_000_000)),
            (vec![("retry-after", "1e999")], Some(1_000_000_000_000)),
            (vec![("retry-after", "inf")], None),
            (vec![("retry-after", "-1")], None),
            (vec![("retry-after", "NaN")], None),
            (vec![("retry-after", "soon")], None),
            (vec![], None),
        ];
        for (headers, expected) in cases {
            let description = format!("{headers:?}");
            let headers =
                headers.into_iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
            assert_eq!(retry_after(&headers, now), expected.map(Duration::from_millis), "{description}");
        }
    }
}
