//! Tests that valid command lines are accepted and invalid command lines are rejected.

use super::*;
use agent_config::grants::{Kind, Receiver};
use clap::CommandFactory;

fn parse(line: &[&str]) -> Result<Arguments, clap::Error> {
    Arguments::try_parse_from(std::iter::once("agent-host").chain(line.iter().copied()))
}

#[test]
fn clap_definition_is_valid() {
    Arguments::command().debug_assert();
}

#[test]
fn i1_parses_prompt_with_plugins_and_grants() {
    let arguments =
        parse(&["--plugins", "plugins", "--grant", "files:read=.", "--grant", "host:read=docs", "How many?"]);
    let run = arguments.expect("parsed").run;
    assert_eq!(run.prompt.as_deref(), Some("How many?"));
    let grants: Vec<_> = run.agent.grant.iter().map(|grant| (&grant.receiver, grant.kind)).collect();
    assert_eq!(grants, [(&Receiver::Plugin("files".into()), Kind::Read), (&Receiver::Host, Kind::Read)]);
}

#[test]
fn distinguishes_commands_from_prompts() {
    assert!(matches!(parse(&["plugin", "build"]).expect("parsed").command, Some(Command::Plugin(_))));
    assert_eq!(parse(&["list files"]).expect("parsed").run.prompt.as_deref(), Some("list files"));
    assert_eq!(parse(&["--", "plugin"]).expect("parsed").run.prompt.as_deref(), Some("plugin"));
    assert_eq!(parse(&["--data", "d", "session", "list"]).expect("parsed").common.data, Some("d".into()));
    assert_eq!(parse(&["session", "list", "--data", "d"]).expect("parsed").common.data, Some("d".into()));
}

#[test]
fn rejects_turn_options_before_a_command() {
    assert!(parse(&["--json", "session", "list"]).expect("parsed").check().is_err());
    assert!(parse(&["-v", "session", "list"]).expect("parsed").check().is_ok());
}

#[test]
fn rejects_invalid_command_lines() {
    let invalid_lines: &[&[&str]] = &[
        &["--continue", "--session", "s"],
        &["--grant", "files", "x"],
        &["one", "two"],
        &["--unknown"],
        &["session", "resolve", "c1", "perhaps"],
        &["session", "delete"],
        &["session", "delete", ""],
        &["session", "fork"],
        &["session", "fork", "s", "--at", "0"],
        &["session", "import"],
        &["session", "import", "f", "--as", ""],
        &["session", "approve"],
        &["session", "approve", "s", "--scope", "never"],
        &["session", "approve", "s", "--edit", "call_1_1_1"],
        &["session", "deny", "s", "--scope", "once"],
        &["approvals", "revoke"],
        &["--yes", "", "hi"],
        &["memory", "forget"],
        &["memory", "search"],
        &["memory", "list", "--user", ""],
        &["--user", "", "hi"],
        &["--user", "ann ", "hi"],
        &["session", "show", ""],
        &["--session", "", "go on"],
        &["--data", "", "session", "list"],
        &["session", "list", "--limit", "0"],
        &["plugin", "rollback"],
        &["plugin", "rollback", "text", "--to", "0a", "--undo"],
        &["audit", "--since", "yesterday"],
        &["--base-url", "127.0.0.1:8000", "hi"],
        &["--base-url", "http://127.0.0.1/v1/chat/completions", "hi"],
        &["--agent", "", "hi"],
        &["config", "init", "agent.toml"],
    ];
    for line in invalid_lines {
        let error = parse(line).err().unwrap_or_else(|| panic!("{line:?} was accepted"));
        assert_eq!(error.exit_code(), 2, "{line:?}");
    }
}

#[test]
fn reports_empty_names() {
    let message = |line: &[&str]| parse(line).expect_err("rejected").to_string();
    assert!(message(&["--data", "", "x"]).contains("AGENT_HOST_DATA"));
    assert!(message(&["--session", "", "x"]).contains("the session id is empty"));
}

/// Splits a line into words as a shell does: quotes join words, and a comment, pipe or redirection ends the command.
fn shell_words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for character in line.chars() {
        match (character, quote) {
            (_, Some(open)) if character == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            ('#' | '|' | '>', None) if word.is_none() => break,
            (' ', None) => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

/// I1, S1: every command in the README and guide pages can be parsed, including its options.
#[test]
fn i1_s1_documented_commands_can_be_parsed() {
    let repository = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let templates =
        ["rust", "python", "javascript", "c"].map(|language| format!("host/devkit/templates/{language}/all/README.md"));
    let kinds = ["tool", "tool-http", "context-builder", "output-validator", "media-policy", "share"]
        .map(|kind| format!("host/devkit/templates/manifest/{kind}.md"));
    let pages = ["README.md", "sdk/README.md", "sdk/python/README.md", "wit/README.md"].map(str::to_owned);
    let guide = std::fs::read_dir(repository.join("host/docs/guide")).expect("the guide");
    let guide = guide.map(|entry| format!("host/docs/guide/{}", entry.expect("a page").file_name().to_string_lossy()));
    // Some pages of the guide show no command, so the test below does not require a command on these pages.
    let guide: Vec<String> = guide.filter(|page| page.ends_with(".md")).collect();
    assert!(guide.len() > 10, "the guide has {} pages", guide.len());
    for page in pages.into_iter().chain(templates).chain(kinds).chain(guide) {
        let text = std::fs::read_to_string(repository.join(&page)).expect("a page");
        let (mut count, mut is_console) = (0, false);
        for line in text.lines() {
            is_console = if line.starts_with("```") { line == "```console" } else { is_console };
            let command = line.strip_prefix("$ ").unwrap_or(line);
            let Some(rest) = command.strip_prefix("agent-host ").filter(|_| is_console) else { continue };
            let words = shell_words(rest);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            assert!(parse(&words).is_ok(), "{page}: `{line}`: {}", parse(&words).expect_err("rejected"));
            count += 1;
        }
        assert!(count > 0 || page.starts_with("host/docs/guide/"), "{page} shows commands");
    }
}

/// S1, S2: every plugin.toml in the README and guide pages parses.
#[test]
fn s1_s2_documented_manifests_parse() {
    let repository = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for page in ["README.md", "sdk/README.md", "sdk/python/README.md", "wit/README.md"] {
        let text = std::fs::read_to_string(repository.join(page)).expect("a page");
        let mut count = 0;
        for block in text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            let table: toml::Table = block.parse().unwrap_or_else(|error| panic!("{page}: {error}: {block}"));
            if block.starts_with("name = ") && table.contains_key("description") | table.contains_key("build") {
                let read = agent_plugins::Manifest::from_toml(block, std::path::Path::new(page));
                assert!(read.is_ok(), "{block}: {read:?}");
                count += 1;
            }
        }
        assert!(count > 0, "{page} shows a plugin.toml");
    }
}
