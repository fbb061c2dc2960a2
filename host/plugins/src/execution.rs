//! Runs the calls to plugins. For each call, the host waits for a permit, creates a new wasmtime store with the
//! capabilities of the call, runs the guest within its limits and returns a report.

pub(crate) mod admission;
pub(crate) mod call_spec;
pub(crate) mod engine;
pub(crate) mod failure;
pub(crate) mod linkers;
mod memory_limiter;
pub(crate) mod observer;
pub(crate) mod report;
pub(crate) mod runner;
pub(crate) mod scheduler;
pub(crate) mod state;
pub(crate) mod trial;
