//! Guests of other toolchains. Where the peer is not installed the test says so and is skipped; `tests/install-peers`
//! installs them, and with `AGENT_HOST_REQUIRE_PEERS=1` a missing one is a failure.

use crate::support::{House, calling, repository, results, saying, script, turn};
use agent_runtime::{AgentConfig, TurnResult};
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

/// A Python program, or a visible skip.
pub(crate) fn python_peer(program: &str) -> Option<PathBuf> {
    peer("python/bin", program)
}

/// A Node.js program, or a visible skip.
pub(crate) fn node_peer(program: &str) -> Option<PathBuf> {
    peer("node/node_modules/.bin", program)
}

/// Node.js as the servers need it, or a visible skip.
pub(crate) fn node() -> Option<PathBuf> {
    peer("node/node_modules/node/bin", "node")
}

/// The entry of an MCP server's package, or a visible skip.
pub(crate) fn mcp_package(package: &str) -> Option<PathBuf> {
    peer(&format!("node/node_modules/@modelcontextprotocol/{package}/dist"), "index.js")
}

fn peer(folder: &str, program: &str) -> Option<PathBuf> {
    let path = repository().join("tests/.peers").join(folder).join(program);
    if path.exists() {
        return Some(path);
    }
    let required = std::env::var_os("AGENT_HOST_REQUIRE_PEERS").is_some();
    assert!(!required, "{program} is required here and not installed: run tests/install-peers");
    // Not `eprintln!`, which the test runner keeps to itself.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {program} is not installed (tests/install-peers installs it)");
    None
}

/// P1, P2, P5: a Python guest, which imports sockets and files it is not granted, serves a tool of the contract.
#[tokio::test(flavor = "multi_thread")]
async fn a_python_guest() {
    let Some(componentize) = python_peer("componentize-py") else { return };
    let house = House::new(&[]).await;
    let component = house.directory.path().join("plugins/python-guest.wasm");
    let output = Command::new(componentize)
        .current_dir(repository().join("tests/guests/python"))
        .arg("-d")
        .arg(repository().join("wit"))
        .args(["-w", "tool-plugin", "componentize", "app", "-o"])
        .arg(&component)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let replies = [
        calling(&[
            ("python.upper", json!({"text": "grüße"})),
            ("python.fail", json!({})),
            ("python.connect", json!({})),
            ("python.read", json!({"path": "/etc/passwd"})),
        ]),
        saying("Done."),
    ];
    let mut session = house.session(AgentConfig::new("test"), script(&replies)).await;
    let result = turn(&mut session, "Go.").await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    let results = results(&house, &session).await;
    assert_eq!(results[0], ("python.upper".to_owned(), false, "GRÜSSE".to_owned()));
    assert!(results[1].1 && results[1].2.contains("not_found"), "{}", results[1].2);
    assert!(results[2].2.contains("refused"), "a socket without a grant: {}", results[2].2);
    assert!(results[3].2.contains("refused"), "a file without a grant: {}", results[3].2);
}

/// P3, P5: a Python component that knows nothing of this host: its functions are tools, with the types of its own WIT.
#[tokio::test(flavor = "multi_thread")]
async fn a_python_guest_of_another_world() {
    let Some(componentize) = python_peer("componentize-py") else { return };
    let house = House::new(&[]).await;
    let component = house.directory.path().join("plugins/words.wasm");
    let output = Command::new(componentize)
        .current_dir(repository().join("tests/guests/python-plain"))
        .args(["-d", "words.wit", "-w", "words", "componentize", "app", "-o"])
        .arg(&component)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let replies = [
        calling(&[
            ("shout", json!({"text": "grüße"})),
            ("text.count", json!({"text": "one three five"})),
            ("text.count", json!({"text": ""})),
            ("text.pick", json!({"text": "a b c", "which": {"first": 2}})),
            ("text.pick", json!({"text": "a b c", "which": "whole"})),
            ("text.pick", json!({"text": "a b c", "which": {"first": 4}})),
            ("text.pick", json!({"text": "a b c", "which": "last"})),
        ]),
        saying("Done."),
    ];
    let mut session = house.session(AgentConfig::new("test"), script(&replies)).await;
    let result = turn(&mut session, "Go.").await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    let results = results(&house, &session).await;
    let expected = [
        (false, "GRÜSSE!"),
        (false, r#"{"words":3,"longest":"three"}"#),
        (false, r#"{"words":0,"longest":null}"#),
        (false, r#"["a","b"]"#),
        (false, r#"["a","b","c"]"#),
        (true, "there are only 3 words"),
        (true, "/which"),
    ];
    for ((name, is_error, text), (fails, words)) in results.iter().zip(expected) {
        assert!(*is_error == fails && text.contains(words), "{name}: {text}");
    }
}
