//! Converts spans to the messages of OTLP.

use crate::conventions::{GEN_AI_VERSION, OPEN_INFERENCE_VERSION, common, open_inference};
use crate::span::{Attribute, Span, SpanEvent, SpanKind, SpanStatus, Value};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as ProtoSpan, Status, span, status};

/// Name of the program, in the resource and in the scope of its spans.
const SERVICE: &str = "agent-host";
/// Flags of a span: it is sampled, and it is known whether its parent belongs to another program.
const SAMPLED: u32 = 0x01;
const REMOTE_IS_KNOWN: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// Returns the message that exports spans. `project` is the name under which viewers group traces.
pub fn request_of<'s>(project: &str, spans: impl IntoIterator<Item = &'s Span>) -> ExportTraceServiceRequest {
    let conventions = vec![
        text_attribute("agent_host.conventions.gen_ai", GEN_AI_VERSION),
        text_attribute("agent_host.conventions.open_inference", OPEN_INFERENCE_VERSION),
    ];
    let scope_spans = ScopeSpans {
        scope: Some(scope(conventions)),
        spans: spans.into_iter().map(proto_span).collect(),
        ..ScopeSpans::default()
    };
    let resource = process_resource(vec![text_attribute(open_inference::PROJECT, project)]);
    let spans = ResourceSpans { resource: Some(resource), scope_spans: vec![scope_spans], ..ResourceSpans::default() };
    ExportTraceServiceRequest { resource_spans: vec![spans] }
}

/// Returns the resource that describes the program, with these attributes in addition.
pub(super) fn process_resource(more: Vec<KeyValue>) -> Resource {
    let mut attributes = vec![
        text_attribute(common::SERVICE_NAME, SERVICE),
        text_attribute(common::SERVICE_VERSION, env!("CARGO_PKG_VERSION")),
    ];
    attributes.extend(more);
    Resource { attributes, ..Resource::default() }
}

/// Returns the scope of everything that the program exports.
pub(super) fn scope(attributes: Vec<KeyValue>) -> InstrumentationScope {
    let (name, version) = (SERVICE.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    InstrumentationScope { name, version, attributes, ..InstrumentationScope::default() }
}

pub(super) fn text_attribute(name: &str, text: &str) -> KeyValue {
    attribute((name.to_owned(), Value::Text(text.to_owned())))
}

fn proto_span(span: &Span) -> ProtoSpan {
    let kind = match span.kind {
        SpanKind::Internal => span::SpanKind::Internal,
        SpanKind::Client => span::SpanKind::Client,
        SpanKind::Producer => span::SpanKind::Producer,
    };
    let links = span.links.iter().map(|(trace, id)| span::Link {
        trace_id: trace.to_vec(),
        span_id: id.to_vec(),
        ..span::Link::default()
    });
    ProtoSpan {
        trace_id: span.trace_id.to_vec(),
        span_id: span.span_id.to_vec(),
        trace_state: span.trace_state.clone(),
        parent_span_id: span.parent.map(|id| id.to_vec()).unwrap_or_default(),
        flags: SAMPLED | REMOTE_IS_KNOWN | if span.has_remote_parent { IS_REMOTE } else { 0 },
        name: span.name.clone(),
        kind: kind.into(),
        start_time_unix_nano: span.start,
        end_time_unix_nano: span.end,
        attributes: attributes(&span.attributes),
        events: span.events.iter().map(proto_event).collect(),
        links: links.collect(),
        status: Some(proto_status(&span.status)),
        ..ProtoSpan::default()
    }
}

fn proto_event(event: &SpanEvent) -> span::Event {
    span::Event {
        time_unix_nano: event.time,
        name: event.name.to_owned(),
        attributes: attributes(&event.attributes),
        ..span::Event::default()
    }
}

fn proto_status(status: &SpanStatus) -> Status {
    let (code, message) = match status {
        SpanStatus::Unset => (status::StatusCode::Unset, ""),
        SpanStatus::Ok => (status::StatusCode::Ok, ""),
        SpanStatus::Error { message } => (status::StatusCode::Error, message.as_str()),
    };
    Status { code: code.into(), message: message.to_owned() }
}

fn attributes(attributes: &[Attribute]) -> Vec<KeyValue> {
    attributes.iter().map(|(name, value)| attribute((name.to_string(), value.clone()))).collect()
}

fn attribute((key, value): (String, Value)) -> KeyValue {
    KeyValue { key, value: Some(any_value(value)), ..KeyValue::default() }
}

fn any_value(value: Value) -> AnyValue {
    let value = match value {
        Value::Text(text) => any_value::Value::StringValue(text),
        Value::Number(number) => any_value::Value::IntValue(number),
        Value::Fraction(number) => any_value::Value::DoubleValue(number),
        Value::Flag(flag) => any_value::Value::BoolValue(flag),
        Value::Texts(texts) => {
            let values = texts.into_iter().map(|text| any_value(Value::Text(text))).collect();
            any_value::Value::ArrayValue(ArrayValue { values })
        }
    };
    AnyValue { value: Some(value) }
}
