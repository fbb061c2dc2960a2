//! Runs every command of `tests/agents/README.md` as written.

use crate::support::{agent_host, repository};
use std::process::Stdio;

/// A command of `tests/agents/README.md`, and the output that the page shows for the command.
struct ExampleCommand {
    command: String,
    answer: String,
}

fn example_commands() -> Vec<ExampleCommand> {
    let page = std::fs::read_to_string(repository().join("tests/agents/README.md")).unwrap();
    let block = page
        .split("```console\n")
        .nth(1)
        .and_then(|rest| rest.split("\n```").next())
        .expect("the page has a console block");
    let mut lines: Vec<ExampleCommand> = Vec::new();
    for text in block.lines() {
        match (text.strip_prefix("$ agent-host "), lines.last_mut()) {
            (Some(command), _) => lines.push(ExampleCommand { command: command.to_owned(), answer: String::new() }),
            (None, Some(line)) => line.answer.push_str(&format!("{text}\n")),
            (None, None) => panic!("the console block must begin with a command: {text}"),
        }
    }
    lines
}

/// Splits a command into words. One of the words may be in quotes and may then contain spaces.
fn words(command: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for (index, piece) in command.split('"').enumerate() {
        match index % 2 {
            0 => words.extend(piece.split_whitespace()),
            _ => words.push(piece),
        }
    }
    words
}

/// L10, L16, L20, L21, L23–L25, L27, D4, M3: Each feature has an example agent.
#[test]
fn every_example_runs_unchanged() {
    let data = tempfile::tempdir().unwrap();
    let commands = example_commands();
    let page = std::fs::read_to_string(repository().join("tests/agents/README.md")).unwrap();
    for file in std::fs::read_dir(repository().join("tests/agents")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let is_delegate = name == "reader.toml";
        assert!(!name.ends_with(".toml") || is_delegate || page.contains(&name), "{name} is not on the page");
    }
    for ExampleCommand { command, answer } in commands {
        let mut run = agent_host();
        run.current_dir(repository()).args(words(&command)).arg("--data").arg(data.path()).stdin(Stdio::null());
        let output = run.output().unwrap();
        let (printed, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(printed, answer, "{command}: {stderr}");
        let code = if answer.is_empty() { 3 } else { 0 };
        assert_eq!(output.status.code(), Some(code), "{command}: {stderr}");
        assert!(!stderr.contains("The lamp was lit at dusk, so"), "thinking is not printed to a pipe: {stderr}");
    }
}
