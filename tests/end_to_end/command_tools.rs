//! Command-line programs that a model runs by name with one tool, `run_command` (P3). Grants, approvals, limits and stored
//! calls belong to each program.

use crate::generic_components::command;
use crate::support::{TestHost, call_reply, results, run_turn, script, text_reply, visible_messages};
use agent_core::approval::{ApprovalPolicy, GrantScope};
use agent_core::message::Part;
use agent_core::text_dialect::ToolDialect;
use agent_plugins::Grants;
use agent_runtime::{AgentConfig, ApprovalDecision, CommandTools, PluginAllowance, TurnResult, Verdict};
use serde_json::{Value, json};

/// A host with the programs `shout` and `whisper`, which are copies of one program, and with the plugin `probe`.
async fn with_programs() -> TestHost {
    let test_host = TestHost::new(&["probe"]).await;
    let plugins = test_host.directory.path().join("plugins");
    for name in ["shout", "whisper"] {
        std::fs::copy(command(), plugins.join(format!("{name}.wasm"))).unwrap();
    }
    let manifest = "name = \"whisper\"\ndescription = \"Says it quietly.\"\n[asks]\nenv = [\"COLOUR\"]\n";
    std::fs::write(plugins.join("whisper.plugin.toml"), manifest).unwrap();
    test_host
}

fn one_tool() -> AgentConfig {
    let mut config = AgentConfig::new("test");
    config.command_tools = CommandTools::One;
    config.offered_tools = 100;
    let variables = |value: &str| Grants { env: [("COLOUR".to_owned(), value.to_owned())].into(), ..Grants::default() };
    for (plugin, value) in [("whisper", "teal"), ("probe", "red")] {
        config
            .plugins
            .insert(plugin.to_owned(), PluginAllowance { grants: variables(value), ..PluginAllowance::default() });
    }
    config
}

fn run(command: &str, args: &[&str]) -> (&'static str, Value) {
    ("run_command", json!({"command": command, "args": args}))
}

/// P3, P6: The model is offered one tool for all programs. Each call runs its program with the grants of that program only,
/// and is stored as a call of that program. Calls with wrong arguments name the programs.
#[tokio::test(flavor = "multi_thread")]
async fn p3_one_tool_runs_programs_by_name_with_their_own_grants() {
    let test_host = with_programs().await;
    let calls = [
        run("whisper", &["environment"]),
        run("shout", &["environment"]),
        ("run_command", json!({"command": "shout", "args": ["upper"], "stdin": "abc"})),
        run("curl", &["https://example.com"]),
        ("run_command", json!({"args": ["upper"]})),
        ("run_command", json!({"command": "probe.echo", "args": []})),
        ("run_command", json!({"command": "shout", "args": "upper"})),
        // A model may also call a program by its own name, for example because an earlier session did.
        ("shout", json!({"args": ["upper"], "stdin": "def"})),
    ];
    let mut session = test_host.session(one_tool(), script(&[call_reply(&calls), text_reply("Done.")])).await;
    let registry = session.live().current();
    let registry = registry.registry();
    let offered: Vec<_> = registry.offered().iter().map(|tool| tool.author_name.as_str()).collect();
    assert!(offered.contains(&"run_command") && offered.contains(&"probe.echo"), "{offered:?}");
    assert!(!offered.contains(&"shout") && !offered.contains(&"whisper"), "{offered:?}");
    let tool = registry.offered().iter().find(|tool| tool.author_name == "run_command").unwrap();
    assert!(tool.description.ends_with("\n- shout\n- whisper: Says it quietly."), "{}", tool.description);
    assert_eq!(tool.input_schema["properties"]["command"]["enum"], json!(["shout", "whisper"]));
    let result = run_turn(&mut session, "Go.").await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    let results = results(&test_host, &session).await;
    let expected = [
        ("whisper", false, "COLOUR=teal"),
        ("shout", false, "Err("),
        ("shout", false, "ABC"),
        ("run_command", true, "/command"),
        ("run_command", true, "command"),
        ("run_command", true, "/command"),
        ("run_command", true, "/args"),
        ("shout", false, "DEF"),
    ];
    assert_eq!(results.len(), expected.len(), "{results:?}");
    for ((_, is_error, text), (_, fails, words)) in results.iter().zip(expected) {
        assert!(*is_error == fails && text.contains(words), "{words}: {text}");
    }
    assert!(!results[1].2.contains("teal"), "no program gets the grants of another one");
    let messages = visible_messages(&test_host, &session).await;
    let stored = messages.iter().flat_map(|message| &message.parts).filter_map(|part| match part {
        Part::ToolCall(call) => Some(call.name.as_str()),
        _ => None,
    });
    assert_eq!(stored.collect::<Vec<_>>(), expected.map(|(name, ..)| name));
}

