//! Describes two kinds of calls that a suspended turn waits for: calls that need an approval, and calls whose outcome
//! is unknown. The descriptions contain the commands that resolve the calls.

use super::{BOLD, DIM, YELLOW, approval, text};
use agent_config::DataDirectory;
use agent_core::change::CallRecord;
use std::collections::BTreeSet;

/// Maximum number of characters that are shown of a name or of a call's arguments.
const MAX_CHARACTERS: usize = 160;

/// Describes the calls that need an approval, and the commands that approve or deny them.
pub(crate) fn waits_for_approval(session: &str, calls: &[CallRecord], data: &DataDirectory) -> String {
    let flag = data.flag();
    let mut lines = vec![format!("{YELLOW}waits for an approval{YELLOW:#}: these calls have not run")];
    for call in calls {
        let name = approval::escaped(&call.name);
        let source =
            call.source.as_ref().map(|source| text::one_line(&source.to_string(), MAX_CHARACTERS)).unwrap_or_default();
        lines.push(format!("  {BOLD}{name}{BOLD:#} {DIM}{source}, {}{DIM:#}", call.id));
        let showing = format!("agent-host session show {session} --call {}{flag} shows", call.id);
        lines.extend(approval::arguments(call.effective_arguments(), &showing).iter().map(|line| format!("  {line}")));
    }
    // A session id begins with the name of the session's agent. The agent of a delegated session is the delegate.
    let agent = session.split_once('/').map_or(session, |(agent, _)| agent);
    lines.push(format!(
        "    agent-host session approve {session} [CALL] [--scope session|always]{flag}, with the options of agent {agent} \
         (--agent FILE, or --plugins, --model and --grant)\n    agent-host session deny {session} [CALL] [--reason WHY]{flag}"
    ));
    // A name with other characters could be a pattern that matches more tools, or something that a shell interprets.
    let is_plain = |name: &&str| name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'));
    let names: BTreeSet<&str> = calls.iter().map(|call| call.name.as_str()).filter(is_plain).collect();
    if !names.is_empty() {
        let options: Vec<_> = names.into_iter().map(|name| format!("--yes {name}")).collect();
        lines.push(format!("    to approve such calls in advance, pass {} with the next prompt", options.join(" ")));
    }
    lines.join("\n")
}

/// Describes the calls whose outcome is unknown, and the commands that decide about them.
pub(crate) fn waits_for_decision(session: &str, calls: &[CallRecord], data: &DataDirectory) -> String {
    let flag = data.flag();
    let mut lines = vec![format!(
        "{YELLOW}waits for a decision{YELLOW:#}: the host stopped while these calls ran, so it is unknown whether \
         they took effect"
    )];
    for call in calls {
        let (name, arguments) =
            (text::one_line(&call.name, MAX_CHARACTERS), text::arguments(&call.arguments, MAX_CHARACTERS));
        lines.push(format!("  {BOLD}{name}{BOLD:#} {arguments}"));
        lines.push(format!("    agent-host session resolve {session}/{} retry|failed|result [TEXT]{flag}", call.id));
    }
    lines.join("\n")
}
