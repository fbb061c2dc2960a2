//! Sends the metrics of a process to collectors at regular intervals. The counts are cumulative, so a request that fails is
//! not repeated: the next request contains everything.

use super::{Metrics, Readings};
use crate::otlp::{Collector, ExportTimes, metrics_request};
use prost::Message;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Reads the values of the moment of an export.
pub type ReadingSource = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Readings> + Send>> + Send + Sync>;

/// Sends metrics until it is shut down. Dropping the exporter stops it without sending the latest counts.
pub struct MetricsExporter {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

struct Export {
    metrics: Arc<Metrics>,
    readings: ReadingSource,
    collectors: Vec<ReportedCollector>,
    instance: String,
}

/// A collector, and whether its last failure was reported.
struct ReportedCollector {
    collector: Arc<Collector>,
    has_failed: bool,
}

impl MetricsExporter {
    /// Starts the export to these collectors. `interval` is the time between two exports; collectors expect about 60 s.
    pub fn start(
        metrics: Arc<Metrics>,
        readings: ReadingSource,
        collectors: Vec<Arc<Collector>>,
        interval: Duration,
    ) -> Self {
        let stop = CancellationToken::new();
        let started = nanoseconds(metrics.started());
        let instance = format!("{}-{started}", std::process::id());
        let collectors =
            collectors.into_iter().map(|collector| ReportedCollector { collector, has_failed: false }).collect();
        let export = Export { metrics, readings, collectors, instance };
        let task = tokio::spawn(export.run(interval, stop.clone()));
        Self { stop, task }
    }

    /// Sends the latest counts once, and stops after at most `time`.
    pub async fn shutdown(mut self, time: Duration) {
        self.stop.cancel();
        if tokio::time::timeout(time, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

impl Drop for MetricsExporter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Export {
    async fn run(mut self, interval: Duration, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return self.send().await,
                () = tokio::time::sleep(interval) => {}
            }
            // A slow collector delays the next export, and nothing else.
            tokio::select! {
                () = stop.cancelled() => return self.send().await,
                () = self.send() => {}
            }
        }
    }

    async fn send(&mut self) {
        let families = self.metrics.gather(&(self.readings)().await);
        let times = ExportTimes { started: nanoseconds(self.metrics.started()), now: nanoseconds(SystemTime::now()) };
        let body = metrics_request(&self.instance, &families, times).encode_to_vec();
        for reported in &mut self.collectors {
            match reported.collector.send_metrics(body.clone()).await {
                Ok(()) => reported.has_failed = false,
                Err(error) if !reported.has_failed => {
                    reported.has_failed = true;
                    tracing::warn!(%error, "the collector does not accept metrics; the next export contains all counts");
                }
                Err(error) => tracing::debug!(%error, "the collector still does not accept metrics"),
            }
        }
    }
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
