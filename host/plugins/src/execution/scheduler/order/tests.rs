//! Property tests of the order of turns (P8, row 35): no turn or wake-up is lost, and agents share the time.

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

/// A guest that takes turns.
struct Guest {
    agent: Arc<str>,
    waker: Arc<CountingWaker>,
    /// Wake-ups that it has reacted to.
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
    /// Ends the guest's turn, which took this many microseconds.
    End(usize, u16),
    /// Ends the guest's turn and queues the guest for another one.
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
        let place = match guest.status {
            GuestStatus::Running => return,
            GuestStatus::Waiting(place) => Some(place),
            GuestStatus::Idle => None,
        };
        guest.handled = guest.waker.0.load(Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&guest.waker));
        guest.status = match self.order.request(&guest.agent, place, &waker) {
            TurnRequest::Granted => GuestStatus::Running,
            TurnRequest::Waiting(place) => GuestStatus::Waiting(place),
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
        let GuestStatus::Waiting(place) = guest.status else { return };
        guest.status = GuestStatus::Idle;
        let wakers = self.order.cancel(&guest.agent, place, self.at);
        self.wake(wakers);
    }

    /// Wakes guests. A free turn must wake only one waiting guest.
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
    // P8, row 10: in whatever order guests request turns, end, are cancelled or ignore an offer, no turn is lost or given twice,
    // and every guest that keeps waiting is woken in the end.
    #[test]
    fn p8_row_10_no_turn_and_no_wake_up_is_lost(count in 1_usize..4, guests in 1_usize..12, operations in operations()) {
        let mut model = Model::new(count, guests);
        for operation in operations {
            model.apply(operation);
        }
        model.settle();
        for guest in &model.guests {
            prop_assert_eq!(guest.status, GuestStatus::Idle, "it waits forever");
        }
        prop_assert!(model.order.offers.is_empty() && model.order.agents.is_empty());
        for number in 0..guests {
           model.request(number);
            prop_assert_eq!(model.guests[number].status == GuestStatus::Running, number < count);
        }
    }
}

/// Lets the guests of several agents compete for `turns` turns. An agent is given as its name, the number of its guests, the time of
/// each of its turns in milliseconds, and the number of turns that a guest pauses after each turn. Returns the time that each agent
/// got, in milliseconds.
fn compete(agents: &[(&str, usize, u64, usize)], turns: usize) -> Vec<u64> {
    let mut order = Order::new(1, Duration::from_millis(10));
    let mut times = vec![0; agents.len()];
    let mut guests = Vec::new();
    for (index, (name, count, time, pause)) in agents.iter().enumerate() {
        let name: Arc<str> = (*name).into();
        guests.extend((0..*count).map(|_| (index, Arc::clone(&name), *time, *pause)));
    }
    let mut places: Vec<Option<u64>> = vec![None; guests.len()];
    let mut back: Vec<usize> = vec![0; guests.len()];
    let at = Instant::now();
    for round in 0..turns {
        let mut runs = None;
        for (number, (_, agent, ..)) in guests.iter().enumerate() {
            if back[number] > round {
                continue;
            }
            match order.request(agent, places[number], Waker::noop()) {
                TurnRequest::Granted => runs = Some(number),
                TurnRequest::Waiting(place) => places[number] = Some(place),
            }
        }
        let Some(number) = runs else { continue };
        let (index, agent, time, pause) = &guests[number];
        places[number] = None;
        back[number] = round + 1 + pause;
        times[*index] += time;
        order.end(agent, Duration::from_millis(*time), at);
    }
    times
}

// P8: agents share the time, not the turns. An agent does not get more than its share by having many guests, guests that sleep now
// and then, or short turns.
#[test]
fn p8_agents_share_the_time() {
    let share = |agents: &[_]| {
        let times = compete(agents, 6_000);
        let total: u64 = times.iter().sum();
        times.into_iter().map(|time| (time * 100 + total / 2) / total).collect::<Vec<_>>()
    };
    assert_eq!(share(&[("many", 64, 10, 0), ("one", 1, 10, 0)]), [50, 50]);
    assert_eq!(share(&[("many", 64, 10, 0), ("one", 1, 10, 0), ("two", 2, 10, 0)]), [33, 33, 33]);
    // Many guests that sleep while others run.
    assert_eq!(share(&[("sleepers", 64, 10, 3), ("one", 1, 10, 0)]), [50, 50]);
    // Long turns against short turns: the agent with short turns gets three times as many.
    assert_eq!(share(&[("long", 8, 12, 0), ("short", 8, 4, 0)]), [50, 50]);
    // An agent that wants less than its share gets what it wants: its guest pauses for three turns and then waits for the end of a
    // turn that has started.
    assert_eq!(share(&[("loops", 16, 10, 0), ("seldom", 1, 10, 3)]), [80, 20]);
}
