//! Command-line arguments of `usage`.

use clap::{Args, ValueEnum};
use jiff::civil::Date;
use jiff::{Span, ToSpan};

/// Arguments of `usage`.
#[derive(Debug, Args)]
#[command(after_help = "\
The report contains the calls of all sessions of this data folder or database, also of sessions that were
deleted. The cost is that of the models with a known price.

Example: the usage of each user in each month of the last year
  agent-host usage --since 365d --by month,user")]
pub(crate) struct UsageArguments {
    /// First day of the report: a day (2026-01-31), or an age in days or weeks (7d, 4w)
    #[arg(long, value_name = "DAY", default_value = "30d", value_parser = first_day)]
    pub(crate) since: FirstDay,
    /// What has a line of its own
    #[arg(long, value_name = "WHAT", value_enum, value_delimiter = ',', default_value = "day")]
    pub(crate) by: Vec<Group>,
    /// Only the usage of this agent
    #[arg(long, value_name = "AGENT")]
    pub(crate) of: Option<String>,
    /// Only the usage for this user
    #[arg(long, value_name = "NAME", value_parser = super::user_name)]
    pub(crate) user: Option<String>,
    /// Days of UTC instead of days of the local time zone
    #[arg(long)]
    pub(crate) utc: bool,
    /// Print one JSON line per line of the report
    #[arg(long)]
    pub(crate) json: bool,
}

/// What has a line of its own in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Group {
    /// Each day
    Day,
    /// Each month
    Month,
    /// Each agent
    Agent,
    /// Each user
    User,
}

/// The first day of a report.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FirstDay {
    /// A day of the calendar.
    Day(Date),
    /// The day that is this long before today.
    Age(Span),
}

fn first_day(text: &str) -> Result<FirstDay, String> {
    let message = || "write a day such as 2026-01-31, or an age such as 7d or 4w".to_owned();
    if let Ok(day) = text.parse::<Date>() {
        return Ok(FirstDay::Day(day));
    }
    let unit = text.chars().next_back().ok_or_else(message)?;
    let number: u16 = text[..text.len() - unit.len_utf8()].parse().map_err(|_| message())?;
    match unit {
        'd' => Ok(FirstDay::Age(i32::from(number).days())),
        'w' => Ok(FirstDay::Age(i32::from(number).weeks())),
        _ => Err(message()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;

    #[test]
    fn o4_the_first_day_is_a_day_or_an_age() {
        let day = |text: &str| match first_day(text)? {
            FirstDay::Day(day) => Ok(day),
            FirstDay::Age(age) => Ok::<_, String>(date(2026, 3, 1) - age),
        };
        assert_eq!(day("2026-01-31"), Ok(date(2026, 1, 31)));
        assert_eq!((day("1d"), day("2w")), (Ok(date(2026, 2, 28)), Ok(date(2026, 2, 15))));
        for invalid in ["", "d", "7", "-1d", "12h", "yesterday", "99999d", "2026-02-30"] {
            assert!(day(invalid).is_err(), "{invalid}");
        }
    }
}
