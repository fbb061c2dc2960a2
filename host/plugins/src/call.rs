//! Calls to plugins: one typed function for each plugin kind, and calls to generic functions, which are not part of the
//! contract.

mod generic;
pub(crate) mod kinds;
pub(crate) mod plugin_setup;
mod service_request;
