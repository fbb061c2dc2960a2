//! agent.toml: what is read from it, and what is said of a wrong one.

use super::*;

fn parse(text: &str) -> Result<AgentFile, String> {
    AgentFile::parse(text, Path::new("agents/agent.toml")).map_err(|error| error.to_string())
}

/// I2
#[test]
fn a_whole_file() {
    let file = parse(
        r#"
        name = "reader"
        model = "scripted:replies.json"
        plugin_directory = "../plugins"
        instructions = "Be exact."
        max_interactions = 40
        at_limit = "error"
        max_corrections = 0
        parallel_calls = 2
        result_characters = 500
        include_history = true
        output_schema = { type = "object", required = ["total"], properties = { total = { type = "integer", minimum = 0 } } }
        validators = ["strict-json"]
        context_builder = "project-context"

        [media_policies]
        openai = "mask-openai"

        [host.grants]
        read = ["docs"]

        [plugins.files.grants]
        read = [".", "/srv/notes"]
        write = ["out"]
        env = ["HOME"]
        config = { language = "en" }

        [plugins.files.limits]
        wall_ms = 1000
        memory_mib = 32
        "#,
    )
    .expect("valid");
    assert_eq!(file.name.as_deref(), Some("reader"));
    assert_eq!(file.plugin_directory, Some(PathBuf::from("agents/../plugins")));
    assert_eq!((file.max_interactions, file.at_limit, file.max_corrections), (Some(40), Some(AtLimit::Error), Some(0)));
    assert_eq!((file.parallel_calls, file.result_characters, file.include_history), (Some(2), Some(500), Some(true)));
    assert_eq!(file.output_schema.expect("a schema")["properties"]["total"]["minimum"], 0);
    assert_eq!(file.validators, Some(vec!["strict-json".to_owned()]));
    assert_eq!(file.media_policies["openai"], "mask-openai");
    assert_eq!(file.limits["files"], PluginLimits { wall_ms: Some(1000), cpu_ms: None, memory_mib: Some(32) });
    let grants: Vec<_> = file.grants.iter().map(|grant| (grant.kind, grant.value.as_str())).collect();
    let expected = [
        (Kind::Read, "docs"),
        (Kind::Read, "."),
        (Kind::Read, "/srv/notes"),
        (Kind::Write, "out"),
        (Kind::Env, "HOME"),
        (Kind::Config, "language=en"),
    ];
    assert_eq!(grants, expected);
    assert!(file.grants.iter().all(|grant| grant.base == Path::new("agents")));
    assert_eq!(file.grants[1].origin, "agents/agent.toml:23: plugins.files.grants.read[0]");
}

#[test]
fn an_empty_file_says_nothing() {
    assert_eq!(parse("").expect("valid"), AgentFile { folder: "agents".into(), ..AgentFile::default() });
}

/// I2: file, line, key and what is allowed; all at once.
#[test]
fn every_problem_is_shown_with_its_line() {
    let error = parse(
        r#"
modle = "offline"
max_interactions = 0
at_limit = "stop"
include_history = "yes"
validators = ["a", 2]
output_schema = "absent.json"

[plugins.files.grants]
reed = ["."]
[plugins.files.limits]
memory_mib = 512
"#,
    )
    .expect_err("eight problems");
    insta::assert_snapshot!(error, @r#"
    agents/agent.toml:2:1: unknown key `modle`
      2 | modle = "offline"
        | ^^^^^
        = allowed here: name, model, plugin_directory, instructions, chain_of_thought, tool_rules, reply_tokens, max_interactions, at_limit, max_corrections, parallel_calls, result_characters, include_history, output_schema, validators, context_builder, media_policies, host, plugins

    agents/agent.toml:3:20: `max_interactions` is out of range
      3 | max_interactions = 0
        |                    ^
        = allowed: a whole number from 1 to 1000

    agents/agent.toml:4:12: `at_limit` has an unknown value
      4 | at_limit = "stop"
        |            ^^^^^^
        = allowed: "finish" or "error"

    agents/agent.toml:5:19: `include_history` is a text
      5 | include_history = "yes"
        |                   ^^^^^
        = allowed: true or false

    agents/agent.toml:6:20: `validators[1]` is a number
      6 | validators = ["a", 2]
        |                    ^
        = allowed: a text in quotes

    agents/agent.toml:7:17: `output_schema` names agents/absent.json, which cannot be read: No such file or directory (os error 2)
      7 | output_schema = "absent.json"
        |                 ^^^^^^^^^^^^^
        = allowed: a table, or the path of a JSON file, relative to this file

    agents/agent.toml:10:1: unknown key `plugins.files.grants.reed`
      10 | reed = ["."]
         | ^^^^
         = allowed here: read, write, env, config

    agents/agent.toml:12:14: `plugins.files.limits.memory_mib` is out of range
      12 | memory_mib = 512
         |              ^^^
         = allowed: a whole number from 1 to 256
    "#);
}

#[test]
fn broken_toml_is_shown_with_its_line() {
    insta::assert_snapshot!(parse("name = \"a\"\nmodel = \n").expect_err("no TOML"), @r"
    agents/agent.toml:2:9: string values must be quoted, expected literal string
      2 | model = 
        |         ^
        = the file is TOML: https://toml.io
    ");
    insta::assert_snapshot!(parse("name = \"a\"\nname = \"b\"\n").expect_err("twice"), @r#"
    agents/agent.toml:2:1: duplicate key
      2 | name = "b"
        | ^^^^
        = the file is TOML: https://toml.io
    "#);
}

#[test]
fn the_folder_of_plugins_has_another_key() {
    insta::assert_snapshot!(parse("plugins = \"plugins\"").expect_err("a table"), @r#"
    agents/agent.toml:1:11: `plugins` holds one table per plugin
      1 | plugins = "plugins"
        |           ^^^^^^^^^
        = the folder with the plugins is `plugin_directory = "…"`
    "#);
}
