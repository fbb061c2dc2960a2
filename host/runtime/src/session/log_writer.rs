//! Writes the commits of an open session. Prompts can be queued while an action of the turn borrows the state.

use super::{SessionError, secrets, status_of_run, view_pieces};
use crate::host::SessionServices;
use crate::records::CommitNotes;
use crate::requests::{Accepted, answer_to_json};
use agent_core::run::{Input, QueuedPrompt, Run};
use agent_store::{Commit, Lease, OpenedSession, RequestAnswer, Store, StoreError, StoredView};

/// The lease of an open session, and the position at which its log continues.
pub(crate) struct LogWriter {
    lease: Lease,
    revision: u64,
    /// Whether the store already contains all pieces of the session's view, so that the next commit must write only the
    /// changed pieces.
    view_is_stored: bool,
    /// Committed prompts that are not in the state yet, because an action borrowed the state when they arrived.
    queued: Vec<QueuedPrompt>,
    /// Id of the stored request of another process that the next commit carries out.
    answering: Option<String>,
}

impl LogWriter {
    pub(super) fn new(opened: &OpenedSession) -> Self {
        let (lease, revision) = (opened.lease.clone(), opened.revision);
        Self { lease, revision, view_is_stored: false, queued: Vec::new(), answering: None }
    }

    /// Returns the lease, which gives this process the exclusive right to write to the session.
    pub(super) fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Returns the session's revision. Each commit increases the revision by one.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the view that a commit must write. `before` is the state of the latest commit.
    pub(super) fn view_of(&self, run: &Run, before: &Run) -> StoredView {
        match self.view_is_stored {
            true => StoredView::Changed(view_pieces(run, Some(before))),
            false => StoredView::Whole(view_pieces(run, None)),
        }
    }

    /// Sets the stored request that the next commit carries out, if another process has sent the request that is being handled.
    pub(crate) fn answer_with_commit(&mut self, request: Option<String>) {
        self.answering = request;
    }

    /// Returns the answer that a commit stores together with its changes, so that a request that begins a turn, queues a prompt
    /// or undoes a turn is never carried out twice (F2). All other requests have no further effect if they are repeated.
    pub(super) fn answer(&mut self, accepted: Accepted) -> Option<RequestAnswer> {
        let id = self.answering.take()?;
        Some(RequestAnswer { id, content: answer_to_json(&Ok(accepted)) })
    }

    pub(super) async fn commit(&mut self, store: &dyn Store, commit: Commit) -> Result<(), StoreError> {
        self.revision = store.commit(&self.lease, self.revision, commit).await?;
        self.view_is_stored = true;
        Ok(())
    }

    /// Commits a prompt to the queue, while an action may borrow the state `run`. The commit adds no event, so the events
    /// of a streamed reply keep their positions.
    pub(crate) async fn queue_prompt(
        &mut self,
        services: &SessionServices,
        run: &Run,
        prompt: QueuedPrompt,
    ) -> Result<(), SessionError> {
        let input = Input::QueuePrompt { prompt };
        let redacted = secrets::without_secrets(services.agent.redaction(), input, CommitNotes::default());
        let (input, _) = redacted.map_err(|error| *error)?;
        let mut after = run.clone();
        after.queued_prompts.extend(self.queued.iter().cloned());
        let already_queued = after.queued_prompts.len();
        let change = after.apply(input)?;
        let (snapshot, view) = (after.snapshot_without_view(), self.view_of(&after, run));
        let answer = self.answer(Accepted::Queued);
        let commit =
            Commit { snapshot, view, change, status: status_of_run(&after, None), answer, ..Commit::default() };
        self.commit(&*services.store, commit).await?;
        self.queued.extend(after.queued_prompts.into_iter().skip(already_queued));
        Ok(())
    }

    /// Adds the prompts to the state that were queued while an action borrowed it.
    pub(super) fn add_queued_prompts(&mut self, run: &mut Run) {
        run.queued_prompts.append(&mut self.queued);
    }
}
