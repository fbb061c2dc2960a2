//! The Agent Client Protocol (version 1): an agent inside an editor, which talks to the host over the host's standard input
//! and output (I7). Only this crate uses the types of the protocol.
//!
//! Each module imports only modules that come before it in this list: `text`, `transport`, `prompt`, `tool_call`, `shared`,
//! `updates`, `permission`, `commands`, `replay`, `waits`, `children`, `session`, `requests`, `server`.

mod children;
mod commands;
mod permission;
mod prompt;
mod replay;
mod requests;
mod server;
mod session;
mod shared;
mod text;
mod tool_call;
mod transport;
mod updates;
mod waits;

pub use permission::{Choice, ChoiceKind, EditorQuestions};
pub use server::AcpServer;
pub use shared::AcpOptions;
pub use transport::LINE_BYTES;
