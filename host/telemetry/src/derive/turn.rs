//! Walks through the commits of a turn, keeps what has begun and not ended, and builds the spans of the turn and of its
//! steps.

use super::TurnData;
use super::commits::StoredCommit;
use super::content_writer::ContentWriter;
use super::record_bodies::{TraceBody, body_of};
use super::tool_calls::OpenCall;
use crate::conventions::open_inference::kind;
use crate::conventions::{common, gen_ai, host, open_inference};
use crate::span::{Span, SpanEvent, SpanKind, SpanStatus, Value};
use agent_core::cost::TurnCost;
use agent_core::event::{EndReason, Event, EventKind};
use agent_core::message::CallId;
use agent_core::plugin::TraceContext;
use agent_core::trace::{SpanKey, TurnName};
use serde_json::json;
use std::collections::BTreeMap;

/// The part of a turn to which a span belongs. `None` means the whole turn.
pub(super) type Parent<'k> = Option<SpanKey<'k>>;

/// The state of a turn between two of its commits.
pub(super) struct TurnWalk<'d> {
    pub(super) data: &'d TurnData<'d>,
    trace: TraceContext,
    /// The span to which the turn belongs.
    parent: Option<TraceContext>,
    agent: String,
    plugins: Vec<String>,
    /// Beginning of the turn. `None` until the event that begins the turn.
    started: Option<u64>,
    /// The current step and its beginning.
    step: Option<(u32, u64)>,
    /// The time from which the next action of the turn runs: the previous commit, or the end of a wait for a retry.
    pub(super) boundary: u64,
    /// Time of the current commit.
    pub(super) now: u64,
    pub(super) calls: BTreeMap<&'d CallId, OpenCall<'d>>,
    /// The calls that wait for an approval, with the number and the time of the event that requested it.
    pub(super) approvals: BTreeMap<&'d CallId, (u64, u64, &'d str)>,
    /// What has happened in the turn.
    events: Vec<SpanEvent>,
    error: Option<(&'d str, &'d str)>,
    /// The spans that the current commit completes.
    pub(super) spans: Vec<Span>,
}

impl<'d> TurnWalk<'d> {
    pub(super) fn new(data: &'d TurnData<'d>) -> Self {
        let body = data.stored.records.iter().rfind(|record| record.record.kind == "trace");
        let body: Option<TraceBody> = body.and_then(body_of).filter(|body: &TraceBody| body.turn.is_valid());
        let name = TurnName { session: data.session, id_ending: "", turn: data.stored.turn };
        let parent = body.as_ref().and_then(|body| body.parent.clone());
        let parent = parent.map(|traceparent| TraceContext { traceparent, tracestate: None });
        Self {
            data,
            // Turns of older hosts have no record of their trace.
            trace: body.map_or_else(|| TraceContext::of_turn(name, None), |body| body.turn),
            parent: parent.filter(TraceContext::is_valid),
            agent: data.stored.agent.clone(),
            plugins: Vec::new(),
            started: None,
            step: None,
            boundary: 0,
            now: 0,
            calls: BTreeMap::new(),
            approvals: BTreeMap::new(),
            events: Vec::new(),
            error: None,
            spans: Vec::new(),
        }
    }

    /// Returns the spans that a commit completes.
    pub(super) fn commit(&mut self, commit: &StoredCommit<'d>) -> Vec<Span> {
        self.now = commit.time;
        self.boundary = if self.boundary == 0 { commit.time } else { self.boundary.min(commit.time) };
        self.add_records(commit);
        let mut wait_ms = 0;
        for event in &commit.events {
            if let EventKind::Retry { wait_ms: wait, .. } = event.kind {
                wait_ms = wait;
            }
            self.add_event(event);
        }
        self.boundary = commit.time.saturating_add(wait_ms.saturating_mul(1_000_000));
        // Without its first event, only a later part of the turn is stored, for which there is no span of the turn.
        if self.started.is_none() { Vec::new() } else { std::mem::take(&mut self.spans) }
    }

