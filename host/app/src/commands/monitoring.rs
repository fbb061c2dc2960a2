//! What operators see of a running process: traces, metrics and log lines (O1, O2).

use super::trace_export::TraceExport;
use crate::logging;
use crate::terminal::Terminal;
use agent_config::WatchEvent;
use agent_config::assembly::AssembledAgents;
use agent_plugins::{CallEnding, CallObserver, Limit, Sandbox};
use agent_runtime::{ModelCallEnding, Notice, Observation, Observer};
use agent_serve::ServerMetrics;
use agent_store::{COMMIT_DURATION_BOUNDS, Store};
use agent_telemetry::{
    GuestReading, Metrics, MetricsExporter, ModelCallOutcome, OutboxReading, PluginCall, ReadingSource, Readings,
    StoreReading, VersionChangeKind,
};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// Time between two exports of metrics to collectors.
const METRICS_INTERVAL: Duration = Duration::from_secs(60);
/// Time for which the process waits at its end until a collector has the latest metrics.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for which readings of the store are used again, because counting sessions takes longer the more there are.
const READINGS_LIFETIME: Duration = Duration::from_secs(5);

/// The monitoring of a process that runs until it is told to stop.
pub(crate) struct Monitoring {
    traces: TraceExport,
    metrics: Arc<Metrics>,
    readings: ReadingSource,
    exporter: Option<MetricsExporter>,
}

impl Monitoring {
    /// Starts the monitoring of these agents and their delegates.
    pub(crate) async fn start(store: &Arc<dyn Store>, sandbox: &Sandbox, agents: &[&AssembledAgents]) -> Self {
        let metrics = Arc::new(Metrics::default());
        for agent in agents.iter().flat_map(|agents| &agents.all) {
            metrics.add_secrets(agent.live.current().redaction());
        }
        let counted = metrics.clone();
        sandbox.observe_calls(CallObserver::new(move |call| {
            let limit = if let CallEnding::Stopped(limit) = call.ending { Some(limit_name(limit)) } else { None };
            counted.plugin_called(&PluginCall {
                plugin: &call.plugin.name,
                version: call.plugin.digest.short(),
                kind: call.kind.interface(),
                outcome: call.ending.name(),
                limit,
                cost: call.cost,
            });
        }));
        let readings = reading_source(store.clone(), sandbox.clone());
        Self { traces: TraceExport::start(store, agents).await, metrics, readings, exporter: None }
    }

    /// Begins to send the metrics to the collectors that ask for them.
    pub(crate) fn export_metrics(&mut self, agents: &[AssembledAgents]) {
        let mut collectors = Vec::new();
        for agents in agents {
            let served = agents.agent.current();
            let settings = agents.all.iter().find(|agent| agent.settings.name == served.config().name);
            collectors.extend(settings.and_then(|agent| agent.settings.telemetry.metrics_collector()));
        }
        collectors.dedup_by(|one, other| one.url() == other.url());
        if !collectors.is_empty() {
            let (metrics, readings) = (self.metrics.clone(), self.readings.clone());
            self.exporter = Some(MetricsExporter::start(metrics, readings, collectors, METRICS_INTERVAL));
        }
    }

    /// Returns the observer of the sessions.
    pub(crate) fn observer(&self) -> Observer {
        let (metrics, committed) = (self.metrics.clone(), self.traces.committed());
        Observer::new(move |observation| match observation {
            Observation::Committed(commit) => {
                metrics.committed(commit.agent, commit.events, |tool| commit.source_of(tool));
                logging::log_events(commit);
                committed(commit.agent, commit.session);
            }
            Observation::ModelCall(call) => {
                let outcome = match call.ending {
                    ModelCallEnding::Replied => ModelCallOutcome::Replied,
                    ModelCallEnding::FailedTemporarily => ModelCallOutcome::FailedTemporarily,
                    ModelCallEnding::FailedPermanently => ModelCallOutcome::FailedPermanently,
                };
                metrics.model_called((call.agent, call.model), outcome, call.time, call.first_piece);
            }
            Observation::Refused { protocol, code } => metrics.request_refused(protocol, code),
        })
    }

    /// Counts a change of a plugin.
    pub(crate) fn changed(&self, event: &WatchEvent) {
        let WatchEvent::Plugins(notice) = event else { return };
        match notice {
            Notice::Swapped { plugin, .. } => self.metrics.version_changed(plugin, VersionChangeKind::Swapped),
            Notice::RolledBack { plugin, .. } => self.metrics.version_changed(plugin, VersionChangeKind::RolledBack),
            // The subject may be a path or an agent. The log contains it.
            Notice::Refused { .. } => self.metrics.version_changed("", VersionChangeKind::Refused),
        }
    }

