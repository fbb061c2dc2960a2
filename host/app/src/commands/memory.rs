//! `memory search|list|forget`: what is remembered of a user over sessions (D4).

use crate::arguments::MemoryCommand;
use crate::data::DataDirectory;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::setup;
use crate::terminal::{BOLD, DIM, Terminal, text};
use agent_memory::{Memories, RememberedFact};
use serde::Serialize;

/// Characters of a memory in a list for people.
const SHOWN: usize = 300;

/// Runs one of the commands.
pub(crate) async fn run(command: MemoryCommand, data: &DataDirectory, terminal: &Terminal) -> Result<Exit, Failure> {
    let store = setup::store(data)?;
    match command {
        MemoryCommand::Search { query, user, limit, json } => {
            let user = whose(user)?;
            let found = Memories::search(&*store, &user, &query, limit as usize).await.map_err(Failure::refused)?;
            for fact in &found {
                let score = format!("nearness {:.2}", fact.score);
                let shown = shown(&fact.id, &[&date(&fact.written), &score], &fact.text);
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
    format!("{BOLD}{id}{BOLD:#}  {DIM}{details}{DIM:#}\n  {}", text::one_line(text, SHOWN))
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
