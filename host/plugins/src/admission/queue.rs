//! The order of a lane: whose agent holds the fewest places comes first, among equals who was served longest ago. Nobody
//! may hold so much that nothing is left to the next agent that comes.

use super::QueueFull;
use std::collections::VecDeque;
use std::sync::Arc;

/// An agent has at most so many times what it leaves to others, of places, of memory and of the queue. So one alone has
/// three quarters, two have three sevenths each, and there is always room for an agent that has nothing yet.
const SHARE: usize = 3;
/// So often a call that waits for memory lets smaller ones pass. Then they wait for it.
const PASSES: u32 = 32;

#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) places: usize,
    pub(super) memory: u32,
    pub(super) queue: usize,
    pub(super) sharing: Sharing,
}

/// Whether an agent leaves something to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    ByAgent,
    Whole,
}

/// Whether a call may wait though the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joining {
    WhereThereIsRoom,
    Always,
}

/// Who holds what, and who waits. A bell is what the waiting are told by.
pub(super) struct Queue<Bell> {
    bounds: Bounds,
    places: usize,
    memory: u32,
    waiting: usize,
    /// Those that hold or wait for something.
    agents: Vec<Agent<Bell>>,
    numbers: u64,
}

struct Agent<Bell> {
    name: Arc<str>,
    places: usize,
    memory: u32,
    /// The number of its last admission.
    served: u64,
    waiting: VecDeque<Call<Bell>>,
}

struct Call<Bell> {
    number: u64,
    memory: u32,
    passed: u32,
    bell: Bell,
}

/// What came of asking.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// With so much memory, which is no more than there is in all.
    Admitted {
        memory: u32,
    },
    Waits(u64),
}

/// Somebody who waited and waits no more.
pub(super) struct Admitted<Bell> {
    pub(super) agent: Arc<str>,
    pub(super) memory: u32,
    pub(super) bell: Bell,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    Now,
    /// When there is more memory.
    Memory,
    /// When there is a place, or its agent holds less.
    Later,
}

impl<Bell> Queue<Bell> {
    pub(super) fn new(bounds: Bounds) -> Self {
        let bounds = Bounds { places: bounds.places.max(1), memory: bounds.memory.max(1), ..bounds };
        let (places, memory) = (bounds.places, bounds.memory);
        Self { bounds, places, memory, waiting: 0, agents: Vec::new(), numbers: 0 }
    }

    /// Asks for a place with so many MiB. A call larger than the whole lane runs alone.
    pub(super) fn ask(
        &mut self,
        name: &Arc<str>,
        (memory, joining): (u32, Joining),
        bell: impl FnOnce() -> Bell,
    ) -> Result<Entry, QueueFull> {
        let memory = memory.clamp(1, self.bounds.memory);
        let index = self.agent(name);
        let is_first = self.agents[index].waiting.is_empty();
        if is_first && self.fit(index, memory) == Fit::Now && self.may_pass(index) {
            self.take(index, memory);
            return Ok(Entry::Admitted { memory });
        }
        if joining == Joining::WhereThereIsRoom
            && let Err(full) = self.join(index)
        {
            self.forget();
            return Err(full);
        }
        self.numbers += 1;
        let number = self.numbers;
        self.agents[index].waiting.push_back(Call { number, memory, passed: 0, bell: bell() });
        self.waiting += 1;
        Ok(Entry::Waits(number))
    }

    /// Who waited has gone. Returns who is admitted by that.
    pub(super) fn leave(&mut self, name: &Arc<str>, number: u64) -> Vec<Admitted<Bell>> {
        let Some(agent) = self.agents.iter_mut().find(|agent| agent.name == *name) else { return Vec::new() };
        let before = agent.waiting.len();
        agent.waiting.retain(|call| call.number != number);
        self.waiting -= before - agent.waiting.len();
        self.admit()
    }

