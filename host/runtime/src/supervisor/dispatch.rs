//! Delivers the outbox of the agents' sessions: sends events to servers, and repeats deliveries that have failed (D2, I9).

mod read_position;

use super::Shared;
use super::backoff::{FIRST_DELAY, MAX_DELAY};
use crate::agent::OutboxConfig;
use crate::outbox::{Delivery, OutboxError, Receivers, deliver_one};
use agent_core::change::OutboxEffect;
use agent_store::{OutboxFilter, Store, StoreError, StoredOutboxItem};
use read_position::ReadPosition;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Number of items that one query reads.
const PAGE: usize = 100;
/// Maximum number of items of one agent that are kept in memory until they are delivered. Further items stay in the store,
/// and are read when half of these items have been delivered.
const MAX_WAITING: usize = 1_000;
/// Maximum number of items of one agent that are delivered at the same time, so that a server that does not answer does not
/// hold up the events of other agents.
const MAX_RUNNING: usize = 4;
/// Time between two searches for items that other processes have committed.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time that a session has to deliver an item itself. A session delivers everything except events for a server.
const OWN_DELIVERY: Duration = Duration::from_secs(5);
/// Number of failed attempts after which a delivery is reported as stuck.
const STUCK_AFTER: u32 = 3;

/// Delivers items until the supervisor shuts down. A delivery that was interrupted is repeated at the next start.
pub(super) async fn dispatch(shared: Arc<Shared>) {
    let mut dispatcher = Dispatcher::default();
    loop {
        if let Err(error) = dispatcher.read_new_items(&shared).await {
            tracing::warn!(%error, "cannot read the outbox; the host tries again");
        }
        dispatcher.start_deliveries(&shared, Instant::now());
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = shared.host.outbox_changed.notified() => {}
            Some(finished) = dispatcher.running.join_next() => match finished {
                Ok(finished) => dispatcher.finish(finished, Instant::now()),
                Err(error) => {
                    tracing::error!(%error, "the delivery of an event failed");
                    dispatcher.read_again();
                }
            },
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

/// The items that are not delivered yet.
#[derive(Default)]
struct Dispatcher {
    position: ReadPosition,
    /// The receivers that were configured when the items were read. If they change, all items are read again.
    receivers: Vec<(String, ReceiverIdentity)>,
    waiting: BTreeMap<u64, WaitingItem>,
    /// The agents that have more items in the store than are kept in memory.
    overflowing: HashSet<String>,
    running: JoinSet<FinishedDelivery>,
}

/// The folder, the server and the subject of an agent. A server is identified by the address of its value, which is replaced when the
/// configuration changes.
type ReceiverIdentity = (Option<PathBuf>, Option<usize>, Option<Arc<str>>);

struct WaitingItem {
    session: String,
    agent: String,
    failed_attempts: u32,
    next_attempt: Instant,
    is_running: bool,
    /// Whether the server has answered that it does not accept this event.
    is_rejected: bool,
}

struct FinishedDelivery {
    number: u64,
    result: Result<Attempt, OutboxError>,
}

/// What an attempt to deliver an item has done.
enum Attempt {
    /// The item needs no further attempt.
    Done,
    /// The item was not delivered, because this earlier event of its session must be delivered before.
    Earlier(Box<StoredOutboxItem>),
}

impl Dispatcher {
    async fn read_new_items(&mut self, shared: &Shared) -> Result<(), StoreError> {
        let receivers = shared.agents.iter().map(|(name, agent)| {
            let agent = agent.current();
            let OutboxConfig { directory, server, subject, .. } = &agent.config().outbox;
            let server = server.as_ref().map(|server| Arc::as_ptr(server).addr());
            (name.clone(), (directory.clone(), server, subject.clone()))
        });
        let receivers: Vec<_> = receivers.collect();
        if self.receivers != receivers {
            self.receivers = receivers;
            self.read_again();
        }
        if self.overflowing.iter().any(|agent| self.waiting_of(agent) <= MAX_WAITING / 2) {
            self.overflowing.clear();
            self.position.read_all_next();
        }
        let read = self.position.begin(Instant::now());
        let mut last_read = read.start;
        loop {
            let items = shared.host.store.outbox(None, OutboxFilter::Pending, last_read, PAGE).await?;
            let Some(last) = items.last() else { break };
            last_read = last.number;
            for item in items {
                self.add(shared, item, Instant::now());
            }
        }
        self.position.complete(read, Instant::now(), last_read);
        Ok(())
    }

    /// Forgets all items, and reads them from the store again.
    fn read_again(&mut self) {
        self.position = ReadPosition::default();
        self.waiting.clear();
        self.overflowing.clear();
    }

    fn waiting_of(&self, agent: &str) -> usize {
        self.waiting.values().filter(|item| item.agent == agent).count()
    }

    /// Adds an item, if it belongs to an agent of this supervisor and has a receiver.
    fn add(&mut self, shared: &Shared, item: StoredOutboxItem, now: Instant) {
        let Some(agent) = shared.agents.get(&item.agent).map(|agent| agent.current()) else { return };
        let outbox = &agent.config().outbox;
        let is_event = matches!(item.item.effect, OutboxEffect::Event(_));
        let is_deliverable = !is_event || outbox.directory.is_some() || outbox.is_sent();
        if !is_deliverable || self.overflowing.contains(&item.agent) || self.waiting.contains_key(&item.number) {
            return;
        }
        if self.waiting_of(&item.agent) >= MAX_WAITING {
            self.overflowing.insert(item.agent);
        } else {
            let delay = if is_event && outbox.is_sent() { Duration::ZERO } else { OWN_DELIVERY };
            self.insert(item, now + delay);
        }
    }

    fn insert(&mut self, item: StoredOutboxItem, next_attempt: Instant) {
        let StoredOutboxItem { number, session, agent, .. } = item;
        let waiting =
            WaitingItem { session, agent, failed_attempts: 0, next_attempt, is_running: false, is_rejected: false };
        self.waiting.insert(number, waiting);
    }

    /// Starts the deliveries that are due. The items of one session are delivered in order, except that an item that the
    /// server has rejected does not hold up the following items.
    fn start_deliveries(&mut self, shared: &Arc<Shared>, now: Instant) {
        let mut running: HashMap<String, usize> = HashMap::new();
        for item in self.waiting.values().filter(|item| item.is_running) {
            *running.entry(item.agent.clone()).or_default() += 1;
        }
        let mut blocked: HashSet<&str> = HashSet::new();
        let mut rejected: HashMap<&str, Vec<u64>> = HashMap::new();
        for (number, item) in &mut self.waiting {
            let WaitingItem { session, agent, is_running, is_rejected, next_attempt, .. } = item;
            let is_first = if *is_rejected { !blocked.contains(&**session) } else { blocked.insert(session) };
            let running = running.entry(agent.clone()).or_default();
            if is_first && !*is_running && *next_attempt <= now && *running < MAX_RUNNING {
                (*is_running, *running) = (true, *running + 1);
                let passed = rejected.get(&**session).cloned().unwrap_or_default();
                self.running.spawn(deliver(shared.clone(), (*number, agent.clone()), passed));
            }
            if *is_rejected {
                rejected.entry(session).or_default().push(*number);
            }
        }
    }

    fn finish(&mut self, FinishedDelivery { number, result }: FinishedDelivery, now: Instant) {
        let error = match result {
            Ok(Attempt::Done) => {
                self.waiting.remove(&number);
                return;
            }
            Ok(Attempt::Earlier(earlier)) => {
                if let Some(item) = self.waiting.get_mut(&number) {
                    (item.is_running, item.next_attempt) = (false, now);
                }
                if !self.waiting.contains_key(&earlier.number) {
                    self.insert(*earlier, now);
                }
                return;
            }
            Err(error) => error,
        };
        let Some(item) = self.waiting.get_mut(&number) else { return };
        item.is_running = false;
        item.is_rejected = error.concerns_only_this_event();
        item.failed_attempts += 1;
        let delay = FIRST_DELAY.saturating_mul(1 << (item.failed_attempts - 1).min(16)).min(MAX_DELAY);
        item.next_attempt = now + delay;
        let (session, attempts) = (&item.session, item.failed_attempts);
        match attempts >= STUCK_AFTER || item.is_rejected {
            true => tracing::warn!(session, attempts, %error, ?delay, "an event is stuck in the outbox"),
            false => tracing::info!(session, attempts, %error, ?delay, "an event could not be delivered"),
        }
    }
}

/// Delivers an item, unless somebody else has delivered it, and records the result. `passed` has the earlier items of the session
/// that do not hold up the item.
async fn deliver(shared: Arc<Shared>, (number, agent): (u64, String), passed: Vec<u64>) -> FinishedDelivery {
    let delivered = async {
        let store = &*shared.host.store;
        let found = store.outbox(None, OutboxFilter::Pending, number - 1, 1).await?.pop();
        let Some(item) = found.filter(|item| item.number == number) else { return Ok(Attempt::Done) };
        let Some(agent) = shared.agents.get(&agent).map(|agent| agent.current()) else { return Ok(Attempt::Done) };
        // The dispatcher may not have read an earlier item of the session yet, whose commit took longer than it looks back.
        if let Some(earlier) = earlier_event(store, &item, &passed).await? {
            return Ok(Attempt::Earlier(Box::new(earlier)));
        }
        let receivers = Receivers::All(shared.host.fleet.as_ref().map(|fleet| &fleet.nats));
        match deliver_one(store, (&agent.config().outbox, receivers), &item).await {
            Ok(Delivery::Done) => {
                store.mark_delivered(number).await?;
                Ok(Attempt::Done)
            }
            // If it is pending, the configuration has changed, and the item is read again.
            Ok(Delivery::Recorded | Delivery::Pending) => Ok(Attempt::Done),
            Err(error) => {
                store.note_failed_delivery(number, &error.to_string()).await?;
                Err(error)
            }
        }
    };
    FinishedDelivery { number, result: delivered.await }
}

/// Returns the first event before an event of the same session that is pending and must not be passed. The numbers of the items of
/// a session increase in commit order.
async fn earlier_event(
    store: &dyn Store,
    item: &StoredOutboxItem,
    passed: &[u64],
) -> Result<Option<StoredOutboxItem>, StoreError> {
    let is_event = |item: &StoredOutboxItem| matches!(item.item.effect, OutboxEffect::Event(_));
    if !is_event(item) {
        return Ok(None);
    }
    let pending = store.outbox(Some(&item.session), OutboxFilter::Pending, 0, passed.len() + PAGE).await;
    let pending = match pending {
        // The session was deleted meanwhile.
        Err(StoreError::NoSession { .. }) => return Ok(None),
        pending => pending?,
    };
    let must_be_first =
        |other: &StoredOutboxItem| other.number < item.number && is_event(other) && !passed.contains(&other.number);
    Ok(pending.into_iter().find(must_be_first))
}
