//! Conversions between values and stored columns that all stores share.

pub(crate) mod audit;
pub(crate) mod blobs;
pub(crate) mod commit_rows;
pub(crate) mod key_values;
pub(crate) mod outbox;
pub(crate) mod search;
pub(crate) mod usage;
pub(crate) mod values;
pub(crate) mod versions;
