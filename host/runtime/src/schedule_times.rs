//! The times at which a schedule begins turns (I9).

use cronexpr::{Crontab, MakeTimestamp, parse_crontab};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::collections::VecDeque;
use std::fmt;

/// Word with which an interval begins.
const EVERY: &str = "every";
/// Units of intervals, in minutes.
const UNITS: [(&str, i64); 3] = [("minute", 1), ("hour", 60), ("day", 24 * 60)];
/// Maximum length of an interval in minutes: one year.
const MAX_MINUTES: i64 = 366 * 24 * 60;
/// Number of milliseconds in a minute.
const MINUTE: i64 = 60_000;
/// Number of fields of a cron expression.
const CRON_FIELDS: usize = 5;

/// The times at which a schedule begins turns.
///
/// ```
/// use agent_runtime::ScheduleTimes;
///
/// let mornings = ScheduleTimes::parse("0 7 * * mon-fri", "Europe/Berlin")?;
/// let friday: jiff::Timestamp = "2026-11-27T06:00:00Z".parse().expect("a time");
/// assert_eq!(mornings.next_after(friday).map(|time| time.to_string()).as_deref(), Some("2026-11-30T06:00:00Z"));
/// # Ok::<(), agent_runtime::InvalidTimes>(())
/// ```
#[derive(Clone)]
pub struct ScheduleTimes {
    kind: Kind,
    time_zone: TimeZone,
    /// The configuration of the times, in one line.
    definition: String,
}

#[derive(Clone)]
enum Kind {
    Cron(Crontab),
    /// Multiples of an interval in milliseconds since the Unix epoch.
    Every(i64),
}

/// Why the times of a schedule cannot be used. Each message is the end of a sentence that begins with the times or with
/// the time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTimes {
    /// The text is neither a cron expression nor an interval.
    #[error("is neither a cron expression with five fields nor an interval")]
    Form,
    /// No time in the next four years matches the cron expression.
    #[error("matches no time in the next four years")]
    Never,
    /// The time zone is not in the IANA time zone database.
    #[error("is not the name of a time zone")]
    TimeZone,
}

impl ScheduleTimes {
    /// Reads the times of a schedule: a cron expression with the fields minute, hour, day of month, month and day of week,
    /// whose times are in the time zone, or an interval such as `every 15 minutes`, whose times are its multiples since the
    /// beginning of 1970 in UTC.
    ///
    /// A time that does not exist on the day on which summer time begins is skipped on this day. A time that exists twice on
    /// the day on which summer time ends counts twice.
    pub fn parse(text: &str, time_zone: &str) -> Result<Self, InvalidTimes> {
        let zone = TimeZone::get(time_zone).map_err(|_| InvalidTimes::TimeZone)?;
        let words: Vec<_> = text.split_whitespace().collect();
        let expression = words.join(" ");
        if words.first() == Some(&EVERY) {
            let kind = Kind::Every(interval_of(&words).ok_or(InvalidTimes::Form)?);
            return Ok(Self { kind, time_zone: zone, definition: expression });
        }
        if words.len() != CRON_FIELDS {
            return Err(InvalidTimes::Form);
        }
        let definition = format!("{expression} {time_zone}");
        let crontab = parse_crontab(&definition).map_err(|_| InvalidTimes::Form)?;
        let times = Self { kind: Kind::Cron(crontab), time_zone: zone, definition };
        if times.next_after(Timestamp::now()).is_some() { Ok(times) } else { Err(InvalidTimes::Never) }
    }

    /// Returns the first time after `time`. `None` if there is none in the next four years.
    pub fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        match &self.kind {
            Kind::Cron(crontab) => crontab.find_next(MakeTimestamp(time)).ok().map(|next| next.timestamp()),
            Kind::Every(interval) => {
                let next = time.as_millisecond().div_euclid(*interval).checked_add(1)?.checked_mul(*interval)?;
                Timestamp::from_millisecond(next).ok()
            }
        }
    }

    /// Returns the latest `count` times from `first`, which is one of the times, until `end`, oldest first.
    pub(crate) fn latest(&self, first: Timestamp, end: Timestamp, count: usize) -> Vec<Timestamp> {
        let mut start = first;
        if let Kind::Every(interval) = &self.kind {
            // An interval may have passed many times, so the times are computed from the end.
            let length = interval.saturating_mul(i64::try_from(count).unwrap_or(i64::MAX));
            let late = end.as_millisecond().saturating_sub(length).div_euclid(*interval).saturating_mul(*interval);
            start = Timestamp::from_millisecond(late).map_or(first, |late| first.max(late));
        }
        let mut times = VecDeque::new();
        let mut next = Some(start).filter(|start| *start <= end);
        while let Some(time) = next {
            if times.len() == count {
                times.pop_front();
            }
            times.push_back(time);
            next = self.next_after(time).filter(|next| *next <= end);
        }
        times.into()
    }

    /// Returns the configuration of the times in one line, such as `0 7 * * mon-fri Europe/Berlin`.
    pub fn definition(&self) -> &str {
        &self.definition
    }

    /// Writes one of the times in the time zone of the schedule, such as `2026-11-27T07:00:00+01:00`.
    pub fn display(&self, time: Timestamp) -> String {
        time.display_with_offset(self.time_zone.to_offset(time)).to_string()
    }
}

