//! Runs one call of any plugin kind: waits for a permit, creates a new wasmtime store, runs the guest within its
//! limits, and returns the report.

use super::admission::Admission;
use super::call_spec::CallSpec;
use super::engine::Metering;
use super::failure::{CallFailure, Stop};
use super::observer::{CallEnding, CallObservation, CallObserver};
use super::report::CallReport;
use super::scheduler::{NextTurn, Scheduler, Waiter};
use super::state::CallState;
use crate::capabilities::http::Network;
use crate::file_trees::TreeHost;
use crate::identity::{Kind, PluginIdentity};
use crate::limits::Limit;
use crate::recording::CallRecord;
use crate::recording::files::FilesOutcome;
use crate::recording::stopped_calls::DenialsOnDrop;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::{Duration, Instant};
use wasmtime::{AsContext, AsContextMut, Engine, Store, StoreContext, StoreContextMut};

/// Runs the calls of a sandbox, and contains the state that all these calls share.
pub(crate) struct CallRunner {
    pub(crate) admission: Admission,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) network: Arc<Network>,
    pub(crate) trees: TreeHost,
    /// Time between two interruptions of a running guest.
    pub(crate) epoch_tick: Duration,
    /// Size of a guest's stack in bytes. The error message after a stack overflow contains this size.
    pub(crate) wasm_stack: usize,
    /// Is called after each call.
    pub(crate) observer: OnceLock<CallObserver>,
}

impl CallRunner {
    /// Runs the guest of a call. Dropping the future stops the guest and frees its instance and its permit.
    pub(crate) async fn run<T, Run>(
        &self,
        spec: CallSpec,
        guest: impl FnOnce(GuestStore, Arc<CallRecord>) -> Run,
    ) -> CallReport<T>
    where
        Run: Future<Output = Result<T, Stop>>,
    {
        let queued_at = Instant::now();
        let _permit = match self.admission.enter(spec.lane, spec.limits.memory, &spec.agent).await {
            Ok(permit) => permit,
            Err(full) => {
                let report = CallReport::refused(CallFailure::Busy { plugin: spec.plugin.clone(), full });
                self.observe((&spec.plugin, &spec.agent, spec.kind), &report);
                return report;
            }
        };
        let queued = queued_at.elapsed();
        let (wall, lifted, limits) = (spec.wall, spec.lifted_bytes, spec.limits);
        let (agent, kind) = (spec.agent.clone(), spec.kind);
        let record = CallRecord::new(spec.plugin, spec.call, (wall, self.epoch_tick), limits);
        let record = Arc::new(record.with_unmet(spec.unmet).with_secrets(&spec.capabilities.secrets));
        record.count_bytes_to_guest(spec.request_bytes);
        let denials_on_drop = DenialsOnDrop::new(&record, spec.capabilities.stopped_calls.clone());
        let result = match CallState::new(Arc::clone(&record), spec.capabilities, (&self.trees, &self.network)) {
            Ok(state) => {
                let store = new_store(state, (&spec.engine, spec.metering), lifted);
                let waiter = self.scheduler.turns_of(spec.lane).waiter(&spec.agent);
                match run_in_turns(guest(store, Arc::clone(&record)), &record, waiter).await {
                    Ok(result) => result.map_err(|stop| stop.into_failure(&record, (lifted, self.wasm_stack))),
                    Err(limit) => Err(CallFailure::Limit { plugin: record.plugin.clone(), limit }),
                }
            }
            Err(problem) => Err(CallFailure::Grant { plugin: record.plugin.clone(), problem }),
        };
        if let Some(trial) = &spec.trial {
            trial.count_call(&result);
        }
        match &result {
            Ok(_) => record.note_lookups(&spec.declared),
            Err(_) => record.note_denials(),
        }
        let FilesOutcome { answers, effects } = record.finish_files().await;
        record.finish_warnings();
        let lost_log = record.finish_log();
        let mut cost = record.cost(queued);
        // The store contains the final fuel count only if the guest ended normally or reached its fuel limit.
        if !matches!(result, Ok(_) | Err(CallFailure::Limit { limit: Limit::Fuel(_), .. })) {
            cost.fuel = None;
        }
        let answers = record.answers.finish(answers);
        denials_on_drop.reported();
        let report = CallReport { result, cost, denials: record.denials(), lost_log, answers, effects };
        self.observe((&record.plugin, &agent, kind), &report);
        report
    }

    fn observe<T>(&self, (plugin, agent, kind): (&PluginIdentity, &str, Kind), report: &CallReport<T>) {
        if let Some(observer) = self.observer.get() {
            let (ending, cost) = (CallEnding::of(&report.result), report.cost);
            observer.observe(&CallObservation { plugin, agent, kind, ending, cost });
        }
    }
}

/// Runs a guest until it ends or reaches its wall-time limit. Each poll of the guest needs a turn from the scheduler,
/// and the turn ends when the poll returns. A guest that waits for the host has no turn. The time for which the
/// guest waits for a turn does not count as wall time.
async fn run_in_turns<F: Future>(guest: F, record: &CallRecord, mut waiter: Waiter<'_>) -> Result<F::Output, Limit> {
    let (mut guest, mut alarm) = (pin!(guest), pin!(tokio::time::sleep(record.time_left())));
    let mut waiting: Option<Instant> = None;
    poll_fn(|context| {
        let mut waited = None;
        let poll = waiter.take(context, |context| {
            waited = waiting.take().map(|since| since.elapsed());
            record.add_waiting_time(waited.unwrap_or_default());
            let poll = record.poll(guest.as_mut(), context);
            let next = if record.take_interruption() { NextTurn::Wanted } else { NextTurn::NotWanted };
            (poll, next)
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

fn new_store(state: CallState, (engine, metering): (&Engine, Metering), lifted: usize) -> GuestStore {
    let record = Arc::clone(state.record());
    let (handles, fuel) = (record.limits.handles, record.limits.fuel);
    let mut store = Store::new(engine, state);
    store.limiter(|state| state);
    store.set_hostcall_fuel(lifted);
    store.set_max_component_handles(handles);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(move |_| record.tick());
    let mut store = GuestStore { store, fuel: None };
    if metering == Metering::Fuel {
        store.set_fuel(fuel.unwrap_or(u64::MAX));
    }
    store
}

/// The wasmtime store of a guest. When the store is dropped, it records how much fuel the guest has used.
pub(crate) struct GuestStore {
    store: Store<CallState>,
    /// The fuel that the guest had at the start of the call. `None` means that fuel is not counted.
    fuel: Option<u64>,
}

impl GuestStore {
    fn set_fuel(&mut self, fuel: u64) {
        // Setting the fuel fails only if the engine does not count fuel.
        if self.store.set_fuel(fuel).is_ok() {
            self.fuel = Some(fuel);
        }
    }
}

impl Drop for GuestStore {
    fn drop(&mut self) {
        if let (Some(fuel), Ok(left)) = (self.fuel, self.store.get_fuel()) {
            self.store.data().record().record_fuel(fuel.saturating_sub(left));
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
