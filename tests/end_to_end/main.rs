//! End to end: the real runtime and the real binary, real components, a real SQLite file. Only the model's words are
//! scripted.

#[cfg(unix)]
mod agent_files;
mod agents;
mod approvals;
mod binary;
mod cancelled;
mod chat_server;
mod configuration;
mod contract;
mod crash;
mod eviction;
#[path = "../mcp_server/fixture.rs"]
mod fixture;
mod mcp;
mod media;
mod memories;
mod model_servers;
mod models;
mod peers;
mod plan_files;
mod plans;
mod portable;
mod prefilter;
mod sandbox;
mod scenarios;
mod seed_a;
mod seed_b;
mod seed_c;
mod seed_d;
mod seed_e;
mod services;
mod services_by_hand;
mod session_commands;
mod support;
mod swap;
#[cfg(target_os = "linux")]
mod terminal;
mod text_dialect;
mod walls;
mod wire;
