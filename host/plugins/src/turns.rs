//! Turns of guests (P8): a guest is polled only while it holds a turn, and for that poll alone. There are fewer turns than
//! threads, so that the host's own work always finds one; who finds no turn waits for it in the order of [`order`].

mod order;

use crate::admission::LaneName;
use crate::record::lock;
use order::{Begun, Order};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// How many epoch ticks a turn is kept for who was called. Who does not come by then is no task that runs, such as a
/// future that is held and not polled, and must not stop all others.
const CALLED_TICKS: u32 = 10;
/// Threads for the host's own work, however busy the guests are.
const HOST_THREADS: usize = 2;

/// Turns of each lane: validators and policies never wait for tools, nor for plugins that are being loaded.
pub(crate) struct GuestTurns {
    calls: Turns,
    pure: Turns,
    loading: Turns,
}

/// Threads that a runtime needs so that guests, which take as many turns as there are processors to spare, leave some to
/// the host.
pub fn worker_threads() -> usize {
    let (calls, short) = counts();
    calls + 2 * short + HOST_THREADS
}

/// Turns of the lane of calls, and of each of the others.
fn counts() -> (usize, usize) {
    let calls = available_parallelism().map_or(1, |processors| processors.get().saturating_sub(1).max(1));
    (calls, calls.div_ceil(4))
}

impl GuestTurns {
    pub(crate) fn new(tick: Duration) -> Arc<Self> {
        let (calls, short) = counts();
        let turns = |count| Turns::new(count, tick);
        Arc::new(Self { calls: turns(calls), pure: turns(short), loading: turns(short) })
    }

    pub(crate) fn of(&self, lane: LaneName) -> &Turns {
        match lane {
            LaneName::Calls | LaneName::Builders => &self.calls,
            LaneName::Pure => &self.pure,
            LaneName::Loading => &self.loading,
        }
    }

    /// Goes on without those who were called and do not come.
    pub(crate) fn pass_over(&self) {
        let now = Instant::now();
        for turns in [&self.calls, &self.pure, &self.loading] {
            turns.pass_over(now);
        }
    }
}

/// So many turns, and who waits for one.
pub(crate) struct Turns {
    order: Mutex<Order>,
    /// How long a turn is kept for who was called.
    kept: Duration,
}

/// Somebody who needs turns, now and then.
pub(crate) struct Waiter<'a> {
    turns: &'a Turns,
    agent: Arc<str>,
    /// While it waits: its place in the order.
    place: Option<u64>,
}

/// What somebody wants who has had a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another one, at once.
    Turn,
    /// None for now.
    Nothing,
}

/// A turn that is given back, also by a panic.
struct Turn<'w, 'a> {
    waiter: &'w mut Waiter<'a>,
    begun: Instant,
    /// Who wants another one.
    again: Option<&'w Waker>,
}

impl Turns {
    fn new(count: usize, tick: Duration) -> Self {
        Self { order: Mutex::new(Order::new(count, tick)), kept: tick.saturating_mul(CALLED_TICKS) }
    }

    pub(crate) fn waiter(&self, agent: &Arc<str>) -> Waiter<'_> {
        Waiter { turns: self, agent: Arc::clone(agent), place: None }
    }

    fn pass_over(&self, now: Instant) {
        let Some(before) = now.checked_sub(self.kept) else { return };
        let called = lock(&self.order).pass_over(before, now);
        wake(called);
    }
}

impl Waiter<'_> {
    /// Does something in a turn; pending, and woken later, where there is none. It says what it wants after that: who goes
    /// on stands in line again before the next one is called, so that nobody gains by being many.
    pub(crate) fn take<T>(
        &mut self,
        context: &mut Context<'_>,
        run: impl FnOnce(&mut Context<'_>) -> (T, Next),
    ) -> Poll<T> {
        match lock(&self.turns.order).begin(&self.agent, self.place, context.waker()) {
            Begun::Turn => self.place = None,
            Begun::Waits(place) => {
                self.place = Some(place);
                return Poll::Pending;
            }
        }
        let waker = context.waker().clone();
        let mut turn = Turn { waiter: self, begun: Instant::now(), again: None };
        let (done, next) = run(context);
        turn.again = (next == Next::Turn).then_some(&waker);
        Poll::Ready(done)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let called = lock(&self.turns.order).leave(&self.agent, place, Instant::now());
            wake(called);
        }
    }
}

