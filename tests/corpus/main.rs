//! The attack corpus (P5, P6, P8). For each threat that comes from plugins, a component attacks the host repeatedly
//! while another agent works. `host/docs/threats.md` defines the required behaviour, and the tests are named after the
//! rows of its table.

#![cfg(target_os = "linux")]

#[path = "../end_to_end/program.rs"]
mod program;

#[path = "../end_to_end/support.rs"]
#[allow(dead_code, reason = "the corpus uses only a part of the support for the end-to-end tests")]
mod support;

#[path = "../end_to_end/peers.rs"]
#[allow(dead_code, reason = "the corpus uses only a part of the support for the end-to-end tests")]
mod peers;

mod echoes;
mod guests;
mod scene;
mod server;
mod usage;

mod components;
mod emission;
mod files;
mod granted_trees;
mod idle_sessions;
mod judging;
mod keys;
mod loading;
mod outside;
mod path_readings;
mod rehearsals;
mod requests;
mod secrets;
mod space;
mod time;
mod trust;
mod values;
