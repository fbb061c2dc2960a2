//! Reads an error that a provider answered with: its message, its request id, how long to wait, and what to do.

use super::connection::Connection;
use super::exchange::{Exchange, content_type};
use super::model_list;
use crate::error::{Cause, ModelError, Refusal, Said};
use agent_core::visible::visible;
use reqwest::Response;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde_json::Value;
use std::time::{Duration, SystemTime};

/// Most bytes of an error's body that are read.
const BODY_LIMIT: usize = 64 * 1024;

/// How long an error's body may take: its status says most already.
const BODY_TIME: Duration = Duration::from_secs(5);

/// Most characters of a provider's message.
const MESSAGE: usize = 1000;

/// How long the list of models may take.
const LIST_TIME: Duration = Duration::from_secs(2);

/// Under which names servers send the id of a request.
const REQUEST_IDS: &[&str] =
    &["x-request-id", "request-id", "x-groq-request-id", "apim-request-id", "mistral-correlation-id", "cf-ray"];

/// The error that this answer is.
pub(super) async fn read(exchange: &Exchange<'_>, response: Response) -> ModelError {
    let (status, headers, declared) = (response.status(), response.headers().clone(), content_type(&response));
    let body = body(exchange, response).await;
    let said = serde_json::from_slice(&body).ok().and_then(|body| find_error(&body));
    // A gateway's own page says that its server is away, which passes; any other page means a wrong address.
    let passes = matches!(status.as_u16(), 408 | 429 | 500..=599);
    if said.is_none() && !passes && body.trim_ascii_start().starts_with(b"<") {
        return exchange.foreign(status, &declared, &body);
    }
    let (code, mut message) = said.unwrap_or_else(|| (None, in_words(&body)));
    message = quoted(exchange, &message);
    if message.is_empty() {
        message = status.canonical_reason().unwrap_or("no reason is given").to_owned();
    }
    let code = code.map(|code| exchange.excerpt(code.as_bytes()));
    let refusal = Refusal::new(exchange.endpoint.clone(), Said::Status(status.as_u16()), code, message);
    let request_id = REQUEST_IDS.iter().find_map(|name| headers.get(*name)).map(|id| exchange.excerpt(id.as_bytes()));
    let refusal = Refusal { request_id, retry_after: retry_after(&headers, SystemTime::now()), ..refusal };
    let mut refusal = with_advice(exchange.connection, refusal);
    if refusal.cause == Cause::Model {
        refusal.advice = Some(model_advice(exchange).await);
    }
    ModelError::Refused(Box::new(refusal))
}

/// Adds what to do, as far as the configuration tells.
pub(super) fn with_advice(connection: &Connection, refusal: Refusal) -> Refusal {
    let config = &connection.config;
    let keyless = config.key.is_none() && config.headers.is_empty();
    let advice = match refusal.cause {
        Cause::Key if keyless => Some(format!("It wants a key, and none is configured: {}", config.key_advice)),
        Cause::Key => Some(format!("Check the key and what it is allowed to do: {}", config.key_advice)),
        Cause::Address => Some(format!(
            "Check the base URL `{}`, which for most servers ends in `/v1`, and the model's name",
            super::connection::shown(&connection.url("")).trim_end_matches('/')
        )),
        _ => None,
    };
    Refusal { advice: advice.or(refusal.advice), ..refusal }
}

/// A provider's words, without secrets, and not too many.
pub(super) fn quoted(exchange: &Exchange<'_>, message: &str) -> String {
    let plain = |character: &char| !character.is_control() || matches!(character, '\n' | '\t');
    let message = exchange.connection.redaction.text(message.trim().chars().filter(plain).collect());
    let message = visible(&message);
    match message.char_indices().nth(MESSAGE) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.into_owned(),
    }
}

async fn body(exchange: &Exchange<'_>, mut response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    let read = async {
        // What came before the connection failed is worth showing.
        while let Ok(Some(bytes)) = exchange.piece(&mut response).await {
            body.extend_from_slice(&bytes);
            if body.len() >= BODY_LIMIT {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(BODY_TIME, read).await;
    body.truncate(BODY_LIMIT);
    body
}

/// Code and message, in any of the shapes that servers use.
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
            let found = names.iter().find_map(|name| fields.get(*name).and_then(message))?;
            let code = ["code", "type", "status"].iter().find_map(|name| fields.get(*name).and_then(text));
            Some((code, found))
        }
        _ => None,
    }
}

/// A body that is no error in JSON: of a page, only its words.
fn in_words(body: &[u8]) -> String {
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

/// Seconds of a wait that nobody sits out: numbers beyond it, and beyond all that can be counted, mean the same.
const LONGEST_ASKED: f64 = 1e9;

/// In milliseconds as some say it, in seconds, or as a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let is_number = |text: &&str| text.starts_with(|first: char| first.is_ascii_digit() || first == '.');
    let number = |text: &str| Some(text.trim()).filter(is_number)?.parse::<f64>().ok();
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let milliseconds = header("retry-after-ms").and_then(number).map(|milliseconds| milliseconds / 1000.0);
    let text = header(RETRY_AFTER.as_str());
    let seconds = milliseconds.or_else(|| text.and_then(number));
    if let Some(wait) = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds.min(LONGEST_ASKED)).ok()) {
        return Some(wait);
    }
    let date = text.and_then(|text| httpdate::parse_http_date(text.trim()).ok())?;
    Some(date.duration_since(now).unwrap_or_default())
}

/// Names the model, and those with the nearest names that the server lists.
async fn model_advice(exchange: &Exchange<'_>) -> String {
    let Exchange { connection, model, .. } = exchange;
    let list = connection.models(LIST_TIME).await;
    let nearest = model_list::nearest(model, &list.unwrap_or_default());
    let provider = &connection.config.name;
    let named: Vec<String> = nearest.iter().map(|name| format!("`{provider}/{name}`")).collect();
    let named = connection.redaction.text(named.join(", "));
    if named.is_empty() {
        format!("The server has no model `{model}`, or the key may not use it: check the name")
    } else {
        format!("The server has no model `{model}`, or the key may not use it. The nearest that it lists: {named}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// M5: the provider's message, in all the shapes that were seen.
    #[test]
    fn m5_messages_are_found() {
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

    /// M3: all forms of Retry-After.
    #[test]
    fn m3_waits_that_providers_ask_for() {
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
            let shown = format!("{headers:?}");
            let headers =
                headers.into_iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
            assert_eq!(retry_after(&headers, now), expected.map(Duration::from_millis), "{shown}");
        }
    }
}
