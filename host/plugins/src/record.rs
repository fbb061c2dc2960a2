//! What is known of one running call, shared between the guest's store and the host that waits for it: its cost, the
//! limit that stopped it, what it was denied, and what it logged.

use crate::answers::AnswerLog;
use crate::files::FileWatch;
use crate::grants::{Denial, GrantAdvice, Unmet};
use crate::http::KnownSecrets;
use crate::identity::PluginIdentity;
use crate::limits::{CallLimits, Limit};
use crate::logging::GuestLog;
use crate::lookups::Lookups;
use crate::turns::Next;
use agent_core::tool::{CallCost, ModelUse};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use wasmtime::UpdateDeadline;

/// Denials of one call that are kept; of the others only their number is.
const DENIALS: usize = 32;

/// Warnings of the host about one call that are logged; of the others only their number is (row 44).
const WARNINGS: u64 = 20;

pub(crate) struct CallRecord {
    pub(crate) plugin: Arc<PluginIdentity>,
    /// The call's id, for the log.
    pub(crate) call: String,
    pub(crate) log: Mutex<GuestLog>,
    pub(crate) lookups: Lookups,
    pub(crate) answers: AnswerLog,
    pub(crate) files: FileWatch,
    pub(crate) unmet: Arc<[Unmet]>,
    pub(crate) limits: CallLimits,
    /// What must not come back to the guest.
    pub(crate) secrets: Arc<KnownSecrets>,
    started: Instant,
    pub(crate) wall_limit: Duration,
    cpu_limit: Duration,
    epoch_tick: Duration,
    cpu: AtomicU64,
    /// Nanoseconds from `started` to the current poll.
    polled: AtomicU64,
    /// Nanoseconds of waiting for turns, which are no part of the wall time.
    waited: AtomicU64,
    memory: AtomicU64,
    given: AtomicU64,
    taken: AtomicU64,
    requests: AtomicU64,
    value_uses: AtomicU64,
    fuel: OnceLock<u64>,
    model: Mutex<ModelUse>,
    /// The guest was interrupted, and goes on when it has a turn.
    interrupted: AtomicBool,
    limit: Mutex<Option<Limit>>,
    met: Mutex<Met>,
    denials: Mutex<Denials>,
    warnings: AtomicU64,
}

/// What the guest was refused.
#[derive(Default)]
struct Denials {
    kept: Vec<Denial>,
    left_out: u64,
}

