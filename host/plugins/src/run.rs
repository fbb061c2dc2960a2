//! The way of one call through the sandbox: a place, a fresh store, the guest under its limits, a report. It is the
//! same for all kinds.

use crate::admission::LaneName;
use crate::answers::HostAnswers;
use crate::engine::Metering;
use crate::failure::{CallFailure, Stop};
use crate::files::Ending;
use crate::grants::{Denial, Unmet};
use crate::identity::PluginIdentity;
use crate::limits::{CallLimits, Limit};
use crate::logging::LostLog;
use crate::record::CallRecord;
use crate::room::Room;
use crate::sandbox::Sandbox;
use crate::state::{CallState, Reach};
use crate::stopped::UnlessReported;
use crate::trial::Trial;
use crate::turns::Waiter;
use agent_core::tool::CallCost;
use serde::Serialize;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use wasmtime::{AsContext, AsContextMut, Store, StoreContext, StoreContextMut};

/// What became of a call. Its cost is known also when it failed (P8).
#[derive(Debug)]
pub struct CallReport<T> {
    /// The answer, or why there is none.
    pub result: Result<T, CallFailure>,
    /// Time and memory.
    pub cost: CallCost,
    /// What the guest was refused.
    pub denials: Vec<Denial>,
    /// What was cut from its log.
    pub lost_log: LostLog,
    /// What the host answered the guest, where it asked for something.
    pub answers: Option<Box<HostAnswers>>,
    /// In a call that runs again: what it left in files otherwise than then.
    pub effects: Vec<String>,
}

impl<T> CallReport<T> {
    /// A call that was answered before anything ran.
    pub(crate) fn answered(answer: T) -> Self {
        Self {
            result: Ok(answer),
            cost: CallCost::default(),
            denials: Vec::new(),
            lost_log: LostLog::default(),
            answers: None,
            effects: Vec::new(),
        }
    }

    /// A call that never began.
    pub(crate) fn refused(failure: CallFailure) -> Self {
        Self {
            result: Err(failure),
            cost: CallCost::default(),
            denials: Vec::new(),
            lost_log: LostLog::default(),
            answers: None,
            effects: Vec::new(),
        }
    }
}

impl<A: Serialize, E: Serialize> CallReport<Result<A, E>> {
    /// With the answer's bytes, as JSON, in the cost.
    pub(crate) fn counted(mut self) -> Self {
        let bytes = match &self.result {
            Ok(Ok(answer)) => json_bytes(answer),
            Ok(Err(error)) => json_bytes(error),
            Err(_) => 0,
        };
        self.cost.bytes_out += bytes as u64;
        self
    }
}

/// How many bytes this has as JSON.
pub(crate) fn json_bytes(value: &impl Serialize) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // What has no JSON is none of the domain's words.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// Everything about a call but what is called.
pub(crate) struct Ticket {
    pub(crate) plugin: Arc<PluginIdentity>,
    /// Where it runs.
    pub(crate) room: Arc<Room>,
    /// The call's id, for the log.
    pub(crate) call: String,
    /// Whose it is.
    pub(crate) agent: Arc<str>,
    /// Bytes of what it is asked, as JSON.
    pub(crate) asked: usize,
    pub(crate) lane: LaneName,
    pub(crate) wall: Duration,
    /// Its own limits. Fuel is counted where the room counts it.
    pub(crate) limits: CallLimits,
    /// Bytes that the guest may hand to the host at once.
    pub(crate) lifted: usize,
    pub(crate) reach: Reach,
    /// What its plugin is not granted.
    pub(crate) unmet: Arc<[Unmet]>,
    /// The same without what is only guessed.
    pub(crate) declared: Arc<[Unmet]>,
    /// What the call counts for.
    pub(crate) trial: Option<Arc<Trial>>,
}

