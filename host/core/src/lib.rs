//! The agent loop and the domain types that the other crates share. The crate performs no I/O, contains no async code
//! and reads no clock.
//!
//! [`run::Run`] is the entry point.

pub mod approval;
pub mod budget;
pub mod change;
pub mod cloud_event;
pub mod cost;
pub mod event;
pub mod event_type;
pub mod limits;
pub mod loop_break;
pub mod memory;
pub mod message;
pub mod model;
pub mod names;
pub mod nearest;
pub mod offer;
pub mod outgoing_event;
pub mod plan;
pub mod plugin;
pub mod prompt;
pub mod redaction;
pub mod reply_kind;
pub mod run;
pub mod schema;
pub mod session_state;
pub mod summary;
pub mod text_dialect;
pub mod thinking;
pub mod tokens;
pub mod tool;
pub mod trace;
pub mod view;
pub mod visible;
