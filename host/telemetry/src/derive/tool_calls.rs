//! Spans of tool calls. A call has one span, from its first dispatch to its result, even if it runs several times or waits
//! for an answer.

use super::messages::content_text;
use super::record_bodies::{HostAnswersBody, ServiceAnswerBody, ServiceRequestBody, body_of};
use super::turn::TurnWalk;
use crate::conventions::open_inference::kind;
use crate::conventions::{common, gen_ai, host, open_inference};
use crate::span::{Span, SpanEvent, SpanKind, SpanStatus, Value};
use agent_core::change::{CallRecord, Denial};
use agent_core::event::{Event, EventKind, plugin_at_digest};
use agent_core::message::CallId;
use agent_core::plugin::TraceContext;
use agent_core::tool::{CallCost, ToolSource};
use agent_core::trace::SpanKey;
use agent_store::StoredRecord;
use serde_json::Value as Json;

/// A call that has begun and has no result yet.
#[derive(Default)]
pub(super) struct OpenCall<'d> {
    pub(super) start: u64,
    step: Option<u32>,
    arguments: Option<&'d Json>,
    attempts: u32,
    denials: Vec<(u64, &'d Denial)>,
    /// The trace contexts of the events that answered the call.
    links: Vec<TraceContext>,
    pub(super) host_calls_omitted: usize,
}

/// How a call ended.
struct CallEnd<'d> {
    call: &'d CallId,
    name: &'d str,
    /// The result as it was shown to the model.
    shown: &'d str,
    is_error: bool,
    cost: CallCost,
}

impl<'d> TurnWalk<'d> {
    /// Handles an event about a tool call.
    pub(super) fn add_tool_event(&mut self, event: &'d Event) {
        let (step, now) = (self.in_current_step(), self.now);
        let step = step.and_then(|key| if let SpanKey::Step(step) = key { Some(step) } else { None });
        match &event.kind {
            EventKind::ToolCall { call, arguments, attempt, .. } => {
                let open = self.open_call(call);
                (open.step, open.attempts) = (open.step.or(step), open.attempts.max(*attempt));
                if !arguments.is_null() {
                    open.arguments = Some(arguments);
                }
            }
            EventKind::Denied { call: Some(call), denial } => self.open_call(call).denials.push((now, denial)),
            EventKind::ToolResult { call, name, content, cost } => {
                self.end_call(&CallEnd { call, name, shown: content, is_error: false, cost: *cost });
            }
            EventKind::ToolResultError { call, name, content, cost } => {
                self.end_call(&CallEnd { call, name, shown: content, is_error: true, cost: *cost });
            }
            _ => {}
        }
    }

