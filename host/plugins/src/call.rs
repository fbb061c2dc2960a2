//! Calls to plugins: typed calls to the functions of the plugin contract, and calls to generic functions, which are
//! exports outside of the contract.

mod generic;
pub(crate) mod kinds;
pub(crate) mod plugin_setup;
mod service_request;
