//! The client side of the Model Context Protocol (I5): child processes and HTTP servers whose tools the host offers. Alone
//! knows the protocol; a server can fail, hang, crash or lie, and nobody else notices more than an error.

mod answering;
mod catalogue;
mod child;
pub mod configuration;
mod connection;
pub mod error;
mod http;
mod lines;
mod reasons;
mod redaction;

pub use redaction::{host_of, of as secrets_of};
pub mod result;
mod server;
pub mod servers;
mod shallow;

pub use catalogue::{Catalogue, McpTool};
pub use configuration::{
    ChildCommand, HttpAddress, Keep, MCP_LIMITS, McpLimits, Secrets, ServerConfig, ToolSelection, Transport,
};
pub use error::{McpConfigError, McpError};
pub use result::{McpContent, McpDone};
pub use servers::{Held, McpServers};
