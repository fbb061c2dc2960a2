//! `memory search|list|forget`: what is remembered of a user over sessions (D4).

use crate::arguments::MemoryCommand;
use crate::data::DataDirectory;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::setup;
use crate::terminal::{BOLD, DIM, Terminal, text};
use agent_store::{Memories, MemoryFilter, RememberedFact};
use serde::Serialize;

/// Characters of what was asked, and of what came of it, in a list for people.
const SHOWN: usize = 200;
/// What stands before the second, in memories of answers and of calls.
const SECOND: [&str; 2] = ["\nAnswered: ", "\nCalled: "];

/// Runs one of the commands.
pub(crate) async fn run(command: MemoryCommand, data: &DataDirectory, terminal: &Terminal) -> Result<Exit, Failure> {
    let store = setup::store_to_read(data)?;
    match command {
        MemoryCommand::Search { query, user, limit, json } => {
            let user = whose(user)?;
            let filter = MemoryFilter::of_user(&user);
            let found = store.search(&filter, &query, limit as usize).await.map_err(Failure::refused)?;
            for fact in &found {
                let shown = shown(&fact.id, &[&date(&fact.written)], &fact.text);
                if json { print_json(terminal, fact)? } else { print(terminal, shown)? }
            }
            if found.is_empty() && !json {
                terminal.note(format!("nothing that is remembered of `{user}` has a word of that"));
            }
        }
        MemoryCommand::List { user, limit, json } => {
            let user = whose(user)?;
            let found = store.list(&user, "", limit as usize).await.map_err(Failure::refused)?;
            for fact in &found {
                if json { print_json(terminal, fact)? } else { print(terminal, listed(fact))? }
            }
            if found.is_empty() && !json {
                terminal.note(format!("nothing is remembered of `{user}`"));
            }
        }
        MemoryCommand::Forget { ids, user } => {
            let user = whose(user)?;
            let mut missing = Vec::new();
            for id in ids {
                match store.forget(&user, &id).await.map_err(Failure::refused)? {
                    true => terminal.note(format!("forgot {id}")),
                    false => missing.push(id),
                }
            }
            if !missing.is_empty() {
                let missing: Vec<_> = missing.iter().map(|id| format!("`{id}`")).collect();
                let advice = "`agent-host memory list` shows the ids, --user those of another user";
                let missing = missing.join(", ");
                return Err(Failure::refused(format!("nothing is remembered of `{user}` under {missing}; {advice}")));
            }
        }
    }
    Ok(Exit::Done)
}

/// The user that is meant: named, else who is logged in.
fn whose(named: Option<String>) -> Result<String, Failure> {
    let nobody = || Failure::refused("nobody knows who you are here: name the user with --user NAME");
    named.or_else(environment::user).ok_or_else(nobody)
}

fn listed(fact: &RememberedFact) -> String {
    let written = fact.memory.written.as_deref().map(date).unwrap_or_default();
    shown(&fact.id, &[&written, fact.memory.kind.as_str()], &fact.memory.text)
}

fn shown(id: &str, details: &[&str], text: &str) -> String {
    let (id, details) = (text::one_line(id, 200), details.join(", "));
    let place = SECOND.iter().filter_map(|begin| text.find(begin)).min().unwrap_or(text.len());
    let (asked, came) = text.split_at(place);
    let came = if came.is_empty() { String::new() } else { format!("\n  {}", beginning(came)) };
    format!("{BOLD}{id}{BOLD:#}  {DIM}{details}{DIM:#}\n  {}{came}", beginning(asked))
}

/// In one line, whatever it is written in.
fn beginning(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text::one_line(&words, SHOWN)
}

/// To the second, without the fractions that a person does not read.
fn date(written: &str) -> String {
    format!("{} UTC", written.get(..19).unwrap_or(written).replace('T', " "))
}

fn print_json(terminal: &Terminal, value: &impl Serialize) -> Result<(), Failure> {
    print(terminal, serde_json::to_string(value).map_err(Failure::failed)?)
}

fn print(terminal: &Terminal, line: String) -> Result<(), Failure> {
    terminal.print(line).map_err(Failure::output)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D4: what came of it is shown, however long the question is.
    #[test]
    fn d4_a_memory_is_shown_with_its_answer() {
        let text = format!("Asked: {}\nand more\nAnswered: At nine.\n\nSurely.", "x".repeat(500));
        let listed = anstream::adapter::strip_str(&shown("a/1/1/final", &["final"], &text)).to_string();
        let lines: Vec<_> = listed.lines().collect();
        assert_eq!((lines[0], lines[2]), ("a/1/1/final  final", "  Answered: At nine. Surely."));
        assert!(lines[1].starts_with("  Asked: xxx") && lines[1].ends_with('…') && lines.len() == 3, "{listed}");
        let listed = shown("a/1/1/tool/1", &[], "Asked: Who?\nCalled: who {}\nResult: she");
        assert!(listed.ends_with("\n  Asked: Who?\n  Called: who {} Result: she"), "{listed}");
        assert!(shown("m", &[], "just a fact").ends_with("\n  just a fact"));
    }
}
