//! The corpus: for each threat that concerns plugins a component that tries it, repeated while another agent works (P5, P6,
//! P8). What must happen is said by the table of limits and threats, whose rows the tests are named by.

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
