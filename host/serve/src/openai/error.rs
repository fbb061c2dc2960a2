//! Errors in the form of OpenAI's API, which the official clients read.

use crate::problem::Problem;
use agent_runtime::RequestError;
use agent_store::StoreError;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};
use std::borrow::Cow;
use utoipa::ToSchema;

/// The header that names the session of a request and of its answer.
pub(crate) const SESSION_HEADER: &str = "x-agent-session";
/// The header with which a server tells the official clients whether they may repeat a request.
const RETRY_HEADER: &str = "x-should-retry";

/// The body of an error response.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    error: ErrorDetails,
}

/// Description of an error.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ErrorDetails {
    /// What happened, and what to do.
    message: String,
    /// The kind of the error.
    #[serde(rename = "type")]
    #[schema(example = "invalid_request_error")]
    kind: &'static str,
    /// The parameter that is wrong. `null` if the error does not concern a parameter.
    param: Option<String>,
    /// A code for programs. `null` if there is no code.
    #[schema(value_type = Option<String>, example = "model_not_found")]
    code: Option<Cow<'static, str>>,
}

/// Whether a client may send the same request again by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// The client decides by the status.
    ByStatus,
    /// The client must not repeat the request. The turn of the request may have had effects, or the same request would fail
    /// again.
    Never,
}

/// An error of a request.
#[derive(Clone, Debug)]
pub(super) struct OpenAiError {
    status: StatusCode,
    body: ErrorBody,
    repeat: Repeat,
    /// The session that the error concerns.
    session: Option<String>,
}

impl OpenAiError {
    pub(super) fn new(status: StatusCode, code: impl Into<Cow<'static, str>>, message: impl ToString) -> Self {
        let kind = kind_of(status);
        let error = ErrorDetails { message: message.to_string(), kind, param: None, code: Some(code.into()) };
        let repeat = if status == StatusCode::CONFLICT { Repeat::Never } else { Repeat::ByStatus };
        Self { status, body: ErrorBody { error }, repeat, session: None }
    }

    /// Creates an error for a parameter whose value is invalid.
    pub(super) fn invalid(param: impl Into<String>, message: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_value", message).about(param)
    }

    /// Creates an error for a parameter that this server does not support, and whose neglect would mislead the client.
    pub(super) fn unsupported(param: impl Into<String>, message: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "unsupported_parameter", message).about(param)
    }

    /// Names the parameter that the error concerns.
    pub(super) fn about(mut self, param: impl Into<String>) -> Self {
        self.body.error.param = Some(param.into());
        self
    }

    /// Tells official clients not to repeat the request.
    pub(super) fn never_repeated(self) -> Self {
        Self { repeat: Repeat::Never, ..self }
    }

    /// Names the session that the error concerns.
    pub(super) fn in_session(self, session: &str) -> Self {
        Self { session: Some(session.to_owned()), ..self }
    }

    /// Returns the data of an event that the official clients raise as an error.
    pub(super) fn event(&self) -> Value {
        json!(self.body)
    }

    pub(super) fn message(&self) -> &str {
        &self.body.error.message
    }

    pub(super) fn code(&self) -> Option<&str> {
        self.body.error.code.as_deref()
    }
}

fn kind_of(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        status if status.is_server_error() => "server_error",
        _ => "invalid_request_error",
    }
}

impl From<Problem> for OpenAiError {
    fn from(problem: Problem) -> Self {
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // OpenAI's API answers invalid values with 400.
        let status = if status == StatusCode::UNPROCESSABLE_ENTITY { StatusCode::BAD_REQUEST } else { status };
        let code = match problem.code {
            "unauthorized" => "invalid_api_key",
            "invalid" | "bad_json" => "invalid_value",
            "too_many_streams" => "rate_limit_exceeded",
            code => code,
        };
        Self::new(status, code, problem.detail)
    }
}

impl From<RequestError> for OpenAiError {
    fn from(error: RequestError) -> Self {
        Problem::from(error).into()
    }
}

impl From<StoreError> for OpenAiError {
    fn from(error: StoreError) -> Self {
        Problem::from(error).into()
    }
}

impl IntoResponse for OpenAiError {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self.body).unwrap_or_default();
        let mut response = (self.status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
        if self.repeat == Repeat::Never {
            response.headers_mut().insert(RETRY_HEADER, HeaderValue::from_static("false"));
        }
        if let Some(session) = &self.session {
            add_session(response.headers_mut(), session);
        }
        response
    }
}

/// Adds the header that names the session.
pub(super) fn add_session(headers: &mut HeaderMap, session: &str) {
    if let Ok(value) = HeaderValue::from_bytes(session.as_bytes()) {
        headers.insert(SESSION_HEADER, value);
    }
}

/// Gives an error response the form of OpenAI's API. Other responses stay the same.
pub(crate) fn with_openai_error(mut response: Response) -> Response {
    let is_json = response.headers().get(header::CONTENT_TYPE).is_some_and(|value| value == "application/json");
    let status = response.status();
    let error = match response.extensions_mut().remove::<Problem>() {
        Some(problem) => OpenAiError::from(problem),
        None if is_json || !(status.is_client_error() || status.is_server_error()) => return response,
        None => OpenAiError::new(status, "bad_request", status.canonical_reason().unwrap_or("the request failed")),
    };
    let mut converted = error.into_response();
    for (name, value) in response.headers() {
        if name != header::CONTENT_TYPE && name != header::CONTENT_LENGTH {
            converted.headers_mut().append(name, value.clone());
        }
    }
    converted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I3: the errors of all routes get the form of OpenAI's API, and keep their headers.
    #[test]
    fn i3_problems_become_errors_of_openais_form() {
        let problem = Problem::invalid("the prompt is empty");
        let mut response = problem.into_response();
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        let converted = with_openai_error(response);
        assert_eq!(converted.status(), StatusCode::BAD_REQUEST);
        assert_eq!(converted.headers()[header::CONTENT_TYPE], "application/json");
        assert_eq!(converted.headers()[header::WWW_AUTHENTICATE], "Bearer");
        let unchanged = with_openai_error(StatusCode::NO_CONTENT.into_response());
        assert_eq!(unchanged.status(), StatusCode::NO_CONTENT);
        assert_eq!(
            OpenAiError::unsupported("n", "one answer only").event(),
            json!({"error": {
                "message": "one answer only", "type": "invalid_request_error", "param": "n", "code": "unsupported_parameter",
            }})
        );
    }
}
