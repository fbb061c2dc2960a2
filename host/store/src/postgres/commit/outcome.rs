//! Finds out whether a commit is stored whose connection broke.

use super::PreparedCommit;
use crate::encoding::values::signed;
use crate::postgres::PostgresStore;
use crate::postgres::failure::Failure;
use crate::postgres::queries::number;
use crate::postgres::text::{Text, optional_text};
use crate::{Lease, StoreError};

/// Whether a commit is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The commit is stored, and the session had this revision after it.
    Stored(u64),
    /// The commit is not stored and never will be, unless it is tried again.
    NotStored,
}

impl PostgresStore {
    /// Reads the id of the last commit of the lease.
    ///
    /// The row of the session is updated, although nothing changes. The update waits until the transaction with the
    /// unknown outcome has ended, and its own commit waits until the commit that was found is as durable as any other, for
    /// example on a synchronous standby.
    pub(super) async fn outcome_of(&self, commit: &PreparedCommit) -> Result<Outcome, Failure> {
        let PreparedCommit { id, lease: Lease { session, epoch }, expected_revision, .. } = commit;
        let transaction = self.transaction().await?;
        let sql = "UPDATE sessions SET epoch = epoch WHERE session = $1 RETURNING epoch, last_commit, revision";
        let row = transaction.query_opt(sql, &[&Text(session)]).await?;
        let row = row.ok_or_else(|| StoreError::NoSession { session: session.clone() })?;
        let last_commit = if number(&row, 0)? == *epoch {
            optional_text(&row, 1)?
        } else {
            let sql = "SELECT last_commit FROM ended_leases WHERE session = $1 AND epoch = $2";
            match transaction.query_opt(sql, &[&Text(session), &signed(*epoch)]).await? {
                Some(row) => optional_text(&row, 0)?,
                None => return Err(StoreError::LeaseLost { session: session.clone(), epoch: *epoch }.into()),
            }
        };
        transaction.commit().await.map_err(|failure| match failure {
            // Nothing was changed, so the outcome is read again.
            Failure::OutcomeUnknown(_) => Failure::RunAgain,
            other => other,
        })?;
        if last_commit.as_deref() == Some(id) {
            return Ok(Outcome::Stored(expected_revision + 1));
        }
        Ok(Outcome::NotStored)
    }
}
