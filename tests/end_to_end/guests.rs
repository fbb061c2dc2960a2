//! Plugins in Python, JavaScript and C, each built by its own toolchain. Each language has a plugin for the WIT
//! contract and a component that is not written for this host.

use crate::peers::{node_peer, python_peer};
use crate::support::{TestHost, call_reply, repository, results, run_turn, script, text_reply};
use agent_plugins::LoadedPlugin;
use agent_runtime::{AgentConfig, TurnResult};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

fn guest(folder: &str) -> PathBuf {
    repository().join("tests/guests").join(folder)
}

/// Runs a toolchain command, which must succeed.
fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let output_text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output_text));
}

/// Builds a Python guest, and writes its component to the test host's plugin directory. Returns false if the toolchain
/// for Python guests is not installed.
fn build_python(test_host: &TestHost, folder: &str, wit: &Path, world: &str) -> bool {
    let Some(componentize) = python_peer("componentize-py") else { return false };
    let mut command = Command::new(componentize);
    command.current_dir(guest(folder)).arg("-d").arg(wit).args(["-w", world, "componentize", "app", "-o"]);
    run(command.arg(component(test_host, folder)));
    true
}

fn build_javascript(test_host: &TestHost, folder: &str, wit: &Path, world: &str) -> bool {
    let Some(mut jco) = jco() else { return false };
    jco.arg("componentize").arg(guest(folder).join("app.js")).arg("--wit").arg(wit);
    run(jco.args(["-n", world, "--backend", "qjs", "-o"]).arg(component(test_host, folder)));
    true
}

/// Zig's C compiler builds the core module, and jco makes a component from the core module.
fn build_c(test_host: &TestHost, folder: &str, world: &str) -> bool {
    let (Some(python), Some(mut jco), Some(_)) = (python_peer("python"), jco(), python_peer("python-zig")) else {
        return false;
    };
    let build_directory = test_host.directory.path().join(folder);
    std::fs::create_dir(&build_directory).unwrap();
    let bindings = Path::new(agent_host_c_bindings::DIRECTORY).join(world);
    let module = build_directory.join("module.wasm");
    let mut zig = Command::new(python);
    zig.env("ZIG_GLOBAL_CACHE_DIR", repository().join("tests/.peers/zig"))
        .env("ZIG_LOCAL_CACHE_DIR", build_directory.join("cache"));
    zig.args(["-m", "ziglang", "cc", "-target", "wasm32-wasi", "-mexec-model=reactor", "-Os", "-I"]).arg(&bindings);
    run(zig.arg(guest(folder).join("guest.c")).args(c_bindings(&bindings)).arg("-o").arg(&module));
    run(jco.arg("new").arg(&module).arg("--wasi-reactor").arg("-o").arg(component(test_host, folder)));
    true
}

/// Returns the files of a world's C bindings that must be compiled or linked.
fn c_bindings(directory: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension != "h")).collect()
}

fn jco() -> Option<Command> {
    let (node, jco) = (node_peer("node")?, node_peer("jco")?);
    let mut command = Command::new(node);
    command.arg(jco);
    Some(command)
}

fn component(test_host: &TestHost, name: &str) -> PathBuf {
    test_host.directory.path().join("plugins").join(name).with_extension("wasm")
}

/// Runs a turn with these calls. For each call, returns whether the result is an error, and the text of the result.
async fn outcomes(test_host: &TestHost, calls: &[(&str, Value)]) -> Vec<(bool, String)> {
    let mut session =
        test_host.session(AgentConfig::new("test"), script(&[call_reply(calls), text_reply("Done.")])).await;
    let result = run_turn(&mut session, "Go.").await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    let results = results(test_host, &session).await;
    results.into_iter().map(|(_, is_error, text)| (is_error, text)).collect()
}

async fn only_plugin(test_host: &TestHost) -> Arc<LoadedPlugin> {
    let generation = test_host.generation().await;
    assert_eq!(generation.plugins().len(), 1);
    generation.plugins().next().unwrap().clone()
}

/// P1, P2, P5: A Python guest offers a tool through the plugin contract. The guest also imports sockets and files,
/// which are not granted to it.
#[tokio::test(flavor = "multi_thread")]
async fn p1_a_python_guest_serves_a_tool() {
    let test_host = TestHost::new(&[]).await;
    if !build_python(&test_host, "python", &repository().join("wit"), "tool-plugin") {
        return;
    }
    let calls = [
        ("python.upper", json!({"text": "grüße"})),
        ("python.fail", json!({})),
        ("python.connect", json!({})),
        ("python.read", json!({"path": "/etc/passwd"})),
    ];
    let results = outcomes(&test_host, &calls).await;
    assert_eq!(results[0], (false, "GRÜSSE".to_owned()));
    assert!(results[1].0 && results[1].1.contains("not_found"), "{}", results[1].1);
    assert!(results[2].1.contains("refused"), "a socket without a grant: {}", results[2].1);
    assert!(results[3].1.contains("refused"), "a file without a grant: {}", results[3].1);
}

