//! Copies sessions: forks a session after a message, exports a session to a document, and imports exported
//! documents (D5).

mod document;
mod export;
mod fork;
mod import;
mod staging;

pub use document::SessionDocument;
pub use export::{Exported, export};
pub(crate) use fork::Origins;
pub use fork::{ForkAt, Forked, fork};
pub use import::{ImportAs, ImportOptions, Imported, import, import_for, import_to_replay};

use agent_core::run::{CutError, RestoreError, Run};
use agent_store::{OpenMode, OpenedSession, SessionFilter, SessionMeta, SessionSummary, Store, StoreError};

/// The reason why a session cannot be forked, exported or imported. The original session is unchanged, and no new
/// session was created.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The store rejected the operation or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The session's stored state cannot be read.
    #[error("session `{session}`: {error}")]
    Restore {
        /// Id (subject) of the session whose state cannot be read.
        session: String,
        /// The reason why the state cannot be read.
        error: RestoreError,
    },
    /// The session has no complete message, so there is nothing to fork.
    #[error("session `{session}` has no complete message yet, so there is nothing to fork")]
    Empty {
        /// Id (subject) of the session that cannot be forked.
        session: String,
    },
    /// The session cannot be forked at the requested message.
    #[error("session `{session}` cannot be forked at this message: {place}")]
    CannotCut {
        /// Id (subject) of the session that cannot be forked.
        session: String,
        /// The reason why the session cannot be forked at this message, and the messages at which it can be forked.
        place: CutError,
    },
    /// The input is not an exported session.
    #[error("this is not an exported session: {problem}; create one with `agent-host session export`")]
    NotASession {
        /// The reason why the input is not an exported session.
        problem: String,
    },
    /// The document was written by a newer version of the host.
    #[error(
        "the exported session has version {found}; this host supports versions up to {supported}; use a newer host"
    )]
    UnsupportedVersion {
        /// Format version of the document.
        found: u32,
        /// Newest format version that this host can read.
        supported: u32,
    },
    /// The document is damaged or inconsistent.
    #[error("the exported session is damaged at {place}: {problem}; nothing was imported; export the session again")]
    Damaged {
        /// Location in the document, such as `messages[3]`.
        place: String,
        /// Description of the problem at this location.
        problem: String,
    },
    /// The requested name is not a valid session id.
    #[error("`{name}` is not a valid session id: {problem}")]
    InvalidName {
        /// The requested name, with special characters escaped.
        name: String,
        /// The reason why the name is not valid.
        problem: &'static str,
    },
    /// The document cannot be read.
    #[error("the exported session cannot be read: {0}")]
    Read(std::io::Error),
    /// The document cannot be written.
    #[error("the exported session cannot be written: {0}")]
    Write(#[from] std::io::Error),
}

/// A session whose lease was acquired, with its state and summary.
struct LeasedSession {
    opened: OpenedSession,
    run: Run,
    summary: SessionSummary,
}

/// Acquires the lease of an existing session, so that no other process can write to the session.
async fn lease(store: &dyn Store, session: &str) -> Result<LeasedSession, TransferError> {
    let opened = store.open(session, OpenMode::Existing, SessionMeta::default()).await?;
    let lease = opened.lease.clone();
    let leased = read(store, session, opened).await;
    if leased.is_err() {
        store.release(lease).await?;
    }
    leased
}

async fn read(store: &dyn Store, session: &str, opened: OpenedSession) -> Result<LeasedSession, TransferError> {
    let run = match opened.revision {
        0 => Ok(Run::new(session, &opened.meta.agent)),
        _ => Run::restore(opened.snapshot.as_deref()),
    };
    let run = run.map_err(|error| TransferError::Restore { session: session.to_owned(), error })?;
    let summary = summary(store, session).await?.ok_or(StoreError::NoSession { session: session.to_owned() })?;
    Ok(LeasedSession { opened, run, summary })
}

async fn summary(store: &dyn Store, session: &str) -> Result<Option<SessionSummary>, StoreError> {
    let filter = SessionFilter { subject: Some(session.to_owned()), ..SessionFilter::default() };
    Ok(store.sessions(filter, 1).await?.pop())
}

/// Creates the error for a document that is damaged at this location.
fn damaged(place: impl Into<String>, problem: impl ToString) -> TransferError {
    TransferError::Damaged { place: place.into(), problem: problem.to_string() }
}
