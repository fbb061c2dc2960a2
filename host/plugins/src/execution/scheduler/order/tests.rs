//! Property tests of the order of turns (P8, row 35): no turn or wake-up is lost, and agents get equal shares of the
//! time.

use super::*;
use proptest::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

/// A waker that counts its wake-ups.
#[derive(Default)]
struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A simulated guest that requests turns.
struct Guest {
    agent: Arc<str>,
    waker: Arc<CountingWaker>,
    /// Number of wake-ups that the waker had counted when the guest was last polled. If the waker has now counted more
    /// wake-ups, the guest must be polled.
    handled: usize,
    status: GuestStatus,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum GuestStatus {
    Idle,
    Waiting(u64),
    Running,
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Request(usize),
    /// Ends the current turn of the guest with this index. The second value is the duration of the turn
    /// in microseconds.
    End(usize, u16),
    /// Ends the guest's turn and queues the guest for another turn.
    EndAndEnqueue(usize, u16),
    Cancel(usize),
    ExpireOffers,
}

struct Model {
    order: Order,
    guests: Vec<Guest>,
    at: Instant,
}

impl Model {
    fn new(count: usize, guests: usize) -> Self {
        let guest = |number: usize| Guest {
            agent: format!("{}", number % 3).into(),
            waker: Arc::default(),
            handled: 0,
            status: GuestStatus::Idle,
        };
        Self {
            order: Order::new(count, Duration::from_millis(10)),
            guests: (0..guests).map(guest).collect(),
            at: Instant::now(),
        }
    }

    fn request(&mut self, number: usize) {
        let guest = &mut self.guests[number];
        let queue_id = match guest.status {
            GuestStatus::Running => return,
            GuestStatus::Waiting(queue_id) => Some(queue_id),
            GuestStatus::Idle => None,
        };
        guest.handled = guest.waker.0.load(Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&guest.waker));
        guest.status = match self.order.request(&guest.agent, queue_id, &waker) {
            TurnRequest::Granted => GuestStatus::Running,
            TurnRequest::Waiting(queue_id) => GuestStatus::Waiting(queue_id),
        };
    }

    fn end(&mut self, number: usize, micros: u16) {
        let guest = &mut self.guests[number];
        if guest.status != GuestStatus::Running {
            return;
        }
        guest.status = GuestStatus::Idle;
        let spent = Duration::from_micros(micros.into());
        let wakers = self.order.end(&guest.agent, spent, self.at);
        self.wake(wakers);
    }

    fn end_and_enqueue(&mut self, number: usize, micros: u16) {
        let guest = &mut self.guests[number];
        if guest.status != GuestStatus::Running {
            return;
        }
        let waker = Waker::from(Arc::clone(&guest.waker));
        guest.handled = guest.waker.0.load(Ordering::Relaxed);
        guest.status = GuestStatus::Waiting(self.order.enqueue(&guest.agent, &waker));
        let wakers = self.order.end(&guest.agent, Duration::from_micros(micros.into()), self.at);
        self.wake(wakers);
    }

    fn cancel(&mut self, number: usize) {
        let guest = &mut self.guests[number];
        let GuestStatus::Waiting(queue_id) = guest.status else { return };
        guest.status = GuestStatus::Idle;
        let wakers = self.order.cancel(&guest.agent, queue_id, self.at);
        self.wake(wakers);
    }

    /// Wakes the guests to which these wakers belong. For each free turn, only one waiting guest may be woken.
    fn wake(&mut self, wakers: Vec<Waker>) {
        assert!(wakers.len() <= 1, "{} guests are woken for one turn", wakers.len());
        wakers.into_iter().for_each(Waker::wake);
    }

    fn apply(&mut self, operation: Operation) {
        self.at += Duration::from_millis(1);
        match operation {
            Operation::Request(number) => self.request(number % self.guests.len()),
            Operation::End(number, micros) => self.end(number % self.guests.len(), micros),
            Operation::EndAndEnqueue(number, micros) => self.end_and_enqueue(number % self.guests.len(), micros),
            Operation::Cancel(number) => self.cancel(number % self.guests.len()),
            Operation::ExpireOffers => {
                let wakers = self.order.expire_offers(self.at - Duration::from_millis(5), self.at);
                wakers.into_iter().for_each(Waker::wake);
            }
        }
        self.check();
    }

    fn check(&self) {
        let running = self.guests.iter().filter(|guest| guest.status == GuestStatus::Running).count();
        assert_eq!(running, self.order.in_use);
        assert!(running + self.order.offers.len() <= self.order.count);
        let waiting: usize = self.order.agents.iter().map(|agent| agent.waiting.len()).sum();
        assert!(waiting == 0 || !self.order.is_free(), "a guest waits although a turn is free");
    }

