//! The metrics of a process (O2): what has happened since it started, and its state at the moment of the export. The names
//! begin with `agent_host_`, and the guide lists them (`host/docs/guide/telemetry.md`).

mod exporter;
mod families;
mod family;
mod readings;

use agent_core::approval::ApprovalOutcome;
use agent_core::event::{EndReason, ErrorScope, Event, EventKind};
use agent_core::model::Usage;
use agent_core::redaction::Redaction;
use agent_core::tool::{CallCost, ToolSource};
pub use exporter::{MetricsExporter, ReadingSource};
use families::Families;
use prometheus::proto::MetricFamily;
use prometheus::{Histogram, IntCounter, TextEncoder};
pub use readings::{GuestReading, OutboxReading, Readings, StoreReading};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

/// Counts what happens in a process. All methods return immediately, and any number of threads can call them.
///
/// ```
/// use agent_telemetry::{Metrics, ModelCallOutcome, Readings};
/// use std::time::Duration;
///
/// let metrics = Metrics::default();
/// metrics.model_called(("clerk", "openai/gpt-5"), ModelCallOutcome::Replied, Duration::from_millis(800), None);
/// let text = metrics.text(&Readings::default());
/// assert!(text.contains(r#"agent_host_model_call_duration_seconds_count{agent="clerk",model="openai/gpt-5",outcome="replied"} 1"#));
/// ```
pub struct Metrics {
    families: Families,
    secrets: Arc<RwLock<Redaction>>,
    started: SystemTime,
}

/// How a model call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelCallOutcome {
    /// The reply is complete.
    Replied,
    /// The call failed, and may succeed if it is repeated.
    FailedTemporarily,
    /// The call failed, and would fail again.
    FailedPermanently,
}

/// A call of a plugin that has ended.
#[derive(Clone, Copy, Debug)]
pub struct PluginCall<'a> {
    /// Name of the plugin.
    pub plugin: &'a str,
    /// The beginning of the digest of the plugin's component.
    pub version: &'a str,
    /// The kind of the call, such as `tool`.
    pub kind: &'static str,
    /// How the call ended, such as `done` or `trap`.
    pub outcome: &'static str,
    /// The limit at which the call was stopped, such as `memory`.
    pub limit: Option<&'static str>,
    /// What the call used.
    pub cost: CallCost,
}

/// How the version of a plugin has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionChangeKind {
    /// New turns use another version.
    Swapped,
    /// New turns use an earlier version again.
    RolledBack,
    /// A new version was refused.
    Refused,
}

impl Default for Metrics {
    fn default() -> Self {
        let secrets: Arc<RwLock<Redaction>> = Arc::default();
        let known = secrets.clone();
        let filter: family::LabelFilter =
            Arc::new(move |label| known.read().unwrap_or_else(PoisonError::into_inner).text(label.to_owned()));
        Self { families: Families::new(&filter), secrets, started: SystemTime::now() }
    }
}

impl Metrics {
    /// Adds secrets that are removed from the labels of new series. Plugins do not know secrets, but the names of an MCP
    /// server's tools may contain the secrets of the server.
    pub fn add_secrets(&self, secrets: &Redaction) {
        let mut known = self.secrets.write().unwrap_or_else(PoisonError::into_inner);
        *known = known.and(secrets);
    }

    /// Counts the events of a commit. `source` returns where a tool comes from.
    pub fn committed(&self, agent: &str, events: &[Event], source: impl Fn(&str) -> Option<ToolSource>) {
        for event in events {
            match &event.kind {
                EventKind::ToolResult { name, cost, .. } => {
                    self.tool_called(agent, (name, source(name)), "done", *cost);
                }
                EventKind::ToolResultError { name, cost, .. } => {
                    self.tool_called(agent, (name, source(name)), "error", *cost);
                }
                kind => self.count_event(agent, kind),
            }
        }
    }

