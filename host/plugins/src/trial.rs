//! A new version of a plugin on trial: what its first calls come to (P10).

use crate::failure::CallFailure;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// Calls of a trial.
pub const TRIAL_CALLS: u32 = 10;
/// So many of them that crash or run into a limit fail it.
pub const TRIAL_TRAPS: u32 = 3;

/// The trial of one version, whoever calls it. Counting takes no lock.
#[derive(Debug)]
pub struct Trial {
    /// Calls in the upper half, those that trapped in the lower one.
    counts: AtomicU64,
    failed: Arc<Notify>,
}

impl Trial {
    /// One that tells of its failure.
    pub fn new(failed: Arc<Notify>) -> Self {
        Self { counts: AtomicU64::new(0), failed }
    }

    /// Whether three of the first ten calls have trapped.
    pub fn is_failed(&self) -> bool {
        split(self.counts.load(Ordering::Acquire)).1 >= TRIAL_TRAPS
    }

    /// Counts a call that ran. A typed error is an answer; a full queue or a missing directory is not the guest's doing.
    pub(crate) fn note<T>(&self, result: &Result<T, CallFailure>) {
        let trapped = match result {
            Ok(_) => 0,
            Err(CallFailure::Trap { .. } | CallFailure::Limit { .. } | CallFailure::InvalidResult { .. }) => 1,
            Err(_) => return,
        };
        let count = |counts: u64| {
            let (calls, traps) = split(counts);
            (calls < TRIAL_CALLS).then(|| join(calls + 1, traps + trapped))
        };
        let counted = self.counts.fetch_update(Ordering::AcqRel, Ordering::Acquire, count);
        if counted.is_ok_and(|before| split(before).1 + trapped == TRIAL_TRAPS && trapped == 1) {
            self.failed.notify_one();
        }
    }
}

fn split(counts: u64) -> (u32, u32) {
    ((counts >> 32) as u32, counts as u32)
}

fn join(calls: u32, traps: u32) -> u64 {
    u64::from(calls) << 32 | u64::from(traps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::PluginIdentity;
    use agent_core::message::Digest;

    fn trial_of(calls: &[bool]) -> bool {
        let trial = Trial::new(Arc::default());
        let plugin = Arc::new(PluginIdentity { name: "p".to_owned(), digest: Digest::from_sha256([1; 32]) });
        for works in calls {
            let trapped = || CallFailure::Trap { plugin: plugin.clone(), message: "unreachable".to_owned() };
            trial.note(&if *works { Ok(()) } else { Err(trapped()) });
        }
        trial.is_failed()
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

    #[test]
    fn p10_a_full_queue_is_nobodys_trap() {
        let trial = Trial::new(Arc::default());
        let plugin = Arc::new(PluginIdentity { name: "p".to_owned(), digest: Digest::from_sha256([1; 32]) });
        for _ in 0..5 {
            trial.note::<()>(&Err(CallFailure::Busy { plugin: plugin.clone(), queue: 1 }));
        }
        assert!(!trial.is_failed());
        assert_eq!(split(trial.counts.load(Ordering::Relaxed)), (0, 0));
    }
}
