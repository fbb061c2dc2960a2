//! Command-line arguments of `plugin history`, `plugin rollback`, `plugin quarantine` and `audit`.

use agent_core::message::Digest;
use clap::{Args, Subcommand};
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
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AuditArguments {
    #[command(subcommand)]
    pub(crate) command: Option<AuditCommand>,
    /// Oldest entry to show: a time (2026-01-31T12:00:00Z), a day (2026-01-31) or an age (90s, 15m, 12h, 7d)
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub(crate) since: Option<Since>,
    /// Print one JSON line per entry
    #[arg(long)]
    pub(crate) json: bool,
}

/// Commands on the audit log.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Check that no entry was changed or removed; the first broken entry is reported
    #[command(
        after_help = "Each entry contains a hash of the entry before it. Somebody who can write the database can also \
                            compute new hashes. To find this, keep the hash that this command prints, or an exported \
                            file, on another machine, and name it with --from."
    )]
    Verify {
        /// Exported file to check; without it, the log in the database is checked
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        /// Hash of an entry, or an exported file, that was kept elsewhere; the log must still contain its last entry
        #[arg(long, value_name = "HASH|FILE", value_parser = anchor)]
        from: Option<AnchorSource>,
    },
    /// Export the audit log as JSON lines with hashes
    Export {
        /// Export only the entries after this number
        #[arg(long, value_name = "N", default_value_t = 0)]
        after: u64,
        /// Output file; `-` is stdout
        #[arg(short, long, value_name = "FILE", default_value = "-")]
        output: PathBuf,
        /// Overwrite an existing file
        #[arg(long)]
        force: bool,
    },
}

/// What `audit verify --from` compares the log with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AnchorSource {
    /// The hash of an entry.
    Hash(Digest),
    /// An exported log, whose last entry counts.
    File(PathBuf),
}

fn anchor(text: &str) -> Result<AnchorSource, String> {
    let digits = text.strip_prefix("sha256:").unwrap_or(text);
    if let Ok(hash) = Digest::parse(&format!("sha256:{}", digits.to_ascii_lowercase())) {
        return Ok(AnchorSource::Hash(hash));
    }
    match text {
        "" => Err("write a hash such as sha256:0a1b…, or the name of an exported file".to_owned()),
        _ if text.starts_with("sha256:") => Err("a hash has 64 hexadecimal digits after `sha256:`".to_owned()),
        _ => Ok(AnchorSource::File(text.into())),
    }
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
    fn o3_anchor_is_a_hash_or_a_file() {
        let digits = "0a".repeat(32);
        let hash = AnchorSource::Hash(Digest::from_sha256([10; 32]));
        for text in [digits.clone(), format!("sha256:{digits}"), digits.to_uppercase()] {
            assert_eq!(anchor(&text), Ok(hash.clone()), "{text}");
        }
        assert_eq!(anchor("old.jsonl"), Ok(AnchorSource::File("old.jsonl".into())));
        assert!(anchor("").is_err() && anchor("sha256:0a").is_err());
    }

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
