//! Objects in an S3-compatible object store, in which a PostgreSQL store keeps media and large parts (F1).

mod address;
mod client;
mod problem;

pub use address::ObjectStoreAddress;
pub(crate) use client::ObjectClient;
pub(crate) use problem::ObjectProblem;
