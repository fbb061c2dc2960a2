//! Slash commands: what a line that begins with `/` asks of the host instead of the model.

/// A command that a person may type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Command {
    /// With its slash.
    pub(super) name: &'static str,
    /// What may follow.
    pub(super) takes: &'static str,
    /// What it does.
    pub(super) meaning: &'static str,
}

/// All of them, in the order of `/help`.
pub(super) const COMMANDS: &[Command] = &[
    Command { name: "/help", takes: "", meaning: "this list" },
    Command { name: "/tools", takes: "", meaning: "the tools that the model may call" },
    Command { name: "/plugins", takes: "", meaning: "the plugins, and what each may touch" },
    Command { name: "/model", takes: "[NAME]", meaning: "the models; with NAME, asks that one from now on" },
    Command { name: "/session", takes: "[list|new|ID]", meaning: "this session; the latest ones; another one" },
    Command { name: "/result", takes: "", meaning: "the whole result of the last call" },
    Command { name: "/undo", takes: "", meaning: "takes the last turn back: the model does not see it any more" },
    Command { name: "/approve", takes: "", meaning: "asks again what waits for you, here and in agents below" },
    Command {
        name: "/continue",
        takes: "",
        meaning: "goes on with a turn that waits, once that was settled elsewhere",
    },
    Command { name: "/resolve", takes: "CALL retry|failed|result [TEXT]", meaning: "decides about a call that waits" },
    Command { name: "/respond", takes: "FILE", meaning: "a service's answer, as a CloudEvent in a file" },
    Command { name: "/cancel", takes: "", meaning: "ends a turn that waits" },
    Command { name: "/quit", takes: "", meaning: "leaves, as does Ctrl-D" },
];

/// What a line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// The list of commands.
    Help,
    /// The tools.
    Tools,
    /// The plugins.
    Plugins,
    /// The models.
    Models,
    /// Another model.
    Model(String),
    /// This session.
    Session,
    /// The latest sessions.
    Sessions,
    /// A new session.
    NewSession,
    /// The session of this id.
    OtherSession(String),
    /// The last call's whole result.
    Result,
    /// The last turn is taken back.
    Undo,
    /// The calls that wait for an approval are asked about again.
    Approve,
    /// A turn that waits goes on, where what it waits for has been settled elsewhere.
    Continue,
    /// A decision about a call: its id, what became of it, and a text.
    Resolve(String, String, Option<String>),
    /// A service's answer, in this file.
    Respond(String),
    /// The end of a turn that waits.
    Cancel,
    /// The end.
    Quit,
}

/// Reads a command. Nothing where the line is none: a path such as `/etc/hosts` is what somebody asks about.
pub(super) fn parse(line: &str) -> Option<Result<Asked, String>> {
    let name = line.split_whitespace().next().filter(|_| line.starts_with('/'))?;
    if name.len() < 2 || !name[1..].chars().all(|character| character.is_ascii_alphabetic()) {
        return None;
    }
    let words: Vec<&str> = line.split_whitespace().skip(1).collect();
    Some(asked(name, &words))
}

fn asked(name: &str, words: &[&str]) -> Result<Asked, String> {
    Ok(match (name, words) {
        ("/help", []) => Asked::Help,
        ("/tools", []) => Asked::Tools,
        ("/plugins", []) => Asked::Plugins,
        ("/model", []) => Asked::Models,
        ("/model", [model]) => Asked::Model((*model).to_owned()),
        ("/session", []) => Asked::Session,
        ("/session", ["list"]) => Asked::Sessions,
        ("/session", ["new"]) => Asked::NewSession,
        ("/session", [id]) => Asked::OtherSession((*id).to_owned()),
        ("/result", []) => Asked::Result,
        ("/undo", []) => Asked::Undo,
        ("/approve", []) => Asked::Approve,
        ("/continue", []) => Asked::Continue,
        ("/resolve", [call, verdict, text @ ..]) => {
            let text = (!text.is_empty()).then(|| text.join(" "));
            Asked::Resolve((*call).to_owned(), (*verdict).to_owned(), text)
        }
        ("/respond", file) if !file.is_empty() => Asked::Respond(file.join(" ")),
        ("/cancel", []) => Asked::Cancel,
        ("/quit" | "/exit", []) => Asked::Quit,
        _ => return Err(misunderstood(name)),
    })
}

fn misunderstood(name: &str) -> String {
    if let Some(command) = COMMANDS.iter().find(|command| command.name == name) {
        return match command.takes {
            "" => format!("{name} takes nothing"),
            takes => format!("write {name} {takes}"),
        };
    }
    let nearest = COMMANDS.iter().min_by_key(|command| distance(name, command.name));
    let nearest = nearest.filter(|command| distance(name, command.name) <= 3);
    let hint = nearest.map(|command| format!("did you mean {}? ", command.name)).unwrap_or_default();
    format!("there is no command {name}; {hint}/help shows all. To ask the model, begin the line with a space")
}

/// Single letters that make one word of the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
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

    /// I1
    #[test]
    fn commands_are_read() {
        let cases = [
            ("/help", Asked::Help),
            ("/tools ", Asked::Tools),
            ("/plugins", Asked::Plugins),
            ("/model", Asked::Models),
            ("/model openai/gpt-5", Asked::Model("openai/gpt-5".into())),
            ("/session", Asked::Session),
            ("/session list", Asked::Sessions),
            ("/session new", Asked::NewSession),
            ("/session agent/01", Asked::OtherSession("agent/01".into())),
            ("/result", Asked::Result),
            ("/undo", Asked::Undo),
            ("/approve", Asked::Approve),
            ("/continue", Asked::Continue),
            ("/resolve call_1 retry", Asked::Resolve("call_1".into(), "retry".into(), None)),
            ("/resolve c result it is done", Asked::Resolve("c".into(), "result".into(), Some("it is done".into()))),
            ("/respond my answer.json", Asked::Respond("my answer.json".into())),
            ("/cancel", Asked::Cancel),
            ("/quit", Asked::Quit),
        ];
        for (line, asked) in cases {
            assert_eq!(parse(line), Some(Ok(asked)), "{line}");
        }
        for command in COMMANDS {
            assert!(
                parse(command.name).is_some_and(|asked| asked.is_ok() || !command.takes.is_empty()),
                "{}",
                command.name
            );
        }
    }

    #[test]
    fn what_is_no_command_is_asked() {
        for line in ["hello", " /help", "/etc/hosts says what?", "/ what", "/", "a /help"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    #[test]
    fn the_nearest_command_is_named() {
        let error = |line: &str| parse(line).expect("a command").expect_err("misunderstood");
        assert!(error("/modle x").contains("did you mean /model?"));
        assert!(error("/tool").contains("did you mean /tools?"));
        assert!(!error("/somethingelse").contains("did you mean"));
        assert_eq!(error("/undo 2"), "/undo takes nothing");
        assert_eq!(error("/resolve"), "write /resolve CALL retry|failed|result [TEXT]");
    }
}
