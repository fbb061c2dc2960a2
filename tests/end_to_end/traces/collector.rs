//! A small collector on loopback, which decodes what it receives with the official types of OTLP.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// A span, in a form that tests read easily.
#[derive(Clone, Debug)]
pub(super) struct SpanView {
    pub(super) name: String,
    pub(super) trace: Vec<u8>,
    pub(super) id: Vec<u8>,
    pub(super) parent: Vec<u8>,
    pub(super) start: u64,
    pub(super) is_error: bool,
    pub(super) events: Vec<String>,
    attributes: BTreeMap<String, Value>,
}

impl SpanView {
    fn new(span: Span) -> Self {
        assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8), "{}", span.name);
        assert!(span.start_time_unix_nano > 0 && span.start_time_unix_nano <= span.end_time_unix_nano, "{span:?}");
        let attributes = span.attributes.into_iter().filter_map(|entry| Some((entry.key, entry.value?.value?)));
        Self {
            trace: span.trace_id,
            id: span.span_id,
            parent: span.parent_span_id,
            start: span.start_time_unix_nano,
            is_error: span.status.is_some_and(|status| status.code() == StatusCode::Error),
            events: span.events.into_iter().map(|event| event.name).collect(),
            attributes: attributes.collect(),
            name: span.name,
        }
    }

    pub(super) fn kind(&self) -> &str {
        self.text("openinference.span.kind").unwrap_or_else(|| panic!("{self:?} has no kind"))
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.attributes.get(name) {
            Some(Value::StringValue(text)) => Some(text),
            _ => None,
        }
    }

    pub(super) fn number(&self, name: &str) -> Option<i64> {
        match self.attributes.get(name) {
            Some(Value::IntValue(number)) => Some(*number),
            _ => None,
        }
    }
}

#[derive(Default)]
struct Received {
    requests: Vec<(Bytes, Option<String>)>,
}

/// A collector that runs in a thread of the test.
pub(super) struct CollectorProcess {
    address: SocketAddr,
    received: Arc<Mutex<Received>>,
    runtime: Runtime,
}

impl CollectorProcess {
    pub(super) fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().expect("an address"))
    }

    pub(super) fn start_at(address: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let received = Arc::new(Mutex::new(Received::default()));
        let listener = runtime.block_on(TcpListener::bind(address)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let router = Router::new().route("/v1/traces", post(receive)).with_state(received.clone());
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self { address, received, runtime }
    }

    pub(super) fn stop(self) -> SocketAddr {
        self.runtime.shutdown_background();
        self.address
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The received spans. Checks that each of them was received once.
    pub(super) fn spans(&self) -> Vec<SpanView> {
        let received = self.received.lock().expect("not poisoned");
        let requests = received
            .requests
            .iter()
            .map(|(body, _)| ExportTraceServiceRequest::decode(body.clone()).expect("valid protobuf"));
        let spans = views(requests);
        assert_eq!(ids(&spans).len(), spans.len(), "each span arrives once: {spans:#?}");
        spans
    }

    /// The bodies of all requests as text.
    pub(super) fn bodies(&self) -> String {
        let received = self.received.lock().expect("not poisoned");
        received.requests.iter().map(|(body, _)| String::from_utf8_lossy(body).into_owned()).collect()
    }

    /// The different headers `authorization` of the requests.
    pub(super) fn authorizations(&self) -> Vec<String> {
        let received = self.received.lock().expect("not poisoned");
        let headers: BTreeSet<String> = received.requests.iter().filter_map(|(_, header)| header.clone()).collect();
        headers.into_iter().collect()
    }
}

async fn receive(State(received): State<Arc<Mutex<Received>>>, headers: HeaderMap, body: Bytes) {
    let authorization = headers.get("authorization").and_then(|value| value.to_str().ok()).map(str::to_owned);
    received.lock().expect("not poisoned").requests.push((body, authorization));
}

/// Reads the file of `trace export`: one request in the JSON form of OTLP per line.
pub(super) fn spans_of_file(text: &str) -> Vec<SpanView> {
    views(text.lines().map(|line| serde_json::from_str(line).expect("OTLP as JSON")))
}

fn views(requests: impl Iterator<Item = ExportTraceServiceRequest>) -> Vec<SpanView> {
    let scopes = requests.flat_map(|request| request.resource_spans).flat_map(|resource| resource.scope_spans);
    scopes.flat_map(|scope| scope.spans).map(SpanView::new).collect()
}

/// The ids of spans.
pub(super) fn ids(spans: &[SpanView]) -> BTreeSet<(Vec<u8>, Vec<u8>, Vec<u8>)> {
    spans.iter().map(|span| (span.trace.clone(), span.id.clone(), span.parent.clone())).collect()
}

/// Writes the tree of spans as lines of kind and name. Checks that there is one trace with one root.
pub(super) fn tree(spans: &[SpanView]) -> Vec<String> {
    fn add(spans: &[&SpanView], parent: &[u8], depth: usize, lines: &mut Vec<String>) {
        for span in spans.iter().filter(|span| span.parent == parent) {
            lines.push(format!("{}{} {}", "  ".repeat(depth), span.kind(), span.name));
            add(spans, &span.id, depth + 1, lines);
        }
    }
    let traces: BTreeSet<_> = spans.iter().map(|span| &span.trace).collect();
    assert_eq!(traces.len(), 1, "one trace: {spans:#?}");
    let mut sorted: Vec<&SpanView> = spans.iter().collect();
    sorted.sort_by_key(|span| span.start);
    let mut lines = Vec::new();
    add(&sorted, &[], 0, &mut lines);
    assert_eq!(lines.len(), spans.len(), "each span is below the root: {lines:#?} {spans:#?}");
    lines
}
