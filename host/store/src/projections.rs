//! What the store keeps only to find and list things quickly: all of it can be compared with the log, and made anew from
//! it (D6).

use crate::{Status, StoreError};
use async_trait::async_trait;
use serde::Serialize;

/// What is made from the log, and nothing else is made from.
#[async_trait]
pub trait Projections: Send + Sync {
    /// Compares every projection with the log, and changes nothing. What a projection has not taken in yet is no
    /// difference.
    async fn check_projections(&self, read: ReadStatus) -> Result<Vec<Comparison>, StoreError>;

    /// Makes every projection anew from the log, in one transaction; others who write wait meanwhile.
    async fn rebuild_projections(&self, read: ReadStatus) -> Result<Vec<Rebuilt>, StoreError>;
}

/// What lists show of a session, read from the snapshot of its run; none where this host cannot read it: then it stays as
/// it is.
pub type ReadStatus = fn(&[u8]) -> Option<Status>;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Projection {
    /// The words of messages, for searches.
    MessageWords,
    /// The words of memories, for what is recalled.
    MemoryWords,
    /// What lists show of sessions, and the numbers of their last message and event.
    Sessions,
}

/// A projection beside the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// Which.
    pub projection: Projection,
    /// Things of the log that were compared.
    pub compared: u64,
    /// Things of the log that it has not taken in yet: it does before it is next asked.
    pub pending: u64,
    /// How many differ, or are there without being in the log. 0: it is what the log says.
    pub different: u64,
    /// The first of them, in words.
    pub examples: Vec<String>,
}

/// A projection that was made anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rebuilt {
    /// Which.
    pub projection: Projection,
    /// Things of the log that it was made from.
    pub made_from: u64,
}
