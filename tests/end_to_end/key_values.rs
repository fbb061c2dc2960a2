//! Tests of three subjects: `wasi:keyvalue`, which needs a grant and uses the store (P5, P8); the validator `grounded`;
//! and special files in a granted tree (row 33).

use crate::support::{TestHost, call_reply, results, run_turn, script, text_reply, with_tree_grant};
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

async fn call(test_host: &TestHost, config: AgentConfig, name: &str, arguments: Value) -> (bool, String) {
    let mut session = test_host.session(config, script(&[call_reply(&[(name, arguments)]), text_reply("Done.")])).await;
    run_turn(&mut session, "Go.").await;
    let (_, is_error, text) = results(test_host, &session).await.remove(0);
    session.close().await.unwrap();
    (is_error, text)
}

/// P5, P8: A value that a plugin has stored still exists after its call and its session have ended. The stored values
/// belong to one agent, and a quota limits them.
#[tokio::test(flavor = "multi_thread")]
async fn p5_values_persist_and_belong_to_one_agent() {
    let test_host = TestHost::new(&["notes"]).await;
    let add = |text: &str| json!({"text": text});
    let (is_error, text) = call(&test_host, agent("a", None), "notes.add", add("denied")).await;
    assert!(is_error && text.contains("key_value_mib = 10") && text.contains("[plugins.notes.grants]"), "{text}");
    let granted = || agent("a", Some(4096));
    let (is_error, text) = call(&test_host, granted(), "notes.add", add("Ada likes tea")).await;
    assert!(!is_error && text.contains("\"number\":1"), "{text}");
    let (_, text) = call(&test_host, granted(), "notes.find", json!({"words": "tea"})).await;
    assert!(text.contains("Ada likes tea"), "another session finds the value: {text}");
    let (_, text) = call(&test_host, agent("b", Some(4096)), "notes.list", json!({})).await;
    assert!(!text.contains("Ada"), "another agent does not find the value: {text}");
    let (is_error, text) = call(&test_host, granted(), "notes.add", add(&"x".repeat(5000))).await;
    assert!(is_error && text.contains("4096"), "{text}");
}

/// P5: Increments are atomic, even if many calls run at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn p5_concurrent_increments_are_atomic() {
    let test_host = TestHost::new(&["notes"]).await;
    let calls: Vec<_> = (0..16).map(|index| ("notes.add", json!({"text": format!("note {index}")}))).collect();
    let mut config = agent("a", Some(1 << 20));
    config.bounds.parallel_calls = 16;
    let mut session = test_host.session(config, script(&[call_reply(&calls), text_reply("Done.")])).await;
    run_turn(&mut session, "Go.").await;
    let mut numbers: Vec<u64> = results(&test_host, &session)
        .await
        .iter()
        .map(|(_, _, text)| serde_json::from_str::<Value>(text).expect(text)["number"].as_u64().unwrap())
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=16).collect::<Vec<_>>());
}

/// L12: If a reply contains a quote that does not appear in any tool result, the model must correct the reply. A reply
/// whose quote appears in a tool result ends the turn.
#[tokio::test(flavor = "multi_thread")]
async fn l12_quotes_must_be_in_a_tool_result() {
    let test_host = TestHost::new(&["files", "grounded"]).await;
    std::fs::write(test_host.tree().join("light.txt"), "The light was first lit in 1841.\n").unwrap();
    let mut config = with_tree_grant(&test_host, "files");
    config.validators = vec!["grounded".to_owned()];
    let replies = [
        call_reply(&[("files.read", json!({"path": "light.txt"}))]),
        text_reply("It says \"The light was first lit in 1842.\""),
        text_reply("It says \"The light was first lit in 1841.\""),
    ];
    let mut session = test_host.session(config, script(&replies)).await;
    let TurnResult::Finished(output) = run_turn(&mut session, "When?").await else { panic!("the turn finishes") };
    assert_eq!(output.data, json!("It says \"The light was first lit in 1841.\""));
    assert_eq!(session.state().turns, 1);
}

/// Row 33: A named pipe in a granted tree is refused before it is opened, even if a link leads to it.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn row_33_refuses_a_pipe_in_a_granted_tree() {
    let test_host = TestHost::new(&["files"]).await;
    let pipe = test_host.tree().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::os::unix::fs::symlink("pipe", test_host.tree().join("link")).unwrap();
    std::fs::write(test_host.tree().join("file"), "words").unwrap();
    for (tool, path) in [("files.read", "pipe"), ("files.read", "link"), ("files.write", "pipe")] {
        let arguments = match tool {
            "files.write" => json!({"path": path, "text": "x", "mode": "append"}),
            _ => json!({"path": path}),
        };
        let called = tokio::time::timeout(
            Duration::from_secs(20),
            call(&test_host, with_tree_grant(&test_host, "files"), tool, arguments),
        );
        let (is_error, text) = called.await.expect("the call is refused at once and does not wait for its time limit");
        assert!(is_error && !text.contains("wall time"), "{tool} {path}: {text}");
    }
    let (is_error, text) =
        call(&test_host, with_tree_grant(&test_host, "files"), "files.read", json!({"path": "file"})).await;
    assert!(!is_error && text.contains("words"), "{text}");
    // If a thread still waited to read from the pipe, opening the pipe for writing would succeed.
    let nonblocking = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
    let writer = rustix::fs::open(&pipe, nonblocking, rustix::fs::Mode::empty());
    assert_eq!(writer.err(), Some(rustix::io::Errno::NXIO), "no thread waits on the pipe");
}
