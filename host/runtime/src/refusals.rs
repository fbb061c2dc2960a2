//! Records refused requests in the audit log (O3), at a bounded rate, so that nobody can fill the disk with requests that
//! are refused (row 44).
//!
//! The first refusal of a kind is stored before the sender receives the answer. If more refusals of the same kind follow,
//! they are counted, and one entry with their number is stored at the end of an interval. While the refusals go on, the
//! intervals become longer.

use crate::host::{Observation, Observer};
use agent_core::visible::visible_name;
use agent_store::{AuditAction, Store};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

/// Length of the first interval in which refusals of one kind share an entry.
const FIRST_INTERVAL: Duration = Duration::from_secs(60);
/// Length of the longest interval.
const LONGEST_INTERVAL: Duration = Duration::from_secs(15 * 60);
/// Maximum number of kinds of refusals that are counted separately. Further kinds share one entry per protocol.
const MAX_KINDS: usize = 256;
/// Maximum number of characters of a name in an entry.
const MAX_NAME_CHARACTERS: usize = 200;
/// What entries contain instead of the request if there are too many kinds of refusals.
const OTHER_REQUESTS: &str = "other requests";

/// The protocol of editors. An editor has no token, because it has started the host itself.
pub const EDITOR_PROTOCOL: &str = "acp";

/// What entries contain instead of the request if the sender has no valid token.
const WITHOUT_TOKEN: &str = "a request without a valid token";

/// A request that was refused because its sender may not make it.
#[derive(Clone, Debug)]
pub struct RefusedRequest {
    /// The protocol of the request, such as `http`.
    pub protocol: &'static str,
    /// Name of the token in the request. `None` if the request contained no valid token, or if an editor sent it.
    pub token: Option<String>,
    /// What was requested. It must be one of few texts, and must not contain parts that the sender chooses freely.
    pub request: String,
    /// The session or the agent that the request named. It is left out if the sender has no valid token.
    pub object: Option<String>,
    /// Code for the reason, such as `unauthorized`.
    pub code: &'static str,
}

impl RefusedRequest {
    /// Whether the host knows the sender. Only then, what the sender writes may be in an entry.
    fn has_known_sender(&self) -> bool {
        self.token.is_some() || self.protocol == EDITOR_PROTOCOL
    }
}

/// Records refused requests. All clones share the same counts.
#[derive(Clone)]
pub struct RefusalLog(Arc<Shared>, Option<Observer>);

struct Shared {
    store: Arc<dyn Store>,
    intervals: Intervals,
    state: Mutex<State>,
    /// The entries that are being stored without waiting.
    writes: TaskTracker,
}

/// The lengths of the first and of the longest interval.
#[derive(Clone, Copy)]
struct Intervals(Duration, Duration);

#[derive(Default)]
struct State {
    kinds: HashMap<Kind, Counted>,
    /// Whether a task stores the counts at the ends of the intervals.
    has_task: bool,
}

/// Refusals with the same kind share entries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kind {
    protocol: &'static str,
    token: Option<String>,
    request: String,
    code: &'static str,
}

struct Counted {
    /// Number of refusals that no entry contains yet.
    count: u64,
    /// The object of the first of these refusals.
    object: Option<String>,
    interval: Duration,
    ends: Instant,
}

