//! The order in which guests get turns. Of the agents with waiting guests, the scheduler picks the agent that has used
//! the least time, and runs the guest of this agent that has waited longest. An agent with a hundred guests gets no
//! more processor time than an agent with one guest. An agent that had no guests for a while does not get more
//! processor time later to make up for this.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

/// Minimum time that is counted for a turn, in nanoseconds. Because of the minimum, even a poll that does nothing adds
/// to the used time.
const MIN_TURN: u64 = 1_000;
/// If more agents than this number are stored, the agents that no longer affect the order are removed.
const REMEMBERED_AGENTS: usize = 128;

/// The scheduler's turns in one lane, and the order in which the guests of the lane get these turns. Some turns are in
/// use, and some are offered to guests that were woken.
pub(super) struct Order {
    /// Maximum number of turns of the lane that can be in use or offered at the same time.
    count: usize,
    /// Time that is counted for a turn until the turn ends and its real duration is known: one epoch tick, in
    /// nanoseconds. An agent that has just got a turn therefore comes after the agents that had used the same
    /// time as this agent before the turn.
    usual: u64,
    in_use: usize,
    offers: Vec<Offer>,
    /// The agents that have a running or waiting guest. As long as any guest waits, agents without guests also stay in
    /// the list, so that their used time is not forgotten.
    agents: Vec<Agent>,
    /// The highest value that the used time of any agent had when the agent got a turn. A new agent begins with this
    /// value as its used time.
    now: u64,
    /// The id of the guest that was queued last.
    last_queue_id: u64,
}

struct Agent {
    name: Arc<str>,
    /// Time that the agent's guests have used, in nanoseconds.
    used: u64,
    /// Number of the lane's turns that the agent's guests are using or that are offered to the agent's guests.
    turns: usize,
    waiting: VecDeque<(u64, Waker)>,
}

/// A turn that is reserved for a guest that was woken.
struct Offer {
    queue_id: u64,
    agent: Arc<str>,
    at: Instant,
}

/// The result of a request for a turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TurnRequest {
    Granted,
    /// The guest must wait until its waker is called. The value is the id of the waiting guest.
    Waiting(u64),
}

impl Order {
    pub(super) fn new(count: usize, usual: Duration) -> Self {
        Self { count, usual: nanos(usual), in_use: 0, offers: Vec::new(), agents: Vec::new(), now: 0, last_queue_id: 0 }
    }

    /// Requests a turn for a guest. If the guest is already waiting, `queue_id` is the id from its last request.
    pub(super) fn request(&mut self, name: &Arc<str>, queue_id: Option<u64>, waker: &Waker) -> TurnRequest {
        if let Some(queue_id) = queue_id {
            if let Some(offer) = self.offers.iter().position(|offer| offer.queue_id == queue_id) {
                self.offers.swap_remove(offer);
                self.in_use += 1;
                return TurnRequest::Granted;
            }
            let agent = self.agent(name);
            if let Some((_, waiting)) = agent.waiting.iter_mut().find(|(other, _)| *other == queue_id) {
                waiting.clone_from(waker);
                return TurnRequest::Waiting(queue_id);
            }
        }
        // A turn can be free only if no guest waits, so this guest gets the free turn.
        if self.is_free() {
            self.count_turn(name);
            self.in_use += 1;
            return TurnRequest::Granted;
        }
        match queue_id {
            // The turn that was offered to this guest has been withdrawn, so the guest must wait again.
            Some(queue_id) => {
                self.agent(name).waiting.push_front((queue_id, waker.clone()));
                TurnRequest::Waiting(queue_id)
            }
            None => TurnRequest::Waiting(self.enqueue(name, waker)),
        }
    }

    /// Queues a guest behind the other guests of its agent, and returns the id under which the guest waits. The caller
    /// must then call a method that offers free turns to waiting guests, so that no guest waits while a turn is free.
    pub(super) fn enqueue(&mut self, name: &Arc<str>, waker: &Waker) -> u64 {
        self.last_queue_id += 1;
        let queue_id = self.last_queue_id;
        self.agent(name).waiting.push_back((queue_id, waker.clone()));
        queue_id
    }

    /// Ends a turn that lasted for `spent`. Returns the wakers of the guests to which free turns are now offered.
    pub(super) fn end(&mut self, name: &Arc<str>, spent: Duration, at: Instant) -> Vec<Waker> {
        self.in_use -= 1;
        let (spent, usual) = (nanos(spent).max(MIN_TURN), self.usual);
        let agent = self.agent(name);
        agent.turns -= 1;
        agent.used = agent.used.saturating_sub(usual).saturating_add(spent);
        self.offer_turns(at)
    }

    /// Removes a waiting guest from the queue. Returns the wakers of the guests to which free turns are now offered.
    pub(super) fn cancel(&mut self, name: &Arc<str>, queue_id: u64, at: Instant) -> Vec<Waker> {
        match self.offers.iter().position(|offer| offer.queue_id == queue_id) {
            Some(offer) => self.withdraw(offer),
            None => self.agent(name).waiting.retain(|(other, _)| *other != queue_id),
        }
        self.offer_turns(at)
    }

    /// Withdraws the offers that were made before the time `before` and have not been accepted. Returns the wakers of
    /// the guests to which the turns are now offered.
    pub(super) fn expire_offers(&mut self, before: Instant, at: Instant) -> Vec<Waker> {
        while let Some(offer) = self.offers.iter().position(|offer| offer.at < before) {
            self.withdraw(offer);
        }
        self.offer_turns(at)
    }

    fn withdraw(&mut self, offer: usize) {
        let Offer { agent, .. } = self.offers.swap_remove(offer);
        let usual = self.usual;
        let agent = self.agent(&agent);
        agent.turns -= 1;
        agent.used = agent.used.saturating_sub(usual);
    }

    /// Offers each free turn to one waiting guest, and returns the wakers of these guests.
    fn offer_turns(&mut self, at: Instant) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while self.is_free() {
            let waiting = self.agents.iter_mut().filter(|agent| !agent.waiting.is_empty());
            let Some(next) = waiting.min_by_key(|agent| agent.used) else {
                // If no guest waits, agents without guests can be forgotten, because their used time does not matter.
                self.agents.retain(|agent| agent.turns > 0);
                break;
            };
            let name = Arc::clone(&next.name);
            self.count_turn(&name);
            if let Some((queue_id, waker)) = self.agent(&name).waiting.pop_front() {
                self.offers.push(Offer { queue_id, agent: name, at });
                wakers.push(waker);
            }
        }
        if self.agents.len() > REMEMBERED_AGENTS {
            let now = self.now;
            self.agents.retain(|agent| agent.turns > 0 || !agent.waiting.is_empty() || agent.used > now);
        }
        wakers
    }

    fn is_free(&self) -> bool {
        self.in_use + self.offers.len() < self.count
    }

    /// Counts a turn for the agent. The real duration of the turn is not known before the turn ends, so the turn counts
    /// with the usual duration until then.
    fn count_turn(&mut self, name: &Arc<str>) {
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
        // An agent cannot save up processor time while it has no guests.
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
