//! The Model Context Protocol. The client (I5) connects to servers that run as child processes or are reached over HTTP, and
//! offers their tools to the host. The server (I4), in [`offered`], offers tools of the host to clients.
//!
//! No other crate implements the protocol. If a server fails, hangs, crashes or sends invalid data, this crate returns
//! an error to the rest of the host.

mod backpressure;
mod bounded_lines;
mod catalogue;
mod child;
pub mod configuration;
mod connection;
mod depth_limited;
pub mod error;
mod error_text;
mod http;
pub mod offered;
mod redaction;
pub mod result;
mod server;
pub mod servers;

pub use catalogue::{Catalogue, McpTool};
pub use configuration::{
    ChildCommand, HttpAddress, KeepConnected, MCP_LIMITS, McpLimits, Secrets, ServerConfig, ToolSelection, Transport,
};
pub use error::{McpConfigError, McpError};
pub use redaction::{redaction_for, remote_host};
pub use result::{McpContent, McpToolResult};
pub use servers::{AcquiredServers, McpServers};
