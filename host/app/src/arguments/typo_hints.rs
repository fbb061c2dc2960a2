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

/// Returns a hint if the first word is a mistyped command. Clap interprets a mistyped command as the prompt, and
/// rejects the words after the prompt.
pub(crate) fn hint_for_error(error: &clap::Error, words: impl Iterator<Item = String>) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    // If the command line begins with an option, any later word could be the command, so this function returns no hint.
    let first = words.into_iter().next().filter(|word| !word.starts_with('-'))?;
    // If the first word is a valid command, clap's error message already names the unknown option.
    if Arguments::command().find_subcommand(&first).is_some() {
        return None;
    }
    hint_for_prompt(&first).map(|hint| format!("{hint}\nWrite a prompt of several words in quotes"))
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
