//! Who is polled next: the first of the agent that has used the least time of late. An agent with a hundred guests gets no
//! more of the processors than one with a single guest, and who sleeps saves nothing up.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

/// A turn counts for no less than this, so that polls that do nothing are not free.
const LEAST: u64 = 1_000;
/// Agents that are remembered without a thought of what for.
const REMEMBERED: usize = 128;

/// So many turns: some in use, some kept for who was called.
pub(super) struct Order {
    count: usize,
    /// What a turn is counted as until it is known how long it was, in nanoseconds: an epoch tick. Agents that were served
    /// at once are told apart by it.
    usual: u64,
    in_use: usize,
    called: Vec<Called>,
    /// Those of which something runs or waits; while anybody waits, others too, for what they have used.
    agents: Vec<Agent>,
    /// The time that the agent served last had used: who comes anew begins here.
    now: u64,
    places: u64,
}

struct Agent {
    name: Arc<str>,
    /// Nanoseconds.
    used: u64,
    /// Turns that it has, or was called to.
    turns: usize,
    waiting: VecDeque<(u64, Waker)>,
}

struct Called {
    place: u64,
    agent: Arc<str>,
    at: Instant,
}

/// What came of asking for a turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Begun {
    Turn,
    /// At this place, until the waker is woken.
    Waits(u64),
}

impl Order {
    pub(super) fn new(count: usize, usual: Duration) -> Self {
        Self { count, usual: nanos(usual), in_use: 0, called: Vec::new(), agents: Vec::new(), now: 0, places: 0 }
    }

    /// Asks for a turn; `place` is what the last answer was, if that was no turn.
    pub(super) fn begin(&mut self, name: &Arc<str>, place: Option<u64>, waker: &Waker) -> Begun {
        if let Some(place) = place {
            if let Some(called) = self.called.iter().position(|called| called.place == place) {
                self.called.swap_remove(called);
                self.in_use += 1;
                return Begun::Turn;
            }
            let agent = self.agent(name);
            if let Some((_, waiting)) = agent.waiting.iter_mut().find(|(other, _)| *other == place) {
                waiting.clone_from(waker);
                return Begun::Waits(place);
            }
        }
        // Where a turn is free, nobody waits.
        if self.is_free() {
            self.start(name);
            self.in_use += 1;
            return Begun::Turn;
        }
        match place {
            // It was passed over, and comes now.
            Some(place) => {
                self.agent(name).waiting.push_front((place, waker.clone()));
                Begun::Waits(place)
            }
            None => Begun::Waits(self.line_up(name, waker)),
        }
    }

    /// Puts who will go on behind all others of its agent. Something must be called after that: nobody waits for a turn
    /// that is free.
    pub(super) fn line_up(&mut self, name: &Arc<str>, waker: &Waker) -> u64 {
        self.places += 1;
        let place = self.places;
        self.agent(name).waiting.push_back((place, waker.clone()));
        place
    }

    /// A turn that took so long is over. Returns who is to be woken.
    pub(super) fn end(&mut self, name: &Arc<str>, spent: Duration, at: Instant) -> Vec<Waker> {
        self.in_use -= 1;
        let (spent, usual) = (nanos(spent).max(LEAST), self.usual);
        let agent = self.agent(name);
        agent.turns -= 1;
        agent.used = agent.used.saturating_sub(usual).saturating_add(spent);
        self.call(at)
    }

    /// Who waited has gone. Returns who is to be woken.
    pub(super) fn leave(&mut self, name: &Arc<str>, place: u64, at: Instant) -> Vec<Waker> {
        match self.called.iter().position(|called| called.place == place) {
            Some(called) => self.give_back(called),
            None => self.agent(name).waiting.retain(|(other, _)| *other != place),
        }
        self.call(at)
    }

    /// Takes back the turns of those who were called before then and have not come. Returns who is to be woken.
    pub(super) fn pass_over(&mut self, before: Instant, at: Instant) -> Vec<Waker> {
        while let Some(called) = self.called.iter().position(|called| called.at < before) {
            self.give_back(called);
        }
        self.call(at)
    }

    fn give_back(&mut self, called: usize) {
        let Called { agent, .. } = self.called.swap_remove(called);
        let usual = self.usual;
        let agent = self.agent(&agent);
        agent.turns -= 1;
        agent.used = agent.used.saturating_sub(usual);
    }

    /// Calls as many as there are turns for, no more.
    fn call(&mut self, at: Instant) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while self.is_free() {
            let waiting = self.agents.iter_mut().filter(|agent| !agent.waiting.is_empty());
            let Some(next) = waiting.min_by_key(|agent| agent.used) else {
                // Without anybody who waits, what was used is of no matter.
                self.agents.retain(|agent| agent.turns > 0);
                break;
            };
            let name = Arc::clone(&next.name);
            self.start(&name);
            if let Some((place, waker)) = self.agent(&name).waiting.pop_front() {
                self.called.push(Called { place, agent: name, at });
                wakers.push(waker);
            }
        }
        if self.agents.len() > REMEMBERED {
            let now = self.now;
            self.agents.retain(|agent| agent.turns > 0 || !agent.waiting.is_empty() || agent.used > now);
        }
        wakers
    }

    fn is_free(&self) -> bool {
        self.in_use + self.called.len() < self.count
    }

    fn start(&mut self, name: &Arc<str>) {
        let usual = self.usual;
        let agent = self.agent(name);
        let used = agent.used;
        agent.turns += 1;
        agent.used = used.saturating_add(usual);
        self.now = self.now.max(used);
    }

    fn agent(&mut self, name: &Arc<str>) -> &mut Agent {
        let now = self.now;
        let index = match self.agents.iter().position(|agent| agent.name == *name) {
            Some(index) => index,
            None => {
                let agent = Agent { name: Arc::clone(name), used: now, turns: 0, waiting: VecDeque::new() };
                self.agents.push(agent);
                self.agents.len() - 1
            }
        };
        let agent = &mut self.agents[index];
        // Time in which it wanted nothing is not saved up.
        if agent.turns == 0 && agent.waiting.is_empty() {
            agent.used = agent.used.max(now);
        }
        agent
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
