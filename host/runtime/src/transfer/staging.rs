//! Writes a new session in several commits. Until the last commit, the session is [`SessionState::Incomplete`] and
//! cannot be opened. If the process crashes before the last commit, the next import with the same subject replaces the
//! incomplete session.

use super::summary;
use crate::session::{status_of_run, view_pieces};
use agent_core::change::Change;
use agent_core::run::Run;
use agent_store::{
    Commit, OpenMode, OpenedSession, SessionMeta, SessionState, Status, StepRecord, Store, StoreError, StoredView,
};

/// A new session that is not completely written yet.
pub(super) struct Staging<'a> {
    pub(super) store: &'a dyn Store,
    opened: OpenedSession,
    revision: u64,
}

impl<'a> Staging<'a> {
    /// Starts writing a session. A session with this subject must not exist, unless it is incomplete because an import
    /// or fork was interrupted.
    pub(super) async fn begin(store: &'a dyn Store, session: &str, meta: SessionMeta) -> Result<Self, StoreError> {
        match summary(store, session).await? {
            Some(existing) if existing.revision == 0 || existing.state == SessionState::Incomplete => {
                store.delete(session).await?;
            }
            Some(_) => return Err(StoreError::SessionExists { session: session.to_owned() }),
            None => {}
        }
        let opened = store.open(session, OpenMode::CreateNew, meta).await?;
        let mut staging = Self { store, revision: opened.revision, opened };
        // The first commit marks the session as incomplete.
        match staging.add(Change::default(), Vec::new(), Vec::new()).await {
            Ok(()) => Ok(staging),
            Err(error) => {
                staging.abandon().await?;
                Err(error)
            }
        }
    }

    pub(super) fn session(&self) -> &str {
        &self.opened.lease.session
    }

    /// Commits one part of the new session. The session stays incomplete.
    pub(super) async fn add(
        &mut self,
        change: Change,
        records: Vec<StepRecord>,
        texts: Vec<String>,
    ) -> Result<(), StoreError> {
        let status = Status { state: SessionState::Incomplete, ..Status::default() };
        // The snapshot is a placeholder, from which no host can continue the session.
        let snapshot = b"{}".to_vec();
        let commit = Commit {
            snapshot,
            view: StoredView::InSnapshot,
            change,
            records,
            texts,
            status,
            charge: None,
            answer: None,
        };
        self.revision = self.store.commit(&self.opened.lease, self.revision, commit).await?;
        Ok(())
    }

    /// Commits the state of the session, so that the session is complete, and releases the session's lease.
    pub(super) async fn complete(
        self,
        run: &Run,
        title: Option<String>,
        records: Vec<StepRecord>,
    ) -> Result<(), StoreError> {
        let commit = Commit {
            snapshot: run.snapshot_without_view(),
            view: StoredView::Whole(view_pieces(run, None)),
            status: status_of_run(run, title),
            records,
            ..Commit::default()
        };
        // The copied turns ran in another session or on another host, which has exported them (O1). They are skipped before
        // an exporter can see the session. After the commit, it is also known where an open turn begins.
        self.store.skip_trace_export(self.session()).await?;
        match self.store.commit(&self.opened.lease, self.revision, commit).await {
            Ok(_) => {
                self.store.skip_trace_export(self.session()).await?;
                self.store.release(self.opened.lease).await
            }
            Err(error) => {
                self.abandon().await?;
                Err(error)
            }
        }
    }

    /// Releases the lease of the incomplete session and removes the session from the store.
    pub(super) async fn abandon(self) -> Result<(), StoreError> {
        let session = self.opened.lease.session.clone();
        self.store.release(self.opened.lease).await?;
        self.store.delete(&session).await.map(drop)
    }
}
