//! The agent loop as a value, and the words of the domain. No I/O, no async, no clock.

pub mod message;
pub mod tool;
pub mod model;
pub mod plugin;
pub mod event;
pub mod change;
pub mod nearest;
pub mod names;
pub mod prompt;
pub mod run;
pub mod schema;
pub mod tokens;
pub mod view;
