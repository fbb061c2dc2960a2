//! The plugin contract: generated bindings of the WIT interfaces, and their conversion to and from the host's own
//! types. There is one module for each version of the contract.

mod rejection;
pub(crate) mod v0_1;

pub(crate) use rejection::RejectedResult;
