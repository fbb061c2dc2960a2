//! `audit`: what plugins were granted and denied, what people allowed, and which versions served (O3).

use crate::arguments::versions::AuditArguments;
use crate::data::DataDirectory;
use crate::exit::{Exit, Failure};
use crate::setup;
use crate::terminal::{BOLD, DIM, Terminal, text};
use agent_core::approval::ApprovalWord;
use agent_core::message::Digest;
use agent_core::tool::ToolSource;
use agent_store::{Audit, AuditEntry, Deed, MAX_PAGE};

/// Characters of names and reasons that a line shows.
const SHOWN: usize = 200;

/// Prints the log, the oldest first.
pub(crate) async fn run(arguments: AuditArguments, data: &DataDirectory, terminal: &Terminal) -> Result<Exit, Failure> {
    let store = setup::store_to_read(data)?;
    let since = arguments.since.map_or(0, |since| since.0);
    let (mut after, mut found) = (0, false);
    loop {
        let entries = store.audited(since, after, MAX_PAGE).await.map_err(Failure::failed)?;
        let Some(last) = entries.last() else { break };
        (after, found) = (last.number, true);
        for entry in &entries {
            let line = match arguments.json {
                true => serde_json::to_string(entry).map_err(Failure::failed)?,
                false => shown(entry),
            };
            terminal.print(line).map_err(Failure::output)?;
        }
    }
    if !found && !arguments.json {
        terminal.note("the audit log has nothing of that time");
    }
    Ok(Exit::Done)
}

fn shown(entry: &AuditEntry) -> String {
    let time = entry.time.get(..19).unwrap_or(&entry.time).replace('T', " ");
    let line = |text: &str| text::one_line(text, SHOWN);
    let (what, place) = match &entry.deed {
        Deed::Granted { agent, plugin, digest, grants } => {
            let grants = if grants.is_empty() { "nothing".to_owned() } else { line(&grants.join(", ")) };
            (format!("{BOLD}{}{BOLD:#}@{} is granted {grants}", line(plugin), digest.short()), line(agent))
        }
        Deed::HostGranted { agent, grants } => {
            let grants = if grants.is_empty() { "nothing".to_owned() } else { line(&grants.join(", ")) };
            (format!("{BOLD}the host's own tools{BOLD:#} are granted {grants}"), line(agent))
        }
        Deed::Denied { session, call, source, denial } => {
            let who = source.as_ref().map_or_else(|| line(&denial.plugin), from);
            let place = call.as_ref().map_or_else(|| session.clone(), |call| format!("{session}/{call}"));
            (format!("{BOLD}{who}{BOLD:#} was denied {}", line(&denial.thing)), line(&place))
        }
        Deed::Emitted { session, call, source, event_type } => (
            format!("{BOLD}{}{BOLD:#} sent the service event {}", from(source), line(event_type)),
            line(&format!("{session}/{call}")),
        ),
        Deed::Revoked { grant, .. } => {
            let what = format!(
                "{BOLD}{}{BOLD:#}@{} is not allowed for good any more",
                line(&grant.tool),
                grant.digest.short()
            );
            (what, line(&grant.agent))
        }
        Deed::Approval { session, call, tool, source, verdict } => {
            let verdict = match verdict {
                ApprovalWord::Once => "allowed once",
                ApprovalWord::Session => "allowed in its session",
                ApprovalWord::Always => "allowed from now on",
                ApprovalWord::Denied => "not allowed",
                ApprovalWord::Void => "asked about again: the tool had changed",
            };
            let of = source.as_ref().map(|source| format!(" of {}", from(source))).unwrap_or_default();
            (format!("{BOLD}{}{BOLD:#}{of} was {verdict}", line(tool)), line(&format!("{session}/{call}")))
        }
        Deed::Swapped { directory, plugin, from, to } => {
            let digest = |digest: &Option<Digest>| digest.as_ref().map_or("nothing", Digest::short).to_owned();
            (format!("{BOLD}{}{BOLD:#} was swapped: {} → {}", line(plugin), digest(from), digest(to)), line(directory))
        }
        Deed::RolledBack { directory, plugin, from, to, because } => {
            let versions = format!("{} → {}", from.short(), to.short());
            (format!("{BOLD}{}{BOLD:#} was rolled back: {versions}, {}", line(plugin), line(because)), line(directory))
        }
        Deed::RollbackUndone { directory, plugin, from, to } => {
            let versions = format!("{} → {}", from.short(), to.short());
            (format!("{BOLD}{}{BOLD:#} is what its file holds again: {versions}", line(plugin)), line(directory))
        }
        Deed::Refused { directory, subject, reason } => {
            (format!("{BOLD}{}{BOLD:#} was not taken: {}", line(subject), line(reason)), line(directory))
        }
    };
    format!("{DIM}{time}{DIM:#} {what} {DIM}{place}{DIM:#}")
}

fn from(source: &ToolSource) -> String {
    text::one_line(&source.to_string(), SHOWN)
}
