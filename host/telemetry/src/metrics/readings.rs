//! Values that are read from the store, the sandbox and the process when the metrics are exported.

use super::family::{label, new_family};
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, Metric, MetricFamily, MetricType};
use std::time::Duration;

/// Values at one moment. A field that cannot be read is left out of the metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Readings {
    /// Number of stored sessions by agent and state.
    pub sessions: Vec<(String, String, u64)>,
    /// Events of the outbox that are not delivered yet.
    pub outbox: Option<OutboxReading>,
    /// What the store has written since it was opened.
    pub store: Option<StoreReading>,
    /// The calls of plugins that run or wait.
    pub guests: Option<GuestReading>,
    /// Time since the process started.
    pub uptime: Duration,
}

/// Events that are not delivered yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutboxReading {
    /// Number of events.
    pub pending: u64,
    /// Age of the oldest of these events. Zero if there are none.
    pub oldest: Duration,
}

/// What the store has written.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreReading {
    /// Number of commits of sessions.
    pub commits: u64,
    /// Number of transactions. A transaction may contain several commits.
    pub transactions: u64,
    /// Number of write jobs that wait.
    pub waiting: u64,
    /// Durations of the transactions' commits, which include the fsync: the upper bounds of the buckets in seconds, the number
    /// of durations up to each bound, and the sum in seconds.
    pub durations: Vec<(f64, u64)>,
    /// Sum of all durations.
    pub total: Duration,
}

/// The calls of plugins that run or wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GuestReading {
    /// Number of running calls.
    pub running: u64,
    /// Number of calls in the queue.
    pub waiting: u64,
    /// Guest memory that is reserved for running calls, in bytes.
    pub memory: u64,
}

impl Readings {
    /// Returns the values as families of metrics.
    pub(super) fn families(&self) -> Vec<MetricFamily> {
        let mut families = vec![
            gauges(
                "build_info",
                "The version of the host. The value is always 1.",
                &[(vec![("version", env!("CARGO_PKG_VERSION"))], 1.0)],
            ),
            gauges("uptime_seconds", "Time since the process started.", &[(Vec::new(), self.uptime.as_secs_f64())]),
        ];
        if !self.sessions.is_empty() {
            let sessions = self.sessions.iter().map(|(agent, state, count)| {
                (vec![("agent", agent.as_str()), ("state", state.as_str())], *count as f64)
            });
            let sessions: Vec<_> = sessions.collect();
            families.push(gauges("sessions", "Stored sessions by state.", &sessions));
        }
        if let Some(OutboxReading { pending, oldest }) = self.outbox {
            let help = "Events that are not delivered yet.";
            families.push(gauges("outbox_pending_events", help, &[(Vec::new(), pending as f64)]));
            let help = "Age of the oldest event that is not delivered yet.";
            families.push(gauges("outbox_oldest_seconds", help, &[(Vec::new(), oldest.as_secs_f64())]));
        }
        if let Some(GuestReading { running, waiting, memory }) = self.guests {
            for (name, help, value) in [
                ("guest_calls_running", "Plugin calls that run.", running),
                ("guest_calls_waiting", "Plugin calls that wait in the queue.", waiting),
                ("guest_memory_bytes", "Guest memory that is reserved for running calls.", memory),
            ] {
                families.push(gauges(name, help, &[(Vec::new(), value as f64)]));
            }
        }
        if let Some(store) = &self.store {
            families.push(count("store_commits_total", "Commits of sessions.", store.commits));
            families.push(count("store_transactions_total", "Transactions of the store.", store.transactions));
            families.push(gauges(
                "store_waiting_writes",
                "Write jobs that wait for the store.",
                &[(Vec::new(), store.waiting as f64)],
            ));
            families.push(durations(store));
        }
        families
    }
}

fn gauges(name: &str, help: &str, values: &[(Vec<(&str, &str)>, f64)]) -> MetricFamily {
    let metric = |(labels, value): &(Vec<(&str, &str)>, f64)| {
        let mut gauge = Gauge::default();
        gauge.set_value(*value);
        let mut metric = Metric::from_label(labels.iter().copied().map(label).collect());
        metric.set_gauge(gauge);
        metric
    };
    let mut family = new_family(name, help, MetricType::GAUGE);
    family.set_metric(values.iter().map(metric).collect());
    family
}

fn count(name: &str, help: &str, value: u64) -> MetricFamily {
    let mut counter = Counter::default();
    counter.set_value(value as f64);
    let mut metric = Metric::default();
    metric.set_counter(counter);
    let mut family = new_family(name, help, MetricType::COUNTER);
    family.set_metric(vec![metric]);
    family
}

fn durations(store: &StoreReading) -> MetricFamily {
    let bucket = |(bound, count): &(f64, u64)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(*bound);
        bucket.set_cumulative_count(*count);
        bucket
    };
    let mut histogram = Histogram::default();
    histogram.set_bucket(store.durations.iter().map(bucket).collect());
    histogram.set_sample_sum(store.total.as_secs_f64());
    histogram.set_sample_count(store.transactions);
    let mut metric = Metric::default();
    metric.set_histogram(histogram);
    let help = "Time of the statement COMMIT, which includes the fsync.";
    let mut family = new_family("store_commit_duration_seconds", help, MetricType::HISTOGRAM);
    family.set_metric(vec![metric]);
    family
}