impl RefusalLog {
    /// Creates a log that stores its entries in this store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self::with_intervals(store, Intervals(FIRST_INTERVAL, LONGEST_INTERVAL))
    }

    fn with_intervals(store: Arc<dyn Store>, intervals: Intervals) -> Self {
        Self(Arc::new(Shared { store, intervals, state: Mutex::default(), writes: TaskTracker::new() }), None)
    }

    /// Tells this observer about each refusal.
    pub(crate) fn observed_by(self, observer: Option<Observer>) -> Self {
        Self(self.0, observer)
    }

    /// Records a refusal. If it is the first of its kind, waits until the entry is stored. If the entry cannot be stored, the
    /// host's log contains the reason.
    pub async fn record(&self, refused: RefusedRequest) {
        if let Some(entry) = self.count(refused) {
            store(&*self.0.store, vec![entry]).await;
        }
    }

    /// Records a refusal without waiting.
    pub fn note(&self, refused: RefusedRequest) {
        if let Some(entry) = self.count(refused) {
            self.0.store_in_task(vec![entry]);
        }
    }

    /// Stores all counts, because the process shuts down.
    pub async fn flush(&self) {
        let entries = self.0.lock().take(|_| true);
        if !entries.is_empty() {
            store(&*self.0.store, entries).await;
        }
        self.0.writes.close();
        self.0.writes.wait().await;
    }

    /// Counts a refusal. Returns its entry if it must be stored now.
    fn count(&self, refused: RefusedRequest) -> Option<AuditAction> {
        if let Some(observer) = &self.1 {
            observer.observe(&Observation::Refused { protocol: refused.protocol, code: refused.code });
        }
        let name = |name: &str| visible_name(name, MAX_NAME_CHARACTERS);
        let is_known = refused.has_known_sender();
        let RefusedRequest { protocol, token, request, object, code } = refused;
        let object = object.filter(|_| is_known).map(|object| name(&object));
        // A sender without a token must not create many kinds.
        let request = if is_known { name(&request) } else { WITHOUT_TOKEN.to_owned() };
        let mut kind = Kind { protocol, token, request, code };
        let mut state = self.0.lock();
        if state.kinds.len() >= MAX_KINDS && !state.kinds.contains_key(&kind) {
            kind = Kind { token: None, request: OTHER_REQUESTS.to_owned(), ..kind };
        }
        if let Some(counted) = state.kinds.get_mut(&kind) {
            counted.count += 1;
            counted.object = counted.object.take().or(object);
            return None;
        }
        let (interval, ends) = (self.0.intervals.0, Instant::now() + self.0.intervals.0);
        state.kinds.insert(kind.clone(), Counted { count: 0, object: None, interval, ends });
        if !state.has_task
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            state.has_task = true;
            runtime.spawn(store_counts(Arc::downgrade(&self.0)));
        }
        Some(entry(kind, object, 1))
    }
}

/// Stores the counts at the ends of their intervals, until no kind of refusal is left.
async fn store_counts(shared: Weak<Shared>) {
    loop {
        let next = {
            let Some(shared) = shared.upgrade() else { return };
            let mut state = shared.lock();
            let Some(next) = state.kinds.values().map(|counted| counted.ends).min() else {
                state.has_task = false;
                return;
            };
            next
        };
        tokio::time::sleep_until(next).await;
        let Some(shared) = shared.upgrade() else { return };
        let now = Instant::now();
        let entries = shared.lock().end_intervals(now, shared.intervals.1);
        if !entries.is_empty() {
            shared.store_in_task(entries);
        }
    }
}

impl Shared {
    /// Stores entries in a task for which [`RefusalLog::flush`] waits.
    fn store_in_task(&self, entries: Vec<AuditAction>) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let log = self.store.clone();
            self.writes.spawn_on(async move { store(&*log, entries).await }, &runtime);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the entries of the intervals that have ended. A kind without refusals in its interval is forgotten, and for
    /// all others a longer interval begins.
    fn end_intervals(&mut self, now: Instant, longest: Duration) -> Vec<AuditAction> {
        self.kinds.retain(|_, counted| counted.count > 0 || counted.ends > now);
        let entries = self.take(|counted| counted.ends <= now);
        for counted in self.kinds.values_mut().filter(|counted| counted.ends <= now) {
            counted.interval = (counted.interval * 2).min(longest);
            counted.ends = now + counted.interval;
        }
        entries
    }

    /// Returns the entries of the selected kinds, and sets their counts to 0.
    fn take(&mut self, select: impl Fn(&Counted) -> bool) -> Vec<AuditAction> {
        let selected = self.kinds.iter_mut().filter(|(_, counted)| counted.count > 0 && select(counted));
        let entries = selected.map(|(kind, counted)| {
            let (count, object) = (std::mem::take(&mut counted.count), counted.object.take());
            entry(kind.clone(), object, count)
        });
        entries.collect()
    }
}

