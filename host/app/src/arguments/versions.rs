//! Command-line arguments of `plugin history`, `plugin rollback`, `plugin quarantine` and `audit`.

use clap::Args;
use std::path::PathBuf;

/// Arguments of `plugin history`.
#[derive(Debug, Args)]
pub(crate) struct HistoryArguments {
    /// Show only this plugin
    #[arg(value_name = "NAME")]
    pub(crate) plugin: Option<String>,
    /// Show only plugins of this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) plugins: Option<PathBuf>,
    /// Maximum number of results
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,
    /// Print one JSON line per version
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `plugin rollback`.
#[derive(Debug, Args)]
pub(crate) struct RollbackArguments {
    /// Name of the plugin
    #[arg(value_name = "NAME")]
    pub(crate) plugin: String,
    /// Digest of the version to return to, or a prefix of it (default: the previous version)
    #[arg(long, value_name = "DIGEST", conflicts_with = "undo")]
    pub(crate) to: Option<String>,
    /// Undo the rollback, and use the plugin's current file again
    #[arg(long)]
    pub(crate) undo: bool,
    /// Plugin folder; needed if several folders contain a plugin with this name
    #[arg(long, value_name = "DIR")]
    pub(crate) plugins: Option<PathBuf>,
}

/// Arguments of `audit`.
#[derive(Debug, Args)]
pub(crate) struct AuditArguments {
    /// Oldest entry to show: a time (2026-01-31T12:00:00Z), a day (2026-01-31) or an age (90s, 15m, 12h, 7d)
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub(crate) since: Option<Since>,
    /// Print one JSON line per entry
    #[arg(long)]
    pub(crate) json: bool,
}

/// A point in time, in microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Since(pub(crate) i64);

fn since(text: &str) -> Result<Since, String> {
    let error_message =
        || "write a time such as 2026-01-31T12:00:00Z, a day such as 2026-01-31, or an age such as 12h".to_owned();
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Ok(Since(time.as_microsecond()));
    }
    if let Ok(time) = format!("{text}T00:00:00Z").parse::<jiff::Timestamp>() {
        return Ok(Since(time.as_microsecond()));
    }
    let unit = text.chars().next_back().ok_or_else(error_message)?;
    let number: i64 = text[..text.len() - unit.len_utf8()].parse().map_err(|_| error_message())?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(error_message()),
    };
    let age = number.checked_mul(seconds * 1_000_000).filter(|age| *age >= 0).ok_or_else(error_message)?;
    Ok(Since(jiff::Timestamp::now().as_microsecond().saturating_sub(age)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o3_since_accepts_time_day_or_age() {
        let day = since("1970-01-02").expect("a day");
        assert_eq!(day, Since(86_400_000_000));
        assert_eq!(since("1970-01-02T00:00:00Z"), Ok(day));
        let (hour, day) = (since("1h").expect("an age").0, since("1d").expect("an age").0);
        assert!((82_000_000_000..83_000_000_000).contains(&(hour - day)), "{}", hour - day);
        for invalid in ["", "h", "12", "-1h", "12y", "yesterday", "9999999999999999d"] {
            assert!(since(invalid).is_err(), "{invalid}");
        }
    }
}

/// Arguments of `plugin quarantine`.
#[derive(Debug, Args)]
pub(crate) struct QuarantineArguments {
    /// Release a component from quarantine: its digest, or a unique prefix of it
    #[arg(long, value_name = "DIGEST")]
    pub(crate) release: Option<String>,
}
