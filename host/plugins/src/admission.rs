//! Who may run (P8): a place and guest memory at once, per lane, and a bounded queue before them. The pool of instances is
//! never exhausted, because every instance has a place here first. What is scarce is shared by agents, see [`queue`].

mod queue;

use crate::limits::{HostLimits, LOADING, MIB, PURE_CALLS};
use crate::record::lock;
use queue::{Admitted, Bounds, Entry, Joining, Queue, Sharing};
use std::fmt;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot::{self, Receiver, Sender};

/// Which queue a call stands in. A lane of their own keeps validators and policies in time however many tools run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneName {
    Calls,
    /// The calls' lane, with a place in its queue at any time: a turn waits for its context and cannot go on without. There
    /// is one such call for each turn at most.
    Builders,
    Pure,
    Loading,
}

/// A queue that a call may not join, with its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueFull {
    /// So many calls of all agents are waiting already.
    All(usize),
    /// So many calls of this agent, which is as much of the queue as one agent may fill.
    OfAgent(usize),
}

impl fmt::Display for QueueFull {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueFull::All(calls) => write!(formatter, "a queue of {calls} calls, which is full"),
            QueueFull::OfAgent(calls) => {
                write!(formatter, "{calls} waiting calls of one agent, which is its share of the queue")
            }
        }
    }
}

pub(crate) struct Admission {
    calls: Arc<Lane>,
    pure: Arc<Lane>,
    loading: Arc<Lane>,
}

struct Lane(Mutex<Queue<Sender<Place>>>);

/// A place in a lane, with its memory. Both are free again when it is dropped.
pub(crate) struct Place {
    lane: Arc<Lane>,
    agent: Arc<str>,
    memory: u32,
}

/// A call that stands in the queue, until this is dropped.
struct Waiting<'a> {
    lane: &'a Arc<Lane>,
    agent: &'a Arc<str>,
    number: u64,
}

impl Admission {
    pub(crate) fn new(limits: HostLimits) -> Self {
        let reserved = limits.guest_memory / 8;
        let lane = |places, memory, queue, sharing| {
            let bounds = Bounds { places, memory: mebibytes(memory), queue, sharing };
            Arc::new(Lane(Mutex::new(Queue::new(bounds))))
        };
        let (calls, memory) = (limits.concurrent_calls.max(1), limits.guest_memory - 2 * reserved);
        Self {
            calls: lane(calls, memory, limits.queue, Sharing::ByAgent),
            pure: lane(PURE_CALLS, reserved, limits.queue, Sharing::ByAgent),
            // Loading is bounded by the loader already, and is nobody's in particular.
            loading: lane(LOADING, reserved, usize::MAX, Sharing::Whole),
        }
    }

    /// Waits for a place together with `memory` bytes. Dropping the future leaves the queue.
    pub(crate) async fn enter(&self, lane: LaneName, memory: usize, agent: &Arc<str>) -> Result<Place, QueueFull> {
        let (lane, joining) = match lane {
            LaneName::Calls => (&self.calls, Joining::WhereThereIsRoom),
            LaneName::Builders => (&self.calls, Joining::Always),
            LaneName::Pure => (&self.pure, Joining::WhereThereIsRoom),
            LaneName::Loading => (&self.loading, Joining::WhereThereIsRoom),
        };
        let memory = mebibytes(memory);
        loop {
            let (waiting, admitted) = match lane.ask(agent, memory, joining)? {
                Ok(place) => return Ok(place),
                Err(waiting) => waiting,
            };
            let place = admitted.await;
            drop(waiting);
            // Its other end stands in the queue until it is sent something.
            if let Ok(place) = place {
                return Ok(place);
            }
        }
    }
}

type Asked<'a> = Result<Place, (Waiting<'a>, Receiver<Place>)>;

impl Lane {
    fn ask<'a>(
        self: &'a Arc<Self>,
        agent: &'a Arc<str>,
        memory: u32,
        joining: Joining,
    ) -> Result<Asked<'a>, QueueFull> {
        let mut receiver = None;
        let bell = || {
            let (sender, admitted) = oneshot::channel();
            receiver = Some(admitted);
            sender
        };
        let entry = lock(&self.0).ask(agent, (memory, joining), bell)?;
        Ok(match (entry, receiver) {
            (Entry::Waits(number), Some(receiver)) => Err((Waiting { lane: self, agent, number }, receiver)),
            (Entry::Waits(_), None) => unreachable!("who waits has a bell"),
            (Entry::Admitted { memory }, _) => Ok(self.place(agent, memory)),
        })
    }

    fn place(self: &Arc<Self>, agent: &Arc<str>, memory: u32) -> Place {
        Place { lane: Arc::clone(self), agent: Arc::clone(agent), memory }
    }

    /// Not under the lock: a place that nobody takes any more is given back by being dropped.
    fn admit(self: &Arc<Self>, admitted: Vec<Admitted<Sender<Place>>>) {
        for Admitted { agent, memory, bell } in admitted {
            drop(bell.send(self.place(&agent, memory)));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let admitted = lock(&self.lane.0).release(&self.agent, self.memory);
        self.lane.admit(admitted);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let admitted = lock(&self.lane.0).leave(self.agent, self.number);
        self.lane.admit(admitted);
    }
}

