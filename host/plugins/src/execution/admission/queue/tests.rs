//! Property tests of the queue (P8): every call is eventually admitted, agents are served in turn, and a call of an
//! agent without permits can always be admitted.

use super::*;
use proptest::prelude::*;

/// A queue, and the state of each call that the test has made.
struct Model {
    queue: Queue<usize>,
    bounds: Bounds,
    calls: Vec<(Arc<str>, CallStatus)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum CallStatus {
    Waiting(u64),
    Running(u32),
    Finished,
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Request(u8, u32),
    Cancel(usize),
    Release(usize),
}

impl Model {
    fn new(bounds: Bounds) -> Self {
        Self { queue: Queue::new(bounds), bounds, calls: Vec::new() }
    }

    fn request(&mut self, agent: &str, memory: u32) -> Result<usize, QueueFull> {
        let (name, number): (Arc<str>, _) = (agent.into(), self.calls.len());
        let status = match self.queue.request(&name, (memory, QueuePolicy::IfNotFull), || number)? {
            PermitReply::Admitted { memory } => CallStatus::Running(memory),
            PermitReply::Queued(number) => CallStatus::Waiting(number),
        };
        self.calls.push((name, status));
        Ok(number)
    }

    fn apply(&mut self, operation: Operation) {
        let total = self.calls.len().max(1);
        let admitted = match operation {
            Operation::Request(agent, memory) => {
                let _ = self.request(&agent.to_string(), memory);
                Vec::new()
            }
            Operation::Cancel(number) | Operation::Release(number) => {
                self.finish(number % total, matches!(operation, Operation::Cancel(_)))
            }
        };
        self.admit(admitted);
        self.check();
    }

    fn finish(&mut self, number: usize, is_waiting: bool) -> Vec<Admitted<usize>> {
        let Some((agent, status)) = self.calls.get_mut(number) else { return Vec::new() };
        match *status {
            CallStatus::Waiting(number) if is_waiting => {
                *status = CallStatus::Finished;
                self.queue.cancel(&agent.clone(), number)
            }
            CallStatus::Running(memory) if !is_waiting => {
                *status = CallStatus::Finished;
                self.queue.release(&agent.clone(), memory)
            }
            _ => Vec::new(),
        }
    }

    fn admit(&mut self, admitted: Vec<Admitted<usize>>) {
        for Admitted { agent, memory, notifier } in admitted {
            let call = &mut self.calls[notifier];
            assert!(matches!(call.1, CallStatus::Waiting(_)) && call.0 == agent, "{call:?} was not waiting");
            call.1 = CallStatus::Running(memory);
        }
    }

    fn release(&mut self, number: usize) {
        let admitted = self.finish(number, false);
        self.admit(admitted);
    }

    fn running(&self) -> Vec<usize> {
        (0..self.calls.len()).filter(|number| matches!(self.calls[*number].1, CallStatus::Running(_))).collect()
    }

    fn waiting(&self) -> usize {
        self.calls.iter().filter(|(_, status)| matches!(status, CallStatus::Waiting(_))).count()
    }

    fn check(&self) {
        let reserved =
            |(_, status): &(Arc<str>, CallStatus)| if let CallStatus::Running(memory) = status { *memory } else { 0 };
        let (permits, memory) = (self.running().len(), self.calls.iter().map(reserved).sum::<u32>());
        assert!(permits <= self.bounds.permits && memory <= self.bounds.memory, "uses {permits} permits, {memory} MiB");
        assert_eq!(
            (self.queue.permits, self.queue.memory),
            (self.bounds.permits - permits, self.bounds.memory - memory)
        );
        assert_eq!(self.queue.waiting, self.waiting());
        assert!(self.waiting() <= self.bounds.queue);
        assert!(permits > 0 || self.waiting() == 0, "calls wait although no call runs");
    }
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![
        4 => (0..4_u8, 0..300_u32).prop_map(|(agent, memory)| Operation::Request(agent, memory)),
        1 => any::<usize>().prop_map(Operation::Cancel),
        2 => any::<usize>().prop_map(Operation::Release),
    ];
    proptest::collection::vec(operation, 0..200)
}

fn bounds(permits: usize, memory: u32, queue: usize) -> Bounds {
    Bounds { permits, memory, queue, sharing: Sharing::ByAgent }
}

proptest! {
    // P8, row 10: permits and memory are never issued twice or lost, for any order in which calls start, end and are
    // cancelled. As long as a call waits, at least one other call runs, and every waiting call is eventually admitted.
    #[test]
    fn p8_row_10_every_waiting_call_is_admitted_eventually(
        permits in 1_usize..8, memory in 1_u32..400, queue in 0_usize..12, operations in operations(),
    ) {
        let mut model = Model::new(bounds(permits, memory, queue));
        for operation in operations {
            model.apply(operation);
        }
        while let Some(running) = model.running().first().copied() {
            model.release(running);
            model.check();
        }
        prop_assert_eq!(model.waiting(), 0);
        prop_assert!(model.queue.agents.is_empty());
    }

    // P8: a call of an agent that holds no permits is admitted immediately, even if the other agents use their whole
    // shares. The lane must have more permits than agents.
    #[test]
    fn p8_agent_without_permits_is_admitted_at_once(agents in 1_usize..12, memory in 1_u32..8) {
        let mut model = Model::new(bounds(64, 1_536, 256));
        for _ in 0..64 {
            for agent in 0..agents {
                let _ = model.request(&format!("greedy {agent}"), memory);
            }
        }
        let new = model.request("new", memory).expect("the queue has room");
        prop_assert!(matches!(model.calls[new].1, CallStatus::Running(_)));
    }
}

// P8: an agent with many waiting calls and an agent with few waiting calls are served alternately.
#[test]
fn p8_agents_are_served_alternately() {
    let mut model = Model::new(bounds(1, 100, 20));
    let mut running = model.request("many", 10).expect("admitted");
    for agent in ["many", "many", "many", "one", "one"] {
        model.request(agent, 10).expect("queued");
    }
    let mut served = Vec::new();
    while model.waiting() > 0 {
        model.release(running);
        running = model.running()[0];
        served.push(model.calls[running].0.to_string());
    }
    assert_eq!(served, ["one", "many", "one", "many", "many"]);
}

// P8: small calls for which enough memory is free cannot delay a large call forever.
#[test]
fn p8_large_call_is_overtaken_a_limited_number_of_times() {
    let mut model = Model::new(bounds(64, 100, 256));
    for _ in 0..4 {
        model.request("small", 10).expect("admitted");
    }
    let large = model.request("large", 90).expect("queued");
    let mut passed = 0;
    while !matches!(model.calls[large].1, CallStatus::Running(_)) {
        let small = model.request("small", 10).expect("admitted or queued");
        passed += u32::from(matches!(model.calls[small].1, CallStatus::Running(_)));
        assert!(passed <= MAX_PASSES, "the large call is overtaken too often");
        let oldest = model.running()[0];
        model.release(oldest);
        model.check();
    }
    assert_eq!(passed, MAX_PASSES, "smaller calls overtake the large call as often as allowed");
}
