//! A new version of a plugin on trial: what its first calls come to (P10).

use crate::failure::CallFailure;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// Calls of a trial.
pub const TRIAL_CALLS: u32 = 10;
/// So many of them that crash or run into a limit fail it.
pub const TRIAL_TRAPS: u32 = 3;

/// What calls of a trial came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrialCounts {
    /// All that count.
    pub calls: u32,
    /// Those of them that crashed, ran into a limit, or broke the contract.
    pub traps: u32,
}

impl TrialCounts {
    /// Whether three of the first ten calls have trapped.
    pub fn is_failed(self) -> bool {
        self.traps >= TRIAL_TRAPS
    }

    /// Whether there is nothing left to wait for.
    pub fn is_over(self) -> bool {
        self.is_failed() || self.calls >= TRIAL_CALLS
    }
}

/// The trial of one version, whoever calls it. Counting takes no lock.
#[derive(Debug)]
pub struct Trial {
    /// Calls in the upper half, those that trapped in the lower one.
    counts: AtomicU64,
    /// As much of that as is written down.
    written: AtomicU64,
    trapped: Arc<Notify>,
}

impl Trial {
    /// One that goes on from these counts, and tells of each trap.
    pub fn new(begun_with: TrialCounts, trapped: Arc<Notify>) -> Self {
        let begun_with = join(begun_with);
        Self { counts: AtomicU64::new(begun_with), written: AtomicU64::new(begun_with), trapped }
    }

    /// What there is so far.
    pub fn counts(&self) -> TrialCounts {
        split(self.counts.load(Ordering::Acquire))
    }

    /// What is not written down yet.
    pub fn unwritten(&self) -> TrialCounts {
        let (all, written) = (self.counts(), split(self.written.load(Ordering::Acquire)));
        TrialCounts { calls: all.calls.saturating_sub(written.calls), traps: all.traps.saturating_sub(written.traps) }
    }

    /// Takes what is not written down yet, so that nobody else writes it: whoever takes it writes it, or gives it back.
    pub fn take_unwritten(&self) -> TrialCounts {
        let now = self.counts.load(Ordering::Acquire);
        let (all, written) = (split(now), split(self.written.swap(now, Ordering::AcqRel)));
        TrialCounts { calls: all.calls.saturating_sub(written.calls), traps: all.traps.saturating_sub(written.traps) }
    }

    /// It could not be written down.
    pub fn give_back(&self, counts: TrialCounts) {
        self.written.fetch_sub(join(counts), Ordering::AcqRel);
    }

    /// Counts a call that ran. A typed error is an answer; a full queue or a missing directory is not the guest's doing.
    pub(crate) fn note<T>(&self, result: &Result<T, CallFailure>) {
        let traps = match result {
            Ok(_) => 0,
            // It was told, and says so: the outside world is not its doing.
            Err(CallFailure::Limit { limit, .. }) if limit.is_of_requests() => 0,
            Err(CallFailure::Trap { .. } | CallFailure::Limit { .. } | CallFailure::InvalidResult { .. }) => 1,
            Err(_) => return,
        };
        let count = |counts: u64| {
            let counts = split(counts);
            let more = TrialCounts { calls: counts.calls + 1, traps: counts.traps + traps };
            (counts.calls < TRIAL_CALLS).then(|| join(more))
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
    use crate::admission::QueueFull;
    use crate::identity::PluginIdentity;
    use agent_core::message::Digest;

    fn trial_of(calls: &[bool]) -> bool {
        trial_from(TrialCounts::default(), calls).counts().is_failed()
    }

    fn trial_from(begun_with: TrialCounts, calls: &[bool]) -> Trial {
        let trial = Trial::new(begun_with, Arc::default());
        let plugin = Arc::new(PluginIdentity { name: "p".to_owned(), digest: Digest::from_sha256([1; 32]) });
        for works in calls {
            let trapped = || CallFailure::Trap { plugin: plugin.clone(), message: "unreachable".to_owned() };
            trial.note(&if *works { Ok(()) } else { Err(trapped()) });
        }
        trial
    }

    /// P10: three of the first ten, and nothing that comes later.
    #[test]
    fn p10_three_traps_of_the_first_ten_calls_fail_a_trial() {
        let (works, traps) = (true, false);
        assert!(trial_of(&[traps, traps, traps]));
        assert!(!trial_of(&[traps, traps, works]));
        let late = [[works; 7].as_slice(), &[traps; 3]].concat();
        assert!(trial_of(&late), "the tenth counts");
        let too_late = [[works; 8].as_slice(), &[traps; 9]].concat();
        assert!(!trial_of(&too_late), "the eleventh does not");
    }

    /// P10: a trial is one over all processes; each writes down what it has added.
    #[test]
    fn p10_a_trial_goes_on_where_another_process_left_it() {
        let (works, traps) = (true, false);
        let left = TrialCounts { calls: 4, traps: 2 };
        let trial = trial_from(left, &[works, traps]);
        assert!(trial.counts().is_failed() && trial.counts().is_over());
        assert_eq!(trial.unwritten(), TrialCounts { calls: 2, traps: 1 });
        let taken = trial.take_unwritten();
        assert_eq!((taken, trial.unwritten()), (TrialCounts { calls: 2, traps: 1 }, TrialCounts::default()));
        trial.give_back(taken);
        assert_eq!(trial.take_unwritten(), taken);
        let trial = trial_from(left, &[works; 6]);
        assert!(trial.counts().is_over() && !trial.counts().is_failed());
    }

    #[test]
    fn p10_a_full_queue_is_nobodys_trap() {
        let trial = Trial::new(TrialCounts::default(), Arc::default());
        let plugin = Arc::new(PluginIdentity { name: "p".to_owned(), digest: Digest::from_sha256([1; 32]) });
        for _ in 0..5 {
            trial.note::<()>(&Err(CallFailure::Busy { plugin: plugin.clone(), full: QueueFull::All(1) }));
        }
        assert_eq!(trial.counts(), TrialCounts::default());
    }
}
