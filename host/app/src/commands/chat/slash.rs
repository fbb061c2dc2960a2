//! Parses slash commands, which are input lines that begin with `/` and control the host.

use super::super::grant_changes::GrantChange;
use super::changed_files::Shown;
use crate::terminal::Theme;

/// Description of a slash command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Command {
    /// Name of the command, with its slash.
    pub(super) name: &'static str,
    /// Arguments in usage notation, such as `[NAME]`; empty if there are none.
    pub(super) arguments: &'static str,
    /// Description that `/help` shows for the command.
    pub(super) description: &'static str,
}

/// All commands, in the order of `/help`.
pub(super) const COMMANDS: &[Command] = &[
    Command { name: "/help", arguments: "", description: "this list" },
    Command { name: "/tools", arguments: "", description: "the tools that the model may call" },
    Command { name: "/plugins", arguments: "", description: "the plugins, and the grants of each plugin" },
    Command {
        name: "/model",
        arguments: "[NAME]",
        description: "switches to the model NAME, or lists the models and asks",
    },
    Command {
        name: "/session",
        arguments: "[list|new|ID]",
        description: "shows this session, lists the latest sessions, or switches to another session",
    },
    Command {
        name: "/result",
        arguments: "[N]",
        description: "the full result of the last tool call; with 2, of the call before it, and so on",
    },
    Command { name: "/cost", arguments: "", description: "the model calls, tokens and costs of this session" },
    Command {
        name: "/memory",
        arguments: "[forget ID]",
        description: "the latest memories that the agent may recall; or deletes one",
    },
    Command {
        name: "/grant",
        arguments: "[PLUGIN [KIND=VALUE]]",
        description: "lists what plugins lack; asks again what to grant a plugin; or grants, for example, read=docs",
    },
    Command {
        name: "/revoke",
        arguments: "PLUGIN [KIND]",
        description: "takes all grants of a plugin away, or those of one kind, such as http",
    },
    Command { name: "/diff", arguments: "[all]", description: "the file changes of the last turn, or of this session" },
    Command {
        name: "/compact",
        arguments: "",
        description: "lets the next prompt begin with a summary of the earlier messages",
    },
    Command {
        name: "/theme",
        arguments: "[light|dark|none]",
        description: "colours for a light or a dark terminal, or no colours",
    },
    Command { name: "/undo", arguments: "", description: "undoes the last turn: the model no longer sees it" },
    Command {
        name: "/approve",
        arguments: "",
        description: "asks again for the answers that this agent and its delegates need from you",
    },
    Command {
        name: "/continue",
        arguments: "",
        description: "continues a waiting turn after its answer was given in another process",
    },
    Command {
        name: "/resolve",
        arguments: "CALL retry|failed|result [TEXT]",
        description: "decides about a call whose outcome is unknown",
    },
    Command { name: "/respond", arguments: "FILE", description: "records a service's answer from a CloudEvent file" },
    Command { name: "/cancel", arguments: "", description: "ends a waiting turn" },
    Command { name: "/quit", arguments: "", description: "quits, as Ctrl-D does" },
];

/// A parsed slash command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SlashCommand {
    /// Show the list of commands.
    Help,
    /// List the tools.
    Tools,
    /// List the plugins.
    Plugins,
    /// List the models.
    Models,
    /// Switch to the model with this name.
    Model(String),
    /// Show this session.
    Session,
    /// List the latest sessions.
    Sessions,
    /// Switch to a new session.
    NewSession,
    /// Switch to the session with this id.
    OtherSession(String),
    /// Show the full result of one of the last tool calls, of which the last has the number 1.
    Result(usize),
    /// Show what the session has cost.
    Cost,
    /// List the latest memories.
    Memories,
    /// Delete the memory with this id.
    Forget(String),
    /// Change the grants of a plugin.
    Grants(GrantChange),
    /// Show which files were changed.
    Diff(Shown),
    /// Summarise the earlier messages at the beginning of the next turn.
    Compact,
    /// Show the theme, or use another one.
    Theme(Option<Theme>),
    /// Undo the last turn.
    Undo,
    /// Ask the user again for the approvals and other answers that the agent and its delegates need.
    Approve,
    /// Continue a suspended turn whose answer was given in another process.
    Continue,
    /// Decide about a call whose outcome is unknown: call id, verdict and text.
    Resolve(String, String, Option<String>),
    /// Record the service's answer that this file contains.
    Respond(String),
    /// End a suspended turn.
    Cancel,
    /// End the session.
    Quit,
}

