//! Who may run: places and guest memory per lane, and a bounded queue before them. The pool of instances is never
//! exhausted, because every instance has a place here first.

use crate::limits::{HostLimits, LOADING, MIB, PURE_CALLS};
use crate::turns::{Turn, Turns};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Which queue a call stands in. A lane of their own keeps validators and policies in time however many tools run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneName {
    Calls,
    Pure,
    Loading,
}

/// The queue is full.
#[derive(Debug)]
pub(crate) struct QueueFull(pub(crate) usize);

pub(crate) struct Admission {
    calls: Lane,
    pure: Lane,
    loading: Lane,
}

impl Admission {
    pub(crate) fn new(limits: HostLimits) -> Self {
        let reserved = limits.guest_memory / 8;
        Self {
            calls: Lane::new(limits.concurrent_calls.max(1), limits.guest_memory - 2 * reserved, limits.queue),
            pure: Lane::new(PURE_CALLS, reserved, limits.queue),
            // Loading is bounded by the loader already; a full queue there would only be a puzzle.
            loading: Lane::new(LOADING, reserved, usize::MAX),
        }
    }

    /// Waits for a place, in which agents take turns, and for `memory` bytes.
    pub(crate) async fn enter(&self, lane: LaneName, memory: usize, agent: &Arc<str>) -> Result<Place, QueueFull> {
        let lane = match lane {
            LaneName::Calls => &self.calls,
            LaneName::Pure => &self.pure,
            LaneName::Loading => &self.loading,
        };
        lane.enter(memory, agent).await
    }
}

/// A place in a lane, with its memory. Both are free again when it is dropped.
pub(crate) struct Place {
    _memory: OwnedSemaphorePermit,
    _place: Turn,
}

struct Lane {
    places: Arc<Turns>,
    memory: Arc<Semaphore>,
    memory_in_all: u32,
    waiting: AtomicUsize,
    queue: usize,
}

impl Lane {
    fn new(places: usize, memory: usize, queue: usize) -> Self {
        let memory = mebibytes(memory).max(1);
        Self {
            places: Turns::new(places),
            memory: Arc::new(Semaphore::new(memory as usize)),
            memory_in_all: memory,
            waiting: AtomicUsize::new(0),
            queue,
        }
    }

    async fn enter(&self, memory: usize, agent: &Arc<str>) -> Result<Place, QueueFull> {
        // A call larger than the whole lane runs alone.
        let memory = mebibytes(memory).clamp(1, self.memory_in_all);
        if let Some(place) = self.places.try_acquire()
            && let Ok(share) = Arc::clone(&self.memory).try_acquire_many_owned(memory)
        {
            return Ok(Place { _memory: share, _place: place });
        }
        let _waiting = Waiting::new(self)?;
        let place = self.places.acquire(agent).await;
        let share = Arc::clone(&self.memory).acquire_many_owned(memory).await.map_err(|_| QueueFull(self.queue))?;
        Ok(Place { _memory: share, _place: place })
    }
}

/// Counted while it waits, also when the waiting call is cancelled.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(lane: &'a Lane) -> Result<Self, QueueFull> {
        if lane.waiting.fetch_add(1, Ordering::Relaxed) >= lane.queue {
            lane.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(QueueFull(lane.queue));
        }
        Ok(Self(&lane.waiting))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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
        assert!(matches!(admission.enter(LaneName::Calls, 128 * MIB, &agent).await, Err(QueueFull(1))));
        drop(first);
        second.await.expect("the place is free again");
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
}
