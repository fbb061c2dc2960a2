//! The days of a report of usage, in a time zone (O4).

use jiff::civil::Date;
use jiff::tz::TimeZone;

/// Maximum number of days of a report: ten years.
pub const MAX_REPORTED_DAYS: usize = 3_660;

/// The days of a report do not fit into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDays {
    /// There are too many days.
    #[error("a report has at most {MAX_REPORTED_DAYS} days")]
    TooMany,
    /// A day is outside of the range of the calendar.
    #[error("the calendar does not contain all of these days")]
    OutOfRange,
}

/// Returns the days from `first` to `last`, each with its beginning in the time zone in microseconds since the beginning of
/// 1970 in UTC. There is no day if `first` is after `last`.
///
/// ```
/// use agent_runtime::day_starts;
/// use jiff::{civil::date, tz::TimeZone};
///
/// let days = day_starts(date(1970, 1, 1), date(1970, 1, 2), &TimeZone::UTC)?;
/// assert_eq!(days, [(date(1970, 1, 1), 0), (date(1970, 1, 2), 86_400_000_000)]);
/// # Ok::<(), agent_runtime::InvalidDays>(())
/// ```
pub fn day_starts(first: Date, last: Date, zone: &TimeZone) -> Result<Vec<(Date, i64)>, InvalidDays> {
    let (mut days, mut day) = (Vec::new(), first);
    while day <= last {
        if days.len() == MAX_REPORTED_DAYS {
            return Err(InvalidDays::TooMany);
        }
        // A day without midnight begins later, with its first moment.
        let start = day.to_zoned(zone.clone()).and_then(|midnight| midnight.start_of_day());
        days.push((day, start.map_err(|_| InvalidDays::OutOfRange)?.timestamp().as_microsecond()));
        match day.tomorrow() {
            Ok(tomorrow) => day = tomorrow,
            Err(_) => break,
        }
    }
    Ok(days)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;

    #[test]
    fn o4_days_begin_at_midnight_of_the_time_zone() {
        let berlin = TimeZone::get("Europe/Berlin").expect("a time zone");
        let days = day_starts(date(2026, 3, 28), date(2026, 3, 30), &berlin).expect("three days");
        let hours = |left: usize| (days[left + 1].1 - days[left].1) / 3_600_000_000;
        assert_eq!((days.len(), hours(0), hours(1)), (3, 24, 23), "summer time begins on the second day");
        // In this time zone, the clocks skipped this day.
        let apia = TimeZone::get("Pacific/Apia").expect("a time zone");
        let days = day_starts(date(2011, 12, 29), date(2011, 12, 31), &apia).expect("days");
        assert!(days.is_sorted_by_key(|(_, start)| *start), "{days:?}");
    }

    #[test]
    fn o4_the_number_of_days_is_limited() {
        let days = |first, last| day_starts(first, last, &TimeZone::UTC);
        assert_eq!(days(date(2026, 1, 2), date(2026, 1, 1)), Ok(Vec::new()));
        assert_eq!(days(date(2016, 1, 1), date(2026, 1, 31)), Err(InvalidDays::TooMany));
        assert_eq!(days(Date::MAX, Date::MAX), Err(InvalidDays::OutOfRange));
    }
}
