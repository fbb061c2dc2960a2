//! The plugin contract: generated bindings of the WIT interfaces, and their conversion to and from the host's own
//! types. Each version of the contract has its own module.

mod rejection;
pub(crate) mod v0_1;

pub(crate) use rejection::RejectedResult;
