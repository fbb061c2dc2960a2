//! A collector on loopback that decodes what it receives with the official types, and answers as a test tells it to.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// How the collector answers one request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// It refuses the request with this status and this `retry-after`.
    Refuse(u16, Option<&'static str>),
    /// It accepts the request, but refuses some spans.
    Partly(i64),
    /// It accepts the request after this time.
    Slow(Duration),
}

#[derive(Default)]
pub(crate) struct Received {
    /// The spans of the accepted requests.
    pub(crate) spans: Vec<Span>,
    pub(crate) requests: usize,
    pub(crate) answers: VecDeque<Answer>,
    pub(crate) largest_request: usize,
    /// Refuses every request with more spans than this.
    pub(crate) max_spans: Option<usize>,
    /// Rejects every request with a span of this session as invalid.
    pub(crate) invalid_session: Option<&'static str>,
}

pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    pub(crate) state: Arc<Mutex<Received>>,
    task: JoinHandle<()>,
}

impl Receiver {
    pub(crate) async fn start(answers: &[Answer]) -> Self {
        let state = Arc::new(Mutex::new(Received { answers: answers.to_vec().into(), ..Received::default() }));
        Self::listen("127.0.0.1:0".parse().expect("an address"), state).await
    }

    async fn listen(address: SocketAddr, state: Arc<Mutex<Received>>) -> Self {
        let listener = TcpListener::bind(address).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let router = Router::new().route("/v1/traces", post(receive)).with_state(state.clone());
        let task = tokio::spawn(async move { axum::serve(listener, router).await.expect("served") });
        Self { address, state, task }
    }

    /// Stops the collector, as if it was killed. Open connections break.
    pub(crate) async fn kill(self) -> (SocketAddr, Arc<Mutex<Received>>) {
        self.task.abort();
        let _ = self.task.await;
        (self.address, self.state)
    }

    /// Starts a killed collector again at the same address.
    pub(crate) async fn restart((address, state): (SocketAddr, Arc<Mutex<Received>>)) -> Self {
        Self::listen(address, state).await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Names of the received spans, with their ids.
    pub(crate) fn ids(&self) -> Vec<(Vec<u8>, Vec<u8>, String)> {
        let state = self.state.lock().expect("not poisoned");
        state.spans.iter().map(|span| (span.trace_id.clone(), span.span_id.clone(), span.name.clone())).collect()
    }

    pub(crate) fn requests(&self) -> usize {
        self.state.lock().expect("not poisoned").requests
    }
}

async fn receive(State(state): State<Arc<Mutex<Received>>>, headers: HeaderMap, body: Bytes) -> Response {
    assert_eq!(headers[header::CONTENT_TYPE], "application/x-protobuf");
    let request = ExportTraceServiceRequest::decode(body).expect("valid protobuf");
    let spans = request.resource_spans.into_iter().flat_map(|resource| {
        assert!(resource.resource.is_some_and(|resource| !resource.attributes.is_empty()));
        resource.scope_spans.into_iter().flat_map(|scope| scope.spans)
    });
    let spans: Vec<Span> = spans.collect();
    for span in &spans {
        assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8), "{}", span.name);
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{}", span.name);
    }
    let (answer, max_spans, invalid_session) = {
        let mut state = state.lock().expect("not poisoned");
        state.requests += 1;
        state.largest_request = state.largest_request.max(spans.len());
        (state.answers.pop_front(), state.max_spans, state.invalid_session)
    };
    if invalid_session.is_some_and(|session| spans.iter().any(|span| belongs_to(span, session))) {
        return StatusCode::BAD_REQUEST.into_response();
    }
    if max_spans.is_some_and(|max| spans.len() > max) {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    }
    let mut response = ExportTraceServiceResponse::default();
    match answer {
        Some(Answer::Refuse(status, retry_after)) => {
            let status = StatusCode::from_u16(status).expect("a status");
            let headers = retry_after.map(|time| [(header::RETRY_AFTER, time)]);
            return match headers {
                Some(headers) => (status, headers).into_response(),
                None => status.into_response(),
            };
        }
        Some(Answer::Partly(rejected_spans)) => {
            let error_message = "too old".to_owned();
            response.partial_success = Some(ExportTracePartialSuccess { rejected_spans, error_message });
        }
        Some(Answer::Slow(time)) => tokio::time::sleep(time).await,
        None => {}
    }
    state.lock().expect("not poisoned").spans.extend(spans);
    ([(header::CONTENT_TYPE, "application/x-protobuf")], response.encode_to_vec()).into_response()
}

/// Whether the attribute `session.id` of a span has this value.
pub(crate) fn belongs_to(span: &Span, session: &str) -> bool {
    let session = Some(Value::StringValue(session.to_owned()));
    let mut ids = span.attributes.iter().filter(|attribute| attribute.key == "session.id");
    ids.any(|attribute| attribute.value.as_ref().and_then(|value| value.value.clone()) == session)
}
