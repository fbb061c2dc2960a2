//! Where the next read of the outbox begins.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Time within which most commits become visible. Each read repeats the numbers that were first read within this time.
const SHORT_LOOK_BACK: Duration = Duration::from_secs(2);
/// Maximum time after which a commit becomes visible that has numbered an item. A process that stops in a commit loses its
/// connection after a few seconds, and a commit that waits for a lock fails after half a minute.
const LONG_LOOK_BACK: Duration = Duration::from_secs(120);
/// Time between two reads that repeat the numbers of [`LONG_LOOK_BACK`].
const LONG_INTERVAL: Duration = Duration::from_secs(10);
/// Minimum time between two remembered positions.
const RESOLUTION: Duration = Duration::from_millis(100);

/// The position of a reader of all sessions. An item may become visible after an item of another session with a higher number
/// (see [`agent_store::Outbox::outbox`]), so the reader looks back: always a little, and sometimes far.
#[derive(Default)]
pub(super) struct ReadPosition {
    /// The highest number that was read.
    highest: u64,
    /// Earlier values of `highest`, oldest first, each with a time at which it was reached. Only the first one may be older
    /// than the long look-back.
    earlier: VecDeque<(Instant, u64)>,
    /// Time of the last read that looked far back.
    looked_far_back: Option<Instant>,
}

impl ReadPosition {
    /// Returns the number after which a read begins.
    pub(super) fn start(&mut self, now: Instant) -> u64 {
        let is_far = self.looked_far_back.is_none_or(|last| now.duration_since(last) >= LONG_INTERVAL);
        if is_far {
            self.looked_far_back = Some(now);
        }
        let look_back = if is_far { LONG_LOOK_BACK } else { SHORT_LOOK_BACK };
        let reached = self.earlier.iter().rev().find(|(time, _)| now.duration_since(*time) >= look_back);
        reached.map_or(0, |(_, number)| *number)
    }

    /// Records that a read has begun at this time and has seen all visible items up to a number.
    pub(super) fn advance(&mut self, begun: Instant, number: u64) {
        self.highest = self.highest.max(number);
        if self.earlier.back().is_none_or(|(time, _)| begun.duration_since(*time) >= RESOLUTION) {
            self.earlier.push_back((begun, self.highest));
        }
        while self.earlier.get(1).is_some_and(|(time, _)| begun.duration_since(*time) >= LONG_LOOK_BACK) {
            self.earlier.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: f64) -> Duration {
        Duration::from_secs_f64(count)
    }

    /// D6: an item that becomes visible late is read again soon, or within the interval of the long look-back.
    #[test]
    fn d6_every_number_is_read_until_its_commit_must_be_visible() {
        let (begin, mut position) = (Instant::now(), ReadPosition::default());
        // Number n is reached in second n.
        let mut starts = Vec::new();
        for step in 1..=1_000_u32 {
            let now = begin + seconds(f64::from(step) / 2.0);
            starts.push((now, position.start(now)));
            position.advance(now, u64::from(step / 2));
        }
        let is_read_between = |number: u64, first: Duration, last: Duration| {
            starts.iter().any(|(time, start)| (begin + first..=begin + last).contains(time) && *start < number)
        };
        for number in 1..300 {
            let reached = Duration::from_secs(number);
            for delay in [seconds(0.5), seconds(1.5)] {
                let visible = reached + delay;
                assert!(is_read_between(number, visible, visible + seconds(0.5)), "{number} after {delay:?}");
            }
            for delay in [seconds(5.0), seconds(60.0), seconds(110.0)] {
                let visible = reached + delay;
                assert!(is_read_between(number, visible, visible + LONG_INTERVAL), "{number} after {delay:?}");
            }
        }
        let near = starts.iter().filter(|(time, start)| {
            let second = time.duration_since(begin).as_secs();
            second > 10 && *start + 4 >= second
        });
        assert!(near.count() > 900, "most reads look back a little");
        assert!(position.earlier.len() < 1_300, "{}", position.earlier.len());
    }

    #[test]
    fn many_reads_need_little_memory() {
        let (begin, mut position) = (Instant::now(), ReadPosition::default());
        for step in 0..1_000_000_u32 {
            position.advance(begin + Duration::from_millis(u64::from(step)), u64::from(step));
        }
        assert!(position.earlier.len() <= 1_202, "{}", position.earlier.len());
    }
}
