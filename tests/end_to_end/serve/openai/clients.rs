//! The official OpenAI clients for Python and JavaScript use the server unchanged. If a client is not installed, its test prints a
//! note and is skipped.

use super::{GIF, with_finish_tools};
use crate::peers::{node, npm_package, python_with};
use crate::serve::TestServer;
use crate::support::{TestHost, call_reply, repository, script};
use agent_runtime::AgentConfig;
use agent_serve::{NewToken, Right};
use serde_json::json;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// Starts a server with the agents that the programs of the clients expect, and runs such a program.
async fn run(program: PathBuf, arguments: impl Fn(String, String) -> Vec<OsString>) {
    let test_host = TestHost::new(&[]).await;
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 10});
    let red = json!({"thinking": "Hm.", "text": "It is red.", "usage": usage});
    let clerk = test_host.agent(AgentConfig::new("clerk"), script(&[red.clone(), red.clone(), red])).await;
    let ask = call_reply(&[("ask_question", json!({"question": "Which day?"}))]);
    let booked = json!({"calls": [{"name": "converse", "arguments": {"message": "Booked."}}], "expect": {"contains": "Monday."}});
    let asker = test_host.agent(with_finish_tools("asker"), script(&[ask, booked])).await;
    let refused = json!({"error": {"status": 400, "message": "no"}});
    let broken = test_host.agent(AgentConfig::new("broken"), script(&[refused])).await;
    let open = call_reply(&[("open_page", json!({"page": "berths"}))]);
    let found = json!({"text": "There are 12.", "expect": {"last_contains": "12 berths"}});
    let viewer = test_host.agent(AgentConfig::new("viewer"), script(&[open, found])).await;
    let server = TestServer::start(&test_host, &[&clerk, &asker, &broken, &viewer]).await;
    let rights = [Right::Read, Right::Talk, Right::Administer].into();
    let new = NewToken { name: "client".to_owned(), agents: Vec::new(), rights, user: None };
    let token = server.tokens.create(new).expect("the token is created");
    let url = format!("http://{}/v1", server.address());
    let mut command = Command::new(program);
    command.args(arguments(url, token));
    let output = tokio::task::spawn_blocking(move || command.output().expect("the program starts")).await.unwrap();
    let (printed, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(printed.trim(), "ok", "{errors}");
    server.stop().await;
}

/// I3: the official client for Python chats, streams, sends images, reads usage and errors, and uses responses.
#[tokio::test(flavor = "multi_thread")]
async fn i3_the_official_python_client_works_unchanged() {
    let Some(python) = python_with("openai") else { return };
    let program = repository().join("tests/fixtures/openai_client.py");
    run(python, |url, token| vec![program.clone().into(), url.into(), token.into(), GIF.into()]).await;
}

/// I3: the official client for JavaScript chats, streams, sends images, reads usage and errors, and uses responses.
#[tokio::test(flavor = "multi_thread")]
async fn i3_the_official_javascript_client_works_unchanged() {
    let (Some(node), Some(client)) = (node(), npm_package("openai", "index.mjs")) else { return };
    let program = repository().join("tests/fixtures/openai_client.mjs");
    run(node, |url, token| vec![program.clone().into(), client.clone().into(), url.into(), token.into(), GIF.into()])
        .await;
}
