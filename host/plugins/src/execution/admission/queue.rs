//! The queue in which the calls of a lane wait for permits. The agent with the fewest permits is served first. If
//! several agents have equally few permits, the agent that has not been served for the longest time is served first. No
//! agent can use the whole lane: some capacity always remains free for an agent that makes its first call.

use super::QueueFull;
use crate::execution::observer::SandboxLoad;
use crate::limits::MIB;
use std::collections::VecDeque;
use std::sync::Arc;

/// Limits the share of one agent: an agent may use at most `SHARE` times as many permits as remain free. The rule for
/// permits also applies to the memory and to the slots of the queue. If the value is 3, a single agent can use three
/// quarters of the capacity, and two agents can use three sevenths each. Some capacity therefore always remains free
/// for an agent that makes its first call.
const SHARE: usize = 3;
/// Maximum number of smaller calls that may overtake a large call that waits for memory. When this many
/// calls have overtaken a large call, all smaller calls wait until the large call is admitted.
const MAX_PASSES: u32 = 32;

/// The capacity of a lane: its permits, its guest memory and the length of its queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) permits: usize,
    /// Maximum total guest memory of all running calls in the lane, in MiB.
    pub(super) memory: u32,
    /// Maximum number of calls that may wait in the lane's queue.
    pub(super) queue: usize,
    pub(super) sharing: Sharing,
}

/// Whether each agent is limited to its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    ByAgent,
    Whole,
}

/// Whether a call may wait even if the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueuePolicy {
    IfNotFull,
    Always,
}

/// The free capacity of a lane, and the agents that have permits or waiting calls. Each waiting call has a `Notifier`,
/// which informs the call when it is admitted.
pub(super) struct Queue<Notifier> {
    bounds: Bounds,
    /// Number of permits of the lane that no call is using.
    permits: usize,
    /// Guest memory of the lane that is not part of any permit, in MiB.
    memory: u32,
    /// Total number of waiting calls, summed over all agents.
    waiting: usize,
    /// The agents that have a permit or a waiting call.
    agents: Vec<Agent<Notifier>>,
    /// The last number that was assigned. Each queued call and each admission of a call gets the next number.
    numbers: u64,
}

struct Agent<Notifier> {
    name: Arc<str>,
    permits: usize,
    memory: u32,
    /// The number that was assigned when a call of this agent was last admitted.
    served: u64,
    waiting: VecDeque<Call<Notifier>>,
}

struct Call<Notifier> {
    number: u64,
    memory: u32,
    /// Number of smaller calls that have overtaken this call.
    passed: u32,
    notifier: Notifier,
}

/// The result of a request for a permit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PermitReply {
    /// The call may run with this amount of memory in MiB, which is never more than the memory of the whole lane.
    Admitted { memory: u32 },
    /// The call waits in the queue under this number.
    Queued(u64),
}

/// A call that was waiting and is now admitted.
pub(super) struct Admitted<Notifier> {
    pub(super) agent: Arc<str>,
    pub(super) memory: u32,
    pub(super) notifier: Notifier,
}

/// Whether a call can run now, and if not, what the call waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    Now,
    /// The call could run if the lane had enough free memory.
    NeedsMemory,
    /// No permit is free, or the agent of the call has used its share.
    Later,
}

impl<Notifier> Queue<Notifier> {
    pub(super) fn new(bounds: Bounds) -> Self {
        let bounds = Bounds { permits: bounds.permits.max(1), memory: bounds.memory.max(1), ..bounds };
        let (permits, memory) = (bounds.permits, bounds.memory);
        Self { bounds, permits, memory, waiting: 0, agents: Vec::new(), numbers: 0 }
    }

    /// Returns the number of calls that run or wait.
    pub(super) fn load(&self) -> SandboxLoad {
        let Bounds { permits, memory, .. } = self.bounds;
        let memory = memory.saturating_sub(self.memory) as usize * MIB;
        SandboxLoad { running: permits - self.permits, waiting: self.waiting, memory }
    }

    /// Requests a permit that includes `memory` MiB of guest memory. If a call needs more memory than the whole lane
    /// has, the call gets all memory of the lane and runs alone.
    pub(super) fn request(
        &mut self,
        name: &Arc<str>,
        (memory, policy): (u32, QueuePolicy),
        notifier: impl FnOnce() -> Notifier,
    ) -> Result<PermitReply, QueueFull> {
        let memory = memory.clamp(1, self.bounds.memory);
        let index = self.agent_index(name);
        let is_first = self.agents[index].waiting.is_empty();
        if is_first && self.fit(index, memory) == Fit::Now && self.try_overtake(index) {
            self.occupy(index, memory);
            return Ok(PermitReply::Admitted { memory });
        }
        if policy == QueuePolicy::IfNotFull
            && let Err(full) = self.check_room(index)
        {
            self.remove_idle_agents();
            return Err(full);
        }
        self.numbers += 1;
        let number = self.numbers;
        self.agents[index].waiting.push_back(Call { number, memory, passed: 0, notifier: notifier() });
        self.waiting += 1;
        Ok(PermitReply::Queued(number))
    }

