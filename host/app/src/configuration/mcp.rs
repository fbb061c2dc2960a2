//! The tables `[mcp.NAME]`.

use super::document::Table;
use super::keys::MCP;
use super::limits::{self, LimitValues};
use super::{Placed, all_placed, pairs, placed, texts};
use agent_mcp::MCP_LIMITS;
use std::collections::BTreeMap;

/// What the file says of one MCP server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct McpTable {
    /// The program of a child process.
    pub(crate) command: Option<Placed>,
    /// Its arguments.
    pub(crate) args: Vec<String>,
    /// Variables by name.
    pub(crate) env: BTreeMap<String, String>,
    /// Names of the host's own variables.
    pub(crate) pass_env: Vec<Placed>,
    /// Where it runs.
    pub(crate) directory: Option<String>,
    /// The address of a server over HTTP.
    pub(crate) url: Option<String>,
    /// Headers by name.
    pub(crate) headers: BTreeMap<String, String>,
    /// Variables that hold headers, by the header's name.
    pub(crate) header_env: BTreeMap<String, Placed>,
    /// Names of the tools that are taken.
    pub(crate) tools: Option<Vec<String>>,
    /// `turn` or `always`.
    pub(crate) keep: Option<String>,
    /// Of one call.
    pub(crate) timeout_ms: Option<u32>,
    /// To start and list the tools.
    pub(crate) start_timeout_ms: Option<u32>,
    /// Of its catalogue.
    pub(crate) limits: LimitValues,
}

/// All of them.
pub(super) fn read(root: &Table<'_>) -> BTreeMap<String, McpTable> {
    let servers = root.table(MCP);
    let entries = servers.iter().flat_map(Table::entries);
    entries.filter_map(|entry| Some((entry.name, server(&entry.found.table()?)))).collect()
}

fn server(table: &Table<'_>) -> McpTable {
    let text = |key| table.get(key).and_then(|found| found.text());
    let number = |key| table.get(key).and_then(|found| found.number());
    let by_name = |key| table.get(key).map(|found| pairs(&found)).unwrap_or_default();
    let variables = table.table("header_env");
    let variables = variables.iter().flat_map(Table::entries);
    McpTable {
        command: table.get("command").and_then(|found| placed(&found)),
        args: table.get("args").map(|found| texts(&found)).unwrap_or_default(),
        env: by_name("env"),
        pass_env: table.get("pass_env").map(|found| all_placed(&found)).unwrap_or_default(),
        directory: text("directory"),
        url: text("url"),
        headers: by_name("headers"),
        header_env: variables.filter_map(|entry| Some((entry.name, placed(&entry.found)?))).collect(),
        tools: table.get("tools").map(|found| texts(&found)),
        keep: text("keep"),
        timeout_ms: number("timeout_ms"),
        start_timeout_ms: number("start_timeout_ms"),
        limits: limits::read(table, &MCP_LIMITS),
    }
}
