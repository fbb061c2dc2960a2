//! Errors of this crate, with messages for people: what happened, where, and what to do.

use agent_core::message::Digest;
use agent_core::visible::visible_name;
use std::path::PathBuf;

/// Error of a registry operation, or of a lock file, key or signature.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The text is not a valid reference.
    #[error(
        "`{text}` is not a valid reference: {reason}; write HOST/PATH[:TAG], such as registry.example/team/calc:1.0.0"
    )]
    Reference {
        /// The text as it was written.
        text: String,
        /// What is wrong with the text.
        reason: &'static str,
    },
    /// The server does not answer.
    #[error("{place} cannot be reached: {reason}")]
    Unreachable {
        /// The requested reference or address.
        place: String,
        /// Why the server cannot be reached.
        reason: String,
    },
    /// The connection ended before the answer was complete.
    #[error("{place}: the connection was interrupted: {reason}")]
    Interrupted {
        /// The requested reference or address.
        place: String,
        /// Why the connection ended.
        reason: String,
    },
    /// Secure connections are not possible on this system.
    #[error("secure connections are not possible ({0}): install this system's root certificates (`ca-certificates`)")]
    Tls(String),
    /// The registry requires a login, or the login has no permission.
    #[error("{place}: {message}; {advice}")]
    Unauthorised {
        /// The requested reference or address.
        place: String,
        /// What the server answered.
        message: String,
        /// What to do.
        advice: String,
    },
    /// The requested thing does not exist.
    #[error("{place} was not found{advice}")]
    NotFound {
        /// The requested reference, address or thing.
        place: String,
        /// What exists instead, as the end of the sentence. May be empty.
        advice: String,
    },
    /// The server returned an error or an invalid answer.
    #[error("{place}: {message}")]
    Server {
        /// The requested reference or address.
        place: String,
        /// Description of the server's answer.
        message: String,
    },
    /// Stored credentials cannot be read.
    #[error("the credentials for {host} cannot be read: {reason}")]
    Credentials {
        /// Host of the registry.
        host: String,
        /// Why not, and what to do.
        reason: String,
    },
    /// The artifact does not contain a plugin.
    #[error("{place} is not a plugin: {what}")]
    NotAPlugin {
        /// The requested reference.
        place: String,
        /// What the artifact contains instead.
        what: String,
    },
    /// The content exceeds a size limit.
    #[error("{place} has {size} bytes; the maximum is {most} bytes")]
    TooLarge {
        /// The reference, address or file.
        place: String,
        /// Size in bytes, as far as it is known.
        size: u64,
        /// Maximum size in bytes.
        most: u64,
    },
    /// The content does not have the expected digest or size.
    #[error(
        "{place}: the received data has {found}, not {wanted}; it was changed in transit or on the server, and is not used"
    )]
    Tampered {
        /// The requested reference or address.
        place: String,
        /// Expected digest or size, for people.
        wanted: String,
        /// Actual digest or size, for people.
        found: String,
    },
    /// A signature is invalid, or a required signature is missing.
    #[error("{place}: {reason}")]
    Signature {
        /// The reference, address or file.
        place: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A key cannot be used.
    #[error("{place}: {reason}")]
    Key {
        /// The key's file, or the start of its text.
        place: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The lock file cannot be used.
    #[error("{}{}: {reason}", path.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
    Lock {
        /// Path of the lock file.
        path: PathBuf,
        /// Line number, starting at 1, if it is known.
        line: Option<usize>,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A different version or file already exists there.
    #[error("{place}: {reason}")]
    Conflict {
        /// The reference or file.
        place: String,
        /// What exists already, and what to do.
        reason: String,
    },
    /// A file operation failed.
    #[error("{} cannot be {action}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The failed operation as a participle, such as `read` or `written`.
        action: &'static str,
        /// Error of the operating system.
        source: std::io::Error,
    },
}

impl RegistryError {
    /// Returns whether the server could not be reached, so that local copies may be used instead.
    pub fn is_offline(&self) -> bool {
        matches!(self, RegistryError::Unreachable { .. } | RegistryError::Interrupted { .. })
    }

    pub(crate) fn file(path: impl Into<PathBuf>, action: &'static str, source: std::io::Error) -> Self {
        Self::File { path: path.into(), action, source }
    }

    pub(crate) fn tampered(place: impl Into<String>, wanted: &Digest, found: &Digest) -> Self {
        let named = |digest: &Digest| format!("the digest {digest}");
        Self::Tampered { place: place.into(), wanted: named(wanted), found: named(found) }
    }
}

/// Prepares text of others for one line of a message: makes invisible characters visible, and limits the length.
pub(crate) fn display_text(text: &str) -> String {
    const LONGEST: usize = 300;
    let line: String = text
        .trim()
        .chars()
        .take(LONGEST + 1)
        .map(|character| if character.is_whitespace() { ' ' } else { character })
        .collect();
    visible_name(&line, LONGEST)
}
