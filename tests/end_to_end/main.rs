//! End to end: the real runtime and the real binary, real components, a real SQLite file. Only the model's words are
//! scripted.

#[cfg(unix)]
mod agent_files;
mod agents;
mod binary;
mod chat_server;
mod configuration;
mod contract;
mod crash;
#[path = "../mcp_server/fixture.rs"]
mod fixture;
mod mcp;
mod media;
mod model_servers;
mod models;
mod peers;
mod portable;
mod sandbox;
mod scenarios;
mod support;
#[cfg(target_os = "linux")]
mod terminal;
mod walls;
mod wire;
