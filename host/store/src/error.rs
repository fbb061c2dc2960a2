//! What can go wrong with what is kept, each as a situation that a caller can act on.

use agent_core::message::{CallId, Digest, MessageId};
use std::path::PathBuf;

/// Failure of a store. Nothing of the refused call is stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A living process works on the session.
    #[error("session `{session}` is in use by process {holder}: wait until it is done, or stop it")]
    Busy {
        /// Its subject.
        session: String,
        /// Process id.
        holder: u32,
    },
    /// Another owner has taken the session over, or it was released.
    #[error("session `{session}` was taken over: the lease of epoch {epoch} no longer holds; open the session again")]
    LeaseLost {
        /// Its subject.
        session: String,
        /// Of the lease that was shown.
        epoch: u64,
    },
    /// The session is not where the caller thought.
    #[error("session `{session}` is at revision {found}, not {expected}; open it again")]
    Conflict {
        /// Its subject.
        session: String,
        /// The caller's.
        expected: u64,
        /// The stored one.
        found: u64,
    },
    /// There is no such session.
    #[error("there is no session `{session}`")]
    NoSession {
        /// Its subject.
        session: String,
    },
    /// The session was to be new.
    #[error("session `{session}` exists already")]
    SessionExists {
        /// Its subject.
        session: String,
    },
    /// The import or fork that wrote the session was interrupted.
    #[error(
        "session `{session}` is incomplete: the import or the fork that was writing it was interrupted; \
         `agent-host session delete {session}` removes it, and another import replaces it"
    )]
    Incomplete {
        /// Its subject.
        session: String,
    },
    /// There is no such message.
    #[error("session `{session}` has no message {id}")]
    NoMessage {
        /// The session's subject.
        session: String,
        /// Which.
        id: MessageId,
    },
    /// The session has no such blob.
    #[error("there is no stored {digest} here")]
    NoBlob {
        /// Its address.
        digest: Digest,
    },
    /// The call has its result, and it stands.
    #[error("call `{call}` of session `{session}` has its result already; another is not taken")]
    AlreadyFinished {
        /// The session's subject.
        session: String,
        /// Which.
        call: CallId,
    },
    /// What was given cannot be stored as it is.
    #[error("{what} cannot be stored: {problem}")]
    Invalid {
        /// What.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Past a bound of the store.
    #[error("{what} has {size} bytes; at most {limit} are stored")]
    TooLarge {
        /// What.
        what: String,
        /// Bytes.
        size: u64,
        /// Bytes.
        limit: u64,
    },
    /// The file is something else.
    #[error("`{path}` is not a SQLite database; it is left as it is: name another file")]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// A SQLite database of another program.
    #[error("`{path}` is the SQLite database of another program; it is left as it is: name another file")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be trusted.
    #[error(
        "the database `{path}` is damaged ({problem}); it is left as it is: restore it from a copy, or move it away"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// As SQLite or the reader says it.
        problem: String,
    },
    /// What can be searched is damaged, and can be made anew from the rest.
    #[error(
        "an index of words in the database `{path}` is damaged ({problem}); nothing of what was said is lost: \
         `agent-host store rebuild` makes it anew"
    )]
    DamagedIndex {
        /// The file.
        path: PathBuf,
        /// As SQLite says it.
        problem: String,
    },
    /// A newer host wrote the file.
    #[error("the database `{path}` has version {found}; this host knows up to {supported}: use a newer host")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Of the file.
        found: i64,
        /// The newest that this host knows.
        supported: i64,
    },
    /// Nothing can be written.
    #[error(
        "the database `{path}` cannot be written: where its disk can be written to, give the file and its folder write \
         permission; else keep the data in another folder, --data DIR"
    )]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// No room. What was committed before stands.
    #[error("no room for the database `{path}`: free disk space, then go on")]
    DiskFull {
        /// The file.
        path: PathBuf,
    },
    /// Another process kept the file locked for longer than the store waits.
    #[error("the database `{path}` is locked by another process{holder}: try again when it is done")]
    Locked {
        /// The file.
        path: PathBuf,
        /// Who holds the lock, as ` (1234, `agent-host`, which is stopped)`. Empty where the system does not say it.
        holder: String,
    },
    /// The SQLite library is too old to be trusted with a shared write-ahead log.
    #[error("SQLite {found} is linked; at least {needed} is needed")]
    OldSqlite {
        /// As `sqlite3_libversion_number` gives it.
        found: i32,
        /// In the same form.
        needed: i32,
    },
    /// The system or SQLite failed in another way.
    #[error("the database `{path}` failed: {problem}")]
    Failed {
        /// The file.
        path: PathBuf,
        /// As the system says it.
        problem: String,
    },
    /// The store has been closed.
    #[error("the store is closed")]
    Closed,
}
