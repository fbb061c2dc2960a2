//! `usage`: reports what agents have used, by day, month, agent and user (O4).

use crate::arguments::usage::{FirstDay, Group, UsageArguments};
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::terminal::{BOLD, Terminal, text};
use agent_config::{DataDirectory, assembly};
use agent_core::budget::Spending;
use agent_core::cost::Cost;
use agent_runtime::day_starts;
use agent_store::{ChargeFilter, IntervalCharge};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Serialize;
use std::collections::BTreeMap;

/// Maximum displayed length of a name, in characters.
const MAX_CHARACTERS: usize = 40;

/// What has a line of its own. Parts that the report does not distinguish are `None`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Key {
    /// A day such as `2026-01-31`, or a month such as `2026-01`.
    #[serde(skip_serializing_if = "Option::is_none")]
    period: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    /// The inner value is `None` for work without a user.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<Option<String>>,
}

/// A line of the report in JSON.
#[derive(Serialize)]
struct JsonLine<'l> {
    #[serde(flatten)]
    key: &'l Key,
    #[serde(flatten)]
    spending: Spending,
}

/// Prints the report.
pub(crate) async fn run(arguments: UsageArguments, data: &DataDirectory, terminal: &Terminal) -> Result<Exit, Failure> {
    let zone = if arguments.utc { TimeZone::UTC } else { environment::time_zone() };
    let today = jiff::Timestamp::now().to_zoned(zone.clone()).date();
    let first = match arguments.since {
        FirstDay::Day(day) => day,
        FirstDay::Age(age) => today.saturating_sub(age),
    };
    let days = day_starts(first, today, &zone).map_err(|error| Failure::refused(format!("--since: {error}")))?;
    let store = assembly::open_store_to_read(data).await?;
    let filter = ChargeFilter { agents: arguments.of.clone().map(|agent| vec![agent]), user: arguments.user.clone() };
    let bounds = days.iter().map(|(_, start)| *start).collect();
    let charges = store.charged_in_intervals(bounds, filter).await.map_err(Failure::failed)?;
    let lines = lines(charges, &days, &arguments.by);
    if arguments.json {
        for (key, spending) in &lines {
            let line = serde_json::to_string(&JsonLine { key, spending: *spending }).map_err(Failure::failed)?;
            terminal.print(line).map_err(Failure::output)?;
        }
        return Ok(Exit::Done);
    }
    if lines.is_empty() {
        terminal.note(format!("nothing was used since {first}"));
        return Ok(Exit::Done);
    }
    for line in table(&lines) {
        terminal.print_entry(&line).map_err(Failure::output)?;
    }
    Ok(Exit::Done)
}

/// Adds up the charges of each line.
fn lines(charges: Vec<IntervalCharge>, days: &[(Date, i64)], by: &[Group]) -> BTreeMap<Key, Spending> {
    let mut lines: BTreeMap<Key, Spending> = BTreeMap::new();
    for charge in charges {
        let Some((day, _)) = days.get(charge.interval) else { continue };
        let period = match (by.contains(&Group::Day), by.contains(&Group::Month)) {
            (true, _) => Some(day.to_string()),
            (false, true) => Some(day.strftime("%Y-%m").to_string()),
            (false, false) => None,
        };
        let key = Key {
            period,
            agent: by.contains(&Group::Agent).then_some(charge.agent),
            user: by.contains(&Group::User).then_some(charge.user),
        };
        *lines.entry(key).or_default() += charge.spending;
    }
    lines
}

/// Formats the lines as columns, with the sum as the last line.
fn table(lines: &BTreeMap<Key, Spending>) -> Vec<String> {
    let mut rows: Vec<(String, [String; 3])> = Vec::new();
    let mut sum = Spending::default();
    let names = |part: fn(&Key) -> Option<String>| {
        lines.keys().filter_map(part).map(|name| name.chars().count()).max().unwrap_or_default()
    };
    let parts: [fn(&Key) -> Option<String>; 3] = [|key| key.period.clone(), agent_of, user_of];
    let widths = parts.map(names);
    for (key, spending) in lines {
        let cells = parts.iter().zip(widths).filter_map(|(part, width)| Some(format!("{:<width$}", part(key)?)));
        rows.push((cells.collect::<Vec<_>>().join("  "), amounts(*spending)));
        sum += *spending;
    }
    if rows.len() > 1 {
        rows.push(("sum".to_owned(), amounts(sum)));
    }
    let names = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    let width =
        |column: usize| rows.iter().map(|(_, amounts)| amounts[column].chars().count()).max().unwrap_or_default();
    let widths = [width(0), width(1), width(2)];
    let line = |(name, [tokens, cost, time]): &(String, [String; 3])| {
        let [a, b, c] = widths;
        format!("{BOLD}{name:<names$}{BOLD:#}  {tokens:>a$}  {cost:>b$}  {time:>c$}").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

fn agent_of(key: &Key) -> Option<String> {
    key.agent.as_deref().map(|agent| text::one_line(agent, MAX_CHARACTERS))
}

fn user_of(key: &Key) -> Option<String> {
    let name = |user: &Option<String>| {
        user.as_deref().map_or_else(|| "-".to_owned(), |user| text::one_line(user, MAX_CHARACTERS))
    };
    key.user.as_ref().map(name)
}

fn amounts(spending: Spending) -> [String; 3] {
    let cost = Cost { nanodollars: spending.nanodollars, partial: false };
    [format!("{} tokens", text::grouped(spending.tokens)), cost.to_string(), time(spending.milliseconds)]
}

/// Formats a time of work, for example as `4.2 s`, `12 min` or `3.5 h`.
fn time(milliseconds: u64) -> String {
    let exact = milliseconds as f64;
    match milliseconds {
        0..120_000 => format!("{:.1} s", exact / 1e3),
        120_000..7_200_000 => format!("{:.0} min", exact / 6e4),
        _ => format!("{:.1} h", exact / 3.6e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;

    fn charge(interval: usize, agent: &str, user: Option<&str>, tokens: u64) -> IntervalCharge {
        let spending = Spending { tokens, nanodollars: tokens * 10_000_000, milliseconds: tokens * 1_000 };
        IntervalCharge { interval, agent: agent.to_owned(), user: user.map(str::to_owned), spending }
    }

    fn table_by(by: &[Group]) -> Vec<String> {
        let days = [(date(2026, 1, 31), 0), (date(2026, 2, 1), 1)];
        let charges = vec![
            charge(0, "clerk", Some("ann"), 5),
            charge(1, "clerk", None, 1_000),
            charge(1, "reader", Some("ann"), 8_000),
        ];
        let table = table(&lines(charges, &days, by));
        table.iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect()
    }

    #[test]
    fn o4_usage_is_grouped_and_added_up() {
        let expected = [
            "2026-01-31      5 tokens  $0.0500  5.0 s",
            "2026-02-01  9,000 tokens   $90.00  2.5 h",
            "sum         9,005 tokens   $90.05  2.5 h",
        ];
        assert_eq!(table_by(&[Group::Day]), expected);
        let expected = [
            "2026-01  ann      5 tokens  $0.0500   5.0 s",
            "2026-02  -    1,000 tokens   $10.00  17 min",
            "2026-02  ann  8,000 tokens   $80.00   2.2 h",
            "sum           9,005 tokens   $90.05   2.5 h",
        ];
        assert_eq!(table_by(&[Group::User, Group::Month]), expected);
        assert_eq!(table_by(&[Group::Agent])[0], "clerk   1,005 tokens  $10.05  17 min");
    }
}
