//! Arguments of the command `mcp`.

use super::serve::{FetchArguments, NatsArguments, RunningAgents, ServeArguments};
use agent_config::grants::Grant;
use agent_serve::Expose;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Options of `mcp`.
#[derive(Debug, Args)]
pub(crate) struct McpArguments {
    /// Agent to offer: a file (agent.toml), or the name of an agent in this folder
    #[arg(long, value_name = "FILE|NAME", value_parser = OsStringValueParser::new().try_map(super::agent))]
    pub(crate) agent: Option<PathBuf>,
    /// Folder that contains the plugins (*.wasm), if there is no agent's file
    #[arg(long, value_name = "DIR", conflicts_with = "agent")]
    pub(crate) plugins: Option<PathBuf>,
    /// PROVIDER/MODEL, `offline` or `scripted:FILE`, instead of the models in the agent's file
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Grant something to a plugin, as for a session
    #[arg(long, value_name = "PLUGIN:KIND=VALUE", value_parser = Grant::parse, conflicts_with = "agent")]
    pub(crate) grant: Vec<Grant>,
    /// Offer the agent's tools, or the agent as one tool
    #[arg(long, value_name = "WHAT", value_enum, default_value = "tools")]
    pub(crate) expose: ExposeName,
    /// Address on this machine for streamable HTTP at /mcp, such as 127.0.0.1:8485 (default: stdin and stdout)
    #[arg(long, value_name = "ADDRESS", value_parser = loopback_address)]
    pub(crate) listen: Option<SocketAddr>,
    /// Further name under which clients reach the server, for example through a proxy
    #[arg(long, value_name = "NAME", requires = "listen")]
    pub(crate) host_name: Vec<String>,
    /// Origin of a web page that may use the server, such as https://console.example.com
    #[arg(long, value_name = "ORIGIN", requires = "listen")]
    pub(crate) origin: Vec<String>,
}

/// What is offered, as it is written on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExposeName {
    /// The tools of the agent
    Tools,
    /// The agent as one tool
    Agent,
}

impl From<ExposeName> for Expose {
    fn from(name: ExposeName) -> Self {
        match name {
            ExposeName::Tools => Self::Tools,
            ExposeName::Agent => Self::Agent,
        }
    }
}

impl McpArguments {
    /// Returns the options that select the agent.
    pub(crate) fn agents(&self) -> RunningAgents {
        RunningAgents {
            agent: self.agent.clone().into_iter().collect(),
            plugins: self.plugins.clone(),
            model: self.model.clone(),
            grant: self.grant.clone(),
        }
    }

    /// Returns the arguments with which `serve` builds the same agent.
    pub(crate) fn served(&self) -> ServeArguments {
        ServeArguments {
            agents: self.agents(),
            listen: self.listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0))),
            host_name: self.host_name.clone(),
            origin: self.origin.clone(),
            tls_certificate: None,
            tls_key: None,
            socket: None,
            tokens: None,
            nats: NatsArguments::default(),
            fetch: FetchArguments::default(),
        }
    }
}

/// Parses an address on this machine.
fn loopback_address(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr =
        text.parse().map_err(|_| "write an address and a port, such as 127.0.0.1:8485".to_owned())?;
    match address.ip().is_loopback() {
        true => Ok(address),
        false => Err("the MCP server listens only on this machine, such as 127.0.0.1:8485; for other machines, use \
                      `agent-host serve`, which offers its agents over TLS at /agents/AGENT/mcp"
            .to_owned()),
    }
}
