//! Tests that valid `agent.toml` files are read and that invalid files are rejected with good error messages.

use super::*;

fn parse(text: &str) -> Result<AgentFile, String> {
    AgentFile::parse(text, Path::new("agents/agent.toml")).map_err(|error| error.to_string())
}

/// L20, L24, L25: the keys for the tool dialect, the number of offered tools, the planner and the executor are read
/// and checked.
#[test]
fn reads_and_checks_tool_and_planner_keys() {
    let file = parse("tool_dialect = \"text\"\noffered_tools = 3\nplanner = \"ollama/a\"\n").expect("valid");
    assert_eq!((file.tool_dialect, file.offered_tools), (Some(ToolDialect::Text), Some(3)));
    let message = parse("executor = \"ollama/b\"\ntool_dialect = \"xml\"\noffered_tools = 0\n").expect_err("invalid");
    let message = message.to_string();
    for part in
        ["1:12: `executor` needs `planner`", "2:16: `tool_dialect`", "native", "3:17: `offered_tools` is out of range"]
    {
        assert!(message.contains(part), "{part}: {message}");
    }
}

/// L5: weights that are negative, infinite, not a number or unknown are rejected.
#[test]
fn l5_execution_unit_weights_must_be_finite_and_not_negative() {
    let file = parse("[execution_units]\nprompt_token = 0.25\nmodel_call = 10\n").expect("valid");
    let units = file.execution_units;
    let shown = [units.prompt_token, units.completion_token, units.model_call].map(agent_core::run::Weight::units);
    assert_eq!(shown, [0.25, 1.0, 10.0]);
    let wrong = "[execution_units]\nprompt_token = -1\ncompletion_token = inf\nmodel_call = nan\ncall = 1\n";
    let message = parse(wrong).expect_err("invalid");
    for part in [
        "2:16: `execution_units.prompt_token` is out of range",
        "3:20: `execution_units.completion_token` is out of range",
        "4:14: `execution_units.model_call` is out of range",
        "5:1: unknown key `execution_units.call`",
        "allowed: a number from 0 to 1000",
        "allowed here: prompt_token, completion_token, model_call",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let message = parse("execution_units = 3\n").expect_err("not a table");
    assert!(message.contains("allowed: a table, `[execution_units]`"), "{message}");
}

/// P4, L20: media policies for unknown providers, reserved names of servers, and addresses that contain credentials
/// are rejected.
#[test]
fn rejects_unknown_providers_and_reserved_names() {
    let message = parse("media_policies = { opnai = \"mask-openai\" }\n").expect_err("refused");
    for part in [
        "agents/agent.toml:1:20",
        "no provider `opnai`",
        "did you mean `openai`?",
        "known providers: openai, anthropic",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let message = parse("[mcp.local]\ncommand = \"a\"\n").expect_err("refused");
    assert!(message.contains("agents/agent.toml:1:6: `mcp.local`") && message.contains("another name"), "{message}");
    let message = parse("[plugins.a.grants]\nhttp = [\"GET https://me:hush@a.example\"]\n").expect_err("refused");
    assert!(message.contains("is not a valid request pattern") && !message.contains("hush"), "{message}");
}

/// I2: the values and locations of all keys are read.
#[test]
fn reads_a_complete_file() {
    let file = parse(
        r#"
        name = "reader"
        model = "scripted:replies.json"
        plugin_directory = "../plugins"
        instructions = "Be exact."
        max_interactions = 4_0
        at_limit = "error"
        max_corrections = 0
        parallel_calls = 2
        result_characters = 500
        memory = "off"
        finish = "tool"
        answer_within_ms = 60_000
        persistence = true
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
        tool_wall_ms = 1000
        memory_mib = 32
        fuel = true
        "#,
    )
    .expect("valid");
    assert_eq!(file.model.as_ref().map(|model| model.location.as_str()), Some("agents/agent.toml:3: model"));
    assert_eq!(file.name.as_deref(), Some("reader"));
    assert_eq!(file.plugin_directory, Some(PathBuf::from("agents/../plugins")));
    assert_eq!((file.max_interactions, file.at_limit, file.max_corrections), (Some(40), Some(AtLimit::Error), Some(0)));
    assert_eq!((file.parallel_calls, file.result_characters, file.include_history), (Some(2), Some(500), Some(true)));
    assert_eq!((file.finish, file.answer_within_ms, file.persistence), (Some(Finish::Tool), Some(60_000), Some(true)));
    assert_eq!(file.memory, Some(MemoryUse::Off));
    assert_eq!(file.output_schema.expect("a schema")["properties"]["total"]["minimum"], 0);
    assert_eq!(file.validators, Some(vec!["strict-json".to_owned()]));
    assert_eq!(file.media_policies["openai"], "mask-openai");
    let mut limits = agent_plugins::CallLimits::default();
    file.limits["files"].set(&CALL_LIMITS, &mut limits);
    assert_eq!((limits.tool_time.as_millis(), limits.memory >> 20, limits.fuel), (1000, 32, Some(500_000_000)));
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
    assert_eq!(file.grants[1].origin, "agents/agent.toml:27: plugins.files.grants.read[0]");
}

#[test]
fn an_empty_file_sets_no_keys() {
    assert_eq!(parse("").expect("valid"), AgentFile { folder: "agents".into(), ..AgentFile::default() });
}

/// L17, I2: approval rules and their locations are read, and an unknown policy is reported with its line.
#[test]
fn l17_reads_approval_rules_with_their_locations() {
    use agent_core::approval::ApprovalPolicy::{Allow, Ask, Deny};
    let file = parse(
        r#"
        [approval]
        default = "ask"
        open_world = "deny"
        bind_arguments = ["files.*"]

        [approval.tools]
        "files.write*" = "deny"
        look = "allow"
        "#,
    )
    .expect("valid");
    let rules = file.approvals.as_ref().expect("rules");
    assert_eq!((rules.default, rules.destructive, rules.open_world), (Ask, Ask, Deny));
    let unattended = parse("[approval]\ndestructive = \"allow\"\n").expect("valid").approvals.expect("rules");
    assert_eq!((unattended.default, unattended.destructive), (Allow, Allow));
    let tools: Vec<_> = rules.tools.iter().map(|(name, policy)| (name.as_str(), *policy)).collect();
    assert_eq!(tools, [("files.write*", Deny), ("look", Allow)]);
    assert_eq!(rules.bind_arguments, ["files.*"]);
    assert_eq!(file.approval_locations["look"], "agents/agent.toml:9: approval.tools.look");
    let wrong = parse("[approval.tools]\npay = \"aks\"\n[approval]\n").expect_err("unknown policy, duplicate header");
    assert!(wrong.contains("agents/agent.toml:2:7") && wrong.contains("\"allow\", \"ask\" or \"deny\""), "{wrong}");
}

/// I2: one error reports all problems. For each problem, the error names the file, the line, the key and the
/// allowed values.
#[test]
fn reports_every_problem_with_its_line() {
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
        = did you mean `model`? allowed here: name, plugin_directory, instructions, chain_of_thought, tool_rules, model, fallback_models, fallback_text, model_cooldown_ms, reply_tokens, tool_dialect, offered_tools, command_tools, embedding_model, planner, executor, max_interactions, at_limit, max_corrections, parallel_calls, result_characters, minimum_remaining, max_depth, evict_at, evict_to, summary, summary_model, memory, finish, answer_within_ms, persistence, include_history, output_schema, validators, context_builder, media_policies, execution_units, budget, approval, retry, providers, agents, limits, host, plugins, mcp, services, outbox, schedules, webhooks, events, telemetry, sharing

    agents/agent.toml:3:20: `max_interactions` is out of range
      3 | max_interactions = 0
        |                    ^
        = allowed: a whole number from 1 to 1000

    agents/agent.toml:4:12: `at_limit` has an unknown value
      4 | at_limit = "stop"
        |            ^^^^^^
        = allowed: "finish" or "error"

    agents/agent.toml:5:19: `include_history` is a string
      5 | include_history = "yes"
        |                   ^^^^^
        = allowed: true or false

    agents/agent.toml:6:20: `validators[1]` is a number
      6 | validators = ["a", 2]
        |                    ^
        = allowed: a string in quotes

    agents/agent.toml:7:17: `output_schema` names agents/absent.json, which cannot be read: No such file or directory (os error 2)
      7 | output_schema = "absent.json"
        |                 ^^^^^^^^^^^^^
        = allowed: a table, or the path of a JSON file, relative to this file

    agents/agent.toml:10:1: unknown key `plugins.files.grants.reed`
      10 | reed = ["."]
         | ^^^^
         = did you mean `read`? allowed here: read, write, env, config, http, key_value_mib, model_tokens, events, media, ask

    agents/agent.toml:12:14: `plugins.files.limits.memory_mib` is out of range
      12 | memory_mib = 512
         |              ^^^
         = allowed: a whole number from 1 to 256
    "#);
}

#[test]
fn reports_toml_syntax_errors_with_their_line() {
    insta::assert_snapshot!(parse("name = \"a\"\nmodel = \n").expect_err("not TOML"), @r"
    agents/agent.toml:2:9: string values must be quoted, expected literal string
      2 | model = 
        |         ^
        = the file must be valid TOML: see https://toml.io
    ");
    insta::assert_snapshot!(parse("name = \"a\"\nname = \"b\"\n").expect_err("twice"), @r#"
    agents/agent.toml:2:1: `name` is defined twice, first in line 1
      2 | name = "b"
        | ^^^^
        = keep one of the two keys
    "#);
}

#[test]
fn a_plugin_folder_under_the_wrong_key_is_explained() {
    insta::assert_snapshot!(parse("plugins = \"plugins\"").expect_err("a table"), @r#"
    agents/agent.toml:1:11: `plugins` is a string
      1 | plugins = "plugins"
        |           ^^^^^^^^^
        = to name the folder with the plugins, write `plugin_directory = "…"`
    "#);
}

/// I2: if a key is in the wrong table, the error contains the name of the right table. If a key occurs twice, the error
/// contains the line of the first occurrence.
#[test]
fn reports_misplaced_and_duplicate_keys() {
    let error = parse(
        r#"
name = "a"
attempts = 2
name = "b"
grants = { read = ["."] }

[retry]
atempts = 3
model = "offline"

[plugins.files]
read = ["."]

[retry]
attempts = 1

[[providers]]
base_url = "http://127.0.0.1/v1"
"#,
    )
    .expect_err("eight problems");
    insta::assert_snapshot!(error, @r#"
    agents/agent.toml:3:1: unknown key `attempts`
      3 | attempts = 2
        | ^^^^^^^^
        = `attempts` belongs in `[retry]`; allowed here: name, plugin_directory, instructions, chain_of_thought, tool_rules, model, fallback_models, fallback_text, model_cooldown_ms, reply_tokens, tool_dialect, offered_tools, command_tools, embedding_model, planner, executor, max_interactions, at_limit, max_corrections, parallel_calls, result_characters, minimum_remaining, max_depth, evict_at, evict_to, summary, summary_model, memory, finish, answer_within_ms, persistence, include_history, output_schema, validators, context_builder, media_policies, execution_units, budget, approval, retry, providers, agents, limits, host, plugins, mcp, services, outbox, schedules, webhooks, events, telemetry, sharing

    agents/agent.toml:4:1: `name` is defined twice, first in line 2
      4 | name = "b"
        | ^^^^
        = keep one of the two keys

    agents/agent.toml:5:1: unknown key `grants`
      5 | grants = { read = ["."] }
        | ^^^^^^
        = `grants` belongs in `[host.grants]` or `[plugins.NAME.grants]`; allowed here: name, plugin_directory, instructions, chain_of_thought, tool_rules, model, fallback_models, fallback_text, model_cooldown_ms, reply_tokens, tool_dialect, offered_tools, command_tools, embedding_model, planner, executor, max_interactions, at_limit, max_corrections, parallel_calls, result_characters, minimum_remaining, max_depth, evict_at, evict_to, summary, summary_model, memory, finish, answer_within_ms, persistence, include_history, output_schema, validators, context_builder, media_policies, execution_units, budget, approval, retry, providers, agents, limits, host, plugins, mcp, services, outbox, schedules, webhooks, events, telemetry, sharing

    agents/agent.toml:8:1: unknown key `retry.atempts`
      8 | atempts = 3
        | ^^^^^^^
        = did you mean `attempts`? allowed here: attempts, first_wait_ms, longest_wait_ms, total_ms

    agents/agent.toml:9:1: unknown key `retry.model`
      9 | model = "offline"
        | ^^^^^
        = `model` belongs at the top of the file, above the first `[table]`; allowed here: attempts, first_wait_ms, longest_wait_ms, total_ms

    agents/agent.toml:12:1: unknown key `plugins.files.read`
      12 | read = ["."]
         | ^^^^
         = `read` belongs in `[plugins.files.grants]`; allowed here: grants, secrets, limits

    agents/agent.toml:14:2: `[retry]` is defined twice, first in line 7
      14 | [retry]
         |  ^^^^^
         = write all keys of the table under one header

    agents/agent.toml:17:1: `providers` is a list
      17 | [[providers]]
         | ^^^^^^^^^^^^^
         = allowed: a table, `[providers.NAME]`, `[providers.NAME.models.MODEL]`; write its header with single brackets
    "#);
}

/// M2: every problem in the tables of providers is reported, and no secret is shown.
#[test]
fn reports_problems_in_provider_tables() {
    let error = parse(
        r#"
fallback_models = ["offline", 3, ""]

[providers.grok]
key_env = "GROQ KEY"

[providers.offline]
base_url = "http://127.0.0.1/v1"

[providers.office]
base_url = "https://me:secret@example.com/v1/chat/completions"
key = "sk-1"
headers = { Authorization = "Bearer x", "a b" = "c" }
header_env = { "X-Key" = 1 }
connect_timeout_ms = 1.5

[providers.office.models."a/b"]
prompt_price = -1
windows = 3
"#,
    )
    .expect_err("many problems");
    insta::assert_snapshot!(error, @r#"
    agents/agent.toml:2:19: `fallback_models` needs `model`
      2 | fallback_models = ["offline", 3, ""]
        |                   ^^^^^^^^^^^^^^^^^^
        = `model` is called first, and these models after it: add `model = "…"`

    agents/agent.toml:2:31: `fallback_models[1]` is a number
      2 | fallback_models = ["offline", 3, ""]
        |                               ^
        = allowed: a string of one line, in quotes

    agents/agent.toml:2:34: `fallback_models[2]` is empty
      2 | fallback_models = ["offline", 3, ""]
        |                                  ^^
        = allowed: a string of one line, in quotes

    agents/agent.toml:4:12: `providers.grok` has no `base_url`, and `grok` is not a known provider
      4 | [providers.grok]
        |            ^^^^
        = did you mean `groq`? add `base_url = "https://…"`; known providers: openai, anthropic, gemini, groq, deepseek, mistral, openrouter, ollama, lmstudio, llama-cpp, vllm

    agents/agent.toml:5:11: `providers.grok.key_env` is not a valid variable name
      5 | key_env = "GROQ KEY"
        |           ^^^^^^^^^^
        = allowed: the name of an environment variable, such as "OPENAI_API_KEY"

    agents/agent.toml:7:12: `providers.offline`: `offline` is a built-in provider and cannot be configured
      7 | [providers.offline]
        |            ^^^^^^^
        = give your provider another name

    agents/agent.toml:11:12: `providers.office.base_url` contains a user name or a key, which must not be written into an address
      11 | base_url = ***************************************************
         |            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
         = allowed: an address such as "http://127.0.0.1:8000/v1": http or https, without `/chat/completions`, keys, `?` and `#`

    agents/agent.toml:12:1: `providers.office.key`: a secret must not be written into the file
      12 | key = ******
         | ^^^
         = put the secret into an environment variable, and set `key_env` to its name: `key_env = "OPENAI_API_KEY"`

    agents/agent.toml:13:13: `providers.office.headers.Authorization`: the key is a header for a secret, which must not be written into the file
      13 | headers = { Authorization = ******* **, "a b" = "c" }
         |             ^^^^^^^^^^^^^
         = allowed: the name of a header that contains no secret; for secrets, `header_env = { "NAME" = "VARIABLE" }` reads the value from the environment

    agents/agent.toml:13:41: `providers.office.headers."a b"`: the key is not a valid header name
      13 | headers = { Authorization = ******* **, "a b" = "c" }
         |                                         ^^^^^
         = allowed: the name of a header that contains no secret; for secrets, `header_env = { "NAME" = "VARIABLE" }` reads the value from the environment

    agents/agent.toml:14:26: `providers.office.header_env.X-Key` is a number
      14 | header_env = { "X-Key" = 1 }
         |                          ^
         = allowed: the name of an environment variable, such as "OPENAI_API_KEY"

    agents/agent.toml:15:22: `providers.office.connect_timeout_ms` is not a whole number
      15 | connect_timeout_ms = 1.5
         |                      ^^^
         = allowed: a whole number from 1 to 600000

    agents/agent.toml:18:16: `providers.office.models."a/b".prompt_price` is out of range
      18 | prompt_price = -1
         |                ^^
         = allowed: a number from 0 to 1000000

    agents/agent.toml:18:16: `providers.office.models."a/b".prompt_price` needs `completion_price`
      18 | prompt_price = -1
         |                ^^
         = set both prices, or neither

    agents/agent.toml:19:1: unknown key `providers.office.models."a/b".windows`
      19 | windows = 3
         | ^^^^^^^
         = did you mean `window`? allowed here: window, prompt_price, completion_price, cache_read_price, cache_write_price, effort
    "#);
}

/// An error shows at most 50 problems, followed by the number of problems that are not shown.
#[test]
fn shows_a_limited_number_of_problems() {
    let wrong: String = (0..1000).map(|number| format!("key{number} = {number}\n")).collect();
    let error = parse(&wrong).expect_err("a thousand problems");
    assert!(error.contains("agents/agent.toml:50:1") && !error.contains("agents/agent.toml:51:1"), "{error}");
    assert!(error.ends_with("and 950 more problems"), "{error}");
    let twice: String = (0..20_000).map(|_| "name = \"a\"\n").collect();
    let error = parse(&twice).expect_err("a second name");
    assert!(error.contains("agents/agent.toml:2:1: `name` is defined twice, first in line 1"), "{error}");
}

/// No error message shows a secret that is written into the file.
#[test]
fn errors_never_show_secrets() {
    for text in [
        "[providers.openai]\nkey = \"hunter2\"\nkey_env = 3\n",
        "[providers.openai]\nAPI_KEY = hunter2\n",
        "[providers.openai]\ntoken = \"hunter2\"\ntoken = \"hunter2\"\n",
        "[providers.openai]\nheaders = { X-Api-Key = \"hunter2\", a = 3 }\n",
        "[providers.openai]\nbase_url = \"http://me:hunter2@example.com/v1\"\n",
        "[providers.openai]\nsecret = \"\"\"\nhunter2\n\"\"\"\n",
    ] {
        let error = parse(text).expect_err("refused");
        assert!(!error.contains("hunter2"), "{error}");
        assert!(error.contains('*') || text.contains("\"\"\""), "{error}");
    }
}

mod large_files;
mod limits;
mod one_list;
mod services;
mod with_schema;