impl Drop for Turn<'_, '_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let Waiter { turns, agent, place } = &mut *self.waiter;
        let mut order = lock(&turns.order);
        *place = self.again.map(|waker| order.line_up(agent, waker));
        let called = order.end(agent, now - self.begun, now);
        drop(order);
        wake(called);
    }
}

/// Not under the lock: whoever is woken may ask at once.
fn wake(called: Vec<Waker>) {
    for waker in called {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    const TICK: Duration = Duration::from_millis(10);

    /// Keeps a processor busy turn by turn, and counts how long.
    async fn spin(turns: &Turns, agent: &Arc<str>, (busy, over): (&AtomicUsize, &AtomicBool)) -> Duration {
        let (mut waiter, mut served) = (turns.waiter(agent), Duration::ZERO);
        std::future::poll_fn(|context| {
            if over.load(Ordering::Relaxed) {
                return Poll::Ready(());
            }
            let turn = waiter.take(context, |context| {
                assert!(busy.fetch_add(1, Ordering::SeqCst) < 2, "more guests are polled than there are turns");
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_micros(300) {
                    std::hint::spin_loop();
                }
                busy.fetch_sub(1, Ordering::SeqCst);
                served += begun.elapsed();
                context.waker().wake_by_ref();
                ((), Next::Turn)
            });
            let _: Poll<()> = turn;
            Poll::Pending
        })
        .await;
        served
    }

    // P8, row 35: on real threads no more guests are polled than there are turns, no wake-up is lost, and an agent with
    // sixteen loops leaves the one loop of another agent its share.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn busy_agents_leave_the_others_their_share() {
        let turns = Arc::new(Turns::new(2, TICK));
        let (busy, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let loops = std::iter::repeat_n("many", 16).chain(["one", "two"]).map(|agent| {
            let (turns, busy, over) = (Arc::clone(&turns), Arc::clone(&busy), Arc::clone(&over));
            tokio::spawn(async move { (agent, spin(&turns, &agent.into(), (&busy, &over)).await) })
        });
        let loops: Vec<_> = loops.collect();
        tokio::time::sleep(Duration::from_millis(600)).await;
        over.store(true, Ordering::Relaxed);
        let mut served: BTreeMap<&str, Duration> = BTreeMap::new();
        for task in loops {
            tokio::task::yield_now().await;
            // Who waits is woken by those that end before it.
            let (agent, time) = task.await.expect("no more than two at once");
            *served.entry(agent).or_default() += time;
        }
        let in_all: Duration = served.values().sum();
        // A third each; a loaded machine makes it less exact.
        for agent in ["one", "two"] {
            assert!(served[agent] * 6 > in_all, "{served:?}");
        }
    }

    // A future that was called and is not polled, though nobody has dropped it, stops nobody for long.
    #[tokio::test(flavor = "multi_thread")]
    async fn who_is_called_and_does_not_come_is_passed_over() {
        let turns = Turns::new(1, TICK);
        let agent: Arc<str> = "a".into();
        let (mut first, mut held, mut last) = (turns.waiter(&agent), turns.waiter(&agent), turns.waiter(&agent));
        let poll = |waiter: &mut Waiter<'_>| {
            let mut context = Context::from_waker(Waker::noop());
            waiter.take(&mut context, |_| ((), Next::Nothing)).is_ready()
        };
        let mut context = Context::from_waker(Waker::noop());
        let in_turn = first.take(&mut context, |_| {
            assert!(!poll(&mut held) && !poll(&mut last));
            ((), Next::Nothing)
        });
        assert!(in_turn.is_ready(), "it is free");
        assert!(!poll(&mut last), "it is the turn of the one before");
        turns.pass_over(Instant::now());
        assert!(!poll(&mut last), "it may still come");
        turns.pass_over(Instant::now() + TICK * (CALLED_TICKS + 1));
        assert!(poll(&mut last));
        assert!(poll(&mut held), "it may come whenever it likes");
    }
}
