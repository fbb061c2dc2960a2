//! Any component can be a plugin (P3). The tests use two components as the compiler wrote them: a Rust component that
//! is not written for this host and has a function for each WIT type, and a command-line program.

use crate::support::{
    TestHost, agent_host, call_reply, cargo, components, repository, results, run_turn, script, text_reply,
};
use agent_plugins::Grants;
use agent_runtime::{AgentConfig, PluginAllowance, TurnResult};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Runs a turn with these calls. Returns two values for each call, in the order of the calls: whether the result is an
/// error, and the text of the result.
async fn outcomes(test_host: &TestHost, config: AgentConfig, calls: &[(&str, Value)]) -> Vec<(bool, String)> {
    let mut config = config;
    config.bounds.parallel_calls = 8;
    let mut session = test_host.session(config, script(&[call_reply(calls), text_reply("Done.")])).await;
    let result = run_turn(&mut session, "Go.").await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    let results = results(test_host, &session).await;
    session.close().await.unwrap();
    results.into_iter().map(|(_, is_error, text)| (is_error, text)).collect()
}

/// P3: A value of each WIT type is converted from JSON, passed to a guest, returned unchanged, and converted to the
/// same JSON for the model.
#[tokio::test(flavor = "multi_thread")]
async fn p3_values_of_every_type_round_trip() {
    let test_host = TestHost::new(&["every-type"]).await;
    let cases = [
        ("a-bool", json!(true)),
        ("a-u8", json!(255)),
        ("a-s8", json!(-128)),
        ("a-u16", json!(65535)),
        ("a-s16", json!(-32768)),
        ("a-u32", json!(4_294_967_295_u32)),
        ("a-s32", json!(-2_147_483_648_i32)),
        ("a-u64", json!("18446744073709551615")),
        ("a-s64", json!("-9223372036854775808")),
        ("a-u64", json!(9_007_199_254_740_991_u64)),
        ("a-f32", json!(0.1)),
        ("a-f64", json!("-Infinity")),
        ("a-f64", json!("NaN")),
        ("a-char", json!("ß")),
        ("bytes", json!("AP8Q")),
        ("a-list", json!(["a", "", "c"])),
        ("a-record", json!({"x": -1, "y": 2})),
        ("a-record", json!({"x": 3, "y": null})),
        ("a-tuple", json!([7, "seven"])),
        ("a-variant", json!("nothing")),
        ("a-variant", json!({"circle": 1.5})),
        ("a-variant", json!({"polygon": [{"x": 1, "y": null}]})),
        ("an-enum", json!("dark-green")),
        ("an-option", json!(null)),
        ("an-option", json!("some")),
        ("a-nested-option", json!({"some": null})),
        ("a-nested-option", json!({"some": 4})),
        ("a-result", json!([{"ok": 1}, {"err": "no"}])),
        ("some-flags", json!(["read", "grant-others"])),
    ];
    let names: Vec<_> = cases.iter().map(|(name, _)| format!("echo.{name}")).collect();
    let calls: Vec<_> =
        names.iter().zip(&cases).map(|(name, (_, value))| (name.as_str(), json!({ "value": value }))).collect();
    let outcomes = outcomes(&test_host, AgentConfig::new("test"), &calls).await;
    for ((name, value), (is_error, text)) in cases.iter().zip(&outcomes) {
        let is_text = matches!(*name, "a-char" | "an-enum" | "an-option") && value.is_string();
        let read: Value = serde_json::from_str(text).unwrap_or_else(|_| json!(text));
        assert!(
            !is_error && (read == *value || is_text && text.contains(value.as_str().unwrap())),
            "{name} {value}: {text}"
        );
    }
    let tools = test_host.generation().await;
    let plugin = tools.plugin("every-type").unwrap();
    let tool = |name: &str| plugin.tools().iter().find(|tool| tool.name == name).unwrap();
    assert_eq!(tool("echo.a-record").output_schema.as_ref().unwrap()["required"], json!(["x"]));
    assert!(
        tool("echo.divide").description.contains("divide: ") || tool("echo.divide").description.contains("`divide`")
    );
    assert!(tool("greet").description.contains("func(name: string, loud: option<bool>) -> string"));
}

