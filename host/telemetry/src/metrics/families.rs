//! The metrics that count what happens in the process. Gauges are read when metrics are exported; see `readings`.

use super::family::{Description, Family, LabelFilter};
use prometheus::core::Metric;
use prometheus::proto::{MetricFamily, MetricType};
use prometheus::{Counter, Histogram, HistogramOpts, IntCounter, IntGauge};

/// Upper bounds of the buckets of durations, in seconds.
const SECONDS: [f64; 15] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

/// All families of counters and histograms.
pub(super) struct Families {
    pub(super) turns: Family<IntCounter>,
    pub(super) steps: Family<IntCounter>,
    pub(super) tokens: Family<IntCounter>,
    pub(super) cost: Family<Counter>,
    pub(super) model_calls: Family<Histogram>,
    pub(super) first_tokens: Family<Histogram>,
    pub(super) retries: Family<IntCounter>,
    pub(super) fallbacks: Family<IntCounter>,
    pub(super) tool_calls: Family<IntCounter>,
    pub(super) tool_seconds: Family<Histogram>,
    pub(super) plugin_calls: Family<IntCounter>,
    pub(super) plugin_seconds: Family<Histogram>,
    pub(super) plugin_cpu: Family<Counter>,
    pub(super) plugin_queue: Family<Histogram>,
    pub(super) plugin_memory: Family<IntGauge>,
    pub(super) plugin_limits: Family<IntCounter>,
    pub(super) plugin_versions: Family<IntCounter>,
    pub(super) denials: Family<IntCounter>,
    pub(super) approvals: Family<IntCounter>,
    pub(super) rejected_outputs: Family<IntCounter>,
    pub(super) exceeded_budgets: Family<IntCounter>,
    pub(super) errors: Family<IntCounter>,
    pub(super) requests: Family<IntCounter>,
    pub(super) request_seconds: Family<Histogram>,
    pub(super) refused_requests: Family<IntCounter>,
}

impl Families {
    pub(super) fn new(filter: &LabelFilter) -> Self {
        let counts = |name, help, names, classes| counter(Description { name, help, names, classes }, filter);
        let times = |name, help, names, classes| histogram(Description { name, help, names, classes }, filter);
        Self {
            turns: counts("turns_total", "Turns that have ended.", &["agent"], &["outcome"]),
            steps: counts("steps_total", "Steps that have begun.", &["agent"], &[]),
            tokens: counts("model_tokens_total", "Tokens of model calls.", &["agent", "model"], &["kind"]),
            cost: sum(
                Description {
                    name: "model_cost_dollars_total",
                    help: "Cost of model calls in US dollars, as far as prices are known.",
                    names: &["agent", "model"],
                    classes: &[],
                },
                filter,
            ),
            model_calls: times(
                "model_call_duration_seconds",
                "Time from a request to a model until its reply is complete, for each attempt.",
                &["agent", "model"],
                &["outcome"],
            ),
            first_tokens: times(
                "model_time_to_first_token_seconds",
                "Time from a request to a model until the first piece of its reply.",
                &["agent", "model"],
                &[],
            ),
            retries: counts("model_retries_total", "Repeated model calls.", &["agent", "model"], &[]),
            fallbacks: counts(
                "model_fallbacks_total",
                "Model calls that another model took over.",
                &["agent", "from", "to"],
                &[],
            ),
            tool_calls: counts(
                "tool_calls_total",
                "Tool calls with a result. The source is a plugin, an MCP server, a service, an agent or the host.",
                &["agent", "source", "version", "tool"],
                &["source_kind", "outcome"],
            ),
            tool_seconds: times(
                "tool_call_duration_seconds",
                "Time from the dispatch of a tool call to its result.",
                &["source", "tool"],
                &["source_kind"],
            ),
            plugin_calls: counts(
                "plugin_calls_total",
                "Calls of plugins of all kinds.",
                &["plugin", "version"],
                &["kind", "outcome"],
            ),
            plugin_seconds: times(
                "plugin_call_duration_seconds",
                "Time of plugin calls, without the time in the queue.",
                &["plugin"],
                &["kind"],
            ),
            plugin_cpu: sum(
                Description {
                    name: "plugin_cpu_seconds_total",
                    help: "Processor time of plugin calls.",
                    names: &["plugin"],
                    classes: &[],
                },
                filter,
            ),
            plugin_queue: times(
                "plugin_queue_duration_seconds",
                "Time that plugin calls waited in the queue.",
                &[],
                &["kind"],
            ),
            plugin_memory: gauge(
                Description {
                    name: "plugin_memory_peak_bytes",
                    help: "Largest guest memory of a plugin's calls since the process started.",
                    names: &["plugin"],
                    classes: &[],
                },
                filter,
            ),
            plugin_limits: counts(
                "plugin_limits_total",
                "Plugin calls that were stopped at a limit.",
                &["plugin"],
                &["limit"],
            ),
            plugin_versions: counts(
                "plugin_version_changes_total",
                "Plugins that were swapped or rolled back, and changes that were refused.",
                &["plugin"],
                &["change"],
            ),
            denials: counts("denials_total", "Denied requests of plugins and models.", &["agent", "plugin"], &[]),
            approvals: counts(
                "approvals_total",
                "Decisions about calls that needed an approval.",
                &["agent"],
                &["verdict"],
            ),
            rejected_outputs: counts(
                "rejected_outputs_total",
                "Outputs that a validator or the output schema rejected.",
                &["agent", "by"],
                &[],
            ),
            exceeded_budgets: counts(
                "exceeded_budgets_total",
                "Turns that a budget ended before a model call.",
                &["agent"],
                &["budget"],
            ),
            errors: counts("turn_errors_total", "Turns that ended with an error.", &["agent"], &["code"]),
            requests: counts("http_requests_total", "Answered HTTP requests.", &[], &["method", "route", "status"]),
            request_seconds: times(
                "http_request_duration_seconds",
                "Time until the headers of an answer were ready.",
                &[],
                &["route"],
            ),
            refused_requests: counts(
                "refused_requests_total",
                "Requests that were refused because of their sender.",
                &[],
                &["protocol", "code"],
            ),
        }
    }

