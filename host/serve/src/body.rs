//! Reads request bodies with limits on their size and on the time that they take (rows 25 and 26).

use crate::problem::Problem;
use axum::body::{Body, to_bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Maximum size of a request with a prompt, in bytes.
pub(crate) const PROMPT_BYTES: usize = 1 << 20;
/// Maximum size of every other request, in bytes.
pub(crate) const SMALL_BYTES: usize = 16 << 10;
/// Maximum size of a request with a prompt that may have attachments, in bytes.
pub(crate) const MEDIA_BYTES: usize = 32 << 20;
/// Maximum time until the whole body has arrived.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time until the whole body of a request with attachments has arrived.
pub(crate) const MEDIA_BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// A JSON body of at most `MAX` bytes.
pub(crate) struct JsonBody<T, const MAX: usize>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync, const MAX: usize> FromRequest<S> for JsonBody<T, MAX> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        check_is_json(request.headers())?;
        parse_json(&read(request.into_body(), MAX).await?).map(Self)
    }
}

/// Checks that the type of the body is JSON.
pub(crate) fn check_is_json(headers: &HeaderMap) -> Result<(), Problem> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    // A page of another site can send a form or plain text without asking, but not JSON.
    if content_type.is_some_and(is_json) {
        return Ok(());
    }
    let detail = "the body must be JSON, with the header `Content-Type: application/json`";
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", detail))
}

/// Returns the length of the body, if the request tells it.
pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

pub(crate) fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| {
        let code = if error.is_data() { "invalid" } else { "bad_json" };
        let status = if error.is_data() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::BAD_REQUEST };
        Problem::new(status, code, format!("the body cannot be read: {error}"))
    })
}

/// Reads a body of at most `max` bytes.
pub(crate) async fn read(body: Body, max: usize) -> Result<Vec<u8>, Problem> {
    read_within(body, max, BODY_TIMEOUT).await
}

/// Reads a body of at most `max` bytes, which must arrive within this time.
pub(crate) async fn read_within(body: Body, max: usize, time: Duration) -> Result<Vec<u8>, Problem> {
    match tokio::time::timeout(time, to_bytes(body, max)).await {
        Ok(Ok(bytes)) => Ok(bytes.to_vec()),
        Ok(Err(error)) if is_too_large(&error) => {
            let detail = format!("the body has more than {} KiB", max >> 10);
            Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail))
        }
        Ok(Err(_)) => Err(Problem::new(StatusCode::BAD_REQUEST, "bad_request", "the body ended early")),
        Err(_) => {
            let detail = format!("the body did not arrive within {} s", time.as_secs());
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", detail))
        }
    }
}

/// Returns whether a body is longer than its limit. The error of the limit is inside the error of axum.
fn is_too_large(error: &axum::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if error.to_string().contains("length limit exceeded") {
            return true;
        }
        source = error.source();
    }
    false
}

fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}