/// P3: A WIT `result` becomes the result or the error of the tool call, resources exist for one call, and a function
/// that the world exports directly is also a tool.
#[tokio::test(flavor = "multi_thread")]
async fn p3_results_resources_and_world_functions_are_supported() {
    let test_host = TestHost::new(&["every-type"]).await;
    let calls = [
        ("echo.divide", json!({"dividend": -7, "divisor": 2})),
        ("echo.divide", json!({"dividend": 1, "divisor": 0})),
        ("echo.unit", json!({})),
        ("echo.a-string", json!({"value": "line\n\"two\""})),
        ("counting.counter.increment", json!({"self": {"start": 40, "label": null}, "by": 2})),
        ("counting.counter.label", json!({"self": {"start": 1, "label": "mine"}})),
        ("counting.counter.larger", json!({"one": 3, "other": 5})),
        ("counting.gate.open", json!({"self": {"key": "k"}})),
        ("counting.gate.open", json!({"self": {"key": ""}})),
        ("counting.ticket.number", json!({})),
        ("greet", json!({"name": "Ada"})),
        ("greet", json!({"name": "Ada", "loud": true})),
        ("echo.a-record", json!({"value": {"x": "1"}})),
        ("echo.crash", json!({"words": "as told"})),
        ("echo.large", json!({"bytes": 3_000_000})),
        ("echo.environment", json!({"name": "HOME"})),
        ("echo.environment", json!({"name": "TRACEPARENT"})),
    ];
    let outcomes = outcomes(&test_host, AgentConfig::new("test"), &calls).await;
    let expected = [
        (false, "-3"),
        (true, "1 cannot be divided by 0"),
        (false, ""),
        (false, "line\n\"two\""),
        (false, "42"),
        (false, "mine"),
        (false, "5"),
        (false, "open"),
        (true, "a gate needs a key"),
        (false, "1"),
        (false, "Hello, Ada."),
        (false, "HELLO, ADA!"),
        (true, "/value/x"),
        (true, "as told"),
        (true, "passed to the host at once"),
        (false, "null"),
        (false, "\"00-"),
    ];
    for (((name, arguments), (is_error, text)), (fails, words)) in calls.iter().zip(&outcomes).zip(expected) {
        assert!(*is_error == fails && text.contains(words), "{name} {arguments}: {text}");
    }
    let generation = test_host.generation().await;
    let plugin = generation.plugin("every-type").unwrap();
    let skipped: Vec<_> = plugin.skipped_exports().iter().map(ToString::to_string).collect();
    for words in [
        "`fixture:types/counting@1.2.3 [method]counter.merge` is not offered: its parameter `other` is a handle",
        "[method]counter.split` is not offered: its result is a handle",
    ] {
        assert!(skipped.iter().any(|output_text| output_text.contains(words)), "{words}: {skipped:?}");
    }
    assert_eq!(skipped.len(), 2, "{skipped:?}");
}