/// P3, L20: Later requests show the call to the model as the model has written it, and not as the stored call.
#[tokio::test(flavor = "multi_thread")]
async fn p3_the_prompt_shows_calls_as_the_model_has_written_them() {
    let test_host = with_programs().await;
    let mut config = one_tool();
    config.tool_dialect = ToolDialect::Text;
    let arguments = json!({"command": "shout", "args": ["upper"], "stdin": "abc"});
    let call = json!({"server_name": "local", "tool_name": "run_command", "arguments": arguments});
    let replies = [
        json!({"text": format!("<tool>{call}</tool>"), "expect": {"contains": ["run_command", "- shout"]}}),
        json!({"text": "It is ABC.", "expect": {
            "contains": [r#""tool_name":"run_command","arguments":{"#, r#""command":"shout""#],
            "last_contains": ["Result of `run_command`", "ABC"],
        }}),
    ];
    let mut session = test_host.session(config, script(&replies)).await;
    let result = run_turn(&mut session, "Go.").await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
}

/// L17, row 52: An approval, also one for always, is about a program, and not about all programs.
#[tokio::test(flavor = "multi_thread")]
async fn l17_approvals_belong_to_a_program() {
    let test_host = with_programs().await;
    let mut config = one_tool();
    config.approvals.tools =
        [("shout".to_owned(), ApprovalPolicy::Ask), ("whisper".to_owned(), ApprovalPolicy::Ask)].into();
    let replies = script(&[
        call_reply(&[run("shout", &["upper"])]),
        text_reply("Done."),
        call_reply(&[run("shout", &["upper"]), run("whisper", &["upper"])]),
        text_reply("Done."),
    ]);
    let mut session = test_host.session(config, replies).await;
    run_turn(&mut session, "Go.").await;
    let pending = session.pending_approvals().await.unwrap();
    assert_eq!(pending.iter().map(|item| item.name.as_str()).collect::<Vec<_>>(), ["shout"]);
    let verdict = Verdict::Allow { scope: GrantScope::Always, edited: None };
    session.approve(vec![ApprovalDecision { call: pending[0].call.clone(), verdict }]).await.unwrap();
    session.run(None, Default::default()).await.unwrap();
    run_turn(&mut session, "Again.").await;
    let pending = session.pending_approvals().await.unwrap();
    assert_eq!(pending.iter().map(|item| item.name.as_str()).collect::<Vec<_>>(), ["whisper"]);
}

/// L17: A program that a rule denies cannot be run by name, and a rule that denies `run_command` denies all of them.
#[tokio::test(flavor = "multi_thread")]
async fn l17_denied_programs_cannot_be_run_by_name() {
    let test_host = with_programs().await;
    for (denied, message) in [("shout", "/command"), ("run_command", "denies `run_command`")] {
        let mut config = one_tool();
        config.approvals.tools = [(denied.to_owned(), ApprovalPolicy::Deny)].into();
        let replies = script(&[call_reply(&[run("shout", &["upper"])]), text_reply("Done.")]);
        let mut session = test_host.session(config, replies).await;
        run_turn(&mut session, "Go.").await;
        let results = results(&test_host, &session).await;
        assert!(results[0].1 && results[0].2.contains(message), "{denied}: {results:?}");
    }
}