impl PartialEq for ScheduleTimes {
    fn eq(&self, other: &Self) -> bool {
        self.definition == other.definition
    }
}

impl fmt::Debug for ScheduleTimes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("ScheduleTimes").field(&self.definition).finish()
    }
}

/// Reads an interval such as `every 15 minutes`. Returns its length in milliseconds.
fn interval_of(words: &[&str]) -> Option<i64> {
    let [_, number, unit] = words else { return None };
    let number: i64 = number.parse().ok().filter(|number| *number > 0)?;
    let (_, minutes) = UNITS.into_iter().find(|(name, _)| unit.strip_suffix('s').unwrap_or(unit) == *name)?;
    let minutes = number.checked_mul(minutes).filter(|minutes| *minutes <= MAX_MINUTES)?;
    Some(minutes * MINUTE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    fn shown(times: &[Timestamp]) -> Vec<String> {
        times.iter().map(Timestamp::to_string).collect()
    }

    fn times(text: &str, time_zone: &str) -> ScheduleTimes {
        ScheduleTimes::parse(text, time_zone).unwrap_or_else(|error| panic!("{text} {error}"))
    }

    /// I9: the times of a cron expression follow the clock of the time zone, also when summer time begins and ends.
    #[test]
    fn i9_cron_times_follow_the_time_zone() {
        let daily = times(" 30  2 * * * ", "Europe/Berlin");
        assert_eq!(daily.definition(), "30 2 * * * Europe/Berlin");
        let next = |after: &str| daily.next_after(time(after)).map(|next| daily.display(next)).expect("a next time");
        assert_eq!(next("2026-11-27T00:00:00Z"), "2026-11-27T02:30:00+01:00");
        // The clock goes from 02:00 to 03:00 on 2027-03-28, and from 03:00 to 02:00 on 2027-10-31.
        assert_eq!(next("2027-03-27T12:00:00Z"), "2027-03-29T02:30:00+02:00");
        let autumn = daily.latest(time("2027-10-31T00:30:00Z"), time("2027-11-01T12:00:00Z"), 9);
        assert_eq!(shown(&autumn), ["2027-10-31T00:30:00Z", "2027-10-31T01:30:00Z", "2027-11-01T01:30:00Z"]);
    }

    #[test]
    fn i9_intervals_are_multiples_since_the_epoch() {
        let hourly = times("every 1 hour", "Europe/Berlin");
        assert_eq!(hourly.definition(), "every 1 hour");
        assert_eq!(hourly.next_after(time("2026-11-27T16:00:00Z")), Some(time("2026-11-27T17:00:00Z")));
        assert_eq!(hourly.next_after(time("2026-11-27T16:59:59.999Z")), Some(time("2026-11-27T17:00:00Z")));
        let latest = hourly.latest(time("1970-01-01T01:00:00Z"), time("2026-11-27T16:10:00Z"), 2);
        assert_eq!(shown(&latest), ["2026-11-27T15:00:00Z", "2026-11-27T16:00:00Z"]);
        let first = hourly.latest(time("2026-11-27T16:00:00Z"), time("2026-11-27T16:10:00Z"), 9);
        assert_eq!(shown(&first), ["2026-11-27T16:00:00Z"]);
        assert_eq!(hourly.latest(time("2026-11-27T17:00:00Z"), time("2026-11-27T16:10:00Z"), 9), []);
        let quarters = times("every 15 minutes", "UTC");
        assert_eq!(quarters.next_after(time("2026-11-27T16:07:00Z")), Some(time("2026-11-27T16:15:00Z")));
    }

    #[test]
    fn i9_invalid_times_are_refused() {
        let problem = |text, zone| ScheduleTimes::parse(text, zone).map(|_| ()).expect_err("invalid");
        let wrong = [
            "",
            "* * * *",
            "* * * * * *",
            "61 * * * *",
            "a b c d e",
            "@daily",
            "every",
            "every 5",
            "every 0 minutes",
            "every -1 days",
            "every 1.5 hours",
            "every 3 weeks",
            "every 9999999 days",
            "every 15 minutes UTC",
        ];
        for text in wrong {
            assert_eq!(problem(text, "UTC"), InvalidTimes::Form, "{text}");
        }
        assert_eq!(problem("0 0 31 2 *", "UTC"), InvalidTimes::Never);
        for zone in ["", "Berlin", "Europe/Nowhere", "../../etc/passwd", "UTC\n"] {
            assert_eq!(problem("* * * * *", zone), InvalidTimes::TimeZone, "{zone}");
        }
    }
}
