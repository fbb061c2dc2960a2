//! End to end: the real runtime and the real binary, real components, a real SQLite file. Only the model's words are
//! scripted.

mod binary;
mod chat_server;
mod configuration;
mod contract;
mod crash;
mod media;
mod model_servers;
mod models;
mod peers;
mod plan_files;
mod plans;
mod prefilter;
mod sandbox;
mod scenarios;
mod seed_c;
mod support;
#[cfg(target_os = "linux")]
mod terminal;
mod text_dialect;
mod walls;
mod wire;
