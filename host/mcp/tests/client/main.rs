//! The client against real servers: child processes of the operating system, HTTP on loopback, and programs of others.

mod faults;
#[path = "../../../../tests/mcp_server/fixture.rs"]
mod fixture;
mod http;
mod peers;
mod stdio;
mod support;
