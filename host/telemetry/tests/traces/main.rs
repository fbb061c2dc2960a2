//! Tests of traces with real stored sessions and real HTTP servers.

mod derivation;
mod export;
mod receiver;
mod session;