    fn count_event(&self, agent: &str, event: &EventKind) {
        let families = &self.families;
        match event {
            EventKind::LoopIteration { .. } => families.steps.with(&[agent], &[], IntCounter::inc),
            EventKind::StreamComplete { model, usage, .. } => self.count_usage((agent, model), *usage),
            EventKind::Retry { model, .. } => families.retries.with(&[agent, model], &[], IntCounter::inc),
            EventKind::ModelFallback { from, to, .. } => {
                families.fallbacks.with(&[agent, from, to], &[], IntCounter::inc);
            }
            // The model chooses the name, so it is not a label.
            EventKind::ToolNotFound { .. } => {
                families.tool_calls.with(&[agent, "", "", ""], &["none", "not_found"], IntCounter::inc);
            }
            EventKind::Denied { denial, .. } => {
                let plugin = denial.plugin.split('@').next().unwrap_or_default();
                families.denials.with(&[agent, plugin], &[], IntCounter::inc);
            }
            EventKind::ApprovalResolved { verdict, .. } => {
                families.approvals.with(&[agent], &[verdict_name(*verdict)], IntCounter::inc);
            }
            EventKind::OutputRejected { by, .. } => {
                families.rejected_outputs.with(&[agent, by], &[], IntCounter::inc);
            }
            EventKind::BudgetExceeded { budget } => {
                families.exceeded_budgets.with(&[agent], &[&budget.scope.to_string()], IntCounter::inc);
            }
            EventKind::Error { code, scope: ErrorScope::Turn, .. } => {
                families.errors.with(&[agent], &[code], IntCounter::inc);
            }
            EventKind::LoopEnd { reason, .. } => {
                families.turns.with(&[agent], &[outcome_name(*reason)], IntCounter::inc);
            }
            _ => {}
        }
    }

    fn count_usage(&self, (agent, model): (&str, &str), usage: Usage) {
        let details = usage.details();
        for (kind, count) in [
            ("prompt", details.uncached_prompt),
            ("cache_read", details.cache_read),
            ("cache_write", details.cache_write),
            ("completion", details.completion),
        ] {
            if count > 0 {
                self.families.tokens.with(&[agent, model], &[kind], |counter| counter.inc_by(count));
            }
        }
        if let Some(cost) = usage.cost {
            self.families.cost.with(&[agent, model], &[], |counter| counter.inc_by(cost.dollars()));
        }
    }

    fn tool_called(
        &self,
        agent: &str,
        (tool, source): (&str, Option<ToolSource>),
        outcome: &'static str,
        cost: CallCost,
    ) {
        let (kind, name, version) = labels_of(source.as_ref());
        // The names of tools that do not exist come from the model.
        let tool = if source.is_some() { tool } else { "" };
        self.families.tool_calls.with(&[agent, name, version, tool], &[kind, outcome], IntCounter::inc);
        if cost.wall_us > 0 {
            let seconds = Duration::from_micros(cost.wall_us).as_secs_f64();
            self.families.tool_seconds.with(&[name, tool], &[kind], |histogram| histogram.observe(seconds));
        }
    }

    /// Counts a model call. `model` are the agent and the model, as `provider/model`. `time` is the time until the reply was
    /// complete or the call failed, and `first` the time until the first piece of the reply.
    pub fn model_called(
        &self,
        (agent, model): (&str, &str),
        outcome: ModelCallOutcome,
        time: Duration,
        first: Option<Duration>,
    ) {
        let outcome = match outcome {
            ModelCallOutcome::Replied => "replied",
            ModelCallOutcome::FailedTemporarily => "failed_temporarily",
            ModelCallOutcome::FailedPermanently => "failed_permanently",
        };
        let observe = |time: Duration| move |histogram: &Histogram| histogram.observe(time.as_secs_f64());
        self.families.model_calls.with(&[agent, model], &[outcome], observe(time));
        if let Some(first) = first {
            self.families.first_tokens.with(&[agent, model], &[], observe(first));
        }
    }

