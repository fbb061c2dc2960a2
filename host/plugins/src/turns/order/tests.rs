//! The order of turns (P8, row 35): no turn and no wake-up is lost, and agents share the time.

use super::*;
use proptest::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

/// Counts how often somebody was woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A guest as the order sees it.
struct Guest {
    agent: Arc<str>,
    bell: Arc<Bell>,
    /// Rings that it has followed.
    heard: usize,
    at: At,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    Away,
    Waiting(u64),
    Running,
}

#[derive(Clone, Copy, Debug)]
enum Deed {
    Ask(usize),
    End(usize, u16),
    /// As above, and wanting another turn.
    Again(usize, u16),
    Leave(usize),
    PassOver,
}

struct World {
    order: Order,
    guests: Vec<Guest>,
    at: Instant,
}

impl World {
    fn new(count: usize, guests: usize) -> Self {
        let guest = |number: usize| Guest {
            agent: format!("{}", number % 3).into(),
            bell: Arc::default(),
            heard: 0,
            at: At::Away,
        };
        Self {
            order: Order::new(count, Duration::from_millis(10)),
            guests: (0..guests).map(guest).collect(),
            at: Instant::now(),
        }
    }

    fn ask(&mut self, number: usize) {
        let guest = &mut self.guests[number];
        let place = match guest.at {
            At::Running => return,
            At::Waiting(place) => Some(place),
            At::Away => None,
        };
        guest.heard = guest.bell.0.load(Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&guest.bell));
        guest.at = match self.order.begin(&guest.agent, place, &waker) {
            Begun::Turn => At::Running,
            Begun::Waits(place) => At::Waiting(place),
        };
    }

    fn end(&mut self, number: usize, micros: u16) {
        let guest = &mut self.guests[number];
        if guest.at != At::Running {
            return;
        }
        guest.at = At::Away;
        let spent = Duration::from_micros(micros.into());
        let called = self.order.end(&guest.agent, spent, self.at);
        self.woken(called);
    }

    fn again(&mut self, number: usize, micros: u16) {
        let guest = &mut self.guests[number];
        if guest.at != At::Running {
            return;
        }
        let waker = Waker::from(Arc::clone(&guest.bell));
        guest.heard = guest.bell.0.load(Ordering::Relaxed);
        guest.at = At::Waiting(self.order.line_up(&guest.agent, &waker));
        let called = self.order.end(&guest.agent, Duration::from_micros(micros.into()), self.at);
        self.woken(called);
    }

    fn leave(&mut self, number: usize) {
        let guest = &mut self.guests[number];
        let At::Waiting(place) = guest.at else { return };
        guest.at = At::Away;
        let called = self.order.leave(&guest.agent, place, self.at);
        self.woken(called);
    }

    /// One turn that is free wakes one who waits, not all of them.
    fn woken(&mut self, called: Vec<Waker>) {
        assert!(called.len() <= 1, "{} are woken for one turn", called.len());
        called.into_iter().for_each(Waker::wake);
    }

    fn done(&mut self, deed: Deed) {
        self.at += Duration::from_millis(1);
        match deed {
            Deed::Ask(number) => self.ask(number % self.guests.len()),
            Deed::End(number, micros) => self.end(number % self.guests.len(), micros),
            Deed::Again(number, micros) => self.again(number % self.guests.len(), micros),
            Deed::Leave(number) => self.leave(number % self.guests.len()),
            Deed::PassOver => {
                let called = self.order.pass_over(self.at - Duration::from_millis(5), self.at);
                called.into_iter().for_each(Waker::wake);
            }
        }
        self.check();
    }

    fn check(&self) {
        let running = self.guests.iter().filter(|guest| guest.at == At::Running).count();
        assert_eq!(running, self.order.in_use);
        assert!(running + self.order.called.len() <= self.order.count);
        let in_line: usize = self.order.agents.iter().map(|agent| agent.waiting.len()).sum();
        assert!(in_line == 0 || !self.order.is_free(), "somebody waits for a turn that is free");
    }

    /// Polls only who was woken, as an executor does, until nobody is.
    fn settle(&mut self) {
        loop {
            for number in 0..self.guests.len() {
                self.end(number, 10);
            }
            let is_called = |guest: &Guest| {
                matches!(guest.at, At::Waiting(_)) && guest.bell.0.load(Ordering::Relaxed) > guest.heard
            };
            let Some(next) = self.guests.iter().position(is_called) else { return };
            self.ask(next);
        }
    }
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        5 => any::<usize>().prop_map(Deed::Ask),
        3 => (any::<usize>(), any::<u16>()).prop_map(|(number, micros)| Deed::End(number, micros)),
        2 => (any::<usize>(), any::<u16>()).prop_map(|(number, micros)| Deed::Again(number, micros)),
        2 => any::<usize>().prop_map(Deed::Leave),
        1 => Just(Deed::PassOver),
    ];
    proptest::collection::vec(deed, 0..300)
}

