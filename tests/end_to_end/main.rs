//! End-to-end tests: they use the real runtime and the real binary, real components, and a real SQLite file. Only the
//! model's replies are scripted.

mod acp;
mod agents;
mod approvals;
mod audit;
mod author_workflow;
mod binary;
mod budgets;
mod cancelled;
mod chat_server;
mod claims;
mod command_tools;
mod compiler_process;
mod completions;
mod configuration;
mod contract;
mod contract_pages;
mod costs;
mod crash;
#[cfg(unix)]
mod delegation_example;
mod denials;
mod deployment;
mod desktop_agent_flow;
mod documentation_page;
mod event_watchers;
mod eviction;
mod examples;
mod fairness;
#[cfg(target_os = "linux")]
mod first_day;
#[path = "../mcp_server/fixture.rs"]
mod fixture;
#[cfg(target_os = "linux")]
mod fleet;
mod generic_components;
mod guests;
#[cfg(unix)]
mod help_examples;
mod host_files;
mod host_model;
mod import_cycles;
mod invisible_characters;
mod javascript_sdk;
mod key_values;
#[cfg(unix)]
mod killed_decisions;
mod large_sessions;
#[path = "../long_work/work.rs"]
mod long_work;
mod loop_breaking_flow;
mod mcp;
mod mcp_offered;
mod mcp_peers;
mod media;
mod memories;
mod model_servers;
mod model_wire_faults;
mod models;
mod name_clashes;
#[cfg(target_os = "linux")]
mod nats_server;
#[cfg(target_os = "linux")]
mod network;
mod outgoing_http;
mod output_history;
#[cfg(target_os = "linux")]
mod packages;
mod peers;
mod plan_example;
mod planner_memory_flow;
mod plans;
mod plugin_authoring;
mod plugin_explain;
#[cfg(target_os = "linux")]
#[allow(dead_code, reason = "the store's own tests use the other items")]
#[path = "../../host/store/tests/postgres/server.rs"]
mod postgres_server;
mod prefilter;
mod process_limits;
mod program;
mod prompt_exchange;
mod public_components;
mod python_sdk;
mod released;
mod replay;
mod replay_files;
#[cfg(target_os = "linux")]
#[allow(dead_code, reason = "the store's own tests use the other items")]
#[path = "../../host/store/tests/postgres/s3.rs"]
mod s3;
mod sandbox;
mod scenario_runs;
mod scenarios;
mod sdk_examples;
mod serve;
mod service_event_flow;
mod service_resume_flow;
mod services;
mod services_cli;
mod session_cli;
mod session_commands;
mod session_owners;
mod session_transfer;
mod sharing;
mod store_command;
mod store_waits;
mod supervised;
mod support;
mod swap;
#[cfg(target_os = "linux")]
mod terminal;
#[allow(dead_code, reason = "the registry's own tests use the other items")]
#[path = "../../host/registry/tests/registry/registry.rs"]
mod test_registry;
mod text_dialect;
mod traces;
mod usage;
mod walls;
mod wire_formats;
