//! All servers of an agent: held while they are needed, asked for their tools, called by name.

use crate::catalogue::Catalogue;
use crate::child::Groups;
use crate::configuration::{ServerConfig, Transport};
use crate::error::McpConfigError;
use crate::http;
use crate::result::McpDone;
use crate::server::{Attempt, Server, close};
use agent_core::tool::{ToolError, Violation};
use futures::future::join_all;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

/// Characters of a server's name.
const MAX_NAME: usize = 64;

/// The configured servers. Cheap to clone; no server is started before it is needed, and dropping the last clone ends all.
#[derive(Clone, Default)]
pub struct McpServers {
    servers: Arc<BTreeMap<String, Server>>,
    groups: Groups,
    /// What is being closed in the background.
    closing: TaskTracker,
}

impl McpServers {
    /// Checks the configurations; nothing is started yet.
    pub fn new(configs: impl IntoIterator<Item = ServerConfig>) -> Result<Self, McpConfigError> {
        let (mut servers, groups) = (BTreeMap::new(), Groups::default());
        for config in configs {
            let name = config.name.clone();
            let plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-');
            if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(plain) {
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

    /// Their names.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.servers.keys().map(String::as_str)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// Connects to all servers at once and keeps them connected until the returned value is released or dropped. A server
    /// that cannot be reached is one of the catalogue's problems and keeps none of the others from serving.
    pub async fn acquire(&self) -> Held {
        // Before anything is waited for: who stops waiting lets go of all.
        self.servers.values().for_each(Server::take_hold);
        let mut held = Held { servers: self.clone(), catalogue: Arc::default(), holds: true };
        let listings = join_all(self.servers.values().map(Server::listing)).await;
        let mut catalogue = Catalogue::default();
        for listing in listings {
            match listing {
                Ok(listing) => catalogue.add(&listing),
                Err(problem) => catalogue.miss(problem),
            }
        }
        held.catalogue = Arc::new(catalogue);
        held
    }

    /// Calls a tool of a server, by the name that the server gives it. Dropping the future cancels the call there. A call
    /// whose server is lost is not repeated here: it may have taken effect.
    pub async fn call(&self, server: &str, tool: &str, arguments: &Value) -> Result<McpDone, ToolError> {
        let Some(found) = self.servers.get(server) else {
            return Err(ToolError::NotFound { message: format!("there is no MCP server {server}") });
        };
        let Value::Object(arguments) = arguments else {
            let message = "the arguments of an MCP tool are an object".to_owned();
            let violation = Violation { pointer: String::new(), rule: Some("type".to_owned()), message };
            return Err(ToolError::InvalidArguments { violations: vec![violation] });
        };
        found.call(tool, arguments.clone()).await
    }

    /// Kills all processes at once and waits for nothing: for a host that ends in the middle of its work.
    pub fn kill(&self) {
        self.groups.kill();
    }

    /// What runs now gets no more than a moment to end, 100 ms in all, once it is to end: for a host that was told to stop
    /// (L29). Call it before [`McpServers::shutdown`]; servers that are started later have their time again.
    pub fn hurry(&self) {
        self.groups.hurry();
    }

    /// Closes all connections, whoever holds them, and waits until their processes are gone.
    pub async fn shutdown(&self) {
        let attempts = self.servers.values().filter_map(Server::part);
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

/// Servers that are needed now, with the tools that they had when this began. Dropping it lets go of them: those that are
/// kept for a turn only are closed in the background, for which [`McpServers::shutdown`] waits.
pub struct Held {
    servers: McpServers,
    catalogue: Arc<Catalogue>,
    holds: bool,
}

impl Held {
    /// Their tools.
    pub fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }

    /// Lets go, and waits until those that nobody needs are closed.
    pub async fn release(mut self) {
        close_all(self.let_go()).await;
    }

    fn let_go(&mut self) -> Vec<Attempt> {
        match std::mem::take(&mut self.holds) {
            true => self.servers.servers.values().filter_map(Server::let_go).collect(),
            false => Vec::new(),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let unneeded = self.let_go();
        // Without a runtime the connections are dropped, and with them their processes.
        if let (false, Ok(runtime)) = (unneeded.is_empty(), Handle::try_current()) {
            self.servers.closing.spawn_on(close_all(unneeded), &runtime);
        }
    }
}

async fn close_all(attempts: Vec<Attempt>) {
    join_all(attempts.into_iter().map(close)).await;
}