    fn add_event(&mut self, event: &'d Event) {
        match &event.kind {
            EventKind::LoopStart { agent, plugins } => {
                (self.started, self.agent, self.plugins) = (Some(self.now), agent.clone(), plugins.clone());
            }
            EventKind::LoopIteration { step, .. } => {
                self.end_step();
                self.step = Some((*step, self.now));
            }
            EventKind::LoopEnd { reason, cost } => {
                self.end_approvals();
                self.end_step();
                self.end_turn(*reason, cost.as_ref());
            }
            EventKind::Error { code, message, .. } => self.error = Some((code, message)),
            _ => {
                self.add_tool_event(event);
                self.add_check_event(event);
                self.note(event);
            }
        }
    }

    /// Returns a span with the attributes that every span has.
    pub(super) fn span(&self, (key, parent): (Parent<'_>, Parent<'_>), kind: &'static str, name: String) -> Span {
        let context = |key: Parent<'_>| key.map_or_else(|| self.trace.clone(), |key| self.trace.part(key));
        let mut span = Span {
            trace_id: self.trace.trace_id().unwrap_or_default(),
            span_id: context(key).span_id().unwrap_or_default(),
            parent: key.and_then(|_| context(parent).span_id()),
            has_remote_parent: false,
            trace_state: self.trace.tracestate.clone().unwrap_or_default(),
            name: self.data.scrubber.label(name),
            kind: SpanKind::Internal,
            start: self.boundary,
            end: self.now,
            attributes: Vec::new(),
            events: Vec::new(),
            links: Vec::new(),
            status: SpanStatus::Unset,
        };
        span.set(open_inference::KIND, kind);
        span.set(open_inference::SESSION, self.data.session);
        span.set_if(open_inference::USER, self.data.stored.user.as_ref().map(|user| self.data.scrubber.label(user)));
        span.set(gen_ai::CONVERSATION, self.data.session);
        span.set(host::TURN, Value::count(self.data.stored.turn.into()));
        span
    }

    /// Sets the beginning and the end of a span. A clock that was set back never makes the end earlier than the beginning.
    pub(super) fn timed(mut span: Span, start: u64, end: u64) -> Span {
        (span.start, span.end) = (start, end.max(start));
        span
    }

