//! Reads the tables `[mcp.NAME]`: the MCP servers.

use super::document::Table;
use super::keys::MCP;
use super::limits::{self, LimitValues};
use super::{Located, located_string, located_strings, string_map, strings};
use agent_mcp::MCP_LIMITS;
use std::collections::BTreeMap;

/// A table `[mcp.NAME]`, which configures one MCP server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct McpTable {
    /// Program to start, for a server that is a child process.
    pub command: Option<Located>,
    /// Command-line arguments of the program.
    pub args: Vec<String>,
    /// Environment variables of the process, by name.
    pub env: BTreeMap<String, String>,
    /// Names of variables of the host's environment that are passed to the process.
    pub pass_env: Vec<Located>,
    /// Working directory of the process, as it is written in the file.
    pub directory: Option<String>,
    /// Address of a server that is reached over HTTP.
    pub url: Option<String>,
    /// Headers that are sent with every request, by the header's name.
    pub headers: BTreeMap<String, String>,
    /// Environment variables that contain the values of headers, by the header's name.
    pub header_env: BTreeMap<String, Located>,
    /// Names of the tools that the agent may use. If the key is not set, the agent may use all tools.
    pub tools: Option<Vec<String>>,
    /// How long the server is kept running: `turn` for one turn, or `always` until the host stops.
    pub keep: Option<String>,
    /// Maximum time of one call, in milliseconds.
    pub timeout_ms: Option<u32>,
    /// Maximum time to start or connect to the server and to list its tools, in milliseconds.
    pub start_timeout_ms: Option<u32>,
    /// Limits on the server's list of tools.
    pub limits: LimitValues,
}

/// Reads all tables `[mcp.NAME]`. The keys of the map are the names of the servers.
pub(super) fn read(root: &Table<'_>) -> BTreeMap<String, McpTable> {
    let servers = root.table(MCP);
    let entries = servers.iter().flat_map(Table::entries);
    entries.filter_map(|entry| Some((entry.name, server(&entry.value.table()?)))).collect()
}

fn server(table: &Table<'_>) -> McpTable {
    let text = |key| table.get(key).and_then(|value| value.text());
    let number = |key| table.get(key).and_then(|value| value.number());
    let by_name = |key| table.get(key).map(|value| string_map(&value)).unwrap_or_default();
    let variables = table.table("header_env");
    let variables = variables.iter().flat_map(Table::entries);
    McpTable {
        command: table.get("command").and_then(|value| located_string(&value)),
        args: table.get("args").map(|value| strings(&value)).unwrap_or_default(),
        env: by_name("env"),
        pass_env: table.get("pass_env").map(|value| located_strings(&value)).unwrap_or_default(),
        directory: text("directory"),
        url: text("url"),
        headers: by_name("headers"),
        header_env: variables.filter_map(|entry| Some((entry.name, located_string(&entry.value)?))).collect(),
        tools: table.get("tools").map(|value| strings(&value)),
        keep: text("keep"),
        timeout_ms: number("timeout_ms"),
        start_timeout_ms: number("start_timeout_ms"),
        limits: limits::read(table, &MCP_LIMITS),
    }
}
