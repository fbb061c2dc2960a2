//! Tests of the MCP client with real servers: child processes, HTTP servers on loopback, and third-party servers.

mod faults;
#[path = "../../../../tests/mcp_server/fixture.rs"]
mod fixture;
mod http;
mod peers;
mod stdio;
mod support;