/// Parses an input line. Returns `None` if the line is a prompt. A line that begins with a path such as `/etc/hosts` is
/// also a prompt.
pub(super) fn parse(line: &str) -> Option<Result<SlashCommand, String>> {
    let name = line.split_whitespace().next().filter(|_| line.starts_with('/'))?;
    if name.len() < 2 || !name[1..].chars().all(|character| character.is_ascii_alphabetic()) {
        return None;
    }
    let words: Vec<&str> = line.split_whitespace().skip(1).collect();
    Some(parse_command(name, &words))
}

fn parse_command(name: &str, words: &[&str]) -> Result<SlashCommand, String> {
    Ok(match (name, words) {
        ("/help", []) => SlashCommand::Help,
        ("/tools", []) => SlashCommand::Tools,
        ("/plugins", []) => SlashCommand::Plugins,
        ("/model", []) => SlashCommand::Models,
        ("/model", [model]) => SlashCommand::Model((*model).to_owned()),
        ("/session", []) => SlashCommand::Session,
        ("/session", ["list"]) => SlashCommand::Sessions,
        ("/session", ["new"]) => SlashCommand::NewSession,
        ("/session", [id]) => SlashCommand::OtherSession((*id).to_owned()),
        ("/result", []) => SlashCommand::Result(1),
        ("/result", [number]) => match number.parse() {
            Ok(number @ 1..) => SlashCommand::Result(number),
            _ => return Err(usage_error(name)),
        },
        ("/cost", []) => SlashCommand::Cost,
        ("/memory", []) => SlashCommand::Memories,
        ("/memory", ["forget", id]) => SlashCommand::Forget((*id).to_owned()),
        ("/grant" | "/revoke", words) => {
            SlashCommand::Grants(GrantChange::parse(name, words).ok_or_else(|| usage_error(name))?)
        }
        ("/diff", []) => SlashCommand::Diff(Shown::LastTurn),
        ("/diff", ["all"]) => SlashCommand::Diff(Shown::AllTurns),
        ("/compact", []) => SlashCommand::Compact,
        ("/theme", []) => SlashCommand::Theme(None),
        ("/theme", [theme]) => SlashCommand::Theme(Some(Theme::parse(theme).ok_or_else(|| usage_error(name))?)),
        ("/undo", []) => SlashCommand::Undo,
        ("/approve", []) => SlashCommand::Approve,
        ("/continue", []) => SlashCommand::Continue,
        ("/resolve", [call, verdict, text @ ..]) => {
            let text = (!text.is_empty()).then(|| text.join(" "));
            SlashCommand::Resolve((*call).to_owned(), (*verdict).to_owned(), text)
        }
        ("/respond", file) if !file.is_empty() => SlashCommand::Respond(file.join(" ")),
        ("/cancel", []) => SlashCommand::Cancel,
        ("/quit" | "/exit", []) => SlashCommand::Quit,
        _ => return Err(usage_error(name)),
    })
}

fn usage_error(name: &str) -> String {
    if let Some(command) = COMMANDS.iter().find(|command| command.name == name) {
        return match command.arguments {
            "" => format!("{name} takes no arguments"),
            arguments => format!("write {name} {arguments}"),
        };
    }
    let begun = COMMANDS.iter().find(|command| name.len() > 2 && command.name.starts_with(name));
    let nearest = || COMMANDS.iter().min_by_key(|command| distance(name, command.name));
    let nearest = begun.or_else(nearest).filter(|command| is_similar(name, command.name));
    let hint = nearest.map(|command| format!("did you mean {}? ", command.name)).unwrap_or_default();
    format!("there is no command {name}; {hint}/help shows all. To ask the model, begin the line with a space")
}

