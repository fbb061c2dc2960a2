//! Limits how many lines the events of one table add to the log. Whoever may publish events could otherwise fill it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of lines within [`PERIOD`].
const LINES: u32 = 10;
const PERIOD: Duration = Duration::from_secs(60);

/// The lines of one table.
pub(super) struct LogLimit(Mutex<State>);

struct State {
    period_begun: Instant,
    /// Number of lines since then.
    lines: u32,
    /// Number of lines that were left out since the last line.
    left_out: u64,
}

impl LogLimit {
    pub(super) fn new(now: Instant) -> Self {
        Self(Mutex::new(State { period_begun: now, lines: 0, left_out: 0 }))
    }

    /// Returns how many lines were left out before this line, or `None` if this line must be left out as well.
    pub(super) fn next(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now.duration_since(state.period_begun) >= PERIOD {
            (state.period_begun, state.lines) = (now, 0);
        }
        if state.lines >= LINES {
            state.left_out += 1;
            return None;
        }
        state.lines += 1;
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I6: the log has few lines about any number of events, and says how many were left out.
    #[test]
    fn i6_many_refused_events_lead_to_few_lines() {
        let begun = Instant::now();
        let limit = LogLimit::new(begun);
        let lines = (0..1_000).filter_map(|_| limit.next(begun)).count();
        assert_eq!(lines, LINES as usize);
        assert_eq!(limit.next(begun + PERIOD), Some(990));
        assert_eq!(limit.next(begun + PERIOD), Some(0));
    }
}
