//! Guests in Python, JavaScript and C, each by its own toolchain: one against the contract, and one that knows nothing of
//! this host.

use crate::peers::{node_peer, python_peer};
use crate::support::{House, calling, repository, results, saying, script, turn};
use agent_plugins::LoadedPlugin;
use agent_runtime::{AgentConfig, TurnResult};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

fn guest(folder: &str) -> PathBuf {
    repository().join("tests/guests").join(folder)
}

/// Runs a toolchain to its end.
fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&said));
}

/// Into the house's plugin directory. False: its toolchain is not installed.
fn build_python(house: &House, folder: &str, wit: &Path, world: &str) -> bool {
    let Some(componentize) = python_peer("componentize-py") else { return false };
    let mut command = Command::new(componentize);
    command.current_dir(guest(folder)).arg("-d").arg(wit).args(["-w", world, "componentize", "app", "-o"]);
    run(command.arg(component(house, folder)));
    true
}

fn build_javascript(house: &House, folder: &str, wit: &Path, world: &str) -> bool {
    let Some(mut jco) = jco() else { return false };
    jco.arg("componentize").arg(guest(folder).join("app.js")).arg("--wit").arg(wit);
    run(jco.args(["-n", world, "--backend", "qjs", "-o"]).arg(component(house, folder)));
    true
}

/// The core module is made by Zig's C compiler, and the component of it by jco.
fn build_c(house: &House, folder: &str, world: &str) -> bool {
    let (Some(python), Some(mut jco), Some(_)) = (python_peer("python"), jco(), python_peer("python-zig")) else {
        return false;
    };
    let made = house.directory.path().join(folder);
    std::fs::create_dir(&made).unwrap();
    let bindings = Path::new(agent_host_c_bindings::DIRECTORY).join(world);
    let module = made.join("module.wasm");
    let mut zig = Command::new(python);
    zig.env("ZIG_GLOBAL_CACHE_DIR", repository().join("tests/.peers/zig"))
        .env("ZIG_LOCAL_CACHE_DIR", made.join("cache"));
    zig.args(["-m", "ziglang", "cc", "-target", "wasm32-wasi", "-mexec-model=reactor", "-Os", "-I"]).arg(&bindings);
    run(zig.arg(guest(folder).join("guest.c")).args(c_bindings(&bindings)).arg("-o").arg(&module));
    run(jco.arg("new").arg(&module).arg("--wasi-reactor").arg("-o").arg(component(house, folder)));
    true
}

/// What must be compiled of a world's bindings.
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

fn component(house: &House, name: &str) -> PathBuf {
    house.directory.path().join("plugins").join(name).with_extension("wasm")
}

/// What each call of one turn gave: whether it is an error, and its text.
async fn outcomes(house: &House, calls: &[(&str, Value)]) -> Vec<(bool, String)> {
    let mut session = house.session(AgentConfig::new("test"), script(&[calling(calls), saying("Done.")])).await;
    let result = turn(&mut session, "Go.").await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    let results = results(house, &session).await;
    results.into_iter().map(|(_, is_error, text)| (is_error, text)).collect()
}

async fn only_plugin(house: &House) -> Arc<LoadedPlugin> {
    let generation = house.generation().await;
    assert_eq!(generation.plugins().len(), 1);
    generation.plugins().next().unwrap().clone()
}

/// P1, P2, P5: a Python guest, which imports sockets and files it is not granted, serves a tool of the contract.
#[tokio::test(flavor = "multi_thread")]
async fn a_python_guest() {
    let house = House::new(&[]).await;
    if !build_python(&house, "python", &repository().join("wit"), "tool-plugin") {
        return;
    }
    let calls = [
        ("python.upper", json!({"text": "grüße"})),
        ("python.fail", json!({})),
        ("python.connect", json!({})),
        ("python.read", json!({"path": "/etc/passwd"})),
    ];
    let results = outcomes(&house, &calls).await;
    assert_eq!(results[0], (false, "GRÜSSE".to_owned()));
    assert!(results[1].0 && results[1].1.contains("not_found"), "{}", results[1].1);
    assert!(results[2].1.contains("refused"), "a socket without a grant: {}", results[2].1);
    assert!(results[3].1.contains("refused"), "a file without a grant: {}", results[3].1);
}

/// P1, P2, P8: a JavaScript guest serves a tool of the contract; what its toolchain exports besides is no tool.
#[tokio::test(flavor = "multi_thread")]
async fn a_javascript_guest() {
    let house = House::new(&[]).await;
    if !build_javascript(&house, "javascript", &repository().join("wit"), "tool-plugin") {
        return;
    }
    let calls = [
        ("javascript.upper", json!({"text": "grüße"})),
        ("javascript.fail", json!({})),
        ("javascript.throw", json!({})),
        ("javascript.calls", json!({})),
    ];
    let results = outcomes(&house, &calls).await;
    assert_eq!(results[0], (false, "GRÜSSE 1".to_owned()));
    assert!(results[1].0 && results[1].1.contains("not_found"), "{}", results[1].1);
    assert!(results[2].0, "an exception is no answer: {}", results[2].1);
    assert_eq!(results[3], (false, "1".to_owned()), "each call has a fresh instance");
    let plugin = only_plugin(&house).await;
    assert_eq!(plugin.tools().len(), calls.len());
    let [left_out] = plugin.left_out() else { panic!("{:?}", plugin.left_out()) };
    assert!(left_out.function == "init" && left_out.reason.contains("toolchain"), "{left_out}");
}

/// P1, P2: a C guest serves a tool of the contract.
#[tokio::test(flavor = "multi_thread")]
async fn a_c_guest() {
    let house = House::new(&[]).await;
    if !build_c(&house, "c", "tool-plugin") {
        return;
    }
    let calls = [("c.reverse", json!({"text": "harbour"})), ("c.fail", json!({})), ("c.reverse", json!({"text": ""}))];
    let results = outcomes(&house, &calls).await;
    assert_eq!(results[0], (false, "ruobrah".to_owned()));
    assert!(results[1].0 && results[1].1.contains("not_found"), "{}", results[1].1);
    assert_eq!(results[2], (false, String::new()));
}

/// The world of `words.wit`, whichever language implements it (P3, P5).
async fn answers_as_words_does(house: &House) {
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
    for ((is_error, text), (fails, words)) in outcomes(house, &calls).await.iter().zip(expected) {
        assert!(*is_error == fails && text.contains(words), "{text}");
    }
    let tools: Vec<_> = only_plugin(house).await.tools().iter().map(|tool| tool.name.clone()).collect();
    assert_eq!(tools.len(), 3, "{tools:?}");
}

/// P3, P5: a Python component that knows nothing of this host: its functions are tools, with the types of its own WIT.
#[tokio::test(flavor = "multi_thread")]
async fn a_python_guest_of_another_world() {
    let house = House::new(&[]).await;
    if build_python(&house, "python-plain", &guest("words.wit"), "words") {
        answers_as_words_does(&house).await;
    }
}

/// P3: the same in JavaScript.
#[tokio::test(flavor = "multi_thread")]
async fn a_javascript_guest_of_another_world() {
    let house = House::new(&[]).await;
    if build_javascript(&house, "javascript-plain", &guest("words.wit"), "words") {
        answers_as_words_does(&house).await;
    }
}

/// P3: the same in C.
#[tokio::test(flavor = "multi_thread")]
async fn a_c_guest_of_another_world() {
    let house = House::new(&[]).await;
    if build_c(&house, "c-plain", "words") {
        answers_as_words_does(&house).await;
    }
}
