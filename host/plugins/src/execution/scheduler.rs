//! The scheduler of guests (P8). A guest needs a turn for each poll and gives it back afterwards. There are fewer turns than threads,
//! so that a thread is always free for the host's own work. If no turn is free, the guest waits; [`order`] decides who is next.

mod order;

use super::admission::LaneName;
use crate::sync::lock;
use order::{Order, TurnRequest};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// For how many epoch ticks a turn is reserved for a guest that was woken. A future that is not polled by then is held somewhere
/// without being run, and must not block the other guests.
const OFFER_TICKS: u32 = 10;
/// Threads that stay free for the host's own work, however busy the guests are.
const HOST_THREADS: usize = 2;

/// The turns of each lane. Output validators and media policies never wait for tools or for plugins that are being loaded.
pub(crate) struct Scheduler {
    calls: TurnPool,
    pure: TurnPool,
    loading: TurnPool,
}

/// The number of worker threads that an async runtime needs, so that threads remain for the host when all turns are in use.
pub fn worker_threads() -> usize {
    let (calls, short) = counts();
    calls + 2 * short + HOST_THREADS
}

/// The number of turns of the lane for calls, and of each other lane.
fn counts() -> (usize, usize) {
    let calls = available_parallelism().map_or(1, |processors| processors.get().saturating_sub(1).max(1));
    (calls, calls.div_ceil(4))
}

impl Scheduler {
    pub(crate) fn new(tick: Duration) -> Arc<Self> {
        let (calls, short) = counts();
        let turns = |count| TurnPool::new(count, tick);
        Arc::new(Self { calls: turns(calls), pure: turns(short), loading: turns(short) })
    }

    pub(crate) fn of(&self, lane: LaneName) -> &TurnPool {
        match lane {
            LaneName::Calls | LaneName::Builders => &self.calls,
            LaneName::Pure => &self.pure,
            LaneName::Loading => &self.loading,
        }
    }

    /// Gives the turns of woken guests that were not polled in time to other guests.
    pub(crate) fn expire_offers(&self) {
        let now = Instant::now();
        for turns in [&self.calls, &self.pure, &self.loading] {
            turns.expire_offers(now);
        }
    }
}

/// The turns of a lane, and the guests that wait for one.
pub(crate) struct TurnPool {
    order: Mutex<Order>,
    /// How long a turn is reserved for a guest that was woken.
    offer_time: Duration,
}

/// A guest that takes turns.
pub(crate) struct Waiter<'a> {
    turns: &'a TurnPool,
    agent: Arc<str>,
    /// Its place in the order while it waits.
    place: Option<u64>,
}

/// Whether a guest needs another turn at the end of its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextTurn {
    /// The guest can continue at once.
    Wanted,
    /// The guest waits for something or has ended.
    NotWanted,
}

/// A turn in use. Dropping it gives the turn back, even if the guest panics.
struct Turn<'w, 'a> {
    waiter: &'w mut Waiter<'a>,
    started: Instant,
    /// The guest's waker, if it needs another turn.
    next: Option<&'w Waker>,
}

impl TurnPool {
    fn new(count: usize, tick: Duration) -> Self {
        Self { order: Mutex::new(Order::new(count, tick)), offer_time: tick.saturating_mul(OFFER_TICKS) }
    }

    pub(crate) fn waiter(&self, agent: &Arc<str>) -> Waiter<'_> {
        Waiter { turns: self, agent: Arc::clone(agent), place: None }
    }

    fn expire_offers(&self, now: Instant) {
        let Some(before) = now.checked_sub(self.offer_time) else { return };
        let wakers = lock(&self.order).expire_offers(before, now);
        wake(wakers);
    }
}

impl Waiter<'_> {
    /// Runs `run` in a turn. If no turn is free, the result is pending and the guest is woken later.
    ///
    /// `run` also returns whether the guest needs another turn. If so, the guest is queued again before the next guest is woken, so
    /// that an agent gains nothing from having many guests.
    pub(crate) fn take<T>(
        &mut self,
        context: &mut Context<'_>,
        run: impl FnOnce(&mut Context<'_>) -> (T, NextTurn),
    ) -> Poll<T> {
        match lock(&self.turns.order).request(&self.agent, self.place, context.waker()) {
            TurnRequest::Granted => self.place = None,
            TurnRequest::Waiting(place) => {
                self.place = Some(place);
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
        if let Some(place) = self.place {
            let wakers = lock(&self.turns.order).cancel(&self.agent, place, Instant::now());
            wake(wakers);
        }
    }
}

impl Drop for Turn<'_, '_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let Waiter { turns, agent, place } = &mut *self.waiter;
        let mut order = lock(&turns.order);
        *place = self.next.map(|waker| order.enqueue(agent, waker));
        let wakers = order.end(agent, now - self.started, now);
        drop(order);
        wake(wakers);
    }
}

/// Wakes guests. This must not run under the lock, because a woken guest may request a turn at once.
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

    /// Keeps a processor busy in turns until `stop` is set, and returns for how long.
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

    // P8, row 35: on real threads, no more guests are polled than there are turns, no wake-up is lost, and an agent with one loop
    // gets its share next to an agent with sixteen loops.
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
            // A waiting guest is woken by those that end before it.
            let (agent, time) = task.await.expect("no more than two at once");
            *served.entry(agent).or_default() += time;
        }
        let total: Duration = served.values().sum();
        // Each agent should get a third; a busy machine makes this less exact.
        for agent in ["one", "two"] {
            assert!(served[agent] * 6 > total, "{served:?}");
        }
    }

    // A future that was woken but is neither polled nor dropped blocks the others only for a short time.
    #[tokio::test(flavor = "multi_thread")]
    async fn woken_guest_that_is_not_polled_loses_its_turn() {
        let turns = TurnPool::new(1, TICK);
        let agent: Arc<str> = "a".into();
        let (mut first, mut held, mut last) = (turns.waiter(&agent), turns.waiter(&agent), turns.waiter(&agent));
        let poll = |waiter: &mut Waiter<'_>| {
            let mut context = Context::from_waker(Waker::noop());
            waiter.take(&mut context, |_| ((), NextTurn::NotWanted)).is_ready()
        };
        let mut context = Context::from_waker(Waker::noop());
        let in_turn = first.take(&mut context, |_| {
            assert!(!poll(&mut held) && !poll(&mut last));
            ((), NextTurn::NotWanted)
        });
        assert!(in_turn.is_ready(), "the turn is free");
        assert!(!poll(&mut last), "the turn is reserved for the guest before");
        turns.expire_offers(Instant::now());
        assert!(!poll(&mut last), "the turn is still reserved");
        turns.expire_offers(Instant::now() + TICK * (OFFER_TICKS + 1));
        assert!(poll(&mut last));
        assert!(poll(&mut held), "the guest can still take a turn later");
    }
}