/// P3: The model receives the descriptions of the functions from the component's section `package-docs`.
#[tokio::test(flavor = "multi_thread")]
async fn p3_tool_descriptions_come_from_the_component() {
    let test_host = TestHost::new(&[]).await;
    let docs = br#"{"interfaces": {"echo": {"funcs": {"divide": {"docs": "The quotient, rounded towards zero."}},
        "types": {"point": {"docs": "A place on the map.", "items": {"x": "Steps to the east."}},
            "shape": {"docs": "What is drawn.", "items": {"nothing": "No line at all.", "circle": "Its radius."}},
            "color": {"items": {"dark-green": "That of firs."}}}}},
        "worlds": {"every-type": {"func_exports": {"greet": {"docs": "Greets somebody by name."}}}}}"#;
    let mut component = std::fs::read(components().join("every-type.wasm")).unwrap();
    let name = b"package-docs";
    let length = name.len() + 2 + docs.len();
    // Append a custom section: the section's id, its length as LEB128 (two bytes), its name, a version number, and
    // the JSON.
    component.extend([0, (length & 0x7f) as u8 | 0x80, (length >> 7) as u8, name.len() as u8]);
    component.extend(name.iter().chain(&[1]).chain(docs.iter()));
    let plugin = test_host.sandbox.load_bytes("documented", component).await.unwrap_or_else(|error| panic!("{error}"));
    let description_of = |name: &str| plugin.tools().iter().find(|tool| tool.name == name).unwrap().description.clone();
    assert_eq!(description_of("echo.divide"), "The quotient, rounded towards zero.");
    assert_eq!(description_of("greet"), "Greets somebody by name.");
    assert!(description_of("echo.unit").contains("`fixture:types/echo@1.2.3`"));
    let schemas = |name: &str| {
        let tool = plugin.tools().iter().find(|tool| tool.name == name).unwrap();
        (tool.input_schema["properties"]["value"].clone(), tool.output_schema.clone().unwrap())
    };
    let (point, returned) = schemas("echo.a-record");
    assert_eq!(point["description"], "A place on the map.");
    assert_eq!(point["properties"]["x"]["description"], "Steps to the east.");
    assert_eq!(point["properties"]["y"].get("description"), None);
    assert_eq!(returned, point);
    let (shape, _) = schemas("echo.a-variant");
    assert_eq!(shape["description"], "What is drawn.\n- `nothing`: No line at all.");
    let (circle, polygon) = (&shape["anyOf"][1]["properties"]["circle"], &shape["anyOf"][1]["properties"]["polygon"]);
    assert_eq!(circle["description"], "Its radius.");
    assert_eq!(polygon["items"]["description"], "A place on the map.");
    let (color, _) = schemas("echo.an-enum");
    assert_eq!(color["description"], "- `dark-green`: That of firs.");
    let (flags, _) = schemas("echo.some-flags");
    assert_eq!(flags.get("description"), None);
}

/// Builds the command-line program of the fixture without a manifest, and returns the path of the program.
pub(crate) fn command() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        components();
        let status = Command::new(cargo())
            .current_dir(repository())
            .args(["build", "--quiet", "--package", "fixture-every-type", "--example", "fixture-command"])
            .args(["--target", "wasm32-wasip2", "--profile", "plugin", "--message-format", "json"])
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        assert!(status.status.success(), "the program is built");
        let messages = String::from_utf8(status.stdout).unwrap();
        let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut files = messages.filter_map(|message| message["filenames"].as_array().cloned()).flatten();
        let is_program = |file: &Value| file.as_str().is_some_and(|file| file.ends_with("fixture-command.wasm"));
        PathBuf::from(files.rfind(is_program).unwrap().as_str().unwrap())
    };
    BUILT.get_or_init(build).clone()
}

