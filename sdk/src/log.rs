//! Writes log lines. The host stores each line together with the plugin's name. A plugin that does not use this module
//! does not import `wasi:logging`.

/// The severity of a log line. The variants are in order, from the least to the most severe.
pub use crate::bindings::imports::wasi::logging::logging::Level;

/// Logs a line at the level [`Level::Trace`], which is for details of the plugin's control flow.
pub fn trace(message: impl AsRef<str>) {
    log(Level::Trace, message.as_ref());
}

/// Logs a line at the level [`Level::Debug`], which is for debugging.
pub fn debug(message: impl AsRef<str>) {
    log(Level::Debug, message.as_ref());
}

/// Logs a line at the level [`Level::Info`], which is for events of normal operation.
pub fn info(message: impl AsRef<str>) {
    log(Level::Info, message.as_ref());
}

/// Logs a line at the level [`Level::Warn`], which is for problems that do not make the call fail.
pub fn warn(message: impl AsRef<str>) {
    log(Level::Warn, message.as_ref());
}

/// Logs a line at the level [`Level::Error`], which is for errors.
pub fn error(message: impl AsRef<str>) {
    log(Level::Error, message.as_ref());
}

/// Logs a line at this level. In native tests, the current [`testing::Host`](crate::testing::Host) stores the line.
pub fn log(level: Level, message: &str) {
    #[cfg(target_arch = "wasm32")]
    crate::bindings::imports::wasi::logging::logging::log(level, "", message);
    #[cfg(not(target_arch = "wasm32"))]
    crate::testing::with_state(|state| state.log.push((level, message.to_owned())));
}
