//! The order of a lane (P8): nobody is forgotten, agents are served in turn, and there is room for one more.

use super::*;
use proptest::prelude::*;

/// Calls as they come, wait, run and go.
struct World {
    queue: Queue<usize>,
    bounds: Bounds,
    calls: Vec<(Arc<str>, At)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    Waiting(u64),
    Running(u32),
    Gone,
}

#[derive(Clone, Copy, Debug)]
enum Deed {
    Ask(u8, u32),
    Leave(usize),
    Release(usize),
}

impl World {
    fn new(bounds: Bounds) -> Self {
        Self { queue: Queue::new(bounds), bounds, calls: Vec::new() }
    }

    fn ask(&mut self, agent: &str, memory: u32) -> Result<usize, QueueFull> {
        let (name, number): (Arc<str>, _) = (agent.into(), self.calls.len());
        let at = match self.queue.ask(&name, (memory, Joining::WhereThereIsRoom), || number)? {
            Entry::Admitted { memory } => At::Running(memory),
            Entry::Waits(place) => At::Waiting(place),
        };
        self.calls.push((name, at));
        Ok(number)
    }

    fn done(&mut self, deed: Deed) {
        let in_all = self.calls.len().max(1);
        let admitted = match deed {
            Deed::Ask(agent, memory) => {
                let _ = self.ask(&agent.to_string(), memory);
                Vec::new()
            }
            Deed::Leave(number) | Deed::Release(number) => self.go(number % in_all, matches!(deed, Deed::Leave(_))),
        };
        self.admit(admitted);
        self.check();
    }

    fn go(&mut self, number: usize, waits: bool) -> Vec<Admitted<usize>> {
        let Some((agent, at)) = self.calls.get_mut(number) else { return Vec::new() };
        match *at {
            At::Waiting(place) if waits => {
                *at = At::Gone;
                self.queue.leave(&agent.clone(), place)
            }
            At::Running(memory) if !waits => {
                *at = At::Gone;
                self.queue.release(&agent.clone(), memory)
            }
            _ => Vec::new(),
        }
    }

    fn admit(&mut self, admitted: Vec<Admitted<usize>>) {
        for Admitted { agent, memory, bell } in admitted {
            let call = &mut self.calls[bell];
            assert!(matches!(call.1, At::Waiting(_)) && call.0 == agent, "{call:?} did not wait");
            call.1 = At::Running(memory);
        }
    }

    fn release(&mut self, number: usize) {
        let admitted = self.go(number, false);
        self.admit(admitted);
    }

    fn running(&self) -> Vec<usize> {
        (0..self.calls.len()).filter(|number| matches!(self.calls[*number].1, At::Running(_))).collect()
    }

    fn waiting(&self) -> usize {
        self.calls.iter().filter(|(_, at)| matches!(at, At::Waiting(_))).count()
    }

    fn check(&self) {
        let held = |(_, at): &(Arc<str>, At)| if let At::Running(memory) = at { *memory } else { 0 };
        let (places, memory) = (self.running().len(), self.calls.iter().map(held).sum::<u32>());
        assert!(places <= self.bounds.places && memory <= self.bounds.memory, "{places} places, {memory} MiB");
        assert_eq!((self.queue.places, self.queue.memory), (self.bounds.places - places, self.bounds.memory - memory));
        assert_eq!(self.queue.waiting, self.waiting());
        assert!(self.waiting() <= self.bounds.queue);
        assert!(places > 0 || self.waiting() == 0, "calls wait, and nothing runs");
    }
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        4 => (0..4_u8, 0..300_u32).prop_map(|(agent, memory)| Deed::Ask(agent, memory)),
        1 => any::<usize>().prop_map(Deed::Leave),
        2 => any::<usize>().prop_map(Deed::Release),
    ];
    proptest::collection::vec(deed, 0..200)
}

fn bounds(places: usize, memory: u32, queue: usize) -> Bounds {
    Bounds { places, memory, queue, sharing: Sharing::ByAgent }
}

proptest! {
    // P8, row 10: places and memory are never given twice nor lost, in whatever order calls come, end and are cancelled;
    // something always runs while anybody waits, and whoever waits is admitted in the end.
    #[test]
    fn everybody_is_admitted_in_the_end(
        places in 1_usize..8, memory in 1_u32..400, queue in 0_usize..12, deeds in deeds(),
    ) {
        let mut world = World::new(bounds(places, memory, queue));
        for deed in deeds {
            world.done(deed);
        }
        while let Some(running) = world.running().first().copied() {
            world.release(running);
            world.check();
        }
        prop_assert_eq!(world.waiting(), 0);
        prop_assert!(world.queue.agents.is_empty());
    }

    // P8: however many agents have taken what they may, one that has nothing yet is admitted at once, as long as they
    // are no more than the places allow.
    #[test]
    fn there_is_room_for_one_more(agents in 1_usize..12, memory in 1_u32..8) {
        let mut world = World::new(bounds(64, 1_536, 256));
        for _ in 0..64 {
            for agent in 0..agents {
                let _ = world.ask(&format!("hog {agent}"), memory);
            }
        }
        let new = world.ask("new", memory).expect("the queue has room, too");
        prop_assert!(matches!(world.calls[new].1, At::Running(_)));
    }
}

// P8: an agent with many calls and one with few are served in turn, and memory is part of it.
#[test]
fn agents_are_served_in_turn() {
    let mut world = World::new(bounds(1, 100, 20));
    let mut running = world.ask("many", 10).expect("room");
    for agent in ["many", "many", "many", "one", "one"] {
        world.ask(agent, 10).expect("it waits");
    }
    let mut served = Vec::new();
    while world.waiting() > 0 {
        world.release(running);
        running = world.running()[0];
        served.push(world.calls[running].0.to_string());
    }
    assert_eq!(served, ["one", "many", "one", "many", "many"]);
}

// P8: a large call is not starved by small ones that would always fit.
#[test]
fn a_large_call_is_passed_only_so_often() {
    let mut world = World::new(bounds(64, 100, 256));
    for _ in 0..4 {
        world.ask("small", 10).expect("room");
    }
    let large = world.ask("large", 90).expect("it waits");
    let mut passed = 0;
    while !matches!(world.calls[large].1, At::Running(_)) {
        let small = world.ask("small", 10).expect("room in the queue");
        passed += u32::from(matches!(world.calls[small].1, At::Running(_)));
        assert!(passed <= PASSES, "it is passed again and again");
        let oldest = world.running()[0];
        world.release(oldest);
        world.check();
    }
    assert_eq!(passed, PASSES, "as often as is allowed, smaller ones do go on");
}
