//! Errors of this crate. Each message tells the user what happened, where it happened, and what to do.

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
        /// The text that should be a reference.
        text: String,
        /// Reason why the text is not a valid reference.
        reason: &'static str,
    },
    /// The server cannot be reached or does not respond.
    #[error("{place} cannot be reached: {reason}")]
    Unreachable {
        /// The requested reference or address.
        place: String,
        /// Reason why the server cannot be reached.
        reason: String,
    },
    /// The connection ended before the response was complete.
    #[error("{place}: the connection was interrupted: {reason}")]
    Interrupted {
        /// The requested reference or address.
        place: String,
        /// Reason why the connection ended.
        reason: String,
    },
    /// Connections with TLS are not possible on this system.
    #[error("secure connections are not possible ({0}): install this system's root certificates (`ca-certificates`)")]
    Tls(String),
    /// The registry requires a login, or does not allow the operation for the login that was used.
    #[error("{place}: {message}; {advice}")]
    Unauthorised {
        /// The requested reference or address.
        place: String,
        /// Description of the server's response.
        message: String,
        /// Advice for the user.
        advice: String,
    },
    /// The requested content does not exist.
    #[error("{place} was not found{advice}")]
    NotFound {
        /// The requested reference or address, or another description of the missing content.
        place: String,
        /// Text at the end of the message, for example a list of the tags that exist. The text may be empty.
        advice: String,
    },
    /// The server returned an error or an invalid response.
    #[error("{place}: {message}")]
    Server {
        /// The requested reference or address.
        place: String,
        /// Description of the server's response.
        message: String,
    },
    /// Stored credentials cannot be read.
    #[error("the credentials for {host} cannot be read: {reason}")]
    Credentials {
        /// Host of the registry.
        host: String,
        /// Reason why the credentials cannot be read, with advice for the user.
        reason: String,
    },
    /// The source of a locked plugin now contains another component.
    #[error(
        "{place} has changed: its digest is {found}, but the lock file has {expected}; `agent-host plugin update {plugin}` \
         installs the new version"
    )]
    Changed {
        /// The reference in the lock file.
        place: String,
        /// Name of the plugin.
        plugin: String,
        /// First digits of the digest in the lock file.
        expected: String,
        /// First digits of the digest of the component that the source contains.
        found: String,
    },
    /// The artifact does not contain a plugin.
    #[error("{place} is not a plugin: {content}")]
    NotAPlugin {
        /// The requested reference.
        place: String,
        /// Description of the artifact's content.
        content: String,
    },
    /// The content exceeds a size limit.
    #[error("{place} has {size} bytes; the maximum is {limit} bytes")]
    TooLarge {
        /// The reference, address or file that the error is about.
        place: String,
        /// Size in bytes, or the number of bytes received so far if the total size is unknown.
        size: u64,
        /// Maximum size in bytes.
        limit: u64,
    },
    /// The content does not have the expected digest or size.
    #[error(
        "{place}: the received data has {found}, not {expected}; it was changed in transit or on the server, and is not used"
    )]
    Tampered {
        /// The requested reference or address.
        place: String,
        /// Expected digest or size, as text for the message.
        expected: String,
        /// Actual digest or size, as text for the message.
        found: String,
    },
    /// A signature is invalid, or a required signature is missing.
    #[error("{place}: {reason}")]
    Signature {
        /// The reference, address or file that the error is about.
        place: String,
        /// Description of the problem, with advice for the user.
        reason: String,
    },
    /// A key cannot be used.
    #[error("{place}: {reason}")]
    Key {
        /// Path of the key file, or the start of the key's text.
        place: String,
        /// Description of the problem, with advice for the user.
        reason: String,
    },
    /// The lock file cannot be used.
    #[error("{}{}: {reason}", path.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
    Lock {
        /// Path of the lock file.
        path: PathBuf,
        /// Number of the line with the problem, counted from 1. `None` if the line is unknown.
        line: Option<usize>,
        /// Description of the problem, with advice for the user.
        reason: String,
    },
    /// Different content already exists under this reference or file name.
    #[error("{place}: {reason}")]
    Conflict {
        /// The existing reference or file.
        place: String,
        /// Description of the existing content, with advice for the user.
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
    /// Returns whether the server cannot be reached or the connection was interrupted, so that a caller may use local
    /// copies instead of data from the server.
    pub fn is_offline(&self) -> bool {
        matches!(self, RegistryError::Unreachable { .. } | RegistryError::Interrupted { .. })
    }

    /// Returns whether the content was received and then refused, because it was changed, is too large, or is not signed as
    /// required. Callers record such an error in the audit log (O3).
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            RegistryError::Changed { .. }
                | RegistryError::Tampered { .. }
                | RegistryError::TooLarge { .. }
                | RegistryError::Signature { .. }
        )
    }

    pub(crate) fn file(path: impl Into<PathBuf>, action: &'static str, source: std::io::Error) -> Self {
        Self::File { path: path.into(), action, source }
    }

    pub(crate) fn tampered(place: impl Into<String>, expected: &Digest, found: &Digest) -> Self {
        let describe = |digest: &Digest| format!("the digest {digest}");
        Self::Tampered { place: place.into(), expected: describe(expected), found: describe(found) }
    }
}

/// Converts text from an untrusted source to text that can be shown in one line of a message. Invisible characters are
/// replaced by visible escapes, and the length is limited.
pub(crate) fn display_text(text: &str) -> String {
    const MAX_CHARACTERS: usize = 300;
    let line: String = text
        .trim()
        .chars()
        .take(MAX_CHARACTERS + 1)
        .map(|character| if character.is_whitespace() { ' ' } else { character })
        .collect();
    visible_name(&line, MAX_CHARACTERS)
}
