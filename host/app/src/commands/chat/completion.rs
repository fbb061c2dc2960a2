//! Tab completion: slash commands and their arguments, model names, tool names, and paths after `@`.

use super::path_completion::paths;
use super::slash::COMMANDS;
use crate::commands::attachments::open_mention;
use reedline::{Completer, CompletionResult, Span, Suggestion};

/// The names that can be completed in a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    /// Names and prefixes that `/model` accepts.
    pub(super) models: Vec<String>,
    /// Names of the tools, spelled as the tools' authors wrote them.
    pub(super) tools: Vec<String>,
    /// Names of the plugins.
    pub(super) plugins: Vec<String>,
}

/// Completes the word before the cursor.
pub(super) struct NameCompleter {
    names: Names,
}

impl NameCompleter {
    /// Creates a completer for `names`, and for the slash commands and their arguments.
    pub(super) fn new(names: Names) -> Self {
        Self { names }
    }

    /// Returns the byte offset of the word before the cursor, and its completions with their descriptions.
    fn candidates(&self, line: &str) -> (usize, Vec<(String, &'static str)>) {
        if let Some((start, path)) = open_mention(line) {
            return (start, paths(&path).into_iter().map(|path| (path, "")).collect());
        }
        let start = line.rfind(char::is_whitespace).map_or(0, |position| position + 1);
        let word = &line[start..];
        let named = |names: &[String]| names.iter().map(|name| (name.clone(), "")).collect::<Vec<_>>();
        let first = line.split_whitespace().next().unwrap_or_default();
        let candidates = if start == 0 && word.starts_with('/') {
            COMMANDS.iter().map(|command| (command.name.to_owned(), command.description)).collect()
        } else if first == "/model" {
            named(&self.names.models)
        } else if first == "/session" {
            vec![("list".to_owned(), "the latest sessions"), ("new".to_owned(), "switch to a new session")]
        } else if first == "/grant" || first == "/revoke" {
            let is_second_word = line.split_whitespace().count() <= if word.is_empty() { 1 } else { 2 };
            if is_second_word { named(&self.names.plugins) } else { Vec::new() }
        } else if first == "/resolve" {
            vec![("retry".to_owned(), "run it again"), ("failed".to_owned(), "TEXT"), ("result".to_owned(), "TEXT")]
        } else if word.is_empty() {
            Vec::new()
        } else {
            named(&self.names.tools)
        };
        (start, candidates.into_iter().filter(|(name, _)| name.starts_with(word) && name != word).collect())
    }
}

impl Completer for NameCompleter {
    fn complete(&mut self, line: &str, position: usize) -> CompletionResult {
        let line = line.get(..position).unwrap_or(line);
        let (start, candidates) = self.candidates(line);
        let suggestions = candidates.into_iter().map(|(value, meaning)| Suggestion {
            description: (!meaning.is_empty()).then(|| meaning.to_owned()),
            span: Span::new(start, line.len()),
            // The user continues to type after the name of a folder or of a provider.
            append_whitespace: !value.ends_with('/'),
            value,
            ..Suggestion::default()
        });
        CompletionResult::fresh(suggestions.collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_depend_on_the_command_and_the_typed_prefix() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let completer = NameCompleter::new(Names {
            models: names(&["offline/router", "openai/"]),
            tools: names(&["text.count_file", "text.search", "files.read"]),
            plugins: names(&["text", "files"]),
        });
        let complete = |line: &str| {
            let (start, found) = completer.candidates(line);
            (start, found.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(complete("/mo"), (0, "/model".to_owned()));
        assert_eq!(complete("/model o"), (7, "offline/router openai/".to_owned()));
        assert_eq!(complete("/session "), (9, "list new".to_owned()));
        assert_eq!(complete("/grant te"), (7, "text".to_owned()));
        assert_eq!(complete("/revoke "), (8, "text files".to_owned()));
        assert_eq!(complete("/grant text re"), (12, String::new()));
        assert_eq!(complete("text.c"), (0, "text.count_file".to_owned()));
        assert_eq!(complete("call text."), (5, "text.count_file text.search".to_owned()));
        assert_eq!(complete("Zähle f"), (7, "files.read".to_owned()));
        assert_eq!(complete("words "), (6, String::new()));
        assert_eq!(complete("see @Cargo.to"), (4, "@Cargo.toml".to_owned()), "tests run in the folder of the crate");
    }
}