    /// The step to which a record or a call with this number belongs.
    pub(super) fn in_step(&self, step: u32) -> Parent<'static> {
        self.step.filter(|_| step > 0).map(|_| SpanKey::Step(step))
    }

    /// The step that is running now.
    pub(super) fn in_current_step(&self) -> Parent<'static> {
        self.step.map(|(step, _)| SpanKey::Step(step))
    }

    /// Returns the status of a failure.
    pub(super) fn failed(&self, message: impl Into<String>) -> SpanStatus {
        SpanStatus::Error { message: self.data.scrubber.content(message).unwrap_or_default() }
    }

    pub(super) fn writer<'w>(&self, span: &'w mut Span) -> ContentWriter<'w>
    where
        'd: 'w,
    {
        ContentWriter::new(self.data.scrubber, span)
    }

    fn end_step(&mut self) {
        let Some((step, start)) = self.step.take() else { return };
        let span = self.span((Some(SpanKey::Step(step)), None), kind::CHAIN, format!("step {step}"));
        let mut span = Self::timed(span, start, self.now);
        span.set(host::STEP, Value::count(step.into()));
        self.spans.push(span);
    }

    fn end_turn(&mut self, reason: EndReason, cost: Option<&TurnCost>) {
        let Some(start) = self.started else { return };
        let agent = self.data.scrubber.label(self.agent.clone());
        let span = self.span((None, None), kind::AGENT, format!("{} {agent}", gen_ai::operation::INVOKE_AGENT));
        let mut span = Self::timed(span, start, self.now);
        span.parent = self.parent.as_ref().and_then(TraceContext::span_id);
        span.has_remote_parent = span.parent.is_some();
        span.events = std::mem::take(&mut self.events);
        span.set(gen_ai::OPERATION, gen_ai::operation::INVOKE_AGENT);
        span.set(open_inference::AGENT_NAME, agent.clone());
        span.set(gen_ai::AGENT_NAME, agent);
        let plugins = self.plugins.iter().map(|plugin| self.data.scrubber.label(plugin)).collect();
        span.set(host::PLUGINS, Value::Texts(plugins));
        span.set_if(host::END_REASON, json!(reason).as_str());
        if let Some(cost) = cost {
            set_turn_cost(&mut span, cost);
        }
        span.status = match (reason, self.error) {
            (EndReason::Error, error) => {
                let (code, message) = error.unwrap_or(("unknown", ""));
                span.set(common::ERROR_TYPE, self.data.scrubber.label(code));
                self.failed(message)
            }
            (EndReason::Cancelled, _) => SpanStatus::Unset,
            _ => SpanStatus::Ok,
        };
        let mut writer = self.writer(&mut span);
        if let Some(output) = &self.data.output {
            writer.output(output);
        }
        if let Some(input) = &self.data.input {
            writer.input(input);
        }
        writer.finish();
        self.spans.push(span);
    }

    /// Adds an event to the span of the turn.
    fn note(&mut self, event: &Event) {
        let (scrubber, mut attributes) = (self.data.scrubber, Vec::new());
        let name = match &event.kind {
            EventKind::Suspended { suspension } => {
                let waits = suspension.waits.iter().map(|wait| scrubber.label(wait.name.clone())).collect();
                attributes.push((host::NAME.into(), Value::Texts(waits)));
                "suspended"
            }
            EventKind::Resumed => "resumed",
            EventKind::Retry { model, wait_ms, .. } => {
                attributes.push((open_inference::MODEL.into(), scrubber.label(model).into()));
                attributes.push((host::WAIT.into(), Value::count(*wait_ms)));
                "retry"
            }
            EventKind::ModelFallback { from, to, .. } => {
                attributes.push((open_inference::MODEL.into(), scrubber.label(from).into()));
                attributes.push((host::NAME.into(), scrubber.label(to).into()));
                "model_fallback"
            }
            EventKind::Nudge { .. } | EventKind::NoToolCall { .. } => "nudge",
            EventKind::Steered { .. } => "steered",
            EventKind::ToolDisabled { name, .. } | EventKind::ToolDeferred { name, .. } => {
                attributes.push((host::NAME.into(), scrubber.label(name).into()));
                if matches!(event.kind, EventKind::ToolDisabled { .. }) { "tool_disabled" } else { "tool_deferred" }
            }
            EventKind::PluginSwapped { plugin, .. } | EventKind::PluginRolledBack { plugin, .. } => {
                attributes.push((host::PLUGIN.into(), scrubber.label(plugin).into()));
                "plugin_changed"
            }
            EventKind::Denied { call: None, denial } => {
                attributes.push((host::PLUGIN.into(), scrubber.label(&denial.plugin).into()));
                attributes.extend(scrubber.content(&denial.thing).map(|thing| (host::REASON.into(), thing.into())));
                "denied"
            }
            EventKind::PlanFallback { .. } => "plan_abandoned",
            _ => return,
        };
        self.events.push(SpanEvent { name, time: self.now, attributes });
    }
}

fn set_turn_cost(span: &mut Span, cost: &TurnCost) {
    let tokens = cost.usage.details();
    span.set(host::UNITS, Value::count(cost.execution_units));
    span.set(host::MODEL_CALLS, Value::count(cost.interactions.into()));
    // These are not the names for the tokens of a model call, because viewers add up the tokens of all spans.
    let prompt = tokens.uncached_prompt.saturating_add(tokens.cache_read).saturating_add(tokens.cache_write);
    span.set(host::TURN_PROMPT, Value::count(prompt));
    span.set(host::TURN_COMPLETION, Value::count(tokens.completion));
    if let Some(cost) = cost.usage.cost {
        span.set(host::TURN_COST, Value::Fraction(cost.dollars()));
        if cost.partial {
            span.set(host::COST_IS_PARTIAL, Value::Flag(true));
        }
    }
}
