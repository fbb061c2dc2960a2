//! Log lines. The host stores them with the plugin's name. A plugin that does not use this module does not import it.

/// The severity of a log line, from least to most severe.
pub use crate::bindings::imports::wasi::logging::logging::Level;

/// Logs a detail of the plugin's control flow.
pub fn trace(message: impl AsRef<str>) {
    log(Level::Trace, message.as_ref());
}

/// Logs information for debugging.
pub fn debug(message: impl AsRef<str>) {
    log(Level::Debug, message.as_ref());
}

/// Logs a normal event that may be of interest.
pub fn info(message: impl AsRef<str>) {
    log(Level::Info, message.as_ref());
}

/// Logs a problem that somebody should look at.
pub fn warn(message: impl AsRef<str>) {
    log(Level::Warn, message.as_ref());
}

/// Logs an error.
pub fn error(message: impl AsRef<str>) {
    log(Level::Error, message.as_ref());
}

/// Logs a line. In native tests it goes to the current [`testing::Host`](crate::testing::Host), if there is one.
pub fn log(level: Level, message: &str) {
    #[cfg(target_arch = "wasm32")]
    crate::bindings::imports::wasi::logging::logging::log(level, "", message);
    #[cfg(not(target_arch = "wasm32"))]
    crate::testing::with_state(|state| state.log.push((level, message.to_owned())));
}
