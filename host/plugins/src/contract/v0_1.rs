//! Version 0.1 of the plugin contract.

pub(crate) mod bindings;
pub(crate) mod conversion;
pub(crate) mod requests;
pub(crate) mod tools;
