//! The scheduler of guests (P8). A guest needs a turn each time that it is polled, and returns the turn afterwards.
//! There are fewer turns than worker threads, so that a thread is always free for the host's own work. If no turn is
//! free, the guest waits. The module [`order`] selects the guest that gets the next turn.

mod order;

use super::admission::LaneName;
use crate::sync::lock;
use order::{Order, TurnRequest};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// Number of epoch ticks for which a turn is reserved for a guest that was woken. If the guest's future is not polled
/// within this time, other guests get the turn.
const OFFER_TICKS: u32 = 10;
/// Number of threads that remain free for the host's own work when all guests are busy.
const HOST_THREADS: usize = 2;

/// Gives turns to the guests of all lanes. Each lane has its own pool of turns, so that output validators and media
/// policies never wait for tools or for the loading of plugins.
pub(crate) struct Scheduler {
    calls: TurnPool,
    pure: TurnPool,
    loading: TurnPool,
}

/// The number of worker threads that an async runtime needs, so that threads remain free for the host when all turns
/// are in use.
pub fn worker_threads() -> usize {
    let (calls, short) = turn_counts();
    calls + 2 * short + HOST_THREADS
}

/// The number of turns of the lane `calls`, and the number of turns of each of the other two lanes.
fn turn_counts() -> (usize, usize) {
    let calls = available_parallelism().map_or(1, |processors| processors.get().saturating_sub(1).max(1));
    (calls, calls.div_ceil(4))
}

impl Scheduler {
    pub(crate) fn new(tick: Duration) -> Arc<Self> {
        let (calls, short) = turn_counts();
        let turns = |count| TurnPool::new(count, tick);
        Arc::new(Self { calls: turns(calls), pure: turns(short), loading: turns(short) })
    }

    pub(crate) fn turns_of(&self, lane: LaneName) -> &TurnPool {
        match lane {
            LaneName::Calls | LaneName::Builders => &self.calls,
            LaneName::Pure => &self.pure,
            LaneName::Loading => &self.loading,
        }
    }

    /// If a woken guest was offered a turn but has not been polled in time, withdraws the turn and offers it to
    /// another guest.
    pub(crate) fn expire_offers(&self) {
        let now = Instant::now();
        for turns in [&self.calls, &self.pure, &self.loading] {
            turns.expire_offers(now);
        }
    }
}

/// The turns of a lane, and the guests that wait for a turn.
pub(crate) struct TurnPool {
    order: Mutex<Order>,
    /// Time for which a turn is reserved for a guest that was woken.
    offer_time: Duration,
}

/// A guest that requests turns.
pub(crate) struct Waiter<'a> {
    turns: &'a TurnPool,
    agent: Arc<str>,
    /// The id under which the guest waits for a turn. `None` means that the guest is not waiting for a turn.
    queue_id: Option<u64>,
}

/// Whether a guest needs a further turn when its current turn ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextTurn {
    /// The guest was interrupted and can continue immediately.
    Wanted,
    /// The guest waits for the host or has ended.
    NotWanted,
}

/// A turn that a guest is using. Dropping this value ends the turn, even if the guest panics.
struct Turn<'w, 'a> {
    waiter: &'w mut Waiter<'a>,
    started: Instant,
    /// The guest's waker, if the guest needs a further turn after this turn.
    next: Option<&'w Waker>,
}

impl TurnPool {
    fn new(count: usize, tick: Duration) -> Self {
        Self { order: Mutex::new(Order::new(count, tick)), offer_time: tick.saturating_mul(OFFER_TICKS) }
    }

    pub(crate) fn waiter(&self, agent: &Arc<str>) -> Waiter<'_> {
        Waiter { turns: self, agent: Arc::clone(agent), queue_id: None }
    }

    fn expire_offers(&self, now: Instant) {
        let Some(before) = now.checked_sub(self.offer_time) else { return };
        let wakers = lock(&self.order).expire_offers(before, now);
        wake(wakers);
    }
}

impl Waiter<'_> {
    /// Calls `run` if the scheduler has a free turn for the guest. If no turn is free, returns `Poll::Pending` and
    /// wakes the guest later.
    ///
    /// `run` also returns whether the guest needs another turn. If the guest needs another turn, the guest is queued
    /// before the next guest is woken, so that an agent with many guests has no advantage.
    pub(crate) fn take<T>(
        &mut self,
        context: &mut Context<'_>,
        run: impl FnOnce(&mut Context<'_>) -> (T, NextTurn),
    ) -> Poll<T> {
        match lock(&self.turns.order).request(&self.agent, self.queue_id, context.waker()) {
            TurnRequest::Granted => self.queue_id = None,
            TurnRequest::Waiting(queue_id) => {
                self.queue_id = Some(queue_id);
                return Poll::Pending;
            }
        }
        let waker = context.waker().clone();
        let mut turn = Turn { waiter: self, started: Instant::now(), next: None };
        let (output, next) = run(context);
        turn.next = (next == NextTurn::Wanted).then_some(&waker);
        Poll::Ready(output)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Some(queue_id) = self.queue_id {
            let wakers = lock(&self.turns.order).cancel(&self.agent, queue_id, Instant::now());
            wake(wakers);
        }
    }
}

