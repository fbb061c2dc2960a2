//! A client over HTTP that hears no message deeper than can be read. The SDK drops such events in silence, so that whoever waits
//! for an answer would wait for its time limit: here they are an error of what was asked (row 21).

use crate::lines::{MAX_DEPTH, is_too_deep};
use crate::reasons::{too_deep, unreadable};
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
type Failure = StreamableHttpError<reqwest::Error>;
type Headers = HashMap<HeaderName, HeaderValue>;

/// Asks with the client of the whole host.
#[derive(Clone)]
pub(crate) struct Shallow(pub(crate) Client);

impl StreamableHttpClient for Shallow {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        authorization: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let request = id_of(&message);
        let response = self.0.post_message(uri, message, session, authorization, headers).await?;
        Ok(heard(response, request))
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        authorization: Option<String>,
        headers: Headers,
        most_bytes: usize,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let request = id_of(&message);
        let asked =
            self.0.post_message_with_max_sse_event_size(uri, message, session, authorization, headers, most_bytes);
        Ok(heard(asked.await?, request))
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        authorization: Option<String>,
        headers: Headers,
    ) -> Result<(), Failure> {
        self.0.delete_session(uri, session, authorization, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        authorization: Option<String>,
        headers: Headers,
    ) -> Result<Events, Failure> {
        Ok(shallow(self.0.get_stream(uri, session, last_event, authorization, headers).await?, None))
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        authorization: Option<String>,
        headers: Headers,
        most_bytes: usize,
    ) -> Result<Events, Failure> {
        let asked =
            self.0.get_stream_with_max_sse_event_size(uri, session, last_event, authorization, headers, most_bytes);
        Ok(shallow(asked.await?, None))
    }
}

fn id_of(message: &ClientJsonRpcMessage) -> Option<RequestId> {
    match message {
        ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
        _ => None,
    }
}

fn heard(response: StreamableHttpPostResponse, request: Option<RequestId>) -> StreamableHttpPostResponse {
    match response {
        StreamableHttpPostResponse::Sse(events, session) => {
            StreamableHttpPostResponse::Sse(shallow(events, request), session)
        }
        other => other,
    }
}

fn shallow(events: Events, request: Option<RequestId>) -> Events {
    let heard = move |event: Result<Sse, SseError>| match event {
        Ok(event) => Ok(readable(event, request.as_ref())),
        Err(error) => told(error, request.as_ref()),
    };
    events.map(heard).boxed()
}

/// What cannot be read as events is a refusal of what was asked. A stream that only broke off is taken up again by the SDK.
fn told(error: SseError, request: Option<&RequestId>) -> Result<Sse, SseError> {
    match (unreadable(&error), request) {
        (Some(reason), Some(id)) => Ok(Sse { data: Some(refused(id, &reason)), ..Sse::default() }),
        _ => Err(error),
    }
}

/// The event itself, or where it is too deep a refusal of what it answers.
fn readable(mut event: Sse, request: Option<&RequestId>) -> Sse {
    let is_message = matches!(event.event.as_deref(), None | Some("" | "message"));
    if let Some(data) = event.data.as_deref().filter(|data| is_message && is_too_deep(data.as_bytes())) {
        event.data = refusal(data, request);
        if event.data.is_none() {
            tracing::warn!("an MCP server sent a message of more than {MAX_DEPTH} levels, which is not read");
        }
    }
    event
}

/// None for what answers nothing.
fn refusal(data: &str, request: Option<&RequestId>) -> Option<String> {
    // Its parts are passed over, not read, however deep they are.
    let parts: BTreeMap<String, &RawValue> = serde_json::from_str(data).unwrap_or_default();
    if parts.contains_key("method") {
        return None;
    }
    let own = parts.get("id").and_then(|id| serde_json::from_str::<RequestId>(id.get()).ok());
    let id = own.as_ref().or(request)?;
    Some(refused(id, &too_deep()))
}

fn refused(id: &RequestId, reason: &str) -> String {
    let error = json!({"code": ErrorCode::PARSE_ERROR, "message": reason});
    json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(data: String) -> Sse {
        Sse { data: Some(data), ..Sse::default() }
    }

    fn deep(begin: &str, levels: usize) -> String {
        format!("{begin}{}{}}}", "[".repeat(levels), "]".repeat(levels))
    }

    /// I5, row 21: what waits for an answer that is too deep is told so, also where the answer is never closed or names another.
    #[test]
    fn row21_an_answer_that_is_too_deep_is_a_refusal() {
        let request = RequestId::Number(7);
        let levels = 200_000;
        for (data, id) in [
            (deep(r#"{"jsonrpc":"2.0","id":3,"result":"#, levels), json!(3)),
            (deep(r#"{"jsonrpc":"2.0","result":"#, levels), json!(7)),
            (deep(r#"{"jsonrpc":"2.0","result":1,"id":"#, levels), json!(7)),
            ("[".repeat(levels), json!(7)),
            (format!(r#"{{"id":3,"result":{}"#, "[".repeat(levels)), json!(7)),
        ] {
            let told = readable(event(data), Some(&request)).data.expect("an answer");
            let told: serde_json::Value = serde_json::from_str(&told).expect("it can be read");
            assert!(told["error"]["message"].as_str().unwrap().contains("more than 127 levels"), "{told}");
            assert_eq!(told["id"], id);
        }
    }

    #[test]
    fn row21_what_answers_nothing_or_can_be_read_is_no_refusal() {
        let notice = deep(r#"{"jsonrpc":"2.0","method":"notifications/message","params":"#, 500);
        assert_eq!(readable(event(notice), Some(&RequestId::Number(7))).data, None);
        assert_eq!(readable(event(deep(r#"{"result":"#, 500)), None).data, None, "nobody knows what it answers");
        let whole = deep(r#"{"jsonrpc":"2.0","id":3,"result":"#, MAX_DEPTH - 1);
        assert_eq!(readable(event(whole.clone()), None).data, Some(whole));
        let control = Sse { event: Some("ping".to_owned()), ..event("[".repeat(500)) };
        assert_eq!(readable(control, Some(&RequestId::Number(7))).data, Some("[".repeat(500)));
    }
}