impl Sandbox {
    /// Runs a guest. Dropping the future at any moment ends it, frees its instance and its place.
    pub(crate) async fn run<T, Run>(
        &self,
        ticket: Ticket,
        guest: impl FnOnce(GuestStore, Arc<CallRecord>) -> Run,
    ) -> CallReport<T>
    where
        Run: Future<Output = Result<T, Stop>>,
    {
        let waiting = Instant::now();
        let _place = match self.shared.admission.enter(ticket.lane, ticket.limits.memory, &ticket.agent).await {
            Ok(place) => place,
            Err(full) => return CallReport::refused(CallFailure::Busy { plugin: ticket.plugin, full }),
        };
        let queued = waiting.elapsed();
        let (wall, lifted, limits) = (ticket.wall, ticket.lifted, ticket.limits);
        let record = CallRecord::new(ticket.plugin, ticket.call, (wall, self.shared.epoch_tick), limits);
        let record = Arc::new(record.lacking(ticket.unmet).knowing(&ticket.reach.secrets));
        record.give(ticket.asked);
        let unless_reported = UnlessReported::new(&record, ticket.reach.stopped.clone());
        let result = match CallState::new(Arc::clone(&record), ticket.reach, &self.shared) {
            Ok(state) => {
                let store = fresh_store(state, &ticket.room, lifted);
                let waiter = self.shared.turns.of(ticket.lane).waiter(&ticket.agent);
                match in_turns(guest(store, Arc::clone(&record)), &record, waiter).await {
                    Ok(result) => result.map_err(|stop| stop.into_failure(&record, (lifted, self.shared.wasm_stack))),
                    Err(limit) => Err(CallFailure::Limit { plugin: record.plugin.clone(), limit }),
                }
            }
            Err(problem) => Err(CallFailure::Grant { plugin: record.plugin.clone(), problem }),
        };
        if let Some(trial) = &ticket.trial {
            trial.note(&result);
        }
        match &result {
            Ok(_) => record.note_lookups(&ticket.declared),
            Err(_) => record.note_denials(),
        }
        let Ending { answers, effects } = record.finish_files().await;
        record.finish_warnings();
        let lost_log = record.finish_log();
        let mut cost = record.cost(queued);
        // Code that is stopped elsewhere has not written down what it counted last.
        if !matches!(result, Ok(_) | Err(CallFailure::Limit { limit: Limit::Fuel(_), .. })) {
            cost.fuel = None;
        }
        let answers = record.answers.finish(answers);
        unless_reported.reported();
        CallReport { result, cost, denials: record.denials(), lost_log, answers, effects }
    }
}

/// Runs a guest to its end, or to the end of its wall time. Each poll takes a turn and gives it back: while the guest
/// waits for something it has none, and while it waits for one its time stands still.
async fn in_turns<F: Future>(guest: F, record: &CallRecord, mut waiter: Waiter<'_>) -> Result<F::Output, Limit> {
    let (mut guest, mut alarm) = (pin!(guest), pin!(tokio::time::sleep(record.time_left())));
    let mut waiting: Option<Instant> = None;
    poll_fn(|context| {
        let mut waited = None;
        let poll = waiter.take(context, |context| {
            waited = waiting.take().map(|since| since.elapsed());
            record.wait(waited.unwrap_or_default());
            let poll = record.poll(guest.as_mut(), context);
            (poll, record.next())
        });
        match poll {
            Poll::Ready(Poll::Ready(output)) => return Poll::Ready(Ok(output)),
            Poll::Ready(Poll::Pending) => {}
            Poll::Pending => {
                waiting.get_or_insert_with(Instant::now);
                return Poll::Pending;
            }
        }
        if waited.is_some() {
            alarm.as_mut().reset(tokio::time::Instant::now() + record.time_left());
        }
        alarm.as_mut().poll(context).map(|()| Err(Limit::WallTime(record.wall_limit)))
    })
    .await
}

fn fresh_store(state: CallState, room: &Room, lifted: usize) -> GuestStore {
    let record = Arc::clone(&state.record);
    let (handles, fuel) = (record.limits.handles, record.limits.fuel);
    let mut store = Store::new(&room.engine, state);
    store.limiter(|state| state);
    store.set_hostcall_fuel(lifted);
    store.set_max_component_handles(handles);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(move |_| record.tick());
    let mut store = GuestStore { store, fuel: None };
    if room.metering == Metering::Fuel {
        store.fill(fuel.unwrap_or(u64::MAX));
    }
    store
}

/// A guest's store. When it goes, however the call ends, its fuel is read.
pub(crate) struct GuestStore {
    store: Store<CallState>,
    /// What it began with, where it is counted.
    fuel: Option<u64>,
}

impl GuestStore {
    fn fill(&mut self, fuel: u64) {
        // It fails only in an engine that counts none.
        if self.store.set_fuel(fuel).is_ok() {
            self.fuel = Some(fuel);
        }
    }
}

impl Drop for GuestStore {
    fn drop(&mut self) {
        if let (Some(fuel), Ok(left)) = (self.fuel, self.store.get_fuel()) {
            self.store.data().record.burn(fuel.saturating_sub(left));
        }
    }
}

impl AsContext for GuestStore {
    type Data = CallState;

    fn as_context(&self) -> StoreContext<'_, CallState> {
        self.store.as_context()
    }
}

impl AsContextMut for GuestStore {
    fn as_context_mut(&mut self) -> StoreContextMut<'_, CallState> {
        self.store.as_context_mut()
    }
}