/// Limits of which the guest was told, so that it can go on.
#[derive(Default)]
struct Met {
    growth: Option<Limit>,
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
            lookups: Lookups::default(),
            answers: AnswerLog::new(limits.recorded),
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
            given: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            value_uses: AtomicU64::new(0),
            fuel: OnceLock::new(),
            model: Mutex::default(),
            interrupted: AtomicBool::new(false),
            limit: Mutex::default(),
            met: Mutex::default(),
            denials: Mutex::default(),
            warnings: AtomicU64::new(0),
        }
    }

    /// What is not granted to its plugin, where a call may fail of it.
    pub(crate) fn lacking(mut self, unmet: Arc<[Unmet]>) -> Self {
        self.unmet = unmet;
        self
    }

    /// What its agent keeps secret.
    pub(crate) fn knowing(mut self, secrets: &Arc<KnownSecrets>) -> Self {
        self.secrets = Arc::clone(secrets);
        self
    }

    /// Time until the call ends.
    pub(crate) fn time_left(&self) -> Duration {
        self.wall_limit.saturating_sub(self.wall())
    }

    /// Wall time so far. Waiting for a turn is none.
    fn wall(&self) -> Duration {
        self.started.elapsed().saturating_sub(self.waited())
    }

    /// Time in which the guest could have gone on and had no turn.
    fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited.load(Ordering::Relaxed))
    }

    /// Counts waiting for a turn.
    pub(crate) fn wait(&self, time: Duration) {
        self.waited.fetch_add(nanos(time), Ordering::Relaxed);
    }

    /// Notes the first limit that ends the call.
    pub(crate) fn hit(&self, limit: Limit) {
        lock(&self.limit).get_or_insert(limit);
    }

    pub(crate) fn limit(&self) -> Option<Limit> {
        *lock(&self.limit)
    }

    /// Notes a limit at which a request of the guest was refused or cut. The guest was told, and may cope.
    pub(crate) fn cut_request(&self, limit: Limit) {
        self.warn(format_args!("a request was stopped at its limit: {limit}"));
        lock(&self.met).request.get_or_insert(limit);
    }

    /// Notes that a tree has no room for what the guest would add. The guest was told, and may cope.
    pub(crate) fn fill_tree(&self, limit: Limit) {
        let mut met = lock(&self.met);
        if met.request.is_none() {
            tracing::warn!(target: "plugin", plugin = %self.plugin, call = %self.call, "a change of a tree was stopped at its limit: {limit}");
            met.request = Some(limit);
        }
    }

    /// The limit of its requests that it ran into: it explains why a call failed, however the guest puts it.
    pub(crate) fn request_limit(&self) -> Option<Limit> {
        lock(&self.met).request
    }

    /// Notes that a memory or table was not grown. The guest was told, and may cope.
    pub(crate) fn refuse_growth(&self, limit: Limit) {
        lock(&self.met).growth = Some(limit);
    }

    /// Notes that one was grown: whatever was refused before, the guest went on.
    pub(crate) fn grow(&self) {
        lock(&self.met).growth = None;
    }

    /// What explains a crash that no other limit does: what the guest was last refused.
    pub(crate) fn met(&self) -> Option<Limit> {
        let met = lock(&self.met);
        met.growth.or(met.request)
    }

    pub(crate) fn use_memory(&self, bytes: usize) {
        self.memory.fetch_max(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes that the guest gets.
    pub(crate) fn give(&self, bytes: usize) {
        self.given.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes that come from the guest.
    pub(crate) fn take(&self, bytes: usize) {
        self.taken.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts a request to the outside world.
    pub(crate) fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a use of what the plugin keeps between calls, and says how many there were before.
    pub(crate) fn use_values(&self) -> u64 {
        self.value_uses.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts a question to the host's model.
    pub(crate) fn ask(&self, used: ModelUse) {
        *lock(&self.model) += used;
    }

    /// Notes the fuel that the guest has used.
    pub(crate) fn burn(&self, fuel: u64) {
        let _ = self.fuel.set(fuel);
    }

    /// Notes what the guest was refused, once.
    pub(crate) fn deny(&self, thing: String, advice: GrantAdvice) {
        let mut denials = lock(&self.denials);
        if denials.kept.iter().any(|denial| denial.thing == thing) {
            return;
        }
        if denials.kept.len() == DENIALS {
            denials.left_out += 1;
            return;
        }
        let denial = Denial { plugin: (*self.plugin).clone(), thing, advice };
        // It is told to people as an event of the call.
        tracing::info!(target: "plugin", plugin = %self.plugin, call = %self.call, "denied {}", denial.thing);
        denials.kept.push(denial);
    }

    /// What the guest was refused, and last how often it was refused something beyond what is listed.
    pub(crate) fn denials(&self) -> Vec<Denial> {
        let denials = lock(&self.denials);
        let mut all = denials.kept.clone();
        if denials.left_out > 0 {
            let thing = format!("something else, {} times more", denials.left_out);
            all.push(Denial { plugin: (*self.plugin).clone(), thing, advice: GrantAdvice::none() });
        }
        all
    }

    /// Warns the people who run the host, a few times in each call.
    pub(crate) fn warn(&self, problem: fmt::Arguments<'_>) {
        if self.warnings.fetch_add(1, Ordering::Relaxed) < WARNINGS {
            tracing::warn!(target: "plugin", plugin = %self.plugin, call = %self.call, "{problem}");
        }
    }

    /// Says how many warnings were not logged.
    pub(crate) fn finish_warnings(&self) {
        let more = self.warnings.load(Ordering::Relaxed).saturating_sub(WARNINGS);
        if more > 0 {
            tracing::warn!(target: "plugin", plugin = %self.plugin, call = %self.call, "{more} more warnings about this call");
        }
    }

    pub(crate) fn cost(&self, queued: Duration) -> CallCost {
        CallCost {
            cpu_us: self.cpu.load(Ordering::Relaxed) / 1_000,
            wall_us: micros(self.wall()),
            queue_us: micros(queued + self.waited()),
            memory_bytes: self.memory.load(Ordering::Relaxed),
            bytes_in: self.given.load(Ordering::Relaxed),
            bytes_out: self.taken.load(Ordering::Relaxed),
            requests: self.requests.load(Ordering::Relaxed),
            fuel: self.fuel.get().copied(),
            model: *lock(&self.model),
        }
    }

    /// Polls the guest, counting its processor time.
    pub(crate) fn poll<F: Future>(&self, guest: Pin<&mut F>, context: &mut Context<'_>) -> Poll<F::Output> {
        let begun = self.started.elapsed();
        self.polled.store(nanos(begun), Ordering::Relaxed);
        let poll = guest.poll(context);
        self.cpu.fetch_add(nanos(self.started.elapsed() - begun), Ordering::Relaxed);
        poll
    }

    /// What the guest wants after a poll that did not end it: where it was interrupted, to go on.
    pub(crate) fn next(&self) -> Next {
        if self.interrupted.swap(false, Ordering::Relaxed) { Next::Turn } else { Next::Nothing }
    }

    /// What happens to a running guest at an epoch tick: it is stopped at its limits, and gives its turn back.
    pub(crate) fn tick(&self) -> wasmtime::Result<UpdateDeadline> {
        let now = nanos(self.started.elapsed());
        let polled = now.saturating_sub(self.polled.load(Ordering::Relaxed));
        let wall = now.saturating_sub(self.waited.load(Ordering::Relaxed));
        let limit = if wall >= nanos(self.wall_limit) {
            Limit::WallTime(self.wall_limit)
        } else if self.cpu.load(Ordering::Relaxed) + polled >= nanos(self.cpu_limit) {
            Limit::CpuTime(self.cpu_limit)
        } else if polled < nanos(self.epoch_tick) / 2 {
            // Its turn has only begun: the tick was one that it slept through, or came just now.
            return Ok(UpdateDeadline::Continue(1));
        } else {
            self.interrupted.store(true, Ordering::Relaxed);
            return Ok(UpdateDeadline::Yield(1));
        };
        self.hit(limit);
        Err(wasmtime::Error::msg("the call's time is over"))
    }
}

/// The data behind the lock; after a panic elsewhere it is still whole, since nothing here is changed in two steps.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