fn mebibytes(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(MIB)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(concurrent_calls: usize, guest_memory: usize, queue: usize) -> Admission {
        Admission::new(HostLimits { guest_memory, concurrent_calls, queue, ..HostLimits::default() })
    }

    // P8: guest memory in all is bounded, and the queue before it too.
    #[tokio::test]
    async fn memory_is_shared_and_the_queue_is_bounded() {
        let agent: Arc<str> = "a".into();
        let admission = admission(64, 256 * MIB, 1);
        let first = admission.enter(LaneName::Calls, 128 * MIB, &agent).await.expect("room");
        let mut second = Box::pin(admission.enter(LaneName::Calls, 128 * MIB, &agent));
        assert!(futures::poll!(&mut second).is_pending(), "192 MiB hold one call of 128 MiB");
        let full = admission.enter(LaneName::Calls, 128 * MIB, &"b".into()).await;
        assert_eq!(full.err(), Some(QueueFull::All(1)));
        drop(first);
        second.await.expect("the place is free again");
    }

    // P8: an agent fills no more than its share of the queue, and who leaves it leaves room at once.
    #[tokio::test]
    async fn the_queue_is_shared_by_agents() {
        let (many, one): (Arc<str>, Arc<str>) = ("many".into(), "one".into());
        let admission = admission(1, 256 * MIB, 4);
        let running = admission.enter(LaneName::Calls, MIB, &many).await.expect("room");
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(admission.enter(LaneName::Calls, MIB, &many))).collect();
        for waiting in &mut waiting {
            assert!(futures::poll!(waiting).is_pending());
        }
        let full = admission.enter(LaneName::Calls, MIB, &many).await;
        assert_eq!(full.err(), Some(QueueFull::OfAgent(3)));
        waiting.pop();
        let mut again = Box::pin(admission.enter(LaneName::Calls, MIB, &many));
        assert!(futures::poll!(&mut again).is_pending(), "who was cancelled has left its room");
        let mut other = Box::pin(admission.enter(LaneName::Calls, MIB, &one));
        assert!(futures::poll!(&mut other).is_pending(), "there is room for others");
        drop(running);
        other.await.expect("it is the other agent's turn");
    }

    // P8: a queue that others have filled ends no turn: its context builder waits in it at any time.
    #[tokio::test]
    async fn a_context_builder_may_always_wait() {
        let agent: Arc<str> = "a".into();
        let admission = admission(1, 256 * MIB, 0);
        let running = admission.enter(LaneName::Calls, MIB, &agent).await.expect("room");
        assert!(admission.enter(LaneName::Calls, MIB, &agent).await.is_err());
        let mut builder = Box::pin(admission.enter(LaneName::Builders, MIB, &agent));
        assert!(futures::poll!(&mut builder).is_pending(), "there is one place");
        drop(running);
        builder.await.expect("the place is free again");
    }

    // Row 35: full lanes of tools leave the validators' lane alone.
    #[tokio::test]
    async fn validators_have_a_lane_of_their_own() {
        let agent: Arc<str> = "a".into();
        let admission = admission(1, 256 * MIB, 0);
        let _tool = admission.enter(LaneName::Calls, MIB, &agent).await.expect("room");
        assert!(admission.enter(LaneName::Calls, MIB, &agent).await.is_err());
        admission.enter(LaneName::Pure, MIB, &agent).await.expect("the other lane is empty");
    }

    // Row 10: a place that was given to who is just leaving is given to the next.
    #[tokio::test]
    async fn a_place_is_not_lost_with_who_leaves() {
        let agent: Arc<str> = "a".into();
        let admission = admission(1, 256 * MIB, 8);
        let running = admission.enter(LaneName::Calls, MIB, &agent).await.expect("room");
        let mut first = Box::pin(admission.enter(LaneName::Calls, MIB, &agent));
        let mut second = Box::pin(admission.enter(LaneName::Calls, MIB, &agent));
        assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_pending());
        drop(running);
        drop(first);
        second.await.expect("the place of the one that left");
    }
}