/// Whether the user probably meant `command`: `name` is the beginning of it, or differs in one letter, or in two letters
/// after the first one.
fn is_similar(name: &str, command: &str) -> bool {
    let most = if name.get(..2) == command.get(..2) { 2 } else { 1 };
    command.starts_with(name) || distance(name, command) <= most
}

/// Returns the Levenshtein distance: the minimum number of single-letter edits that change one word into the other.
fn distance(word: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in word.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for column in 0..other.len() {
            let replaced = diagonal + usize::from(letter != other[column]);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i1_parse_accepts_every_command() {
        let cases = [
            ("/help", SlashCommand::Help),
            ("/tools ", SlashCommand::Tools),
            ("/plugins", SlashCommand::Plugins),
            ("/model", SlashCommand::Models),
            ("/model openai/gpt-5", SlashCommand::Model("openai/gpt-5".into())),
            ("/session", SlashCommand::Session),
            ("/session list", SlashCommand::Sessions),
            ("/session new", SlashCommand::NewSession),
            ("/session agent/01", SlashCommand::OtherSession("agent/01".into())),
            ("/result", SlashCommand::Result(1)),
            ("/result 3", SlashCommand::Result(3)),
            ("/cost", SlashCommand::Cost),
            ("/memory", SlashCommand::Memories),
            ("/memory forget a/1", SlashCommand::Forget("a/1".into())),
            ("/grant", SlashCommand::Grants(GrantChange::List)),
            ("/grant files", SlashCommand::Grants(GrantChange::Ask("files".into()))),
            (
                "/grant web http=GET https://a.example",
                SlashCommand::Grants(GrantChange::Grant("web".into(), "http=GET https://a.example".into())),
            ),
            ("/revoke files", SlashCommand::Grants(GrantChange::Revoke("files".into(), None))),
            ("/revoke files write", SlashCommand::Grants(GrantChange::Revoke("files".into(), Some("write".into())))),
            ("/diff", SlashCommand::Diff(Shown::LastTurn)),
            ("/diff all", SlashCommand::Diff(Shown::AllTurns)),
            ("/compact", SlashCommand::Compact),
            ("/theme", SlashCommand::Theme(None)),
            ("/theme light", SlashCommand::Theme(Some(Theme::Light))),
            ("/undo", SlashCommand::Undo),
            ("/approve", SlashCommand::Approve),
            ("/continue", SlashCommand::Continue),
            ("/resolve call_1 retry", SlashCommand::Resolve("call_1".into(), "retry".into(), None)),
            (
                "/resolve c result it is done",
                SlashCommand::Resolve("c".into(), "result".into(), Some("it is done".into())),
            ),
            ("/respond my answer.json", SlashCommand::Respond("my answer.json".into())),
            ("/cancel", SlashCommand::Cancel),
            ("/quit", SlashCommand::Quit),
        ];
        for (line, command) in cases {
            assert_eq!(parse(line), Some(Ok(command)), "{line}");
        }
        for command in COMMANDS {
            assert!(
                parse(command.name).is_some_and(|parsed| parsed.is_ok() || !command.arguments.is_empty()),
                "{}",
                command.name
            );
        }
    }

    #[test]
    fn parse_treats_other_lines_as_prompts() {
        for line in ["hello", " /help", "/etc/hosts says what?", "/ what", "/", "a /help"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    #[test]
    fn usage_error_suggests_the_nearest_command() {
        let error = |line: &str| parse(line).expect("a command").expect_err("a usage error");
        assert!(error("/modle x").contains("did you mean /model?"));
        assert!(error("/tool").contains("did you mean /tools?"));
        assert!(error("/reslove").contains("did you mean /resolve?"));
        assert!(error("/mem").contains("did you mean /memory?"));
        for other in ["/somethingelse", "/bogus", "/foo", "/nope", "/list", "/x"] {
            let message = error(other);
            assert!(!message.contains("did you mean") && message.contains("/help shows all"), "{message}");
        }
        assert_eq!(error("/undo 2"), "/undo takes no arguments");
        assert_eq!(error("/theme blue"), "write /theme [light|dark|none]");
        assert_eq!(error("/result 0"), "write /result [N]");
        assert_eq!(error("/resolve"), "write /resolve CALL retry|failed|result [TEXT]");
    }
}
