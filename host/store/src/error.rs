//! Errors of a store. Each variant is a situation that a caller can act on.

use crate::SessionHolder;
use agent_core::message::{CallId, Digest, MessageId};
use std::path::PathBuf;

/// Error of a store operation. A failed operation stores nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The session is already open, and the process that has it open is still running.
    #[error("session `{session}` is in use by {holder}: wait until this process is done, or stop it")]
    Busy {
        /// Subject that identifies the session.
        session: String,
        /// The process that has the session open.
        holder: SessionHolder,
    },
    /// The lease is no longer valid: it was released, or another owner opened the session.
    #[error(
        "session `{session}` was released or taken over: the lease with epoch {epoch} is no longer valid; open the session again"
    )]
    LeaseLost {
        /// Subject that identifies the session.
        session: String,
        /// Epoch of the lease that the caller passed.
        epoch: u64,
    },
    /// The session has a different revision than the caller expected.
    #[error("session `{session}` is at revision {found}, not {expected}; open the session again")]
    Conflict {
        /// Subject that identifies the session.
        session: String,
        /// Revision that the caller expected.
        expected: u64,
        /// Revision that is stored.
        found: u64,
    },
    /// The session does not exist.
    #[error("there is no session `{session}`")]
    NoSession {
        /// Subject that identifies the session.
        session: String,
    },
    /// Requests that wait for an answer have taken all the room that is there for requests to sessions of other processes.
    #[error("{whose} cannot take another request now, because {limit} wait for an answer already: try again later")]
    RequestsFull {
        /// What has the limit: a session, or the database.
        whose: String,
        /// The limit that is reached.
        limit: String,
    },
    /// A session with this subject already exists, but the caller wanted to create it.
    #[error("session `{session}` already exists")]
    SessionExists {
        /// Subject that identifies the session.
        session: String,
    },
    /// The import or fork that was writing the session was interrupted.
    #[error(
        "session `{session}` is incomplete because the import or fork that was writing it was interrupted: delete it with \
         `agent-host session delete {session}`, or import it again"
    )]
    Incomplete {
        /// Subject that identifies the session.
        session: String,
    },
    /// The session does not contain the message.
    #[error("session `{session}` has no message {id}")]
    NoMessage {
        /// Subject that identifies the session.
        session: String,
        /// Id of the message.
        id: MessageId,
    },
    /// No blob has this digest, or the blob is not visible to the session.
    #[error("there is no stored content with the digest {digest}")]
    NoBlob {
        /// Digest of the blob.
        digest: Digest,
    },
    /// The call already has a result, and a result never changes.
    #[error("call `{call}` of session `{session}` already has a result, which cannot be changed")]
    AlreadyFinished {
        /// Subject that identifies the session.
        session: String,
        /// Id of the call.
        call: CallId,
    },
    /// A value is not valid and cannot be stored.
    #[error("{what} cannot be stored: {problem}")]
    Invalid {
        /// Name or description of the value. The error message starts with this text.
        what: String,
        /// Reason why the value is not valid.
        problem: String,
    },
    /// A value exceeds a size limit of the store.
    #[error("{what} has {size} bytes; the maximum is {limit} bytes")]
    TooLarge {
        /// Name or description of the value. The error message starts with this text.
        what: String,
        /// Size of the value in bytes.
        size: u64,
        /// Maximum size in bytes.
        limit: u64,
    },
    /// The file is not a SQLite database.
    #[error("`{path}` is not a SQLite database, and it was left unchanged: choose a different file")]
    NotADatabase {
        /// Path of the database file.
        path: PathBuf,
    },
    /// The file is a SQLite database of another program.
    #[error("`{path}` is the SQLite database of another program, and it was left unchanged: choose a different file")]
    Foreign {
        /// Path of the database file.
        path: PathBuf,
    },
    /// The database file is damaged.
    #[error(
        "the database `{path}` is damaged ({problem}), and it was left unchanged: restore it from a backup, or move it away"
    )]
    Damaged {
        /// Path of the database file.
        path: PathBuf,
        /// The problem, as SQLite or the code that read the data reported it.
        problem: String,
    },
    /// A search index is damaged. The index can be rebuilt from the messages or memories in the file.
    #[error(
        "a search index in the database `{path}` is damaged ({problem}); no messages or memories are lost: run \
         `agent-host store rebuild` to rebuild the index"
    )]
    DamagedIndex {
        /// Path of the database file.
        path: PathBuf,
        /// The problem, as SQLite reported it.
        problem: String,
    },
    /// A newer version of the host has migrated the database file.
    #[error(
        "the database `{path}` has version {found}, but this host supports versions up to {supported}: use a newer host"
    )]
    Newer {
        /// Path of the database file.
        path: PathBuf,
        /// Schema version of the database file.
        found: i64,
        /// Newest schema version that this host supports.
        supported: i64,
    },
    /// The database file cannot be written.
    #[error(
        "the database `{path}` cannot be written: if its disk is writable, give the file and its folder write permission; \
         otherwise keep the data in another folder (--data DIR)"
    )]
    ReadOnly {
        /// Path of the database file.
        path: PathBuf,
    },
    /// The disk is full, or the database file reached its configured maximum size. All commits that succeeded
    /// earlier are kept.
    #[error("there is no space left for the database `{path}`: free some disk space, then try again")]
    DiskFull {
        /// Path of the database file.
        path: PathBuf,
    },
    /// Another process kept the database file locked for longer than the store may wait for the lock.
    #[error("the database `{path}` is locked by another process{holder}: try again when that process is done")]
    Locked {
        /// Path of the database file.
        path: PathBuf,
        /// Description of the process that holds the lock, starting with a space, such as " (1234, `agent-host`, which
        /// is stopped)". Empty if the process is unknown.
        holder: String,
    },
    /// The linked SQLite library is too old to be used safely with a shared write-ahead log.
    #[error("the linked SQLite library has version {found}, but at least version {needed} is required")]
    OldSqlite {
        /// Version of the linked library, as `sqlite3_libversion_number` returns it.
        found: i32,
        /// Oldest supported version, in the same format as `found`.
        needed: i32,
    },
    /// The operating system or SQLite reported an error for which this enum has no other variant.
    #[error("the database `{path}` cannot be used: {problem}")]
    Failed {
        /// Path of the database file.
        path: PathBuf,
        /// The error, as the operating system or SQLite reported it.
        problem: String,
    },
    /// The address of a database is not valid. The message does not contain the address, because it may contain a
    /// password.
    #[error("the address of the database is not valid: {problem}")]
    InvalidAddress {
        /// The expected form.
        problem: String,
    },
    /// The database confirms commits before they are durable, so that a crash would lose confirmed commits.
    #[error(
        "the database `{path}` has the setting `{setting} = off`, so a crash would lose commits that it has confirmed: set \
         `{setting} = on` for this database, or allow lost commits explicitly"
    )]
    NotDurable {
        /// Address of the database without secrets.
        path: PathBuf,
        /// Name of the setting.
        setting: String,
    },
    /// The connection broke while a change was being stored, and it is not known whether the change is stored.
    #[error(
        "the connection to the database `{path}` broke while a change was being stored ({problem}), so the change may or may \
         not be stored: read the data again before you repeat the change"
    )]
    OutcomeUnknown {
        /// Address of the database without secrets.
        path: PathBuf,
        /// Why the connection broke.
        problem: String,
    },
    /// The address of an object store, or a variable that says how to sign in, is not valid. The message contains neither.
    #[error("the object store is not valid: {problem}")]
    InvalidObjectStore {
        /// What is missing, and the expected form.
        problem: String,
    },
    /// The object store with media and large parts cannot be used.
    #[error("the object store `{store}` cannot be used: {problem}")]
    ObjectStore {
        /// Address of the object store without secrets.
        store: String,
        /// Why it cannot be used, and what to do.
        problem: String,
    },
    /// An object to which the database refers is missing, or it has other bytes than were written.
    #[error(
        "the object `{object}` in the object store `{store}` {problem}, and nothing was changed: restore an earlier version of \
         the object"
    )]
    DamagedObject {
        /// Address of the object store without secrets.
        store: String,
        /// Name of the object.
        object: String,
        /// What is wrong with the object.
        problem: String,
    },
    /// The database keeps its media in another object store than the one that this process uses.
    #[error(
        "the database `{path}` keeps media in the object store `{registered}`: start all processes with --media-store \
         {registered} or AGENT_HOST_MEDIA_STORE={registered}"
    )]
    OtherObjectStore {
        /// Address of the database without secrets.
        path: PathBuf,
        /// Address of the object store that the database uses, without secrets.
        registered: String,
    },
    /// The store was closed before the operation finished.
    #[error("the store is closed")]
    Closed,
}
