//! An HTTP client that replaces each message that is nested too deeply with an error response (row 21). Without
//! this client, the SDK would silently drop messages that are nested too deeply, and the caller would wait until its
//! request times out. Because of the error response, the request fails immediately.

use crate::bounded_lines::{MAX_DEPTH, is_too_deep};
use crate::error_text::{too_deep_error, unreadable_event};
use futures::StreamExt;
use futures::stream::BoxStream;
use reqwest::Client;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, ErrorCode, RequestId};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use serde_json::json;
use serde_json::value::RawValue;
use sse_stream::Sse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

type Events = BoxStream<'static, Result<Sse, SseError>>;
type HttpError = StreamableHttpError<reqwest::Error>;
type Headers = HashMap<HeaderName, HeaderValue>;

/// HTTP client that checks the nesting depth of every event in the event streams that it receives.
#[derive(Clone)]
pub(crate) struct DepthLimitedClient(pub(crate) Client);

impl StreamableHttpClient for DepthLimitedClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        authorization: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let request = request_id(&message);
        let response = self.0.post_message(uri, message, session, authorization, headers).await?;
        Ok(limit_response(response, request))
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        authorization: Option<String>,
        headers: Headers,
        max_bytes: usize,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let request = request_id(&message);
        let response =
            self.0.post_message_with_max_sse_event_size(uri, message, session, authorization, headers, max_bytes);
        Ok(limit_response(response.await?, request))
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        authorization: Option<String>,
        headers: Headers,
    ) -> Result<(), HttpError> {
        self.0.delete_session(uri, session, authorization, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        authorization: Option<String>,
        headers: Headers,
    ) -> Result<Events, HttpError> {
        Ok(limit_events(self.0.get_stream(uri, session, last_event, authorization, headers).await?, None))
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        authorization: Option<String>,
        headers: Headers,
        max_bytes: usize,
    ) -> Result<Events, HttpError> {
        let response =
            self.0.get_stream_with_max_sse_event_size(uri, session, last_event, authorization, headers, max_bytes);
        Ok(limit_events(response.await?, None))
    }
}

/// If the message is a request, returns the id of this request.
fn request_id(message: &ClientJsonRpcMessage) -> Option<RequestId> {
    match message {
        ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
        _ => None,
    }
}

fn limit_response(response: StreamableHttpPostResponse, request: Option<RequestId>) -> StreamableHttpPostResponse {
    match response {
        StreamableHttpPostResponse::Sse(events, session) => {
            StreamableHttpPostResponse::Sse(limit_events(events, request), session)
        }
        other => other,
    }
}

fn limit_events(events: Events, request: Option<RequestId>) -> Events {
    let check_event = move |event: Result<Sse, SseError>| match event {
        Ok(event) => Ok(check_depth(event, request.as_ref())),
        Err(error) => as_error_response(error, request.as_ref()),
    };
    events.map(check_event).boxed()
}

/// Converts the error for an unreadable event to an error response to the request. An error that only means that the
/// stream ended is returned unchanged, so that the SDK resumes the stream.
fn as_error_response(error: SseError, request: Option<&RequestId>) -> Result<Sse, SseError> {
    match (unreadable_event(&error), request) {
        (Some(reason), Some(id)) => Ok(Sse { data: Some(error_response(id, &reason)), ..Sse::default() }),
        _ => Err(error),
    }
}

/// Returns the event unchanged, or replaces its data with an error response if the data is nested too deeply.
fn check_depth(mut event: Sse, request: Option<&RequestId>) -> Sse {
    let is_message = matches!(event.event.as_deref(), None | Some("" | "message"));
    if let Some(data) = event.data.as_deref().filter(|data| is_message && is_too_deep(data.as_bytes())) {
        event.data = too_deep_response(data, request);
        if event.data.is_none() {
            tracing::warn!("dropped a message of an MCP server that is nested more than {MAX_DEPTH} levels deep");
        }
    }
    event
}

/// Builds the error response for a message that is nested too deeply. Returns `None` if the message is a request or
/// notification, or if the request to which the message responds is unknown.
fn too_deep_response(data: &str, request: Option<&RequestId>) -> Option<String> {
    // `RawValue` stores the JSON text of a value without parsing the value, so values of any depth are accepted here.
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(data).unwrap_or_default();
    if fields.contains_key("method") {
        return None;
    }
    let message_id = fields.get("id").and_then(|id| serde_json::from_str::<RequestId>(id.get()).ok());
    let id = message_id.as_ref().or(request)?;
    Some(error_response(id, &too_deep_error()))
}

fn error_response(id: &RequestId, reason: &str) -> String {
    let error = json!({"code": ErrorCode::PARSE_ERROR, "message": reason});
    json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(data: String) -> Sse {
        Sse { data: Some(data), ..Sse::default() }
    }

    /// Builds a JSON object from `prefix`, which must be the beginning of the object, followed by `levels`
    /// nested arrays.
    fn deeply_nested(prefix: &str, levels: usize) -> String {
        format!("{prefix}{}{}}}", "[".repeat(levels), "]".repeat(levels))
    }

    /// I5, row 21: a response that is nested too deeply becomes an error response, even if the brackets of the response
    /// are not closed or its id differs from the id of the request.
    #[test]
    fn row21_a_response_that_is_too_deep_becomes_an_error_response() {
        let request = RequestId::Number(7);
        let levels = 200_000;
        for (data, id) in [
            (deeply_nested(r#"{"jsonrpc":"2.0","id":3,"result":"#, levels), json!(3)),
            (deeply_nested(r#"{"jsonrpc":"2.0","result":"#, levels), json!(7)),
            (deeply_nested(r#"{"jsonrpc":"2.0","result":1,"id":"#, levels), json!(7)),
            ("[".repeat(levels), json!(7)),
            (format!(r#"{{"id":3,"result":{}"#, "[".repeat(levels)), json!(7)),
        ] {
            let response = check_depth(event(data), Some(&request)).data.expect("an error response");
            let response: serde_json::Value =
                serde_json::from_str(&response).expect("the error response is valid JSON");
            assert!(response["error"]["message"].as_str().unwrap().contains("more than 127 levels"), "{response}");
            assert_eq!(response["id"], id);
        }
    }

    #[test]
    fn row21_notifications_and_readable_messages_do_not_become_errors() {
        let notification = deeply_nested(r#"{"jsonrpc":"2.0","method":"notifications/message","params":"#, 500);
        assert_eq!(check_depth(event(notification), Some(&RequestId::Number(7))).data, None);
        assert_eq!(check_depth(event(deeply_nested(r#"{"result":"#, 500)), None).data, None, "the request is unknown");
        let readable = deeply_nested(r#"{"jsonrpc":"2.0","id":3,"result":"#, MAX_DEPTH - 1);
        assert_eq!(check_depth(event(readable.clone()), None).data, Some(readable));
        let control = Sse { event: Some("ping".to_owned()), ..event("[".repeat(500)) };
        assert_eq!(check_depth(control, Some(&RequestId::Number(7))).data, Some("[".repeat(500)));
    }
}
