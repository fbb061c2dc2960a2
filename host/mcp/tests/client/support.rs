//! What the tests share: a server with a diary, and what is left of its processes.

use crate::fixture::{Diary, mcp_server};
use agent_core::tool::ToolError;
use agent_mcp::{ChildCommand, Held, McpContent, McpDone, McpServers, ServerConfig, Transport};
use serde_json::{Value, json};
use std::time::Duration;
use tempfile::TempDir;

/// Against hanging; no test waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server of the tests' own, and what it has written down.
pub(crate) struct Fixture {
    pub(crate) config: ServerConfig,
    pub(crate) diary: Diary,
    _directory: TempDir,
}

impl Fixture {
    pub(crate) fn new(mode: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let diary = Diary { path: directory.path().join("diary") };
        let args = vec![mode.to_owned(), diary.path.display().to_string()];
        let command = ChildCommand { command: mcp_server().display().to_string(), args, ..ChildCommand::default() };
        let mut config = ServerConfig::new("desk", Transport::Stdio(command));
        config.limits.close_time = Duration::from_millis(300);
        Self { config, diary, _directory: directory }
    }

    pub(crate) fn command(&mut self) -> &mut ChildCommand {
        match &mut self.config.transport {
            Transport::Stdio(command) => command,
            Transport::Http(_) => panic!("a fixture is a process"),
        }
    }

    pub(crate) fn servers(&self) -> McpServers {
        McpServers::new([self.config.clone()]).unwrap()
    }
}

pub(crate) fn names(held: &Held) -> Vec<String> {
    held.catalogue().tools().map(|tool| tool.definition.name.clone()).collect()
}

pub(crate) fn problems(held: &Held) -> String {
    held.catalogue().problems().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

pub(crate) async fn call(servers: &McpServers, tool: &str) -> Result<McpDone, ToolError> {
    call_with(servers, tool, json!({"text": "hi"})).await
}

pub(crate) async fn call_with(servers: &McpServers, tool: &str, arguments: Value) -> Result<McpDone, ToolError> {
    tokio::time::timeout(PATIENCE, servers.call("desk", tool, &arguments)).await.expect("a call ends")
}

/// The text of a result of one text.
pub(crate) fn text(done: McpDone) -> String {
    match done.content.as_slice() {
        [McpContent::Text(text)] => text.clone(),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn unavailable(result: Result<McpDone, ToolError>) -> String {
    match result {
        Err(ToolError::Unavailable { message, .. }) => message,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn failed(result: Result<McpDone, ToolError>) -> String {
    match result {
        Err(ToolError::Failed { message }) => message,
        other => panic!("{other:?}"),
    }
}

/// The message of a call that failed for either reason.
pub(crate) fn told(result: Result<McpDone, ToolError>) -> String {
    match result {
        Err(ToolError::Failed { message } | ToolError::Unavailable { message, .. }) => message,
        other => panic!("{other:?}"),
    }
}
