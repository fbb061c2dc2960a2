//! `audit`: prints, checks and exports the audit log, which contains grants, refusals, approvals and changes to the plugin
//! versions in use (O3).

mod export;
mod verify;

use super::session::destination::Existing;
use crate::arguments::versions::{AuditArguments, AuditCommand};
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::terminal::{BOLD, DIM, Terminal, text};
use agent_config::{DataDirectory, DataLocation, assembly};
use agent_core::approval::ApprovalOutcome;
use agent_core::message::Digest;
use agent_core::tool::ToolSource;
use agent_runtime::EDITOR_PROTOCOL;
use agent_store::{AuditAction, AuditEntry, MAX_PAGE, Store};

/// Maximum displayed length of a name or reason, in characters.
const MAX_CHARACTERS: usize = 200;

/// Prints the audit log, or runs a subcommand of `audit`.
pub(crate) async fn run(
    arguments: AuditArguments,
    data: DataLocation<'_>,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    // An exported file is checked without the data folder.
    if let Some(AuditCommand::Verify { file: Some(file), from }) = arguments.command {
        return verify::file(file, from, terminal).await;
    }
    let data = DataDirectory::open(data, &environment::host())?;
    let store = assembly::open_store_to_read(&data).await?;
    match arguments.command {
        None => print(arguments, &*store, terminal).await,
        Some(AuditCommand::Verify { from, .. }) => verify::database((&*store, &data), from, terminal).await,
        Some(AuditCommand::Export { after, output, force }) => {
            let existing = if force { Existing::Replace } else { Existing::Keep };
            export::export(&*store, after, (&output, existing), terminal).await
        }
    }
}

/// Prints the audit log, oldest entries first.
async fn print(arguments: AuditArguments, store: &dyn Store, terminal: &Terminal) -> Result<Exit, Failure> {
    let since = arguments.since.map_or(0, |since| since.0);
    let (mut after, mut found) = (0, false);
    loop {
        let entries = store.audit_entries(since, after, MAX_PAGE).await.map_err(Failure::failed)?;
        let Some(last) = entries.last() else { break };
        (after, found) = (last.number, true);
        for entry in &entries {
            match arguments.json {
                true => terminal.print(serde_json::to_string(entry).map_err(Failure::failed)?),
                false => terminal.print_entry(&describe(entry)),
            }
            .map_err(Failure::output)?;
        }
    }
    if !found && !arguments.json {
        terminal.note("the audit log has no entries for that time");
    }
    Ok(Exit::Done)
}

