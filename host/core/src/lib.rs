//! The agent loop as a value, and the words of the domain. No I/O, no async, no clock.

pub mod approval;
pub mod change;
pub mod cloud_event;
pub mod effort;
pub mod event;
pub mod limits;
pub mod loop_break;
pub mod memory;
pub mod message;
pub mod model;
pub mod names;
pub mod nearest;
pub mod offer;
pub mod plan;
pub mod plugin;
pub mod prompt;
pub mod redaction;
pub mod run;
pub mod schema;
pub mod summary;
pub mod text_dialect;
pub mod thinking;
pub mod tokens;
pub mod tool;
pub mod view;
pub mod visible;
