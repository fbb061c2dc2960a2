//! The record of one running call: its cost, the limit that stopped it, its denials and its log. The record is shared
//! by the guest's store and the host function that waits for the end of the call.

use super::files::FileWatch;
use super::guest_log::GuestLog;
use super::host_calls::HostCallRecorder;
use super::missed_lookups::MissedLookups;
use crate::grants::secret::KnownSecrets;
use crate::grants::{Denial, GrantAdvice, UnmetNeed};
use crate::identity::PluginIdentity;
use crate::limits::{CallLimits, Limit};
use crate::sync::lock;
use agent_core::tool::{CallCost, ModelUse};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use wasmtime::UpdateDeadline;

/// Maximum number of denials that the record of a call stores. Further denials are counted but not stored.
const DENIALS: usize = 32;

/// Maximum number of warnings about one call that the host logs. Further warnings are counted but not logged (row 44).
const WARNINGS: u64 = 20;

pub(crate) struct CallRecord {
    pub(crate) plugin: Arc<PluginIdentity>,
    /// Id of the call, shown in the log.
    pub(crate) call: String,
    pub(crate) log: Mutex<GuestLog>,
    pub(crate) missed_lookups: MissedLookups,
    pub(crate) answers: HostCallRecorder,
    pub(crate) files: FileWatch,
    pub(crate) unmet: Arc<[UnmetNeed]>,
    pub(crate) limits: CallLimits,
    /// Secrets that must not reach the guest.
    pub(crate) secrets: Arc<KnownSecrets>,
    started: Instant,
    pub(crate) wall_limit: Duration,
    cpu_limit: Duration,
    epoch_tick: Duration,
    cpu: AtomicU64,
    /// Nanoseconds from `started` to the start of the current poll.
    polled: AtomicU64,
    /// Nanoseconds for which the guest has waited until the scheduler let it run. They do not count as wall time.
    waited: AtomicU64,
    memory: AtomicU64,
    bytes_to_guest: AtomicU64,
    bytes_from_guest: AtomicU64,
    requests: AtomicU64,
    key_value_operations: AtomicU64,
    fuel: OnceLock<u64>,
    model: Mutex<ModelUse>,
    /// Whether the guest was interrupted in the last poll. An interrupted guest continues when the scheduler offers it
    /// a turn.
    interrupted: AtomicBool,
    limit: Mutex<Option<Limit>>,
    reported: Mutex<ReportedLimits>,
    denials: Mutex<Denials>,
    warnings: AtomicU64,
}

/// The denials of a call: a list of limited length, and the number of denials that were left out.
#[derive(Default)]
struct Denials {
    recorded: Vec<Denial>,
    left_out: u64,
}

/// The limits that were reported to the guest as errors. A guest may continue after an error about a limit.
#[derive(Default)]
struct ReportedLimits {
    /// The limit that prevented a memory or table from growing.
    growth: Option<Limit>,
    /// The limit that a request of the guest reached.
    request: Option<Limit>,
}

impl CallRecord {
    pub(crate) fn new(
        plugin: Arc<PluginIdentity>,
        call: String,
        (wall_limit, epoch_tick): (Duration, Duration),
        limits: CallLimits,
    ) -> Self {
        Self {
            plugin,
            call,
            log: Mutex::default(),
            missed_lookups: MissedLookups::default(),
            answers: HostCallRecorder::new(limits.recorded),
            files: FileWatch::default(),
            unmet: Arc::default(),
            limits,
            secrets: Arc::default(),
            started: Instant::now(),
            wall_limit,
            cpu_limit: limits.cpu_time.unwrap_or(wall_limit),
            epoch_tick,
            cpu: AtomicU64::new(0),
            polled: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            memory: AtomicU64::new(0),
            bytes_to_guest: AtomicU64::new(0),
            bytes_from_guest: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            key_value_operations: AtomicU64::new(0),
            fuel: OnceLock::new(),
            model: Mutex::default(),
            interrupted: AtomicBool::new(false),
            limit: Mutex::default(),
            reported: Mutex::default(),
            denials: Mutex::default(),
            warnings: AtomicU64::new(0),
        }
    }

    /// Records which needs of the plugin are not granted, because a missing grant may explain a failure of the call.
    pub(crate) fn with_unmet(mut self, unmet: Arc<[UnmetNeed]>) -> Self {
        self.unmet = unmet;
        self
    }

