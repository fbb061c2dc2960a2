//! The MCP servers of an agent. The host connects to the servers when they are needed, lists their tools and calls
//! the tools.

use crate::catalogue::Catalogue;
use crate::child::ProcessGroups;
use crate::configuration::{ServerConfig, Transport};
use crate::error::McpConfigError;
use crate::http;
use crate::result::McpToolResult;
use crate::server::{ConnectionAttempt, Server, close};
use agent_core::plugin::TraceContext;
use agent_core::tool::{ToolError, Violation};
use futures::future::join_all;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

/// Maximum length of a server name in bytes.
const MAX_NAME_BYTES: usize = 64;

/// The configured MCP servers of an agent.
///
/// Clones are cheap and share the connections. A server is started when it is first needed. Dropping the last clone
/// stops all servers.
///
/// # Examples
///
/// ```
/// use agent_mcp::{ChildCommand, McpServers, ServerConfig, Transport};
/// use serde_json::json;
///
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// let command = ChildCommand { command: "/nonexistent/notes-server".to_owned(), ..ChildCommand::default() };
/// let servers = McpServers::new([ServerConfig::new("notes", Transport::Stdio(command))])?;
/// assert_eq!(servers.names().collect::<Vec<_>>(), ["notes"]);
///
/// // A server that cannot be started is reported. The other servers are still available.
/// let acquired = servers.acquire().await;
/// assert_eq!(acquired.catalogue().tools().len(), 0);
/// assert!(acquired.catalogue().problems()[0].to_string().contains("could not be started"));
///
/// assert!(servers.call("notes", "search", &json!({"query": "tea"}), None).await.is_err());
/// acquired.release().await;
/// # Ok::<(), agent_mcp::McpConfigError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct McpServers {
    servers: Arc<BTreeMap<String, Server>>,
    groups: ProcessGroups,
    /// Background tasks that close connections of released servers.
    closing: TaskTracker,
}

impl McpServers {
    /// Checks the configurations without starting any server.
    ///
    /// # Errors
    ///
    /// Returns an error if a name is invalid or used twice, or if an HTTP address or header is invalid.
    pub fn new(configs: impl IntoIterator<Item = ServerConfig>) -> Result<Self, McpConfigError> {
        let (mut servers, groups) = (BTreeMap::new(), ProcessGroups::default());
        for config in configs {
            let name = config.name.clone();
            let is_allowed = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-');
            if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(is_allowed) {
                return Err(McpConfigError::Name { name });
            }
            if let Transport::Http(address) = &config.transport {
                http::check(address).map_err(|reason| McpConfigError::Http { server: name.clone(), reason })?;
            }
            if servers.insert(name.clone(), Server::new(config, groups.clone())).is_some() {
                return Err(McpConfigError::Duplicate { name });
            }
        }
        Ok(Self { servers: Arc::new(servers), groups, closing: TaskTracker::new() })
    }

    /// Returns the names of the configured servers, in alphabetical order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.servers.keys().map(String::as_str)
    }

    /// Returns whether no server is configured.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// Connects to all servers concurrently and keeps them connected until the returned value is released or dropped.
    ///
    /// A server that cannot be reached is listed in [`Catalogue::problems`] and does not prevent the use of the
    /// other servers.
    pub async fn acquire(&self) -> AcquiredServers {
        // Register this user of the servers before the first await. If the caller is then cancelled, `acquired` is
        // dropped and releases all servers.
        self.servers.values().for_each(Server::add_user);
        let mut acquired = AcquiredServers { servers: self.clone(), catalogue: Arc::default(), active: true };
        let listings = join_all(self.servers.values().map(Server::listing)).await;
        let mut catalogue = Catalogue::default();
        for listing in listings {
            match listing {
                Ok(listing) => catalogue.add(&listing),
                Err(problem) => catalogue.add_problem(problem),
            }
        }
        acquired.catalogue = Arc::new(catalogue);
        acquired
    }

    /// Calls a tool of the server `name`. `tool` is the name of the tool as the server spells it, without the server's
    /// name as prefix. Dropping the future cancels the call on the server.
    ///
    /// If the connection is lost during the call, the call is not repeated, because the server may already have
    /// executed it.
    ///
    /// The server receives `trace`, which identifies the span of the call, in the `_meta` of the request (I6; MCP, SEP-414).
    ///
    /// # Errors
    ///
    /// Returns the error of the tool. If the call cannot be made, or if there is no result in time, returns an error
    /// that names the server.
    pub async fn call(
        &self,
        name: &str,
        tool: &str,
        arguments: &Value,
        trace: Option<&TraceContext>,
    ) -> Result<McpToolResult, ToolError> {
        let Some(server) = self.servers.get(name) else {
            return Err(ToolError::NotFound { message: format!("there is no MCP server {name}") });
        };
        let Value::Object(arguments) = arguments else {
            let message = "the arguments of an MCP tool must be a JSON object".to_owned();
            let violation = Violation { pointer: String::new(), rule: Some("type".to_owned()), message };
            return Err(ToolError::InvalidArguments { violations: vec![violation] });
        };
        server.call(tool, arguments.clone(), trace).await
    }

    /// Kills all server processes and does not wait until they have exited. Use this method if the host must
    /// exit immediately.
    pub fn kill(&self) {
        self.groups.kill();
    }

    /// From now on, all running servers together have only about 100 ms left to exit. Use this method if the host must
    /// stop quickly (L29).
    ///
    /// Call this method before [`McpServers::shutdown`]. Servers that are started later keep their full time to exit.
    pub fn shorten_grace_periods(&self) {
        self.groups.shorten_grace_periods();
    }

    /// Closes all connections, even if they are in use, and waits until the server processes have exited.
    pub async fn shutdown(&self) {
        let attempts = self.servers.values().filter_map(Server::take_connection);
        join_all(attempts.map(close)).await;
        self.closing.close();
        self.closing.wait().await;
        self.closing.reopen();
    }
}

impl fmt::Debug for McpServers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.names()).finish()
    }
}

/// Keeps servers connected while this value exists, and contains a snapshot of the tools of these servers.
///
/// Dropping this value releases the servers. Servers with [`KeepConnected::Turn`] that have no users left are then
/// closed in the background. [`McpServers::shutdown`] waits until these servers are closed.
///
/// [`KeepConnected::Turn`]: crate::configuration::KeepConnected::Turn
pub struct AcquiredServers {
    servers: McpServers,
    catalogue: Arc<Catalogue>,
    active: bool,
}

impl AcquiredServers {
    /// Returns a snapshot of the tools that the servers had when they were acquired.
    pub fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }

    /// Releases the servers. If a released server has no users left and is connected only during turns, waits until its
    /// connection is closed.
    pub async fn release(mut self) {
        close_all(self.remove_user()).await;
    }

    fn remove_user(&mut self) -> Vec<ConnectionAttempt> {
        match std::mem::take(&mut self.active) {
            true => self.servers.servers.values().filter_map(Server::remove_user).collect(),
            false => Vec::new(),
        }
    }
}

impl Drop for AcquiredServers {
    fn drop(&mut self) {
        let unneeded = self.remove_user();
        // If no Tokio runtime is available, no task can close the connections, but dropping the connections ends the
        // server processes.
        if let (false, Ok(runtime)) = (unneeded.is_empty(), Handle::try_current()) {
            self.servers.closing.spawn_on(close_all(unneeded), &runtime);
        }
    }
}

async fn close_all(attempts: Vec<ConnectionAttempt>) {
    join_all(attempts.into_iter().map(close)).await;
}