    /// Polls only woken guests, as an executor does, until no guest is woken.
    fn settle(&mut self) {
        loop {
            for number in 0..self.guests.len() {
                self.end(number, 10);
            }
            let is_woken = |guest: &Guest| {
                matches!(guest.status, GuestStatus::Waiting(_)) && guest.waker.0.load(Ordering::Relaxed) > guest.handled
            };
            let Some(next) = self.guests.iter().position(is_woken) else { return };
            self.request(next);
        }
    }
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![
        5 => any::<usize>().prop_map(Operation::Request),
        3 => (any::<usize>(), any::<u16>()).prop_map(|(number, micros)| Operation::End(number, micros)),
        2 => (any::<usize>(), any::<u16>()).prop_map(|(number, micros)| Operation::EndAndEnqueue(number, micros)),
        2 => any::<usize>().prop_map(Operation::Cancel),
        1 => Just(Operation::ExpireOffers),
    ];
    proptest::collection::vec(operation, 0..300)
}

proptest! {
    // P8, row 10: guests request turns, end, are cancelled and ignore offers in any order. No turn is lost or used
    // twice, and every guest that keeps waiting is woken in the end.
    #[test]
    fn p8_row_10_no_turn_and_no_wake_up_is_lost(count in 1_usize..4, guests in 1_usize..12, operations in operations()) {
        let mut model = Model::new(count, guests);
        for operation in operations {
            model.apply(operation);
        }
        model.settle();
        for guest in &model.guests {
            prop_assert_eq!(guest.status, GuestStatus::Idle, "the guest waits forever");
        }
        prop_assert!(model.order.offers.is_empty() && model.order.agents.is_empty());
        for number in 0..guests {
           model.request(number);
            prop_assert_eq!(model.guests[number].status == GuestStatus::Running, number < count);
        }
    }
}

/// Lets the guests of several agents compete for `turns` turns. An agent is a tuple of four values: its name, the
/// number of its guests, the duration of a turn in milliseconds, and the number of rounds for which a guest pauses
/// after a turn. Returns the time that each agent got, in milliseconds.
fn compete(agents: &[(&str, usize, u64, usize)], turns: usize) -> Vec<u64> {
    let mut order = Order::new(1, Duration::from_millis(10));
    let mut times = vec![0; agents.len()];
    let mut guests = Vec::new();
    for (index, (name, count, time, pause)) in agents.iter().enumerate() {
        let name: Arc<str> = (*name).into();
        guests.extend((0..*count).map(|_| (index, Arc::clone(&name), *time, *pause)));
    }
    let mut queue_ids: Vec<Option<u64>> = vec![None; guests.len()];
    let mut awake_in_round: Vec<usize> = vec![0; guests.len()];
    let at = Instant::now();
    for round in 0..turns {
        let mut runs = None;
        for (number, (_, agent, ..)) in guests.iter().enumerate() {
            if awake_in_round[number] > round {
                continue;
            }
            match order.request(agent, queue_ids[number], Waker::noop()) {
                TurnRequest::Granted => runs = Some(number),
                TurnRequest::Waiting(queue_id) => queue_ids[number] = Some(queue_id),
            }
        }
        let Some(number) = runs else { continue };
        let (index, agent, time, pause) = &guests[number];
        queue_ids[number] = None;
        awake_in_round[number] = round + 1 + pause;
        times[*index] += time;
        order.end(agent, Duration::from_millis(*time), at);
    }
    times
}

// P8: agents get equal shares of the time, even if they use different numbers of turns. An agent does not get more time
// if it has many guests, guests that sleep, or short turns.
#[test]
fn p8_agents_share_the_time() {
    let share = |agents: &[_]| {
        let times = compete(agents, 6_000);
        let total: u64 = times.iter().sum();
        times.into_iter().map(|time| (time * 100 + total / 2) / total).collect::<Vec<_>>()
    };
    assert_eq!(share(&[("many", 64, 10, 0), ("one", 1, 10, 0)]), [50, 50]);
    assert_eq!(share(&[("many", 64, 10, 0), ("one", 1, 10, 0), ("two", 2, 10, 0)]), [33, 33, 33]);
    // The agent `sleepers` has many guests that sleep while other guests run.
    assert_eq!(share(&[("sleepers", 64, 10, 3), ("one", 1, 10, 0)]), [50, 50]);
    // The agent with short turns gets three times as many turns as the agent with long turns.
    assert_eq!(share(&[("long", 8, 12, 0), ("short", 8, 4, 0)]), [50, 50]);
    // An agent that needs less than its share gets all the time that it needs. The only guest of the agent `seldom`
    // pauses for three rounds after each turn, and then waits until the current turn of another guest has ended.
    assert_eq!(share(&[("loops", 16, 10, 0), ("seldom", 1, 10, 3)]), [80, 20]);
}