/// P1, P2, P8: A JavaScript guest offers a tool through the plugin contract. Exports that the JavaScript toolchain adds
/// are not offered as tools.
#[tokio::test(flavor = "multi_thread")]
async fn p1_a_javascript_guest_serves_a_tool() {
    let test_host = TestHost::new(&[]).await;
    if !build_javascript(&test_host, "javascript", &repository().join("wit"), "tool-plugin") {
        return;
    }
    let calls = [
        ("javascript.upper", json!({"text": "grüße"})),
        ("javascript.fail", json!({})),
        ("javascript.throw", json!({})),
        ("javascript.calls", json!({})),
    ];
    let results = outcomes(&test_host, &calls).await;
    assert_eq!(results[0], (false, "GRÜSSE 1".to_owned()));
    assert!(results[1].0 && results[1].1.contains("not_found"), "{}", results[1].1);
    assert!(results[2].0, "an exception is an error: {}", results[2].1);
    assert_eq!(results[3], (false, "1".to_owned()), "each call has a fresh instance");
    let plugin = only_plugin(&test_host).await;
    assert_eq!(plugin.tools().len(), calls.len());
    let [skipped] = plugin.skipped_exports() else { panic!("{:?}", plugin.skipped_exports()) };
    assert!(skipped.function == "init" && skipped.reason.contains("toolchain"), "{skipped}");
}

/// P1, P2: A C guest offers a tool through the plugin contract.
#[tokio::test(flavor = "multi_thread")]
async fn p1_a_c_guest_serves_a_tool() {
    let test_host = TestHost::new(&[]).await;
    if !build_c(&test_host, "c", "tool-plugin") {
        return;
    }
    let calls = [("c.reverse", json!({"text": "harbour"})), ("c.fail", json!({})), ("c.reverse", json!({"text": ""}))];
    let results = outcomes(&test_host, &calls).await;
    assert_eq!(results[0], (false, "ruobrah".to_owned()));
    assert!(results[1].0 && results[1].1.contains("not_found"), "{}", results[1].1);
    assert_eq!(results[2], (false, String::new()));
}

/// Calls the functions of the world in `words.wit` and checks their results. The function is used for components in
/// several languages (P3, P5).
async fn check_words_world(test_host: &TestHost) {
    let calls = [
        ("shout", json!({"text": "harbour"})),
        ("text.count", json!({"text": "one three five"})),
        ("text.count", json!({"text": ""})),
        ("text.pick", json!({"text": "a b c", "which": {"first": 2}})),
        ("text.pick", json!({"text": "a b c", "which": "whole"})),
        ("text.pick", json!({"text": "a b c", "which": {"first": 4}})),
        ("text.pick", json!({"text": "a b c", "which": "last"})),
    ];
    let expected = [
        (false, "HARBOUR!"),
        (false, r#"{"words":3,"longest":"three"}"#),
        (false, r#"{"words":0,"longest":null}"#),
        (false, r#"["a","b"]"#),
        (false, r#"["a","b","c"]"#),
        (true, "there are only 3 words"),
        (true, "/which"),
    ];
    for ((is_error, text), (fails, words)) in outcomes(test_host, &calls).await.iter().zip(expected) {
        assert!(*is_error == fails && text.contains(words), "{text}");
    }
    let tools: Vec<_> = only_plugin(test_host).await.tools().iter().map(|tool| tool.name.clone()).collect();
    assert_eq!(tools.len(), 3, "{tools:?}");
}

/// P3, P5: A Python component that was not written for this host offers its functions as tools. The types of the tools
/// come from the component's own WIT.
#[tokio::test(flavor = "multi_thread")]
async fn p3_a_python_guest_of_another_world_serves_tools() {
    let test_host = TestHost::new(&[]).await;
    if build_python(&test_host, "python-plain", &guest("words.wit"), "words") {
        check_words_world(&test_host).await;
    }
}

/// P3: A JavaScript component that was not written for this host offers its functions as tools.
#[tokio::test(flavor = "multi_thread")]
async fn p3_a_javascript_guest_of_another_world_serves_tools() {
    let test_host = TestHost::new(&[]).await;
    if build_javascript(&test_host, "javascript-plain", &guest("words.wit"), "words") {
        check_words_world(&test_host).await;
    }
}

/// P3: A C component that was not written for this host offers its functions as tools.
#[tokio::test(flavor = "multi_thread")]
async fn p3_a_c_guest_of_another_world_serves_tools() {
    let test_host = TestHost::new(&[]).await;
    if build_c(&test_host, "c-plain", "words") {
        check_words_world(&test_host).await;
    }
}
