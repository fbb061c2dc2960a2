//! The HTTP server of agent-host: people and programs use the sessions of a [`Supervisor`](agent_runtime::Supervisor)
//! over an HTTP API (I3). Each request needs a token, even from the same machine, and each token has rights.
//!
//! Each module imports only modules that come before it in this list: `problem`, `tokens`, `sign_ins`, `first_uses`,
//! `access`, `body`, `attachments`, `rendering`, `mcp`, `metrics`, `state`, `open_connections`, `openai`, `console`, `api`, `tls`,
//! `listener`, `connections`.

mod access;
mod api;
mod attachments;
mod body;
mod connections;
mod console;
mod first_uses;
mod listener;
pub mod mcp;
mod metrics;
mod open_connections;
mod openai;
mod problem;
mod rendering;
mod sign_ins;
mod state;
mod tls;
mod tokens;

pub use access::AllowedOrigins;
pub use api::openapi;
pub use connections::{Routes, Server, ServerOptions};
pub use first_uses::{AnswerEffect, EffectReport, FirstUseQuestions, GivenAnswer, SessionOfQuestion, TurnOrigin};
pub use listener::{Endpoint, ListenError};
pub use mcp::{Expose, McpAgent};
pub use metrics::{AnsweredRequest, ServerMetrics};
pub use problem::Problem;
pub use tls::{TlsError, TlsFiles};
pub use tokens::{NewToken, Right, Rights, Token, TokenError, TokenFile};
