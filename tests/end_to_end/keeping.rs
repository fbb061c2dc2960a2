//! `wasi:keyvalue` by grant over the store (P5, P8), the validator `grounded`, and files that are none (row 33).

use crate::support::{House, calling, granting, results, saying, script, turn};
use agent_plugins::Grants;
use agent_runtime::{AgentConfig, PluginAllowance, TurnResult};
use serde_json::{Value, json};
use std::time::Duration;

fn agent(name: &str, key_value: Option<u64>) -> AgentConfig {
    let mut config = AgentConfig::new(name);
    let grants = Grants { key_value, ..Grants::default() };
    config.plugins.insert("notes".to_owned(), PluginAllowance { grants, ..PluginAllowance::default() });
    config
}

async fn call(house: &House, config: AgentConfig, name: &str, arguments: Value) -> (bool, String) {
    let mut session = house.session(config, script(&[calling(&[(name, arguments)]), saying("Done.")])).await;
    turn(&mut session, "Go.").await;
    let (_, is_error, text) = results(house, &session).await.remove(0);
    session.close().await.unwrap();
    (is_error, text)
}

/// P5, P8: what a plugin keeps outlives its call and its session, is its agent's own, and has its quota.
#[tokio::test(flavor = "multi_thread")]
async fn p5_values_last_and_are_the_agents_own() {
    let house = House::new(&["notes"]).await;
    let add = |text: &str| json!({"text": text});
    let (is_error, text) = call(&house, agent("a", None), "notes.add", add("denied")).await;
    assert!(is_error && text.contains("key_value_mib = 10") && text.contains("[plugins.notes.grants]"), "{text}");
    let granted = || agent("a", Some(4096));
    let (is_error, text) = call(&house, granted(), "notes.add", add("Ada likes tea")).await;
    assert!(!is_error && text.contains("\"number\":1"), "{text}");
    let (_, text) = call(&house, granted(), "notes.find", json!({"words": "tea"})).await;
    assert!(text.contains("Ada likes tea"), "another session finds it: {text}");
    let (_, text) = call(&house, agent("b", Some(4096)), "notes.list", json!({})).await;
    assert!(!text.contains("Ada"), "another agent does not: {text}");
    let (is_error, text) = call(&house, granted(), "notes.add", add(&"x".repeat(5000))).await;
    assert!(is_error && text.contains("4096"), "{text}");
}

/// P5: counting is atomic, however many calls do it at once.
#[tokio::test(flavor = "multi_thread")]
async fn p5_counting_at_once() {
    let house = House::new(&["notes"]).await;
    let calls: Vec<_> = (0..16).map(|index| ("notes.add", json!({"text": format!("note {index}")}))).collect();
    let mut config = agent("a", Some(1 << 20));
    config.bounds.parallel_calls = 16;
    let mut session = house.session(config, script(&[calling(&calls), saying("Done.")])).await;
    turn(&mut session, "Go.").await;
    let mut numbers: Vec<u64> = results(&house, &session)
        .await
        .iter()
        .map(|(_, _, text)| serde_json::from_str::<Value>(text).expect(text)["number"].as_u64().unwrap())
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=16).collect::<Vec<_>>());
}

/// L12: a quote that no tool result holds goes back to the model; one that a tool brought ends the turn.
#[tokio::test(flavor = "multi_thread")]
async fn l12_quotes_must_stand_in_a_tool_result() {
    let house = House::new(&["files", "grounded"]).await;
    std::fs::write(house.tree().join("light.txt"), "The light was first lit in 1841.\n").unwrap();
    let mut config = granting(&house, "files");
    config.validators = vec!["grounded".to_owned()];
    let replies = [
        calling(&[("files.read", json!({"path": "light.txt"}))]),
        saying("It says \"The light was first lit in 1842.\""),
        saying("It says \"The light was first lit in 1841.\""),
    ];
    let mut session = house.session(config, script(&replies)).await;
    let TurnResult::Finished(output) = turn(&mut session, "When?").await else { panic!("the turn finishes") };
    assert_eq!(output.data, json!("It says \"The light was first lit in 1841.\""));
    assert_eq!(session.state().turns, 1);
}

/// Row 33: a named pipe and a device in a granted tree are refused before they are opened, through a link, too.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn row_33_a_pipe_in_a_granted_tree() {
    let house = House::new(&["files"]).await;
    let pipe = house.tree().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::os::unix::fs::symlink("pipe", house.tree().join("link")).unwrap();
    std::fs::write(house.tree().join("file"), "words").unwrap();
    for (tool, path) in [("files.read", "pipe"), ("files.read", "link"), ("files.write", "pipe")] {
        let arguments = match tool {
            "files.write" => json!({"path": path, "text": "x", "mode": "append"}),
            _ => json!({"path": path}),
        };
        let called =
            tokio::time::timeout(Duration::from_secs(20), call(&house, granting(&house, "files"), tool, arguments));
        let (is_error, text) = called.await.expect("refused at once, not at the end of its time");
        assert!(is_error && !text.contains("wall time"), "{tool} {path}: {text}");
    }
    let (is_error, text) = call(&house, granting(&house, "files"), "files.read", json!({"path": "file"})).await;
    assert!(!is_error && text.contains("words"), "{text}");
    // A thread that still waits to read would be a reader, and let this one open the other end.
    let nonblocking = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
    let writer = rustix::fs::open(&pipe, nonblocking, rustix::fs::Mode::empty());
    assert_eq!(writer.err(), Some(rustix::io::Errno::NXIO), "nobody waits behind the pipe");
}
