//! Projections: data that the store derives from the session log, so that it can search and list sessions quickly. A
//! projection can be compared with the log and rebuilt from it (D6).

use crate::{Status, StoreError};
use async_trait::async_trait;
use serde::Serialize;

/// Compares and rebuilds the projections.
#[async_trait]
pub trait Projections: Send + Sync {
    /// Compares every projection with the log and changes nothing. Log entries that a projection has not processed yet
    /// are not counted as differences.
    async fn check_projections(&self, read: StatusReader) -> Result<Vec<ProjectionComparison>, StoreError>;

    /// Rebuilds every projection from the log. In SQLite, this is one transaction, and other writers wait until it is
    /// done. In PostgreSQL, other writers continue, and wait only for the sessions that are being rebuilt.
    async fn rebuild_projections(&self, read: StatusReader) -> Result<Vec<RebuiltProjection>, StoreError>;
}

/// Reads a session's status from its snapshot. Returns `None` if this host cannot read the snapshot. If this function
/// returns `None`, the stored status is left unchanged.
pub type StatusReader = fn(&[u8]) -> Option<Status>;

/// Names one of the projections that a store maintains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Projection {
    /// The index of words in messages, for searches.
    MessageWords,
    /// The index of words in memories, for recall.
    MemoryWords,
    /// The session list: for each session, the state, the number of turns, the id of the last message and the number of
    /// the last event.
    Sessions,
    /// The usage of each turn: model calls, tokens and costs.
    Usage,
}

/// Result of comparing a projection with the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProjectionComparison {
    /// The projection that was compared.
    pub projection: Projection,
    /// Number of log items that were compared with the projection.
    pub compared: u64,
    /// Number of log items that the projection has not processed yet. The store adds these items to the projection
    /// before it uses the projection again.
    pub pending: u64,
    /// Number of items in the projection that differ from the log or are not in the log. 0 if the projection is
    /// correct.
    pub different: u64,
    /// Descriptions of the first differences, for users.
    pub examples: Vec<String>,
}

/// A projection that was rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RebuiltProjection {
    /// The projection that was rebuilt.
    pub projection: Projection,
    /// Number of log items from which the projection was rebuilt.
    pub made_from: u64,
}
