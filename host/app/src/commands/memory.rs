//! `memory search|list|forget`: searches, lists and deletes the memories that are stored about a user (D4).

use crate::arguments::MemoryCommand;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::terminal::{BOLD, DIM, Terminal, text};
use agent_config::{DataDirectory, assembly};
use agent_store::{MemoryFilter, StoredMemory};
use serde::Serialize;

/// Maximum displayed length of each of the two parts of a memory, in characters.
const MAX_CHARACTERS: usize = 200;
/// Labels that can begin the second part of a memory. The second part is an answer or a tool call.
const SECOND_PART_LABELS: [&str; 2] = ["\nAnswered: ", "\nCalled: "];

/// Runs a subcommand of `memory`.
pub(crate) async fn run(command: MemoryCommand, data: &DataDirectory, terminal: &Terminal) -> Result<Exit, Failure> {
    let store = assembly::open_store_to_read(data).await?;
    match command {
        MemoryCommand::Search { query, user, limit, json } => {
            let user = user_or_current(user)?;
            let filter = MemoryFilter::of_user(&user);
            let found = store.search(&filter, &query, limit as usize).await.map_err(Failure::refused)?;
            for memory in &found {
                let shown = describe(&memory.id, &[&text::local_time(&memory.written)], &memory.text);
                if json { print_json(terminal, memory)? } else { print_entry(terminal, &shown)? }
            }
            if found.is_empty() && !json {
                terminal.note(format!("no memory about `{user}` contains any of these words"));
            }
        }
        MemoryCommand::List { user, limit, json } => {
            let user = user_or_current(user)?;
            let found = store.list(&user, "", limit as usize).await.map_err(Failure::refused)?;
            for memory in &found {
                if json { print_json(terminal, memory)? } else { print_entry(terminal, &list_entry(memory))? }
            }
            if found.is_empty() && !json {
                terminal.note(format!("there are no memories about `{user}`"));
            }
        }
        MemoryCommand::Forget { ids, user } => {
            let user = user_or_current(user)?;
            let mut missing = Vec::new();
            for id in ids {
                match store.forget(&user, &id).await.map_err(Failure::refused)? {
                    true => terminal.note(format!("forgot {id}")),
                    false => missing.push(id),
                }
            }
            if !missing.is_empty() {
                let missing: Vec<_> = missing.iter().map(|id| format!("`{id}`")).collect();
                let advice = "`agent-host memory list` shows the ids, and --user NAME selects another user";
                let missing = missing.join(", ");
                return Err(Failure::refused(format!(
                    "there is no memory with the id {missing} about `{user}`; {advice}"
                )));
            }
        }
    }
    Ok(Exit::Done)
}

/// Returns the user whom the command line names, or else the logged-in user.
fn user_or_current(named: Option<String>) -> Result<String, Failure> {
    let unknown = || Failure::refused("the current user cannot be determined here: give a name with --user NAME");
    named.or_else(environment::user).ok_or_else(unknown)
}

/// Formats a memory as an entry of a list.
pub(crate) fn list_entry(stored: &StoredMemory) -> String {
    let memory = &stored.memory;
    let written = memory.written.as_deref().map(text::local_time).unwrap_or_default();
    let project = memory.project.as_deref().map(|project| text::one_line(project, MAX_CHARACTERS));
    let details: Vec<&str> = [written.as_str(), memory.kind.as_str()].into_iter().chain(project.as_deref()).collect();
    describe(&stored.id, &details, &memory.text)
}

fn describe(id: &str, details: &[&str], text: &str) -> String {
    let (id, details) = (text::one_line(id, 200), details.join(", "));
    let position = SECOND_PART_LABELS.iter().filter_map(|begin| text.find(begin)).min().unwrap_or(text.len());
    let (first, second) = text.split_at(position);
    let second = if second.is_empty() { String::new() } else { format!("\n  {}", shortened(second)) };
    format!("{BOLD}{id}{BOLD:#}  {DIM}{details}{DIM:#}\n  {}{second}", shortened(first))
}

/// Formats the beginning of the text as one line.
fn shortened(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text::one_line(&words, MAX_CHARACTERS)
}

fn print_json(terminal: &Terminal, value: &impl Serialize) -> Result<(), Failure> {
    print(terminal, serde_json::to_string(value).map_err(Failure::failed)?)
}

fn print_entry(terminal: &Terminal, entry: &str) -> Result<(), Failure> {
    terminal.print_entry(entry).map_err(Failure::output)
}

fn print(terminal: &Terminal, line: String) -> Result<(), Failure> {
    terminal.print(line).map_err(Failure::output)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D4: the answer in a memory is shown even if the question is long.
    #[test]
    fn d4_describe_includes_the_answer_after_a_long_question() {
        let text = format!("Asked: {}\nand more\nAnswered: At nine.\n\nSurely.", "x".repeat(500));
        let listed = anstream::adapter::strip_str(&describe("a/1/1/final", &["final"], &text)).to_string();
        let lines: Vec<_> = listed.lines().collect();
        assert_eq!((lines[0], lines[2]), ("a/1/1/final  final", "  Answered: At nine. Surely."));
        assert!(lines[1].starts_with("  Asked: xxx") && lines[1].ends_with('…') && lines.len() == 3, "{listed}");
        let listed = describe("a/1/1/tool/1", &[], "Asked: Who?\nCalled: who {}\nResult: she");
        assert!(listed.ends_with("\n  Asked: Who?\n  Called: who {} Result: she"), "{listed}");
        assert!(describe("m", &[], "just a memory").ends_with("\n  just a memory"));
    }
}
