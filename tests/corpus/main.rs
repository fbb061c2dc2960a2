//! The corpus of attacks: for each threat from plugins, a component that tries it, repeated while another agent works
//! (P5, P6, P8). The table of limits and threats defines the required behaviour; the tests are named after its rows.

#![cfg(target_os = "linux")]

#[path = "../end_to_end/support.rs"]
#[allow(dead_code, reason = "what the end-to-end tests share, of which this takes a part")]
mod support;

#[path = "../end_to_end/peers.rs"]
#[allow(dead_code, reason = "what the end-to-end tests share, of which this takes a part")]
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
mod judging;
mod keys;
mod loading;
mod outside;
mod path_readings;
mod requests;
mod secrets;
mod space;
mod time;
mod trust;
mod values;
