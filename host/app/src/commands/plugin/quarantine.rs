//! `plugin quarantine`: lists and releases the components in quarantine. A component is in quarantine if it crashed the
//! process that examines components.

use super::print;
use crate::arguments::versions::QuarantineArguments;
use crate::exit::Failure;
use crate::terminal::{BOLD, DIM, Terminal, text};
use agent_config::DataDirectory;
use agent_plugins::{Quarantine, QuarantineEntry};

/// Lists the components in quarantine, or releases one of them so that it can be loaded again.
pub(super) fn quarantine(
    arguments: &QuarantineArguments,
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let quarantine = Quarantine::new(&data.cache());
    let entries = quarantine.list();
    let Some(wanted) = &arguments.release else {
        if entries.is_empty() {
            terminal.note("no component is in quarantine");
        }
        return entries.iter().try_for_each(|entry| print(terminal, describe(entry)));
    };
    let entry = find_by_digest(&entries, wanted)?;
    quarantine.release(&entry.digest).map_err(Failure::refused)?;
    let name = text::one_line(&entry.name, 64);
    print(
        terminal,
        format!("{BOLD}{name}{BOLD:#} {} was released; the host will examine it again", entry.digest.short()),
    )
}

/// Finds the component whose digest has this prefix, with or without `sha256:`.
fn find_by_digest<'q>(entries: &'q [QuarantineEntry], wanted: &str) -> Result<&'q QuarantineEntry, Failure> {
    let digits = wanted.strip_prefix("sha256:").unwrap_or(wanted);
    let mut matches = entries.iter().filter(|entry| !digits.is_empty() && entry.digest.hex().starts_with(digits));
    match (matches.next(), matches.next()) {
        (Some(entry), None) => Ok(entry),
        (None, _) => Err(Failure::refused(format!(
            "no component in quarantine has the digest `{}`; `agent-host plugin quarantine` lists them",
            text::one_line(wanted, 100)
        ))),
        _ => Err(Failure::refused(format!(
            "several digests begin with `{}`; write more characters of the digest",
            text::one_line(wanted, 100)
        ))),
    }
}

fn describe(entry: &QuarantineEntry) -> String {
    let since = i64::try_from(entry.since).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    let since = since.map(|since| since.to_string()).unwrap_or_default();
    format!(
        "{BOLD}{}{BOLD:#} {}  {DIM}{since}{DIM:#}\n  {}",
        text::one_line(&entry.name, 64),
        entry.digest,
        text::one_line(&entry.reason, 1000)
    )
}