    /// Removes a waiting call, and admits the waiting calls that can now run. Returns the admitted calls.
    pub(super) fn cancel(&mut self, name: &Arc<str>, number: u64) -> Vec<Admitted<Notifier>> {
        let Some(agent) = self.agents.iter_mut().find(|agent| agent.name == *name) else { return Vec::new() };
        let before = agent.waiting.len();
        agent.waiting.retain(|call| call.number != number);
        self.waiting -= before - agent.waiting.len();
        self.admit()
    }

    /// Frees a permit and its memory, and admits the waiting calls that can now run. Returns the admitted calls.
    pub(super) fn release(&mut self, name: &Arc<str>, memory: u32) -> Vec<Admitted<Notifier>> {
        let index = self.agent_index(name);
        let agent = &mut self.agents[index];
        agent.permits -= 1;
        agent.memory -= memory;
        self.permits += 1;
        self.memory += memory;
        self.admit()
    }

    fn admit(&mut self) -> Vec<Admitted<Notifier>> {
        let mut admitted = Vec::new();
        while let Some(index) = self.next_agent() {
            let Some(call) = self.agents[index].waiting.pop_front() else { break };
            self.waiting -= 1;
            self.occupy(index, call.memory);
            let agent = Arc::clone(&self.agents[index].name);
            admitted.push(Admitted { agent, memory: call.memory, notifier: call.notifier });
        }
        self.remove_idle_agents();
        admitted
    }

    /// The index of the agent whose first waiting call is admitted next.
    fn next_agent(&mut self) -> Option<usize> {
        let mut order: Vec<_> =
            (0..self.agents.len()).filter(|index| !self.agents[*index].waiting.is_empty()).collect();
        order.sort_unstable_by_key(|index| (self.agents[*index].permits, self.agents[*index].served));
        let first = order.into_iter().find(|index| {
            let first = self.agents[*index].waiting.front();
            first.is_some_and(|call| self.fit(*index, call.memory) == Fit::Now)
        })?;
        self.try_overtake(first).then_some(first)
    }

    /// Whether a call of this agent may overtake the calls of other agents that wait for memory. If the call may
    /// overtake, increments the counter `passed` of each overtaken call.
    fn try_overtake(&mut self, overtaking: usize) -> bool {
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
            .filter(|(index, _)| *index != overtaking && fits[*index] == Fit::NeedsMemory)
            .filter_map(|(_, agent)| agent.waiting.front_mut())
            .collect();
        if passed.iter().any(|call| call.passed >= MAX_PASSES) {
            return false;
        }
        passed.iter_mut().for_each(|call| call.passed += 1);
        true
    }

    fn fit(&self, index: usize, memory: u32) -> Fit {
        let agent = &self.agents[index];
        let within_share = |used: usize, wanted: usize, free: usize| {
            self.bounds.sharing == Sharing::Whole || used == 0 || used + wanted <= SHARE * (free - wanted)
        };
        if self.permits == 0 || !within_share(agent.permits, 1, self.permits) {
            Fit::Later
        } else if memory > self.memory {
            Fit::NeedsMemory
        } else if within_share(agent.memory as usize, memory as usize, self.memory as usize) {
            Fit::Now
        } else {
            Fit::Later
        }
    }

    /// Fails if the queue is full or if this agent has used its share of the queue.
    fn check_room(&self, index: usize) -> Result<(), QueueFull> {
        let free = self.bounds.queue.saturating_sub(self.waiting);
        let waiting = self.agents[index].waiting.len();
        if free == 0 {
            return Err(QueueFull::All(self.bounds.queue));
        }
        let share = SHARE.saturating_mul(free - 1);
        let within = self.bounds.sharing == Sharing::Whole || waiting == 0 || waiting < share;
        if within { Ok(()) } else { Err(QueueFull::OfAgent(waiting)) }
    }

    fn occupy(&mut self, index: usize, memory: u32) {
        self.numbers += 1;
        self.permits -= 1;
        self.memory -= memory;
        let agent = &mut self.agents[index];
        agent.permits += 1;
        agent.memory += memory;
        agent.served = self.numbers;
    }

    fn agent_index(&mut self, name: &Arc<str>) -> usize {
        self.agents.iter().position(|agent| agent.name == *name).unwrap_or_else(|| {
            let name = Arc::clone(name);
            self.agents.push(Agent { name, permits: 0, memory: 0, served: 0, waiting: VecDeque::new() });
            self.agents.len() - 1
        })
    }

    fn remove_idle_agents(&mut self) {
        self.agents.retain(|agent| agent.permits > 0 || !agent.waiting.is_empty());
    }
}

#[cfg(test)]
mod tests;
