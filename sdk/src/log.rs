//! Log lines, which the host keeps with the plugin's name. A plugin that never logs does not import them.

/// How much a line matters, least first.
pub use crate::bindings::imports::wasi::logging::logging::Level;

/// For following the plugin's every move.
pub fn trace(message: impl AsRef<str>) {
    log(Level::Trace, message.as_ref());
}

/// For finding faults.
pub fn debug(message: impl AsRef<str>) {
    log(Level::Debug, message.as_ref());
}

/// What somebody may want to know.
pub fn info(message: impl AsRef<str>) {
    log(Level::Info, message.as_ref());
}

/// What somebody should look at.
pub fn warn(message: impl AsRef<str>) {
    log(Level::Warn, message.as_ref());
}

/// What went wrong.
pub fn error(message: impl AsRef<str>) {
    log(Level::Error, message.as_ref());
}

/// Logs a line. In native tests it goes to the surrounding [`testing::Host`](crate::testing::Host), if there is one.
pub fn log(level: Level, message: &str) {
    #[cfg(target_arch = "wasm32")]
    crate::bindings::imports::wasi::logging::logging::log(level, "", message);
    #[cfg(not(target_arch = "wasm32"))]
    crate::testing::with_state(|state| state.log.push((level, message.to_owned())));
}
