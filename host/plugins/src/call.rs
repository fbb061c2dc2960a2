//! Calls to plugins: one typed function for each plugin kind, and calls to plain exported functions.

mod generic;
pub(crate) mod kinds;
pub(crate) mod plugin_setup;
mod service_request;
