//! Sessions that move: forked behind a message, written into one document, and read from it (D5).

mod document;
mod export;
pub(crate) mod fork;
mod import;
mod staging;

pub use document::SessionDocument;
pub use export::{Exported, export};
pub use fork::{ForkAt, Forked, fork};
pub use import::{ImportAs, ImportOptions, Imported, import, import_for, import_to_replay};

use agent_core::run::{NoPlace, RestoreError, Run};
use agent_store::{OpenMode, OpenedSession, SessionFilter, SessionMeta, SessionSummary, Store, StoreError};

/// A session that cannot be moved. The one that was to be moved is as it was, and no other was made.
#[derive(Debug, thiserror::Error)]
pub enum PortableError {
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The session's stored state cannot be read.
    #[error("session `{session}`: {error}")]
    Restore {
        /// Its subject.
        session: String,
        /// What is wrong.
        error: RestoreError,
    },
    /// It has no message that a fork could begin with.
    #[error("session `{session}` has no whole message yet, so there is nothing to fork")]
    Empty {
        /// Its subject.
        session: String,
    },
    /// It cannot be cut there.
    #[error("session `{session}` cannot be forked there: {place}")]
    NoPlace {
        /// Its subject.
        session: String,
        /// Why, and where it can be.
        place: NoPlace,
    },
    /// What was given is something else.
    #[error("this is no exported session: {problem}; `agent-host session export` writes one")]
    Foreign {
        /// What is there instead.
        problem: String,
    },
    /// A newer host wrote the document.
    #[error("the exported session has version {found}; this host reads up to {supported}: use a newer host")]
    Newer {
        /// Of the document.
        found: u32,
        /// The newest that this host reads.
        supported: u32,
    },
    /// The document cannot be trusted.
    #[error("the exported session is damaged at {place}: {problem}; nothing was imported, export it again")]
    Damaged {
        /// Such as `messages[3]`.
        place: String,
        /// What is wrong there.
        problem: String,
    },
    /// A session cannot be called that.
    #[error("`{name}` cannot be a session's id: {problem}")]
    Name {
        /// As it was asked for, with what is no plain character escaped.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The document cannot be read.
    #[error("the exported session cannot be read: {0}")]
    Read(std::io::Error),
    /// Where the document goes cannot be written.
    #[error("the exported session cannot be written: {0}")]
    Write(#[from] std::io::Error),
}

/// A session under its lease, with its state.
struct Held {
    opened: OpenedSession,
    run: Run,
    summary: SessionSummary,
}

/// Takes the lease of a session that exists, so that nobody writes to it meanwhile.
async fn hold(store: &dyn Store, session: &str) -> Result<Held, PortableError> {
    let opened = store.open(session, OpenMode::Existing, SessionMeta::default()).await?;
    let lease = opened.lease.clone();
    let held = read(store, session, opened).await;
    if held.is_err() {
        store.release(lease).await?;
    }
    held
}

async fn read(store: &dyn Store, session: &str, opened: OpenedSession) -> Result<Held, PortableError> {
    let run = match opened.revision {
        0 => Ok(Run::new(session, &opened.meta.agent)),
        _ => Run::restore(opened.snapshot.as_deref()),
    };
    let run = run.map_err(|error| PortableError::Restore { session: session.to_owned(), error })?;
    let summary = summary(store, session).await?.ok_or(StoreError::NoSession { session: session.to_owned() })?;
    Ok(Held { opened, run, summary })
}

async fn summary(store: &dyn Store, session: &str) -> Result<Option<SessionSummary>, StoreError> {
    let filter = SessionFilter { subject: Some(session.to_owned()), ..SessionFilter::default() };
    Ok(store.sessions(filter, 1).await?.pop())
}
