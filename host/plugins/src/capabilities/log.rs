//! `wasi:logging`: adds the messages that a plugin logs during a call to the call's log.

mod bindings;
mod linker;

pub(crate) use linker::add_to_linker;

use super::CallContext;
use crate::recording::guest_log::LogLevel;
use bindings::wasi::logging::logging::{Host, Level};

impl Host for CallContext {
    async fn log(&mut self, level: Level, context: String, message: String) -> wasmtime::Result<()> {
        self.record.log_message(level.into(), &context, &message);
        Ok(())
    }
}

impl From<Level> for LogLevel {
    fn from(level: Level) -> Self {
        match level {
            Level::Trace => LogLevel::Trace,
            Level::Debug => LogLevel::Debug,
            Level::Info => LogLevel::Info,
            Level::Warn => LogLevel::Warn,
            Level::Error | Level::Critical => LogLevel::Error,
        }
    }
}
