//! Words that were meant for commands, and are none.

use super::Arguments;
use crate::configuration::nearest;
use clap::CommandFactory;
use clap::error::ErrorKind;

/// Commands that other tools have, and what is meant by them here.
const OTHERS: [(&str, &str); 10] = [
    ("help", "agent-host --help"),
    ("man", "agent-host --help"),
    ("version", "agent-host --version"),
    ("init", "agent-host config init"),
    ("list", "agent-host session list, or plugin list"),
    ("chat", "agent-host --plugins DIR, or --agent FILE, without a prompt"),
    ("run", "agent-host --plugins DIR, or --agent FILE, with a prompt"),
    ("serve", "agent-host --plugins DIR, or --agent FILE: it is no server"),
    ("start", "agent-host --plugins DIR, or --agent FILE"),
    ("login", "the key of the model's provider in its variable, such as OPENAI_API_KEY"),
];

/// What was meant by a prompt that is one word, where it is one of a command line.
pub(super) fn meant_by(prompt: &str) -> Option<String> {
    if prompt.contains(char::is_whitespace) {
        return None;
    }
    if let Some((_, meant)) = OTHERS.iter().find(|(other, _)| *other == prompt) {
        return Some(format!("`{prompt}` is no command here, but would be a prompt; you may mean: {meant}"));
    }
    let command = near_command(prompt)?;
    Some(format!("`{prompt}` is no command, but would be a prompt; did you mean `agent-host {command}`?"))
}

/// The same of a line that could not be read since words follow the one that was taken for a prompt.
pub(crate) fn meant_by_line(error: &clap::Error, words: impl Iterator<Item = String>) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    // What stands before a command are options of every command; their values are not guessed at.
    let first = words.into_iter().next().filter(|word| !word.starts_with('-'))?;
    // Behind a command it is an option that this command does not have, and clap says which.
    if Arguments::command().find_subcommand(&first).is_some() {
        return None;
    }
    meant_by(&first).map(|meant| format!("{meant}\nA prompt of several words is written in quotes"))
}

fn near_command(word: &str) -> Option<String> {
    let arguments = Arguments::command();
    let shown = arguments.get_subcommands().filter(|command| !command.is_hide_set()).map(clap::Command::get_name);
    let names: Vec<&str> = shown.collect();
    // A plural, or the other way round, is further than a slip.
    let plural = |name: &&&str| word.strip_suffix('s') == Some(**name) || name.strip_suffix('s') == Some(word);
    let found = names.iter().find(plural).copied().or_else(|| nearest(word, names.iter().copied()))?;
    Some(found.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn a_slip_in_a_command_is_seen() {
        for (word, meant) in [
            ("sesion", Some("agent-host session")),
            ("sessions", Some("agent-host session")),
            ("approval", Some("agent-host approvals")),
            ("plugins", Some("agent-host plugin")),
            ("help", Some("agent-host --help")),
            ("serve", Some("no server")),
            ("Hello", None),
            ("What?", None),
            ("help me", None),
        ] {
            let found = meant_by(word);
            assert_eq!(found.is_some(), meant.is_some(), "{word}: {found:?}");
            assert!(meant.is_none_or(|meant| found.is_some_and(|found| found.contains(meant))), "{word}");
        }
        let line = ["sesion", "list"].map(str::to_owned);
        let error = Arguments::try_parse_from(std::iter::once("agent-host".to_owned()).chain(line.clone()));
        let meant = meant_by_line(&error.expect_err("refused"), line.into_iter());
        assert!(meant.is_some_and(|meant| meant.contains("did you mean `agent-host session`?")));
    }

    #[test]
    fn an_unknown_option_of_a_command_is_no_slip() {
        for words in [["plugin", "sign", "--nope"], ["session", "show", "--nope"]] {
            let line = words.map(str::to_owned);
            let error = Arguments::try_parse_from(std::iter::once("agent-host".to_owned()).chain(line.clone()));
            let error = error.expect_err("refused");
            assert_eq!(meant_by_line(&error, line.into_iter()), None);
            assert!(error.to_string().contains("--nope"), "{error}");
        }
    }
}
