//! `plugin quarantine`: the components that have ended the process that examines components, and letting one out.

use super::print;
use crate::arguments::versions::QuarantineArguments;
use crate::data::DataDirectory;
use crate::exit::Failure;
use crate::terminal::{BOLD, DIM, Terminal, text};
use agent_plugins::{Quarantine, Quarantined};

/// Lists the components, or lets one out so that it is tried again.
pub(super) fn quarantine(
    asked: &QuarantineArguments,
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let quarantine = Quarantine::new(&data.cache());
    let all = quarantine.list();
    let Some(wanted) = &asked.release else {
        if all.is_empty() {
            terminal.note("no component is in quarantine");
        }
        return all.iter().try_for_each(|entry| print(terminal, shown(entry)));
    };
    let entry = chosen(&all, wanted)?;
    quarantine.release(&entry.digest).map_err(Failure::refused)?;
    let name = text::one_line(&entry.name, 64);
    print(terminal, format!("{BOLD}{name}{BOLD:#} {} is tried again when it is loaded next", entry.digest.short()))
}

/// The one whose digest begins so, with or without `sha256:`.
fn chosen<'q>(all: &'q [Quarantined], wanted: &str) -> Result<&'q Quarantined, Failure> {
    let digits = wanted.strip_prefix("sha256:").unwrap_or(wanted);
    let mut found = all.iter().filter(|entry| !digits.is_empty() && entry.digest.hex().starts_with(digits));
    match (found.next(), found.next()) {
        (Some(entry), None) => Ok(entry),
        (None, _) => Err(Failure::refused(format!(
            "no component in quarantine has the digest `{}`; `agent-host plugin quarantine` lists them",
            text::one_line(wanted, 100)
        ))),
        _ => {
            Err(Failure::refused(format!("`{}` begins several digests; give more of it", text::one_line(wanted, 100))))
        }
    }
}

fn shown(entry: &Quarantined) -> String {
    let since = i64::try_from(entry.since).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    let since = since.map(|since| since.to_string()).unwrap_or_default();
    format!(
        "{BOLD}{}{BOLD:#} {}  {DIM}{since}{DIM:#}\n  {}",
        text::one_line(&entry.name, 64),
        entry.digest,
        text::one_line(&entry.reason, 1000)
    )
}
