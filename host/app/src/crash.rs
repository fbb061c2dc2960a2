//! Crash tests, in debug builds only: `AGENT_HOST_KILL_AT=NAME[:N]` kills the process when the process passes the
//! checkpoint NAME for the N-th time (row 27 of `host/docs/threats.md`).

use crate::environment;
use agent_core::message::CallId;
use agent_runtime::CheckpointObserver;
use rustix::process::{Signal, getpid, kill_process};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns an observer that kills the process at the configured checkpoint. Returns None if `AGENT_HOST_KILL_AT` is
/// not set.
pub(crate) fn observer() -> Option<CheckpointObserver> {
    let (name, nth) = parse(&environment::variable("AGENT_HOST_KILL_AT")?);
    let passed = AtomicU64::new(0);
    Some(Arc::new(move |checkpoint| {
        // NAME may omit the suffix of a call id, because the suffix differs between sessions.
        let text = checkpoint.to_string();
        if (text == name || CallId(text).is_named(&name)) && passed.fetch_add(1, Ordering::SeqCst) + 1 == nth {
            // The process kills itself instead of calling `exit` or `abort`, so that nothing is flushed, closed
            // or unwound.
            let _ = kill_process(getpid(), Signal::KILL);
        }
    }))
}

/// Splits `NAME[:N]`. Names can contain colons, so only a number after the last colon is N. The default of N is 1.
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
    fn parses_trailing_number_as_count() {
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