    /// Returns all families that have series.
    pub(super) fn gather(&self) -> Vec<MetricFamily> {
        [
            self.turns.gather(),
            self.steps.gather(),
            self.tokens.gather(),
            self.cost.gather(),
            self.model_calls.gather(),
            self.first_tokens.gather(),
            self.retries.gather(),
            self.fallbacks.gather(),
            self.tool_calls.gather(),
            self.tool_seconds.gather(),
            self.plugin_calls.gather(),
            self.plugin_seconds.gather(),
            self.plugin_cpu.gather(),
            self.plugin_queue.gather(),
            self.plugin_memory.gather(),
            self.plugin_limits.gather(),
            self.plugin_versions.gather(),
            self.denials.gather(),
            self.approvals.gather(),
            self.rejected_outputs.gather(),
            self.exceeded_budgets.gather(),
            self.errors.gather(),
            self.requests.gather(),
            self.request_seconds.gather(),
            self.refused_requests.gather(),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

// The names of the metrics are constants that satisfy the rules for names, so the metrics below can always be created.

fn counter(description: Description, filter: &LabelFilter) -> Family<IntCounter> {
    let create = |name| IntCounter::new(name, name).expect("a valid name");
    family(description, (MetricType::COUNTER, create), filter)
}

fn sum(description: Description, filter: &LabelFilter) -> Family<Counter> {
    let create = |name| Counter::new(name, name).expect("a valid name");
    family(description, (MetricType::COUNTER, create), filter)
}

fn gauge(description: Description, filter: &LabelFilter) -> Family<IntGauge> {
    let create = |name| IntGauge::new(name, name).expect("a valid name");
    family(description, (MetricType::GAUGE, create), filter)
}

fn histogram(description: Description, filter: &LabelFilter) -> Family<Histogram> {
    let create = |name| {
        let options = HistogramOpts::new(name, name).buckets(SECONDS.to_vec());
        Histogram::with_opts(options).expect("a valid name and increasing buckets")
    };
    family(description, (MetricType::HISTOGRAM, create), filter)
}

fn family<M: Metric>(
    description: Description,
    metric: (MetricType, fn(&'static str) -> M),
    filter: &LabelFilter,
) -> Family<M> {
    Family::new(description, metric, filter.clone())
}