    pub(super) fn open_call(&mut self, call: &'d CallId) -> &mut OpenCall<'d> {
        let start = self.now;
        self.calls.entry(call).or_insert_with(|| OpenCall { start, ..OpenCall::default() })
    }

    fn end_call(&mut self, end: &CallEnd<'d>) {
        let open = self.calls.remove(end.call).unwrap_or_else(|| OpenCall { start: self.now, ..OpenCall::default() });
        let record = self.data.calls.get(end.call);
        let step = record.map(|record| record.step).or(open.step).unwrap_or_default();
        let name = format!("{} {}", gen_ai::operation::EXECUTE_TOOL, end.name);
        let parent = self.in_step(step);
        let span = self.span((Some(SpanKey::Call(end.call)), parent), kind::TOOL, name);
        let mut span = Self::timed(span, open.start, self.now);
        let label = |text: &str| self.data.scrubber.label(text);
        span.set(gen_ai::OPERATION, gen_ai::operation::EXECUTE_TOOL);
        for name in [open_inference::TOOL_NAME, gen_ai::TOOL_NAME] {
            span.set(name, label(end.name));
        }
        for name in [open_inference::TOOL_ID, gen_ai::TOOL_CALL] {
            span.set(name, label(&end.call.0));
        }
        span.set(gen_ai::TOOL_TYPE, "function");
        span.set(host::ATTEMPTS, Value::count(open.attempts.into()));
        if let Some(source) = record.and_then(|record| record.source.as_ref()) {
            self.set_source(&mut span, source);
        }
        set_cost(&mut span, end.cost);
        if open.host_calls_omitted > 0 {
            span.set(host::HOST_CALLS_OMITTED, Value::count(open.host_calls_omitted as u64));
        }
        span.events = open.denials.iter().map(|(time, denial)| self.denial(*time, denial)).collect();
        span.links = open.links.iter().filter_map(|link| Some((link.trace_id()?, link.span_id()?))).collect();
        let output = output_of(record, end);
        span.status = match end.is_error {
            false => SpanStatus::Ok,
            true => {
                span.set(common::ERROR_TYPE, "tool_error");
                self.failed(output.clone())
            }
        };
        let mut writer = self.writer(&mut span);
        writer.output(output);
        let arguments = record.map(CallRecord::effective_arguments).or(open.arguments).map(Json::to_string);
        if let Some(arguments) = arguments {
            writer.add(open_inference::TOOL_PARAMETERS, arguments.clone());
            writer.input(arguments);
        }
        writer.finish();
        self.spans.push(span);
    }

    fn set_source(&self, span: &mut Span, source: &ToolSource) {
        let label = |text: &str| self.data.scrubber.label(text);
        let kind = match source {
            ToolSource::Plugin { plugin, digest } => {
                span.set(host::PLUGIN, label(&plugin_at_digest(plugin, digest)));
                "plugin"
            }
            ToolSource::BuiltIn => "built_in",
            ToolSource::Mcp { server, .. } => {
                span.set(host::SERVER, label(server));
                "mcp"
            }
            ToolSource::Service { event_type } => {
                span.set(host::EVENT_TYPE, label(event_type));
                "service"
            }
            ToolSource::Agent { agent } => {
                span.set(host::DELEGATE, label(agent));
                "agent"
            }
            ToolSource::Client => "client",
        };
        span.set(host::SOURCE, kind);
    }

    fn denial(&self, time: u64, denial: &Denial) -> SpanEvent {
        let scrubber = self.data.scrubber;
        let mut attributes = vec![(host::PLUGIN.into(), scrubber.label(&denial.plugin).into())];
        attributes.extend(scrubber.content(&denial.thing).map(|thing| (host::REASON.into(), thing.into())));
        SpanEvent { name: "denied", time, attributes }
    }

    /// Adds the spans of the host calls of a plugin that ran a tool call.
    pub(super) fn add_host_answers(&mut self, record: &'d StoredRecord) {
        let Some(HostAnswersBody { call, host }) = body_of(record) else { return };
        let call = CallId(call);
        let start = self.calls.get(&call).map_or(self.boundary, |open| open.start);
        let omitted = self.add_host_calls((record.number, start), Some(SpanKey::Call(&call)), &host);
        if let Some(open) = self.calls.get_mut(&call) {
            open.host_calls_omitted += omitted;
        }
    }

    /// Adds the span of a plugin's request to a service.
    pub(super) fn add_service_request(&mut self, record: &'d StoredRecord) {
        let Some(ServiceRequestBody { call, request }) = body_of(record) else { return };
        let (call, event_type) = (CallId(call), request["event_type"].as_str().unwrap_or_default());
        let key = (Some(SpanKey::Record(record.number, 0)), Some(SpanKey::Call(&call)));
        let span = self.span(key, kind::CHAIN, format!("send {event_type}"));
        let mut span = Self::timed(span, self.now, self.now);
        span.kind = SpanKind::Producer;
        span.set(host::EVENT_TYPE, self.data.scrubber.label(event_type));
        let mut writer = self.writer(&mut span);
        writer.input(request["data"].to_string());
        writer.finish();
        self.spans.push(span);
    }

    /// Links a call to the trace of the event that answered it.
    pub(super) fn add_service_answer(&mut self, record: &'d StoredRecord) {
        let Some(ServiceAnswerBody { call, trace: Some(trace) }) = body_of(record) else { return };
        let open = self.calls.iter_mut().find(|(open, _)| open.0 == call);
        if let Some((_, open)) = open.filter(|_| trace.is_valid()) {
            open.links.push(trace);
        }
    }
}

/// Returns the complete result of a call, or the result as it was shown to the model.
fn output_of(record: Option<&CallRecord>, end: &CallEnd<'_>) -> String {
    let complete = record.and_then(|record| record.result.as_ref()).map(|result| content_text(&result.content));
    complete.unwrap_or_else(|| end.shown.to_owned())
}

fn set_cost(span: &mut Span, cost: CallCost) {
    let costs = [
        (host::WALL, cost.wall_us),
        (host::CPU, cost.cpu_us),
        (host::QUEUE, cost.queue_us),
        (host::MEMORY, cost.memory_bytes),
    ];
    for (name, cost) in costs.into_iter().filter(|(_, cost)| *cost > 0) {
        span.set(name, Value::count(cost));
    }
}
