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
mod claims;
mod compiling;
mod configuration;
mod contract;
mod contract_pages;
mod costs;
mod crash;
mod denials;
mod eviction;
mod examples;
mod explain;
mod fairness;
#[path = "../mcp_server/fixture.rs"]
mod fixture;
mod guests;
mod hidden_text;
mod history;
mod host_files;
mod host_model;
mod keeping;
#[cfg(unix)]
mod killed_decisions;
mod import_cycles;
mod kit;
mod large_sessions;
#[path = "../long_work/work.rs"]
mod long_work;
mod mcp;
mod mcp_peers;
mod media;
mod memories;
mod model_servers;
mod models;
mod name_clashes;
mod page;
mod peers;
mod plain;
mod plan_files;
mod plans;
mod played;
mod portable;
mod prefilter;
mod prompting;
mod public;
mod released;
mod replayed;
mod replayed_files;
mod sandbox;
mod scarce;
mod scenarios;
mod seed_a;
mod seed_b;
mod seed_c;
mod seed_d;
mod seed_e;
mod services;
mod services_by_hand;
mod session_commands;
mod sharing;
mod store_command;
mod store_waits;
mod support;
mod swap;
#[cfg(target_os = "linux")]
mod terminal;
#[allow(dead_code, reason = "the tests of the room use the rest")]
#[path = "../../host/registry/tests/registry/registry.rs"]
mod test_registry;
mod text_dialect;
mod walls;
mod watching;
mod web;
mod whose;
mod wire;
