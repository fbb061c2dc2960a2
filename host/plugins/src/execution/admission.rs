//! Decides when a plugin call may start (P8). A call runs only when it has a permit of its lane. A call's permit
//! includes the memory for its guest. Calls without a permit wait in a queue of limited length. Every instance needs a
//! permit, so the engine's instance pool always has a free slot for an admitted call. Agents share the permits, the
//! memory and the queue, as described in [`queue`].

mod queue;

use super::observer::SandboxLoad;
use crate::limits::{HostLimits, MAX_LOADING_INSTANCES, MAX_PURE_CALLS, MIB};
use crate::sync::lock;
use queue::{Admitted, Bounds, PermitReply, Queue, QueuePolicy, Sharing};
use std::fmt;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot::{self, Receiver, Sender};

/// The lane in which a call waits for its permit. Output validators and media policies have their own lane, so that
/// they never have to wait for tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneName {
    Calls,
    /// Calls of context builders, which use the permits of `Calls`. A call of a context builder may wait even if the
    /// queue is full, because a turn cannot continue without its context. A turn makes at most one call to a context
    /// builder at a time.
    Builders,
    Pure,
    Loading,
}

/// The reason why a call cannot wait in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueFull {
    /// The queue of the lane is full. The value is the maximum number of calls that may wait in the queue.
    All(usize),
    /// The agent has used its share of the queue. The value is the number of the agent's waiting calls.
    OfAgent(usize),
}

impl fmt::Display for QueueFull {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueFull::All(calls) => write!(formatter, "the queue of {calls} calls is full"),
            QueueFull::OfAgent(calls) => {
                write!(formatter, "the agent already has {calls} waiting calls, which is its share of the queue")
            }
        }
    }
}

pub(crate) struct Admission {
    calls: Arc<Lane>,
    pure: Arc<Lane>,
    loading: Arc<Lane>,
}

struct Lane(Mutex<Queue<Sender<Permit>>>);

/// The permission to run one call in a lane, and to use a certain amount of memory for the call. When the permit is
/// dropped, a waiting call can get the permit and the memory.
pub(crate) struct Permit {
    lane: Arc<Lane>,
    agent: Arc<str>,
    memory: u32,
}

/// A call that waits in the queue of a lane. Dropping this value removes the call from the queue.
struct QueuedCall<'a> {
    lane: &'a Arc<Lane>,
    agent: &'a Arc<str>,
    number: u64,
}

impl Admission {
    pub(crate) fn new(limits: HostLimits) -> Self {
        let reserved = limits.guest_memory / 8;
        let lane = |permits, memory, queue, sharing| {
            let bounds = Bounds { permits, memory: mebibytes(memory), queue, sharing };
            Arc::new(Lane(Mutex::new(Queue::new(bounds))))
        };
        let (calls, memory) = (limits.concurrent_calls.max(1), limits.guest_memory - 2 * reserved);
        Self {
            calls: lane(calls, memory, limits.queue, Sharing::ByAgent),
            pure: lane(MAX_PURE_CALLS, reserved, limits.queue, Sharing::ByAgent),
            // The queue of the loading lane is not limited, because the loader limits the number of its calls. The
            // calls of the loading lane do not belong to an agent, so the lane has no limit for each agent.
            loading: lane(MAX_LOADING_INSTANCES, reserved, usize::MAX, Sharing::Whole),
        }
    }

    /// Returns the number of calls that run or wait in all lanes.
    pub(crate) fn load(&self) -> SandboxLoad {
        [&self.calls, &self.pure, &self.loading].into_iter().fold(SandboxLoad::default(), |sum, lane| {
            let load = lock(&lane.0).load();
            SandboxLoad {
                running: sum.running + load.running,
                waiting: sum.waiting + load.waiting,
                memory: sum.memory + load.memory,
            }
        })
    }

    /// Waits for a permit that includes `memory` bytes of guest memory. Dropping the future removes the call from
    /// the queue.
    pub(crate) async fn enter(&self, lane: LaneName, memory: usize, agent: &Arc<str>) -> Result<Permit, QueueFull> {
        let (lane, policy) = match lane {
            LaneName::Calls => (&self.calls, QueuePolicy::IfNotFull),
            LaneName::Builders => (&self.calls, QueuePolicy::Always),
            LaneName::Pure => (&self.pure, QueuePolicy::IfNotFull),
            LaneName::Loading => (&self.loading, QueuePolicy::IfNotFull),
        };
        let memory = mebibytes(memory);
        loop {
            let (queued, receiver) = match lane.request(agent, memory, policy)? {
                Ok(permit) => return Ok(permit),
                Err(queued) => queued,
            };
            let permit = receiver.await;
            drop(queued);
            // The receiver cannot fail, because the queue keeps the sender until a permit is sent.
            if let Ok(permit) = permit {
                return Ok(permit);
            }
        }
    }
}

/// The result of a request for a permit. If the call may run, the result is the permit. If the call has to wait, the
/// result is the queued call and the receiver for its permit.
type EnterResult<'a> = Result<Permit, (QueuedCall<'a>, Receiver<Permit>)>;

