//! The trial of a new version of a plugin: counts how many of the first calls to the new version fail (P10).

use super::failure::CallFailure;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// Number of calls in a trial.
pub const TRIAL_CALLS: u32 = 10;
/// Number of failed calls after which the trial has failed. A call fails if it crashes, reaches a limit or breaks
/// the contract.
pub const TRIAL_TRAPS: u32 = 3;

/// The number of calls in a trial, and how many of these calls failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrialCounts {
    /// Number of calls that were counted in the trial.
    pub calls: u32,
    /// Number of calls that crashed, reached a limit or broke the contract.
    pub traps: u32,
}

impl TrialCounts {
    /// Whether the trial has failed because too many calls failed.
    pub fn is_failed(self) -> bool {
        self.traps >= TRIAL_TRAPS
    }

    /// Whether the trial is over, because it has failed or because all of its calls have been made.
    pub fn is_over(self) -> bool {
        self.is_failed() || self.calls >= TRIAL_CALLS
    }
}

/// The trial of one plugin version. All callers count their calls in the same trial, without a lock.
#[derive(Debug)]
pub struct Trial {
    /// The number of calls in the upper 32 bits, and the number of failed calls in the lower 32 bits.
    counts: AtomicU64,
    /// The numbers of calls and failed calls that are already stored or are being stored, packed like `counts`.
    written: AtomicU64,
    trapped: Arc<Notify>,
}

impl Trial {
    /// Creates a trial that continues from stored counts. `trapped` is notified of each failed call.
    pub fn new(stored: TrialCounts, trapped: Arc<Notify>) -> Self {
        let stored = join(stored);
        Self { counts: AtomicU64::new(stored), written: AtomicU64::new(stored), trapped }
    }

    /// The numbers of calls and of failed calls that were counted so far.
    pub fn counts(&self) -> TrialCounts {
        split(self.counts.load(Ordering::Acquire))
    }

    /// The numbers of calls and of failed calls that were counted and are not stored yet.
    pub fn unwritten(&self) -> TrialCounts {
        let (all, written) = (self.counts(), split(self.written.load(Ordering::Acquire)));
        TrialCounts { calls: all.calls.saturating_sub(written.calls), traps: all.traps.saturating_sub(written.traps) }
    }

    /// Returns the counts that are not stored yet and marks them as stored, so that no other task stores the same
    /// counts. The caller must store the counts or, if it cannot, return them with [`Trial::give_back`].
    pub fn take_unwritten(&self) -> TrialCounts {
        let now = self.counts.load(Ordering::Acquire);
        let (all, written) = (split(now), split(self.written.swap(now, Ordering::AcqRel)));
        TrialCounts { calls: all.calls.saturating_sub(written.calls), traps: all.traps.saturating_sub(written.traps) }
    }

    /// Marks counts as not stored, because the caller took them with [`Trial::take_unwritten`] and could not
    /// store them.
    pub fn give_back(&self, counts: TrialCounts) {
        self.written.fetch_sub(join(counts), Ordering::AcqRel);
    }

    /// Counts a call for which the guest ran. An error that the guest's function returns does not count as a
    /// failure. A call that was refused before the guest ran, for example because of a full queue or a missing
    /// directory, is not counted.
    pub(crate) fn count_call<T>(&self, result: &Result<T, CallFailure>) {
        let traps = match result {
            Ok(_) => 0,
            // The guest's function returned an error after one of its requests had reached a limit. This error does
            // not count as a failure of the plugin, because the guest does not control external servers.
            Err(CallFailure::Limit { limit, .. }) if limit.is_request_limit() => 0,
            Err(CallFailure::Trap { .. } | CallFailure::Limit { .. } | CallFailure::InvalidResult { .. }) => 1,
            Err(_) => return,
        };
        let count = |counts: u64| {
            let counts = split(counts);
            let next = TrialCounts { calls: counts.calls + 1, traps: counts.traps + traps };
            (counts.calls < TRIAL_CALLS).then(|| join(next))
        };
        let counted = self.counts.fetch_update(Ordering::AcqRel, Ordering::Acquire, count);
        if counted.is_ok() && traps == 1 {
            self.trapped.notify_one();
        }
    }
}

fn split(counts: u64) -> TrialCounts {
    TrialCounts { calls: (counts >> 32) as u32, traps: counts as u32 }
}

fn join(counts: TrialCounts) -> u64 {
    u64::from(counts.calls) << 32 | u64::from(counts.traps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::admission::QueueFull;
    use crate::identity::PluginIdentity;
    use agent_core::message::Digest;

    fn trial_fails(calls: &[bool]) -> bool {
        trial_from(TrialCounts::default(), calls).counts().is_failed()
    }

    fn trial_from(stored: TrialCounts, calls: &[bool]) -> Trial {
        let trial = Trial::new(stored, Arc::default());
        let plugin = Arc::new(PluginIdentity { name: "p".to_owned(), digest: Digest::from_sha256([1; 32]) });
        for works in calls {
            let trapped = || CallFailure::Trap { plugin: plugin.clone(), message: "unreachable".to_owned() };
            trial.count_call(&if *works { Ok(()) } else { Err(trapped()) });
        }
        trial
    }

    /// P10: calls after the first ten are not counted.
    #[test]
    fn p10_trial_fails_after_three_traps_in_ten_calls() {
        let (works, traps) = (true, false);
        assert!(trial_fails(&[traps, traps, traps]));
        assert!(!trial_fails(&[traps, traps, works]));
        let late = [[works; 7].as_slice(), &[traps; 3]].concat();
        assert!(trial_fails(&late), "the tenth call counts");
        let too_late = [[works; 8].as_slice(), &[traps; 9]].concat();
        assert!(!trial_fails(&too_late), "the eleventh call does not count");
    }

    /// P10: all processes share the trial of a plugin version. Each process counts its own calls and adds these counts
    /// to the stored counts.
    #[test]
    fn p10_trial_continues_from_the_counts_of_another_process() {
        let (works, traps) = (true, false);
        let stored = TrialCounts { calls: 4, traps: 2 };
        let trial = trial_from(stored, &[works, traps]);
        assert!(trial.counts().is_failed() && trial.counts().is_over());
        assert_eq!(trial.unwritten(), TrialCounts { calls: 2, traps: 1 });
        let taken = trial.take_unwritten();
        assert_eq!((taken, trial.unwritten()), (TrialCounts { calls: 2, traps: 1 }, TrialCounts::default()));
        trial.give_back(taken);
        assert_eq!(trial.take_unwritten(), taken);
        let trial = trial_from(stored, &[works; 6]);
        assert!(trial.counts().is_over() && !trial.counts().is_failed());
    }

    #[test]
    fn p10_a_call_refused_by_a_full_queue_is_not_counted() {
        let trial = Trial::new(TrialCounts::default(), Arc::default());
        let plugin = Arc::new(PluginIdentity { name: "p".to_owned(), digest: Digest::from_sha256([1; 32]) });
        for _ in 0..5 {
            trial.count_call::<()>(&Err(CallFailure::Busy { plugin: plugin.clone(), full: QueueFull::All(1) }));
        }
        assert_eq!(trial.counts(), TrialCounts::default());
    }
}