    /// Sets the agent's secrets, which the host must remove from all data that the guest receives.
    pub(crate) fn with_secrets(mut self, secrets: &Arc<KnownSecrets>) -> Self {
        self.secrets = Arc::clone(secrets);
        self
    }

    /// Time until the call reaches its wall-time limit.
    pub(crate) fn time_left(&self) -> Duration {
        self.wall_limit.saturating_sub(self.wall())
    }

    /// Wall time that the call has used so far, without the time for which the guest waited for the scheduler.
    fn wall(&self) -> Duration {
        self.started.elapsed().saturating_sub(self.waited())
    }

    /// Total time in which the guest was ready to run but the scheduler ran other guests.
    fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited.load(Ordering::Relaxed))
    }

    /// Adds time in which the guest waited for the scheduler.
    pub(crate) fn add_waiting_time(&self, time: Duration) {
        self.waited.fetch_add(nanos(time), Ordering::Relaxed);
    }

    /// Records the limit that ends the call. If a limit is already recorded, the recorded limit is kept.
    pub(crate) fn record_limit(&self, limit: Limit) {
        lock(&self.limit).get_or_insert(limit);
    }

    pub(crate) fn limit(&self) -> Option<Limit> {
        *lock(&self.limit)
    }

    /// Records the limit that caused an HTTP request of the guest to be refused or stopped. The guest gets an error and
    /// may continue.
    pub(crate) fn record_request_limit(&self, limit: Limit) {
        self.warn(format_args!("a request was stopped at its limit: {limit}"));
        lock(&self.reported).request.get_or_insert(limit);
    }

    /// Records that the quota of a granted tree does not allow a change. The guest gets an error and may continue.
    pub(crate) fn record_tree_limit(&self, limit: Limit) {
        let mut reported = lock(&self.reported);
        if reported.request.is_none() {
            tracing::warn!(
                target: "plugin", plugin = %self.plugin, call = %self.call,
                "a change to a granted directory was stopped at its limit: {limit}"
            );
            reported.request = Some(limit);
        }
    }

    /// The limit that stopped a request or a change to a granted directory. If the call fails, this limit is the reason
    /// that is reported, even if the guest returns another error.
    pub(crate) fn request_limit(&self) -> Option<Limit> {
        lock(&self.reported).request
    }

    /// Records that a memory or table could not grow. The guest gets an error and may continue.
    pub(crate) fn record_refused_growth(&self, limit: Limit) {
        lock(&self.reported).growth = Some(limit);
    }

    /// Records that a memory or table has grown. If the host refused an earlier request to grow, the guest has handled
    /// this refusal, so the record of the refusal is removed.
    pub(crate) fn record_growth(&self) {
        lock(&self.reported).growth = None;
    }

    /// A limit that was reported to the guest as an error. If no limit that ended the call is recorded, this limit may
    /// explain a crash of the guest.
    pub(crate) fn reported_limit(&self) -> Option<Limit> {
        let reported = lock(&self.reported);
        reported.growth.or(reported.request)
    }

    pub(crate) fn record_memory_use(&self, bytes: usize) {
        self.memory.fetch_max(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes that the guest receives.
    pub(crate) fn count_bytes_to_guest(&self, bytes: usize) {
        self.bytes_to_guest.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes that the guest sends.
    pub(crate) fn count_bytes_from_guest(&self, bytes: usize) {
        self.bytes_from_guest.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts an HTTP request that the guest sends.
    pub(crate) fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a key-value operation and returns the number of earlier operations.
    pub(crate) fn count_value_operation(&self) -> u64 {
        self.key_value_operations.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts a request to the agent's model.
    pub(crate) fn count_model_use(&self, used: ModelUse) {
        *lock(&self.model) += used;
    }

    /// Records the fuel that the guest has used.
    pub(crate) fn record_fuel(&self, fuel: u64) {
        let _ = self.fuel.set(fuel);
    }

    /// Records that something was denied to the plugin. Does nothing if a denial with the same description is
    /// already recorded.
    pub(crate) fn deny(&self, thing: String, advice: GrantAdvice) {
        let mut denials = lock(&self.denials);
        if denials.recorded.iter().any(|denial| denial.thing == thing) {
            return;
        }
        if denials.recorded.len() == DENIALS {
            denials.left_out += 1;
            return;
        }
        let denial = Denial { plugin: (*self.plugin).clone(), thing, advice };
        // The log level is low, because users also see the denial as an event of the call.
        tracing::info!(target: "plugin", plugin = %self.plugin, call = %self.call, "denied {}", denial.thing);
        denials.recorded.push(denial);
    }

    /// All recorded denials. If there were too many denials to record all of them, a last entry contains the number of
    /// denials that were left out.
    pub(crate) fn denials(&self) -> Vec<Denial> {
        let denials = lock(&self.denials);
        let mut reported = denials.recorded.clone();
        if denials.left_out > 0 {
            let thing = format!("{} further requests that are not listed", denials.left_out);
            reported.push(Denial { plugin: (*self.plugin).clone(), thing, advice: GrantAdvice::none() });
        }
        reported
    }

    /// Logs a warning for the operator of the host, unless the call has reached the maximum number of warnings.
    pub(crate) fn warn(&self, problem: fmt::Arguments<'_>) {
        if self.warnings.fetch_add(1, Ordering::Relaxed) < WARNINGS {
            tracing::warn!(target: "plugin", plugin = %self.plugin, call = %self.call, "{problem}");
        }
    }

    /// Logs how many warnings were not logged because there were too many.
    pub(crate) fn finish_warnings(&self) {
        let more = self.warnings.load(Ordering::Relaxed).saturating_sub(WARNINGS);
        if more > 0 {
            tracing::warn!(target: "plugin", plugin = %self.plugin, call = %self.call,
                "{more} further warnings about this call were not logged");
        }
    }

    pub(crate) fn cost(&self, queued: Duration) -> CallCost {
        CallCost {
            cpu_us: self.cpu.load(Ordering::Relaxed) / 1_000,
            wall_us: micros(self.wall()),
            queue_us: micros(queued + self.waited()),
            memory_bytes: self.memory.load(Ordering::Relaxed),
            bytes_in: self.bytes_to_guest.load(Ordering::Relaxed),
            bytes_out: self.bytes_from_guest.load(Ordering::Relaxed),
            requests: self.requests.load(Ordering::Relaxed),
            fuel: self.fuel.get().copied(),
            model: *lock(&self.model),
        }
    }

    /// Polls the guest and counts the processor time that the poll uses.
    pub(crate) fn poll<F: Future>(&self, guest: Pin<&mut F>, context: &mut Context<'_>) -> Poll<F::Output> {
        let poll_start = self.started.elapsed();
        self.polled.store(nanos(poll_start), Ordering::Relaxed);
        let poll = guest.poll(context);
        self.cpu.fetch_add(nanos(self.started.elapsed() - poll_start), Ordering::Relaxed);
        poll
    }

    /// Returns whether the last poll ended because the guest was interrupted. An interrupted guest can continue
    /// immediately. This method returns true only once for each interruption.
    pub(crate) fn take_interruption(&self) -> bool {
        self.interrupted.swap(false, Ordering::Relaxed)
    }

    /// Handles an epoch tick of a running guest: stops the guest at its limits, or lets the scheduler run other guests.
    pub(crate) fn tick(&self) -> wasmtime::Result<UpdateDeadline> {
        let now = nanos(self.started.elapsed());
        let polled = now.saturating_sub(self.polled.load(Ordering::Relaxed));
        let wall = now.saturating_sub(self.waited.load(Ordering::Relaxed));
        let limit = if wall >= nanos(self.wall_limit) {
            Limit::WallTime(self.wall_limit)
        } else if self.cpu.load(Ordering::Relaxed) + polled >= nanos(self.cpu_limit) {
            Limit::CpuTime(self.cpu_limit)
        } else if polled < nanos(self.epoch_tick) / 2 {
            // The current poll of the guest has just started, so other guests used most of the time before this tick.
            return Ok(UpdateDeadline::Continue(1));
        } else {
            self.interrupted.store(true, Ordering::Relaxed);
            return Ok(UpdateDeadline::Yield(1));
        };
        self.record_limit(limit);
        Err(wasmtime::Error::msg("the call reached its time limit"))
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