impl Lane {
    fn request<'a>(
        self: &'a Arc<Self>,
        agent: &'a Arc<str>,
        memory: u32,
        policy: QueuePolicy,
    ) -> Result<EnterResult<'a>, QueueFull> {
        let mut receiver = None;
        let notifier = || {
            let (sender, admitted) = oneshot::channel();
            receiver = Some(admitted);
            sender
        };
        let entry = lock(&self.0).request(agent, (memory, policy), notifier)?;
        Ok(match (entry, receiver) {
            (PermitReply::Queued(number), Some(receiver)) => Err((QueuedCall { lane: self, agent, number }, receiver)),
            (PermitReply::Queued(_), None) => unreachable!("a queued call has a notifier"),
            (PermitReply::Admitted { memory }, _) => Ok(self.permit(agent, memory)),
        })
    }

    fn permit(self: &Arc<Self>, agent: &Arc<str>, memory: u32) -> Permit {
        Permit { lane: Arc::clone(self), agent: Arc::clone(agent), memory }
    }

    /// Sends permits to the calls that were admitted. The caller must not hold the lock of the lane. If the receiver of
    /// a call has been dropped, this function drops the call's permit, and dropping a permit acquires the lock.
    fn admit(self: &Arc<Self>, admitted: Vec<Admitted<Sender<Permit>>>) {
        for Admitted { agent, memory, notifier } in admitted {
            drop(notifier.send(self.permit(&agent, memory)));
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let admitted = lock(&self.lane.0).release(&self.agent, self.memory);
        self.lane.admit(admitted);
    }
}

impl Drop for QueuedCall<'_> {
    fn drop(&mut self) {
        let admitted = lock(&self.lane.0).cancel(self.agent, self.number);
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

    // P8: the total guest memory and the queue are bounded.
    #[tokio::test]
    async fn p8_total_memory_and_queue_are_bounded() {
        let agent: Arc<str> = "a".into();
        let admission = admission(64, 256 * MIB, 1);
        let first = admission.enter(LaneName::Calls, 128 * MIB, &agent).await.expect("admitted");
        let mut second = Box::pin(admission.enter(LaneName::Calls, 128 * MIB, &agent));
        assert!(futures::poll!(&mut second).is_pending(), "192 MiB are enough for only one call of 128 MiB");
        let full = admission.enter(LaneName::Calls, 128 * MIB, &"b".into()).await;
        assert_eq!(full.err(), Some(QueueFull::All(1)));
        drop(first);
        second.await.expect("the permit is free again");
    }

    // P8: an agent cannot use more than its share of the queue, and a cancelled call is removed from the
    // queue immediately.
    #[tokio::test]
    async fn p8_queue_is_shared_by_agents() {
        let (many, one): (Arc<str>, Arc<str>) = ("many".into(), "one".into());
        let admission = admission(1, 256 * MIB, 4);
        let running = admission.enter(LaneName::Calls, MIB, &many).await.expect("admitted");
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(admission.enter(LaneName::Calls, MIB, &many))).collect();
        for waiting in &mut waiting {
            assert!(futures::poll!(waiting).is_pending());
        }
        let full = admission.enter(LaneName::Calls, MIB, &many).await;
        assert_eq!(full.err(), Some(QueueFull::OfAgent(3)));
        waiting.pop();
        let mut next = Box::pin(admission.enter(LaneName::Calls, MIB, &many));
        assert!(futures::poll!(&mut next).is_pending(), "the cancelled call has left the queue");
        let mut other = Box::pin(admission.enter(LaneName::Calls, MIB, &one));
        assert!(futures::poll!(&mut other).is_pending(), "the queue accepts calls of other agents");
        drop(running);
        other.await.expect("the other agent is next");
    }

    // P8: a turn does not fail if the queue is full, because the call of its context builder may always wait.
    #[tokio::test]
    async fn p8_context_builder_may_join_a_full_queue() {
        let agent: Arc<str> = "a".into();
        let admission = admission(1, 256 * MIB, 0);
        let running = admission.enter(LaneName::Calls, MIB, &agent).await.expect("admitted");
        assert!(admission.enter(LaneName::Calls, MIB, &agent).await.is_err());
        let mut builder = Box::pin(admission.enter(LaneName::Builders, MIB, &agent));
        assert!(futures::poll!(&mut builder).is_pending(), "there is only one permit");
        drop(running);
        builder.await.expect("the permit is free again");
    }

    // Row 35: output validators do not wait for tool calls, because they have their own lane.
    #[tokio::test]
    async fn row_35_validators_run_while_the_tool_lane_is_full() {
        let agent: Arc<str> = "a".into();
        let admission = admission(1, 256 * MIB, 0);
        let _tool = admission.enter(LaneName::Calls, MIB, &agent).await.expect("admitted");
        assert!(admission.enter(LaneName::Calls, MIB, &agent).await.is_err());
        admission.enter(LaneName::Pure, MIB, &agent).await.expect("the other lane is empty");
    }

    // Row 10: if a permit is sent to a call that is being cancelled, the next waiting call gets the permit.
    #[tokio::test]
    async fn row_10_permit_of_a_cancelled_call_is_used_by_the_next_call() {
        let agent: Arc<str> = "a".into();
        let admission = admission(1, 256 * MIB, 8);
        let running = admission.enter(LaneName::Calls, MIB, &agent).await.expect("admitted");
        let mut first = Box::pin(admission.enter(LaneName::Calls, MIB, &agent));
        let mut second = Box::pin(admission.enter(LaneName::Calls, MIB, &agent));
        assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_pending());
        drop(running);
        drop(first);
        second.await.expect("the permit of the cancelled call");
    }
}