fn describe(entry: &AuditEntry) -> String {
    let time = text::local_time(&entry.time);
    let line = |text: &str| text::one_line(text, MAX_CHARACTERS);
    let (what, location) = match &entry.action {
        AuditAction::Granted { agent, plugin, digest, grants } => {
            let grants = if grants.is_empty() { "nothing".to_owned() } else { line(&grants.join(", ")) };
            (format!("{BOLD}{}{BOLD:#}@{} is granted {grants}", line(plugin), digest.short()), line(agent))
        }
        AuditAction::HostGranted { agent, grants } => {
            let grants = if grants.is_empty() { "nothing".to_owned() } else { line(&grants.join(", ")) };
            (format!("{BOLD}the built-in tools{BOLD:#} are granted {grants}"), line(agent))
        }
        AuditAction::Denied { session, call, source, denial } => {
            let who = source.as_ref().map_or_else(|| line(&denial.plugin), source_name);
            let location = call.as_ref().map_or_else(|| session.clone(), |call| format!("{session}/{call}"));
            (format!("{BOLD}{who}{BOLD:#} was denied {}", line(&denial.thing)), line(&location))
        }
        AuditAction::Emitted { session, call, source, event_type } => (
            format!("{BOLD}{}{BOLD:#} sent the service event {}", source_name(source), line(event_type)),
            line(&format!("{session}/{call}")),
        ),
        AuditAction::BudgetExceeded { session, budget } => {
            (format!("a model call was refused: {}", line(&budget.to_string())), line(session))
        }
        AuditAction::Revoked { grant, .. } => {
            let what = format!(
                "the permanent approval of {BOLD}{}{BOLD:#}@{} was revoked",
                line(&grant.tool),
                grant.digest.short()
            );
            (what, line(&grant.agent))
        }
        AuditAction::Approval { session, call, tool, source, verdict } => {
            let verdict = match verdict {
                ApprovalOutcome::Once => "allowed once",
                ApprovalOutcome::Session => "allowed for its session",
                ApprovalOutcome::Always => "allowed from now on",
                ApprovalOutcome::Denied => "not allowed",
                ApprovalOutcome::Expired => "not allowed, because nobody decided in time",
                ApprovalOutcome::Void => "asked about again, because the tool had changed",
            };
            let of = source.as_ref().map(|source| format!(" of {}", source_name(source))).unwrap_or_default();
            (format!("{BOLD}{}{BOLD:#}{of} was {verdict}", line(tool)), line(&format!("{session}/{call}")))
        }
        AuditAction::Swapped { directory, plugin, from, to } => {
            let digest = |digest: &Option<Digest>| digest.as_ref().map_or("nothing", Digest::short).to_owned();
            (format!("{BOLD}{}{BOLD:#} was replaced: {} → {}", line(plugin), digest(from), digest(to)), line(directory))
        }
        AuditAction::RolledBack { directory, plugin, from, to, because } => {
            let versions = format!("{} → {}", from.short(), to.short());
            (format!("{BOLD}{}{BOLD:#} was rolled back: {versions}, {}", line(plugin), line(because)), line(directory))
        }
        AuditAction::RollbackUndone { directory, plugin, from, to } => {
            let versions = format!("{} → {}", from.short(), to.short());
            (format!("{BOLD}{}{BOLD:#} is loaded from its file again: {versions}", line(plugin)), line(directory))
        }
        AuditAction::Refused { directory, subject, reason } => {
            (format!("{BOLD}{}{BOLD:#} was refused: {}", line(subject), line(reason)), line(directory))
        }
        AuditAction::FileSaved { agent, path, token, adds, removes, .. } => {
            let change = |verb: &str, lines: &[String]| match lines {
                [] => String::new(),
                lines => format!("; {verb} {}", line(&lines.join(", "))),
            };
            let changes = format!("{}{}", change("now allows", adds), change("no longer allows", removes));
            (format!("{BOLD}the token {}{BOLD:#} saved {}{changes}", line(token), line(path)), line(agent))
        }
        AuditAction::GrantsAnswered { session, plugin, token, answer, offered, .. } => (
            format!(
                "{BOLD}the token {}{BOLD:#} answered `{}` about the grants of {}: {}",
                line(token),
                line(answer),
                line(plugin),
                line(&offered.join(", "))
            ),
            line(session),
        ),
        AuditAction::RequestRefused { protocol, token, request, object, code, count } => {
            let sender = match token {
                Some(token) => format!("the token {}", line(token)),
                None if protocol == EDITOR_PROTOCOL => "an editor".to_owned(),
                None => "a sender without a valid token".to_owned(),
            };
            let times = if *count == 1 { String::new() } else { format!(" {} times", text::grouped(*count)) };
            let what = format!("{BOLD}{sender}{BOLD:#} was refused{times}: {} ({})", line(request), line(code));
            (what, object.as_ref().map_or_else(|| line(protocol), |object| line(&format!("{protocol} {object}"))))
        }
    };
    format!("{DIM}{time}{DIM:#} {what} {DIM}{location}{DIM:#}")
}

fn source_name(source: &ToolSource) -> String {
    text::one_line(&source.to_string(), MAX_CHARACTERS)
}

/// Returns a number of entries with its noun.
fn entries(count: u64) -> String {
    let noun = if count == 1 { "entry" } else { "entries" };
    format!("{} {noun}", text::grouped(count))
}