    /// Counts a call of a plugin.
    pub fn plugin_called(&self, call: &PluginCall<'_>) {
        let PluginCall { plugin, version, kind, outcome, limit, cost } = *call;
        let (families, now) = (&self.families, Instant::now());
        families.plugin_calls.with_at(now, &[plugin, version], &[kind, outcome], IntCounter::inc);
        if let Some(limit) = limit {
            families.plugin_limits.with_at(now, &[plugin], &[limit], IntCounter::inc);
        }
        let seconds = |microseconds: u64| Duration::from_micros(microseconds).as_secs_f64();
        families.plugin_seconds.with_at(now, &[plugin], &[kind], |histogram| histogram.observe(seconds(cost.wall_us)));
        families.plugin_queue.with_at(now, &[], &[kind], |histogram| histogram.observe(seconds(cost.queue_us)));
        families.plugin_cpu.with_at(now, &[plugin], &[], |counter| counter.inc_by(seconds(cost.cpu_us)));
        let memory = i64::try_from(cost.memory_bytes).unwrap_or(i64::MAX);
        // Two calls that end at the same moment may both set the value, and the smaller peak may be the last. The next calls
        // correct it.
        families.plugin_memory.with_at(now, &[plugin], &[], |gauge| {
            if gauge.get() < memory {
                gauge.set(memory)
            }
        });
    }

    /// Counts a change of a plugin's version.
    pub fn version_changed(&self, plugin: &str, change: VersionChangeKind) {
        let change = match change {
            VersionChangeKind::Swapped => "swapped",
            VersionChangeKind::RolledBack => "rolled_back",
            VersionChangeKind::Refused => "refused",
        };
        self.families.plugin_versions.with(&[plugin], &[change], IntCounter::inc);
    }

    /// Counts an answered HTTP request. The method and the route must be few texts, whatever clients send.
    pub fn request_answered(&self, (method, route): (&str, &str), status: u16, time: Duration) {
        self.families.requests.with(&[], &[method, route, &status.to_string()], IntCounter::inc);
        self.families.request_seconds.with(&[], &[route], |histogram| histogram.observe(time.as_secs_f64()));
    }

    /// Counts a request that was refused because of its sender.
    pub fn request_refused(&self, protocol: &str, code: &str) {
        self.families.refused_requests.with(&[], &[protocol, code], IntCounter::inc);
    }

    /// Returns all metrics in the text format of Prometheus, version 0.0.4.
    pub fn text(&self, readings: &Readings) -> String {
        // Encoding fails only for families without series, which `gather` does not return.
        TextEncoder::new().encode_to_string(&self.gather(readings)).unwrap_or_default()
    }

    /// Time at which counting began.
    pub(crate) fn started(&self) -> SystemTime {
        self.started
    }

    /// Returns all metrics.
    pub(crate) fn gather(&self, readings: &Readings) -> Vec<MetricFamily> {
        let mut families = readings.families();
        families.extend(self.families.gather());
        families.sort_by(|one, other| one.name().cmp(other.name()));
        families
    }
}

/// Returns the kind, the name and the version of a tool's source.
fn labels_of(source: Option<&ToolSource>) -> (&'static str, &str, &str) {
    match source {
        Some(ToolSource::Plugin { plugin, digest }) => ("plugin", plugin, digest.short()),
        Some(ToolSource::Mcp { server, .. }) => ("mcp", server, ""),
        Some(ToolSource::BuiltIn) => ("built_in", "", ""),
        Some(ToolSource::Service { event_type }) => ("service", event_type, ""),
        Some(ToolSource::Agent { agent }) => ("agent", agent, ""),
        Some(ToolSource::Client) => ("client", "", ""),
        None => ("none", "", ""),
    }
}

fn verdict_name(verdict: ApprovalOutcome) -> &'static str {
    match verdict {
        ApprovalOutcome::Once => "once",
        ApprovalOutcome::Session => "session",
        ApprovalOutcome::Always => "always",
        ApprovalOutcome::Denied => "denied",
        ApprovalOutcome::Void => "void",
        ApprovalOutcome::Expired => "expired",
    }
}

fn outcome_name(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Answered => "answered",
        EndReason::Completed => "completed",
        EndReason::Converse => "converse",
        EndReason::QuestionExpired => "asked",
        EndReason::Limit => "limit",
        EndReason::Cancelled => "cancelled",
        EndReason::Error => "error",
    }
}
