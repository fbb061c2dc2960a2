//! Where the next read of the outbox begins.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Time within which most commits become visible. Each read repeats the numbers that were reached within this time.
const SHORT_LOOK_BACK: Duration = Duration::from_secs(2);
/// Time within which nearly all commits become visible. A process that stops in a commit loses its connection after a few
/// seconds, and a commit that waits for a lock fails after half a minute. Only a commit that waits for a standby can take longer.
const LONG_LOOK_BACK: Duration = Duration::from_secs(120);
/// Time between two reads that repeat the numbers of [`LONG_LOOK_BACK`].
const LONG_INTERVAL: Duration = Duration::from_secs(10);
/// Time between the first two reads of all items, which finds items whose commits ran when the reader started.
const FIRST_FULL_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum time between two reads of all items. So each item is found, however late it becomes visible.
const LONGEST_FULL_INTERVAL: Duration = Duration::from_secs(300);
/// Minimum time between two remembered positions.
const RESOLUTION: Duration = Duration::from_millis(100);

/// The position of a reader of all sessions. An item may become visible after an item of another session with a higher number
/// (see [`agent_store::Outbox::outbox`]), so the reader looks back: always a little, sometimes far, and rarely to the beginning.
pub(super) struct ReadPosition {
    /// The highest number that was read.
    highest: u64,
    /// Earlier values of `highest`, oldest first, each with a time at which it had been reached. Only the first one may be older
    /// than the long look-back.
    earlier: VecDeque<(Instant, u64)>,
    /// Time of the last complete read that looked far back.
    looked_far_back: Option<Instant>,
    /// Time of the last complete read of all items. `None` if the next read must be one.
    read_all: Option<Instant>,
    full_interval: Duration,
}

/// A read that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    /// The number after which the read begins.
    pub(super) start: u64,
    begun: Instant,
    reach: Reach,
}

/// How far a read looks back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Near,
    Far,
    All,
}

impl Default for ReadPosition {
    fn default() -> Self {
        let earlier = VecDeque::new();
        Self { highest: 0, earlier, looked_far_back: None, read_all: None, full_interval: FIRST_FULL_INTERVAL }
    }
}

impl ReadPosition {
    /// Begins a read, and decides how far it looks back.
    pub(super) fn begin(&self, now: Instant) -> Read {
        let is_due = |last: Option<Instant>, interval| last.is_none_or(|last| now.duration_since(last) >= interval);
        let reach = match () {
            () if is_due(self.read_all, self.full_interval) => Reach::All,
            () if is_due(self.looked_far_back, LONG_INTERVAL) => Reach::Far,
            () => Reach::Near,
        };
        let reached_before = |look_back| {
            let reached = self.earlier.iter().rev().find(|(time, _)| now.duration_since(*time) >= look_back);
            reached.or(self.earlier.front()).map_or(0, |(_, number)| *number)
        };
        let start = match reach {
            Reach::Near => reached_before(SHORT_LOOK_BACK),
            Reach::Far => reached_before(LONG_LOOK_BACK),
            Reach::All => 0,
        };
        Read { start, begun: now, reach }
    }

    /// Records that a read is complete: it has seen all items after its start that were visible, up to a number.
    pub(super) fn complete(&mut self, read: Read, ended: Instant, number: u64) {
        if read.reach == Reach::All {
            if self.read_all.is_some() {
                self.full_interval = (self.full_interval * 6).min(LONGEST_FULL_INTERVAL);
            }
            self.read_all = Some(read.begun);
        }
        if read.reach != Reach::Near {
            self.looked_far_back = Some(read.begun);
        }
        self.highest = self.highest.max(number);
        if self.earlier.back().is_none_or(|(time, _)| ended.duration_since(*time) >= RESOLUTION) {
            self.earlier.push_back((ended, self.highest));
        }
        while self.earlier.get(1).is_some_and(|(time, _)| ended.duration_since(*time) >= LONG_LOOK_BACK) {
            self.earlier.pop_front();
        }
    }

    /// Makes the next read one of all items.
    pub(super) fn read_all_next(&mut self) {
        self.read_all = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: f64) -> Duration {
        Duration::from_secs_f64(count)
    }

    /// D6: an item that becomes visible late is read again soon, or at the next far read, or at the next read of all items.
    #[test]
    fn d6_every_item_is_read_however_late_it_becomes_visible() {
        let (begin, mut position) = (Instant::now(), ReadPosition::default());
        // The first read finds 1000 items, number 1000 + n is reached in second n, and a read takes no time.
        let mut starts = Vec::new();
        for step in 0..=2_000_u32 {
            let now = begin + seconds(f64::from(step) / 2.0);
            let read = position.begin(now);
            starts.push((now, read.start));
            position.complete(read, now, 1_000 + u64::from(step / 2));
        }
        let is_read_between = |number: u64, first: Duration, last: Duration| {
            starts.iter().any(|(time, start)| (begin + first..=begin + last).contains(time) && *start < 1_000 + number)
        };
        for number in 1..300 {
            let reached = Duration::from_secs(number);
            let is_read = |delay: f64, within: Duration| {
                let visible = reached + seconds(delay);
                is_read_between(number, visible, visible + within)
            };
            assert!([0.5, 1.5].iter().all(|delay| is_read(*delay, seconds(0.5))), "{number} soon");
            assert!([5.0, 60.0, 110.0].iter().all(|delay| is_read(*delay, LONG_INTERVAL)), "{number} later");
            assert!(is_read(300.0, LONGEST_FULL_INTERVAL), "{number} much later");
        }
        let near = starts.iter().filter(|(time, start)| *start + 4 >= 1_000 + time.duration_since(begin).as_secs());
        assert!(near.count() > 1_800, "most reads look back a little");
        assert!(starts.iter().filter(|(_, start)| *start == 0).count() < 12, "few reads begin at the beginning");
    }

    /// A read that fails leaves everything as it was, and an overflow leads to one read of all items.
    #[test]
    fn only_complete_reads_count() {
        let (begin, mut position) = (Instant::now(), ReadPosition::default());
        assert_eq!(position.begin(begin).reach, Reach::All);
        let read = position.begin(begin);
        assert_eq!(read.reach, Reach::All, "the first read has failed");
        position.complete(read, begin, 7);
        let next = position.begin(begin + seconds(0.1));
        assert_eq!((next.reach, next.start), (Reach::Near, 7));
        position.read_all_next();
        let all = position.begin(begin + seconds(0.2));
        assert_eq!((all.reach, all.start), (Reach::All, 0));
        position.complete(all, begin + seconds(0.3), 9);
        assert_eq!(position.begin(begin + seconds(0.4)).reach, Reach::Near);
    }

    #[test]
    fn many_reads_need_little_memory() {
        let (begin, mut position) = (Instant::now(), ReadPosition::default());
        for step in 0..1_000_000_u32 {
            let now = begin + Duration::from_millis(u64::from(step));
            position.complete(position.begin(now), now, u64::from(step));
        }
        assert!(position.earlier.len() <= 1_202, "{}", position.earlier.len());
    }
}
