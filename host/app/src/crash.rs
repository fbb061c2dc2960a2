//! For crash tests, in debug builds only: `AGENT_HOST_KILL_AT=NAME[:N]` kills the process when the checkpoint NAME is
//! passed for the N-th time (limits and threats, row 27).

use crate::environment;
use agent_core::message::CallId;
use agent_runtime::CheckpointObserver;
use rustix::process::{Signal, getpid, kill_process};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the runtime tells of its checkpoints, where the variable is set.
pub(crate) fn observer() -> Option<CheckpointObserver> {
    let (name, nth) = parse(&environment::variable("AGENT_HOST_KILL_AT")?);
    let passed = AtomicU64::new(0);
    Some(Arc::new(move |checkpoint| {
        // An id's ending, which differs from session to session, is left out.
        let text = checkpoint.to_string();
        if (text == name || CallId(text).is_named(&name)) && passed.fetch_add(1, Ordering::SeqCst) + 1 == nth {
            // Not `exit` or `abort`: nothing may be flushed, closed or unwound.
            let _ = kill_process(getpid(), Signal::KILL);
        }
    }))
}

/// Names hold colons themselves, so only a number at the end counts.
fn parse(text: &str) -> (String, u64) {
    match text.rsplit_once(':').map(|(name, nth)| (name, nth.parse())) {
        Some((name, Ok(nth))) => (name.to_owned(), nth),
        _ => (text.to_owned(), 1),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_number_at_the_end_says_which_time() {
        let cases = [
            ("after-model", ("after-model", 1)),
            ("after-model:3", ("after-model", 3)),
            ("before-commit:reply", ("before-commit:reply", 1)),
            ("before-commit:reply:2", ("before-commit:reply", 2)),
        ];
        for (text, (name, nth)) in cases {
            assert_eq!(parse(text), (name.to_owned(), nth));
        }
    }
}
