//! Tests of the client against real servers: child processes, HTTP servers on loopback, and third-party programs.

mod faults;
#[path = "../../../../tests/mcp_server/fixture.rs"]
mod fixture;
mod http;
mod peers;
mod stdio;
mod support;