/// P3, P5, P6: A command-line program is one tool, which is named after its file. The calls of this test cover
/// arguments, input, output, exit codes and grants.
#[tokio::test(flavor = "multi_thread")]
async fn p3_a_command_line_program_is_one_tool() {
    let test_host = TestHost::new(&[]).await;
    std::fs::copy(command(), test_host.directory.path().join("plugins/shout.wasm")).unwrap();
    let generation = test_host.generation().await;
    let plugin = generation.plugin("shout").unwrap();
    assert_eq!(
        (plugin.kind_labels(), plugin.tools().len(), plugin.tools()[0].name.as_str()),
        (vec!["command"], 1, "shout")
    );
    let call = |args: &[&str], stdin: &str| ("shout", json!({"args": args, "stdin": stdin}));
    let calls = [
        call(&["upper"], "grüße\n"),
        ("shout", json!({})),
        call(&["fail", "file.txt"], ""),
        call(&["leave"], ""),
        call(&["crash"], ""),
        call(&["flood"], ""),
        call(&["environment"], ""),
        ("shout", json!({"args": "upper"})),
    ];
    let outcomes_without = outcomes(&test_host, AgentConfig::new("test"), &calls).await;
    let expected = [
        (false, vec!["GRÜSSE"]),
        (false, vec!["shout None"]),
        (true, vec!["exit code", "no such thing: file.txt", "half of the work"]),
        (false, vec!["done early"]),
        (true, vec!["shout@", "as it was told"]),
        (true, vec!["1 MiB of text and JSON in a result"]),
        // P5: Without a grant, the program receives only the trace context.
        (false, vec!["TRACEPARENT=00-", "Err("]),
        (true, vec!["/args"]),
    ];
    for (((_, arguments), (is_error, text)), (fails, words)) in calls.iter().zip(&outcomes_without).zip(expected) {
        assert!(*is_error == fails && words.iter().all(|words| text.contains(words)), "{arguments}: {text}");
    }
    // If a component has no manifest, only the agent's grants apply (decision 0003).
    let mut granted = AgentConfig::new("granted");
    let tree =
        agent_plugins::TreeGrant { host: test_host.tree(), guest: ".".to_owned(), access: agent_plugins::Access::Read };
    let grants =
        Grants { trees: vec![tree], env: [("COLOUR".to_owned(), "teal".to_owned())].into(), ..Grants::default() };
    granted.plugins.insert("shout".to_owned(), PluginAllowance { grants, ..PluginAllowance::default() });
    let (is_error, text) = outcomes(&test_host, granted, &[call(&["environment"], "")]).await.remove(0);
    assert!(!is_error && text.contains("COLOUR=teal") && text.contains("Ok(0)"), "{text}");
}

/// S3: `plugin inspect` shows which functions of a component are offered as tools and which are not. `plugin call`
/// calls one of the offered functions.
#[test]
fn s3_functions_can_be_inspected_and_called_on_the_command_line() {
    let data = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = agent_host();
        command.current_dir(components()).args(arguments).env("AGENT_HOST_DATA", data.path().join("data"));
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, output_text, errors) = run(&["plugin", "inspect", "every-type.wasm"]);
    assert_eq!(code, Some(0), "{errors}");
    for words in ["functions", "echo.a-variant", "counting.counter.increment", "not offered", "its result is a handle"]
    {
        assert!(output_text.contains(words), "{words}: {output_text}");
    }
    let (_, output_text, _) = run(&["plugin", "inspect", "every-type.wasm", "--json"]);
    let report: Value = serde_json::from_str(&output_text).unwrap();
    assert_eq!(report["not_offered"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        (&report["worlds"], report["exports"][0].is_string()),
        (&serde_json::json!([]), true),
        "the component implements no world of the contract"
    );
    let (_, output_text, _) = run(&["plugin", "inspect", "calc.wasm"]);
    assert!(output_text.contains("worlds   agent-host:plugin/tool-plugin@0.1.0\n"), "{output_text}");
    assert!(output_text.contains("exports  agent-host:plugin@0.1.0 tool\n"), "{output_text}");
    let (code, output_text, errors) = run(&["plugin", "call", "every-type.wasm", "greet", r#"{"name": "Ada"}"#]);
    assert_eq!((code, output_text.trim()), (Some(0), "Hello, Ada."), "{errors}");
    let (code, _, errors) = run(&["plugin", "call", "every-type.wasm", "echo.a-u8", r#"{"value": 256}"#]);
    assert!(code != Some(0) && errors.contains("/value"), "{errors}");
    let program = command();
    let arguments = r#"{"args": ["upper"], "stdin": "abc"}"#;
    let (code, output_text, errors) = run(&["plugin", "call", program.to_str().unwrap(), "fixture-command", arguments]);
    assert_eq!((code, output_text.trim()), (Some(0), "ABC"), "{errors}");
}
