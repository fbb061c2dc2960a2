//! Helpers for the tests: a test server that records its actions in a file, and functions that check results
//! and errors.

use crate::fixture::{ServerLog, mcp_server};
use agent_core::tool::ToolError;
use agent_mcp::{AcquiredServers, ChildCommand, McpContent, McpServers, McpToolResult, ServerConfig, Transport};
use serde_json::{Value, json};
use std::time::Duration;
use tempfile::TempDir;

/// Time limit that keeps a failing test from hanging.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Configuration of a test server, and the log file in which the server records its actions.
pub(crate) struct Fixture {
    pub(crate) config: ServerConfig,
    pub(crate) log: ServerLog,
    _directory: TempDir,
}

impl Fixture {
    /// Creates the configuration of a test server. `mode` selects how the server behaves.
    pub(crate) fn new(mode: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let log = ServerLog { path: directory.path().join("log") };
        let args = vec![mode.to_owned(), log.path.display().to_string()];
        let command = ChildCommand { command: mcp_server().display().to_string(), args, ..ChildCommand::default() };
        let mut config = ServerConfig::new("desk", Transport::Stdio(command));
        config.limits.close_time = Duration::from_millis(300);
        Self { config, log, _directory: directory }
    }

    pub(crate) fn command(&mut self) -> &mut ChildCommand {
        match &mut self.config.transport {
            Transport::Stdio(command) => command,
            Transport::Http(_) => panic!("the test server is a child process"),
        }
    }

    pub(crate) fn servers(&self) -> McpServers {
        McpServers::new([self.config.clone()]).unwrap()
    }
}

/// Returns the names of all tools in the catalogue.
pub(crate) fn names(acquired: &AcquiredServers) -> Vec<String> {
    acquired.catalogue().tools().map(|tool| tool.definition.name.clone()).collect()
}

/// Returns all problems in the catalogue, one per line.
pub(crate) fn problems(acquired: &AcquiredServers) -> String {
    acquired.catalogue().problems().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

pub(crate) async fn call(servers: &McpServers, tool: &str) -> Result<McpToolResult, ToolError> {
    call_with(servers, tool, json!({"text": "hi"})).await
}

pub(crate) async fn call_with(servers: &McpServers, tool: &str, arguments: Value) -> Result<McpToolResult, ToolError> {
    tokio::time::timeout(TEST_TIMEOUT, servers.call("desk", tool, &arguments, None))
        .await
        .expect("the call finishes within the time limit")
}

/// Returns the text of a result whose only content is text.
pub(crate) fn text(result: McpToolResult) -> String {
    match result.content.as_slice() {
        [McpContent::Text(text)] => text.clone(),
        other => panic!("{other:?}"),
    }
}

/// Checks that a call failed with [`ToolError::Unavailable`], and returns the message of the error.
pub(crate) fn unavailable_message(result: Result<McpToolResult, ToolError>) -> String {
    match result {
        Err(ToolError::Unavailable { message, .. }) => message,
        other => panic!("{other:?}"),
    }
}

/// Checks that a call failed with [`ToolError::Failed`], and returns the message of the error.
pub(crate) fn failed_message(result: Result<McpToolResult, ToolError>) -> String {
    match result {
        Err(ToolError::Failed { message }) => message,
        other => panic!("{other:?}"),
    }
}

/// Returns the message of a call that must have failed with [`ToolError::Failed`] or [`ToolError::Unavailable`].
pub(crate) fn error_message(result: Result<McpToolResult, ToolError>) -> String {
    match result {
        Err(ToolError::Failed { message } | ToolError::Unavailable { message, .. }) => message,
        other => panic!("{other:?}"),
    }
}