impl Drop for Turn<'_, '_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let Waiter { turns, agent, queue_id } = &mut *self.waiter;
        let mut order = lock(&turns.order);
        *queue_id = self.next.map(|waker| order.enqueue(agent, waker));
        let wakers = order.end(agent, now - self.started, now);
        drop(order);
        wake(wakers);
    }
}

/// Wakes the guests to which these wakers belong. The caller must not hold the lock of the `Order`, because a woken
/// guest may immediately request a turn, which acquires the lock.
fn wake(wakers: Vec<Waker>) {
    for waker in wakers {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    const TICK: Duration = Duration::from_millis(10);

    /// Uses turns to keep a processor busy until `stop` is set. Returns the total duration of the turns.
    async fn spin(turns: &TurnPool, agent: &Arc<str>, (busy, stop): (&AtomicUsize, &AtomicBool)) -> Duration {
        let (mut waiter, mut served) = (turns.waiter(agent), Duration::ZERO);
        std::future::poll_fn(|context| {
            if stop.load(Ordering::Relaxed) {
                return Poll::Ready(());
            }
            let turn = waiter.take(context, |context| {
                assert!(busy.fetch_add(1, Ordering::SeqCst) < 2, "more guests are polled than there are turns");
                let started = Instant::now();
                while started.elapsed() < Duration::from_micros(300) {
                    std::hint::spin_loop();
                }
                busy.fetch_sub(1, Ordering::SeqCst);
                served += started.elapsed();
                context.waker().wake_by_ref();
                ((), NextTurn::Wanted)
            });
            let _: Poll<()> = turn;
            Poll::Pending
        })
        .await;
        served
    }

    // P8, row 35: guests on real threads share the time fairly. No wake-up is lost, and the number of guests that are
    // polled at the same time never exceeds the number of turns.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn p8_row_35_agent_with_many_loops_gets_only_its_share() {
        let turns = Arc::new(TurnPool::new(2, TICK));
        let (busy, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let loops = std::iter::repeat_n("many", 16).chain(["one", "two"]).map(|agent| {
            let (turns, busy, stop) = (Arc::clone(&turns), Arc::clone(&busy), Arc::clone(&stop));
            tokio::spawn(async move { (agent, spin(&turns, &agent.into(), (&busy, &stop)).await) })
        });
        let loops: Vec<_> = loops.collect();
        tokio::time::sleep(Duration::from_millis(600)).await;
        stop.store(true, Ordering::Relaxed);
        let mut served: BTreeMap<&str, Duration> = BTreeMap::new();
        for task in loops {
            tokio::task::yield_now().await;
            // When a guest ends, the next waiting guest is woken.
            let (agent, time) = task.await.expect("no more than two at once");
            *served.entry(agent).or_default() += time;
        }
        let total: Duration = served.values().sum();
        // Each agent should get a third of the time. The test accepts any share above a sixth of the time, because
        // the machine may be busy.
        for agent in ["one", "two"] {
            assert!(served[agent] * 6 > total, "{served:?}");
        }
    }

    // If a future was woken but is then neither polled nor dropped, it blocks other guests only for a short time.
    #[tokio::test(flavor = "multi_thread")]
    async fn woken_guest_that_is_not_polled_loses_its_turn() {
        let turns = TurnPool::new(1, TICK);
        let agent: Arc<str> = "a".into();
        let (mut first, mut second, mut last) = (turns.waiter(&agent), turns.waiter(&agent), turns.waiter(&agent));
        let poll = |waiter: &mut Waiter<'_>| {
            let mut context = Context::from_waker(Waker::noop());
            waiter.take(&mut context, |_| ((), NextTurn::NotWanted)).is_ready()
        };
        let mut context = Context::from_waker(Waker::noop());
        let in_turn = first.take(&mut context, |_| {
            assert!(!poll(&mut second) && !poll(&mut last));
            ((), NextTurn::NotWanted)
        });
        assert!(in_turn.is_ready(), "the turn is free");
        assert!(!poll(&mut last), "the turn is reserved for the guest that was woken");
        turns.expire_offers(Instant::now());
        assert!(!poll(&mut last), "the turn is still reserved");
        turns.expire_offers(Instant::now() + TICK * (OFFER_TICKS + 1));
        assert!(poll(&mut last));
        assert!(poll(&mut second), "the guest can still take a turn later");
    }
}
