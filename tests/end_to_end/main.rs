//! End to end: the real runtime and the real binary, real components, a real SQLite file. Only the model's words are
//! scripted.

#[cfg(unix)]
mod agent_files;
mod agents;
mod approvals;
mod binary;
mod by_hand;
mod cancelled;
mod chat_server;
mod compiling;
mod configuration;
mod contract;
mod crash;
mod denials;
mod eviction;
mod examples;
#[path = "../mcp_server/fixture.rs"]
mod fixture;
mod keeping;
mod mcp;
mod media;
mod memories;
mod model_servers;
mod models;
mod peers;
mod plain;
mod plan_files;
mod plans;
mod portable;
mod prefilter;
mod released;
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
mod web;
mod wire;
