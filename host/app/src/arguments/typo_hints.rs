//! Hints for words that look like a mistyped command.

use super::Arguments;
use agent_config::agent_file::nearest;
use clap::CommandFactory;
use clap::error::ErrorKind;

/// Command names that are common in other tools, each with the equivalent command of agent-host.
const FOREIGN_COMMANDS: [(&str, &str); 10] = [
    ("help", "agent-host --help"),
    ("man", "agent-host --help"),
    ("version", "agent-host --version"),
    ("init", "agent-host config init"),
    ("list", "agent-host session list, or agent-host plugin list"),
    ("chat", "agent-host --plugins DIR, or --agent FILE, without a prompt"),
    ("run", "agent-host --plugins DIR, or --agent FILE, with a prompt"),
    ("server", "agent-host serve --agent FILE"),
    ("start", "agent-host --plugins DIR, or --agent FILE"),
    ("login", "set the model provider's key in its environment variable, such as OPENAI_API_KEY"),
];

/// Returns a hint if the prompt is a single word that looks like a command.
pub(super) fn hint_for_prompt(prompt: &str) -> Option<String> {
    if prompt.contains(char::is_whitespace) {
        return None;
    }
    if let Some((_, equivalent)) = FOREIGN_COMMANDS.iter().find(|(name, _)| *name == prompt) {
        return Some(format!("`{prompt}` is not a command and would be sent as a prompt; you may mean: {equivalent}"));
    }
    let command = similar_command(prompt)?;
    Some(format!("`{prompt}` is not a command and would be sent as a prompt; did you mean `agent-host {command}`?"))
}

/// Returns a hint if the first word is a mistyped command, or the first word of a prompt without quotes. Clap interprets such a word
/// as the prompt, and rejects the words after the prompt.
pub(crate) fn hint_for_error(error: &clap::Error, words: impl Iterator<Item = String>) -> Option<String> {
    if !matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand) {
        return None;
    }
    // If the command line begins with an option, any later word could be the command, so this function returns no hint.
    let mut words = words;
    let first = words.next().filter(|word| !word.starts_with('-'))?;
    // If the first word is a valid command, clap's error message already names the unknown option.
    if Arguments::command().find_subcommand(&first).is_some() {
        return None;
    }
    let quotes = "Write a prompt of several words in quotes";
    match hint_for_prompt(&first) {
        Some(hint) => Some(format!("{hint}\n{quotes}")),
        // A mistyped option after the prompt is named by clap's own message.
        None if words.next().is_some_and(|second| !second.starts_with('-')) => {
            Some(format!("`{}` is not a command. {quotes}: agent-host \"{} …\"", first, first))
        }
        None => None,
    }
}

fn similar_command(word: &str) -> Option<String> {
    let arguments = Arguments::command();
    let shown = arguments.get_subcommands().filter(|command| !command.is_hide_set()).map(clap::Command::get_name);
    let names: Vec<&str> = shown.collect();
    // `nearest` does not reliably find a command whose name differs from `word` only by a plural `s`.
    let plural = |name: &&&str| word.strip_suffix('s') == Some(**name) || name.strip_suffix('s') == Some(word);
    let found = names.iter().find(plural).copied().or_else(|| nearest(word, names.iter().copied()))?;
    Some(found.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn suggests_command_for_mistyped_word() {
        for (word, expected) in [
            ("sesion", Some("agent-host session")),
            ("sessions", Some("agent-host session")),
            ("approval", Some("agent-host approvals")),
            ("plugins", Some("agent-host plugin")),
            ("help", Some("agent-host --help")),
            ("server", Some("agent-host serve")),
            ("Hello", None),
            ("What?", None),
            ("help me", None),
        ] {
            let hint = hint_for_prompt(word);
            assert_eq!(hint.is_some(), expected.is_some(), "{word}: {hint:?}");
            assert!(expected.is_none_or(|expected| hint.is_some_and(|hint| hint.contains(expected))), "{word}");
        }
        let line = ["sesion", "list"].map(str::to_owned);
        let error = Arguments::try_parse_from(std::iter::once("agent-host".to_owned()).chain(line.clone()));
        let hint = hint_for_error(&error.expect_err("rejected"), line.into_iter());
        assert!(hint.is_some_and(|hint| hint.contains("did you mean `agent-host session`?")));
        let line = ["read", "notes.txt"].map(str::to_owned);
        let error = Arguments::try_parse_from(std::iter::once("agent-host".to_owned()).chain(line.clone()));
        let hint = hint_for_error(&error.expect_err("rejected"), line.into_iter());
        assert_eq!(
            hint.as_deref(),
            Some("`read` is not a command. Write a prompt of several words in quotes: agent-host \"read …\"")
        );
    }

    #[test]
    fn gives_no_hint_for_unknown_option_of_a_command() {
        for words in [["plugin", "sign", "--nope"], ["session", "show", "--nope"]] {
            let line = words.map(str::to_owned);
            let error = Arguments::try_parse_from(std::iter::once("agent-host".to_owned()).chain(line.clone()));
            let error = error.expect_err("rejected");
            assert_eq!(hint_for_error(&error, line.into_iter()), None);
            assert!(error.to_string().contains("--nope"), "{error}");
        }
    }
}