proptest! {
    // P8, row 10: whoever asks, ends, leaves or does not come when called, in whatever order: no turn is lost or given
    // twice, and everybody who goes on waiting is woken in the end.
    #[test]
    fn no_turn_and_no_wake_up_is_lost(count in 1_usize..4, guests in 1_usize..12, deeds in deeds()) {
        let mut world = World::new(count, guests);
        for deed in deeds {
            world.done(deed);
        }
        world.settle();
        for guest in &world.guests {
            prop_assert_eq!(guest.at, At::Away, "it waits for ever");
        }
        prop_assert!(world.order.called.is_empty() && world.order.agents.is_empty());
        for number in 0..guests {
            world.ask(number);
            prop_assert_eq!(world.guests[number].at == At::Running, number < count);
        }
    }
}

/// Lets one agent's guests compete with another's, each turn of a guest taking so long, and each guest away for so many
/// turns of others after it. Returns what each agent got, in milliseconds.
fn compete(agents: &[(&str, usize, u64, usize)], turns: usize) -> Vec<u64> {
    let mut order = Order::new(1, Duration::from_millis(10));
    let mut got = vec![0; agents.len()];
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
            match order.begin(agent, places[number], Waker::noop()) {
                Begun::Turn => runs = Some(number),
                Begun::Waits(place) => places[number] = Some(place),
            }
        }
        let Some(number) = runs else { continue };
        let (index, agent, time, pause) = &guests[number];
        places[number] = None;
        back[number] = round + 1 + pause;
        got[*index] += time;
        order.end(agent, Duration::from_millis(*time), at);
    }
    got
}

// P8: agents share the time, not the turns: neither many guests, nor guests that sleep now and then, nor short turns get
// an agent more than its share.
#[test]
fn agents_share_the_time() {
    let share = |agents: &[_]| {
        let got = compete(agents, 6_000);
        let in_all: u64 = got.iter().sum();
        got.into_iter().map(|time| (time * 100 + in_all / 2) / in_all).collect::<Vec<_>>()
    };
    assert_eq!(share(&[("many", 64, 10, 0), ("one", 1, 10, 0)]), [50, 50]);
    assert_eq!(share(&[("many", 64, 10, 0), ("one", 1, 10, 0), ("two", 2, 10, 0)]), [33, 33, 33]);
    // Guests that sleep while others run, and are many.
    assert_eq!(share(&[("sleepers", 64, 10, 3), ("one", 1, 10, 0)]), [50, 50]);
    // Long turns against short ones: three times as many of the short.
    assert_eq!(share(&[("long", 8, 12, 0), ("short", 8, 4, 0)]), [50, 50]);
    // Who wants less gets what it wants: it is away for three turns, and waits for one that has begun.
    assert_eq!(share(&[("loops", 16, 10, 0), ("seldom", 1, 10, 3)]), [80, 20]);
}