    /// A place is free again, with its memory. Returns who is admitted by that.
    pub(super) fn release(&mut self, name: &Arc<str>, memory: u32) -> Vec<Admitted<Bell>> {
        let index = self.agent(name);
        let agent = &mut self.agents[index];
        agent.places -= 1;
        agent.memory -= memory;
        self.places += 1;
        self.memory += memory;
        self.admit()
    }

    fn admit(&mut self) -> Vec<Admitted<Bell>> {
        let mut admitted = Vec::new();
        while let Some(index) = self.next() {
            let Some(call) = self.agents[index].waiting.pop_front() else { break };
            self.waiting -= 1;
            self.take(index, call.memory);
            let agent = Arc::clone(&self.agents[index].name);
            admitted.push(Admitted { agent, memory: call.memory, bell: call.bell });
        }
        self.forget();
        admitted
    }

    /// Whose first call is admitted next.
    fn next(&mut self) -> Option<usize> {
        let mut order: Vec<_> =
            (0..self.agents.len()).filter(|index| !self.agents[*index].waiting.is_empty()).collect();
        order.sort_unstable_by_key(|index| (self.agents[*index].places, self.agents[*index].served));
        let first = order.into_iter().find(|index| {
            let first = self.agents[*index].waiting.front();
            first.is_some_and(|call| self.fit(*index, call.memory) == Fit::Now)
        })?;
        self.may_pass(first).then_some(first)
    }

    /// Whether nobody of another agent has been passed too often already. Counts the passing, if it is allowed.
    fn may_pass(&mut self, passing: usize) -> bool {
        let fits: Vec<_> = (0..self.agents.len())
            .map(|index| {
                let first = self.agents[index].waiting.front();
                first.map_or(Fit::Later, |call| self.fit(index, call.memory))
            })
            .collect();
        let mut passed: Vec<_> = self
            .agents
            .iter_mut()
            .enumerate()
            .filter(|(index, _)| *index != passing && fits[*index] == Fit::Memory)
            .filter_map(|(_, agent)| agent.waiting.front_mut())
            .collect();
        if passed.iter().any(|call| call.passed >= PASSES) {
            return false;
        }
        passed.iter_mut().for_each(|call| call.passed += 1);
        true
    }

    fn fit(&self, index: usize, memory: u32) -> Fit {
        let agent = &self.agents[index];
        let within = |held: usize, wanted: usize, free: usize| {
            self.bounds.sharing == Sharing::Whole || held == 0 || held + wanted <= SHARE * (free - wanted)
        };
        if self.places == 0 || !within(agent.places, 1, self.places) {
            Fit::Later
        } else if memory > self.memory {
            Fit::Memory
        } else if within(agent.memory as usize, memory as usize, self.memory as usize) {
            Fit::Now
        } else {
            Fit::Later
        }
    }

    /// Whether one more call of this agent may wait.
    fn join(&self, index: usize) -> Result<(), QueueFull> {
        let free = self.bounds.queue.saturating_sub(self.waiting);
        let held = self.agents[index].waiting.len();
        if free == 0 {
            return Err(QueueFull::All(self.bounds.queue));
        }
        let share = SHARE.saturating_mul(free - 1);
        let within = self.bounds.sharing == Sharing::Whole || held == 0 || held < share;
        if within { Ok(()) } else { Err(QueueFull::OfAgent(held)) }
    }

    fn take(&mut self, index: usize, memory: u32) {
        self.numbers += 1;
        self.places -= 1;
        self.memory -= memory;
        let agent = &mut self.agents[index];
        agent.places += 1;
        agent.memory += memory;
        agent.served = self.numbers;
    }

    fn agent(&mut self, name: &Arc<str>) -> usize {
        self.agents.iter().position(|agent| agent.name == *name).unwrap_or_else(|| {
            let name = Arc::clone(name);
            self.agents.push(Agent { name, places: 0, memory: 0, served: 0, waiting: VecDeque::new() });
            self.agents.len() - 1
        })
    }

    fn forget(&mut self) {
        self.agents.retain(|agent| agent.places > 0 || !agent.waiting.is_empty());
    }
}

#[cfg(test)]
mod tests;
