//! The official TypeScript SDK as a client, unchanged.

use super::FILES;
use super::editor::{PATIENCE, Project};
use crate::peers::{node, peer};
use crate::support::{call_reply, repository, text_reply};
use serde_json::{Value, json};

/// I7: a client that uses the TypeScript SDK gets text, differences, permission requests, cancellation and loaded sessions.
#[tokio::test(flavor = "multi_thread")]
async fn i7_the_typescript_sdk_is_a_client() {
    let folder = "node/node_modules/@agentclientprotocol/sdk/dist/v1/stable";
    let (Some(node), Some(sdk)) = (node(), peer(folder, "acp.js")) else { return };
    let write =
        |mode: &str| call_reply(&[("files.write", json!({"path": "work/a.md", "text": "one\n", "mode": mode}))]);
    let replies = [write("create"), write("append"), text_reply("Denied."), write("append"), text_reply("Written.")];
    let configuration = format!("{FILES}[approval.tools]\n\"files.write\" = \"ask\"\n");
    let project = Project::new(&["files"], &configuration, &replies);
    let mut command = tokio::process::Command::new(node);
    command.arg(repository().join("tests/end_to_end/acp/client.mjs")).arg(sdk).arg(project.path(""));
    command.arg(env!("CARGO_BIN_EXE_agent-host")).args(["acp", "--agent", "agent.toml", "--data"]);
    let output = command.arg(project.path("data")).kill_on_drop(true).output();
    let output = tokio::time::timeout(PATIENCE, output).await.expect("the client ends").expect("the client runs");
    let (shown, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let seen: Value = serde_json::from_str(shown.trim()).unwrap_or_else(|error| panic!("{error}: {shown}\n{errors}"));
    assert_eq!((&seen["version"], &seen["exit"]), (&json!(1), &json!(0)), "{seen}\n{errors}");
    assert_eq!(seen["diffs"], json!([[null, "one\n"], ["one\n", "one\none\n"]]), "{seen}");
    assert_eq!(seen["permissions"][0], json!(["allow_once", "allow_always", "allow_always", "reject_once"]), "{seen}");
    let mut stops =
        seen["stops"].as_array().expect("a list").iter().map(|stop| stop.as_str().unwrap()).collect::<Vec<_>>();
    assert_eq!((stops.pop(), stops), (Some("cancelled"), vec!["end_turn"; 4]), "{seen}");
    assert!(seen["loaded"].as_str().unwrap().contains("Written."), "{seen}");
}
