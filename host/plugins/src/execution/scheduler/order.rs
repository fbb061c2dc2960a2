//! The order in which guests get turns: the next turn goes to the first waiting guest of the agent that has used the least time. An
//! agent with a hundred guests gets no more processor time than an agent with one, and an idle agent does not save up time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

/// Minimum time that is counted for a turn, in nanoseconds, so that polls that do nothing are not free.
const MIN_TURN: u64 = 1_000;
/// When more agents than this are remembered, those that do not matter any more are removed.
const REMEMBERED_AGENTS: usize = 128;

/// The turns of a lane. Some are in use, and some are offered to guests that were woken.
pub(super) struct Order {
    /// Number of turns.
    count: usize,
    /// Time that is counted for a turn until its real duration is known, in nanoseconds: one epoch tick. This distinguishes agents
    /// that have just been served.
    usual: u64,
    in_use: usize,
    offers: Vec<Offer>,
    /// The agents that have a running or waiting guest. While any guest waits, also other agents, because of the time that they have
    /// used.
    agents: Vec<Agent>,
    /// The used time of the agent that was served last. A new agent starts with this value.
    now: u64,
    /// The last place that was given to a waiting guest.
    places: u64,
}

struct Agent {
    name: Arc<str>,
    /// Used time in nanoseconds.
    used: u64,
    /// Turns that its guests use or were offered.
    turns: usize,
    waiting: VecDeque<(u64, Waker)>,
}

/// A turn that is reserved for a guest that was woken.
struct Offer {
    place: u64,
    agent: Arc<str>,
    at: Instant,
}

/// The result of a request for a turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TurnRequest {
    Granted,
    /// The guest waits at this place until its waker is woken.
    Waiting(u64),
}

impl Order {
    pub(super) fn new(count: usize, usual: Duration) -> Self {
        Self { count, usual: nanos(usual), in_use: 0, offers: Vec::new(), agents: Vec::new(), now: 0, places: 0 }
    }

    /// Requests a turn. `place` is the place from the last request if the guest is already waiting.
    pub(super) fn request(&mut self, name: &Arc<str>, place: Option<u64>, waker: &Waker) -> TurnRequest {
        if let Some(place) = place {
            if let Some(offer) = self.offers.iter().position(|offer| offer.place == place) {
                self.offers.swap_remove(offer);
                self.in_use += 1;
                return TurnRequest::Granted;
            }
            let agent = self.agent(name);
            if let Some((_, waiting)) = agent.waiting.iter_mut().find(|(other, _)| *other == place) {
                waiting.clone_from(waker);
                return TurnRequest::Waiting(place);
            }
        }
        // If a turn is free, no guest waits.
        if self.is_free() {
            self.count_turn(name);
            self.in_use += 1;
            return TurnRequest::Granted;
        }
        match place {
            // Its offer has expired.
            Some(place) => {
                self.agent(name).waiting.push_front((place, waker.clone()));
                TurnRequest::Waiting(place)
            }
            None => TurnRequest::Waiting(self.enqueue(name, waker)),
        }
    }

    /// Queues a guest behind all other guests of its agent. The caller must then call a method that offers free turns, because no
    /// guest may wait while a turn is free.
    pub(super) fn enqueue(&mut self, name: &Arc<str>, waker: &Waker) -> u64 {
        self.places += 1;
        let place = self.places;
        self.agent(name).waiting.push_back((place, waker.clone()));
        place
    }

    /// Ends a turn that took `spent`. Returns the wakers of the guests that are offered a turn.
    pub(super) fn end(&mut self, name: &Arc<str>, spent: Duration, at: Instant) -> Vec<Waker> {
        self.in_use -= 1;
        let (spent, usual) = (nanos(spent).max(MIN_TURN), self.usual);
        let agent = self.agent(name);
        agent.turns -= 1;
        agent.used = agent.used.saturating_sub(usual).saturating_add(spent);
        self.offer_turns(at)
    }

    /// Removes a waiting guest. Returns the wakers of the guests that are offered a turn.
    pub(super) fn cancel(&mut self, name: &Arc<str>, place: u64, at: Instant) -> Vec<Waker> {
        match self.offers.iter().position(|offer| offer.place == place) {
            Some(offer) => self.withdraw(offer),
            None => self.agent(name).waiting.retain(|(other, _)| *other != place),
        }
        self.offer_turns(at)
    }

    /// Withdraws offers that were made before `before` and not taken. Returns the wakers of the guests that are offered a turn.
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
                // The used time does not matter if no guest waits.
                self.agents.retain(|agent| agent.turns > 0);
                break;
            };
            let name = Arc::clone(&next.name);
            self.count_turn(&name);
            if let Some((place, waker)) = self.agent(&name).waiting.pop_front() {
                self.offers.push(Offer { place, agent: name, at });
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

    /// Counts a turn for the agent, with the usual duration for now.
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
        // An idle agent does not save up time.
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