fn entry(kind: Kind, object: Option<String>, count: u64) -> AuditAction {
    let Kind { protocol, token, request, code } = kind;
    AuditAction::RequestRefused { protocol: protocol.to_owned(), token, request, object, code: code.to_owned(), count }
}

async fn store(store: &dyn Store, entries: Vec<AuditAction>) {
    if let Err(error) = store.audit(entries).await {
        tracing::error!(%error, "refused requests could not be recorded in the audit log");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_store::{Audit, SqliteStore};

    fn refused(token: Option<&str>, request: &str) -> RefusedRequest {
        let (token, object) = (token.map(str::to_owned), Some("clerk/1".to_owned()));
        RefusedRequest { protocol: "http", token, request: request.to_owned(), object, code: "forbidden" }
    }

    async fn entries(store: &SqliteStore) -> Vec<(Option<String>, String, u64)> {
        let entries = store.audit_entries(0, 0, 1_000).await.unwrap();
        let refusal = |action| match action {
            AuditAction::RequestRefused { token, request, count, .. } => (token, request, count),
            other => panic!("{other:?}"),
        };
        entries.into_iter().map(|entry| refusal(entry.action)).collect()
    }

    /// O3, row 44: the first refusal is stored at once. Further ones are counted, and no count is lost.
    #[tokio::test]
    async fn row_44_refusals_of_one_kind_share_entries() {
        let store = Arc::new(SqliteStore::open_in_memory().unwrap());
        let intervals = Intervals(Duration::from_millis(50), Duration::from_millis(200));
        let log = RefusalLog::with_intervals(store.clone(), intervals);
        for number in 0..5_000 {
            log.record(refused(None, &format!("GET /{number}"))).await;
        }
        let first = entries(&store).await;
        assert!(first.len() < 30 && first[0].2 == 1 && first[0].1 == WITHOUT_TOKEN, "{first:?}");
        log.record(refused(Some("reader"), "DELETE /api/sessions/{session}")).await;
        log.flush().await;
        let all = entries(&store).await;
        assert!(all.contains(&(Some("reader".into()), "DELETE /api/sessions/{session}".into(), 1)));
        assert_eq!(all.iter().map(|(.., count)| count).sum::<u64>(), 5_001);
    }

    /// O3: counts are stored at the end of an interval, and a kind is forgotten after an interval without refusals.
    #[tokio::test]
    async fn o3_counts_are_stored_after_an_interval() {
        let store = Arc::new(SqliteStore::open_in_memory().unwrap());
        let intervals = Intervals(Duration::from_millis(20), Duration::from_millis(40));
        let log = RefusalLog::with_intervals(store.clone(), intervals);
        for _ in 0..3 {
            log.record(refused(Some("reader"), "GET /x")).await;
        }
        let total = async || entries(&store).await.iter().map(|(.., count)| *count).sum::<u64>();
        while total().await < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        while !log.0.lock().kinds.is_empty() || log.0.lock().has_task {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        log.record(refused(Some("reader"), "GET /x")).await;
        assert_eq!(total().await, 4, "the first refusal after a pause is stored at once");
    }

    /// Row 44: the number of kinds is bounded.
    #[tokio::test]
    async fn row_44_the_number_of_kinds_is_bounded() {
        let store = Arc::new(SqliteStore::open_in_memory().unwrap());
        let log = RefusalLog::new(store.clone());
        for number in 0..1_000 {
            log.record(refused(Some("reader"), &format!("GET /{number}"))).await;
        }
        log.flush().await;
        let all = entries(&store).await;
        assert_eq!(all.len(), MAX_KINDS + 2);
        assert_eq!(all.iter().map(|(.., count)| count).sum::<u64>(), 1_000);
        assert!(all.iter().any(|(token, request, _)| token.is_none() && request == OTHER_REQUESTS));
    }
}