    /// Returns what an HTTP server needs to count its requests and to return the metrics.
    pub(crate) fn for_server(&self) -> ServerMetrics {
        let (answered, metrics, readings) = (self.metrics.clone(), self.metrics.clone(), self.readings.clone());
        ServerMetrics::new(
            move |request| answered.request_answered((request.method, request.route), request.status, request.time),
            move || {
                let (metrics, readings) = (metrics.clone(), readings.clone());
                async move { metrics.text(&readings().await) }
            },
        )
    }

    /// Sends the latest traces and metrics, and stops.
    pub(crate) async fn finish(self, terminal: &Terminal) {
        if let Some(exporter) = self.exporter {
            exporter.shutdown(FINISH_TIMEOUT).await;
        }
        self.traces.finish(terminal).await;
    }
}

/// Returns the function that reads the state of the process. Requests that come at the same time share one reading.
fn reading_source(store: Arc<dyn Store>, sandbox: Sandbox) -> ReadingSource {
    let started = Instant::now();
    let latest: Arc<Mutex<Option<(Instant, Readings)>>> = Arc::default();
    Arc::new(move || -> Pin<Box<dyn Future<Output = Readings> + Send>> {
        let (store, sandbox, latest) = (store.clone(), sandbox.clone(), latest.clone());
        Box::pin(async move {
            // The lock is an asynchronous lock, and only one request reads the store.
            let mut latest = latest.lock().await;
            let stored = match &*latest {
                Some((time, readings)) if time.elapsed() < READINGS_LIFETIME => readings.clone(),
                _ => {
                    let readings = stored_readings(&*store).await;
                    *latest = Some((Instant::now(), readings.clone()));
                    readings
                }
            };
            let load = sandbox.current_load();
            let guests =
                GuestReading { running: load.running as u64, waiting: load.waiting as u64, memory: load.memory as u64 };
            Readings { guests: Some(guests), store: Some(writes(&*store)), uptime: started.elapsed(), ..stored }
        })
    })
}

async fn stored_readings(store: &dyn Store) -> Readings {
    let sessions = store.session_counts().await.map_err(|error| tracing::warn!(%error, "sessions are not counted"));
    let sessions = sessions.unwrap_or_default().into_iter();
    let outbox = store.undelivered().await.map_err(|error| tracing::warn!(%error, "the outbox is not counted"));
    Readings {
        sessions: sessions.map(|count| (count.agent, count.state.as_str().to_owned(), count.sessions)).collect(),
        outbox: outbox.ok().map(|outbox| OutboxReading { pending: outbox.items, oldest: outbox.oldest }),
        ..Readings::default()
    }
}

fn writes(store: &dyn Store) -> StoreReading {
    let writes = store.write_statistics();
    let bounds = COMMIT_DURATION_BOUNDS.iter().map(Duration::as_secs_f64);
    StoreReading {
        commits: writes.commits,
        transactions: writes.transactions,
        waiting: writes.waiting,
        durations: bounds.zip(writes.durations).collect(),
        total: writes.total,
    }
}

/// Returns the name of a limit in metrics. It is the name of the limit's key in `agent.toml`, if there is one.
fn limit_name(limit: Limit) -> &'static str {
    match limit {
        Limit::WallTime(_) => "wall_time",
        Limit::CpuTime(_) => "cpu_time",
        Limit::Fuel(_) => "fuel",
        Limit::Memory(_) => "memory",
        Limit::TableElements(_) | Limit::Tables(_) => "tables",
        Limit::Instances(_) => "instances",
        Limit::Memories(_) => "memories",
        Limit::Stack(_) => "stack",
        Limit::Handles(_) => "handles",
        Limit::RandomBytes(_) => "random_bytes",
        Limit::Headers(_) => "headers",
        Limit::LiftedBytes(_) => "lifted_bytes",
        Limit::ResultText(_) | Limit::ResultMediaItem(_) => "result",
        Limit::State(_) => "state",
        Limit::Requests(_) | Limit::RequestsPerMinute(..) => "requests",
        Limit::RequestBody(_) | Limit::ResponseBody(_) => "request_bytes",
        Limit::RequestTime(_) => "request_time",
        Limit::TreeBytes(_) | Limit::TreeEntries(_) => "tree",
    }
}
