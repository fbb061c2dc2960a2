//! What can go wrong when plugins are shared, for people: what, where, and what to do.

use agent_core::message::Digest;
use agent_core::visible::visible_name;
use std::path::PathBuf;

/// Why something could not be shared, taken or verified.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// A text that names no place in a registry.
    #[error("`{text}` is no reference: {reason}; write HOST/PATH[:TAG], such as registry.example/team/calc:1.0.0")]
    Reference {
        /// As it was written.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Nobody answers.
    #[error("{place} cannot be reached: {reason}")]
    Unreachable {
        /// A reference or an address.
        place: String,
        /// Why.
        reason: String,
    },
    /// Somebody answered, and then no more.
    #[error("{place}: the connection was cut: {reason}")]
    Cut {
        /// A reference or an address.
        place: String,
        /// Why.
        reason: String,
    },
    /// Secure connections cannot be made at all.
    #[error("no secure connections can be made ({0}): install this system's root certificates (`ca-certificates`)")]
    Tls(String),
    /// The registry wants to know who asks, or does not let them.
    #[error("{place}: {said}; {advice}")]
    Unauthorised {
        /// A reference or an address.
        place: String,
        /// What the server said.
        said: String,
        /// What to do.
        advice: String,
    },
    /// There is no such thing.
    #[error("{place} is not there{advice}")]
    NotFound {
        /// A reference or an address.
        place: String,
        /// What is there instead, as the end of a sentence; may be empty.
        advice: String,
    },
    /// The server answers otherwise than it should.
    #[error("{place}: {said}")]
    Server {
        /// A reference or an address.
        place: String,
        /// What it said.
        said: String,
    },
    /// Credentials cannot be had.
    #[error("the credentials for {host} cannot be had: {reason}")]
    Credentials {
        /// For which registry.
        host: String,
        /// Why, and what to do.
        reason: String,
    },
    /// What is there is no plugin.
    #[error("{place} is no plugin: {what}")]
    NotAPlugin {
        /// A reference.
        place: String,
        /// What it is instead.
        what: String,
    },
    /// More bytes than are taken.
    #[error("{place} has {size} bytes; at most {most} are taken")]
    TooLarge {
        /// What.
        place: String,
        /// Its bytes, as far as they are known.
        size: u64,
        /// The bound.
        most: u64,
    },
    /// Bytes that are not those they are named by.
    #[error(
        "{place}: what came has {found}, not {wanted}; it was changed on the way or where it is kept, and is not used"
    )]
    Tampered {
        /// What.
        place: String,
        /// What it is named by.
        wanted: String,
        /// What it has.
        found: String,
    },
    /// A signature or the want of one.
    #[error("{place}: {reason}")]
    Signature {
        /// A reference, an address or a file.
        place: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A key that cannot be used.
    #[error("{place}: {reason}")]
    Key {
        /// Its file, or its text.
        place: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The lock file cannot be used.
    #[error("{}{}: {reason}", path.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
    Lock {
        /// The file.
        path: PathBuf,
        /// From 1, where it is known.
        line: Option<usize>,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// Another version has that place already.
    #[error("{place}: {reason}")]
    Taken {
        /// What.
        place: String,
        /// By whom, and what to do.
        reason: String,
    },
    /// A file cannot be read or written.
    #[error("{} cannot be {action}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// `read`, `written` …
        action: &'static str,
        /// Why not.
        source: std::io::Error,
    },
}

impl ShareError {
    /// Whether there is no way to the server, so that what is here may do.
    pub fn is_offline(&self) -> bool {
        matches!(self, ShareError::Unreachable { .. } | ShareError::Cut { .. })
    }

    pub(crate) fn file(path: impl Into<PathBuf>, action: &'static str, source: std::io::Error) -> Self {
        Self::File { path: path.into(), action, source }
    }

    pub(crate) fn tampered(place: impl Into<String>, wanted: &Digest, found: &Digest) -> Self {
        let named = |digest: &Digest| format!("the digest {digest}");
        Self::Tampered { place: place.into(), wanted: named(wanted), found: named(found) }
    }
}

/// Foreign text for one line of a message: with invisible characters made visible, and not long.
pub(crate) fn shown(text: &str) -> String {
    const LONGEST: usize = 300;
    let line: String = text
        .trim()
        .chars()
        .take(LONGEST + 1)
        .map(|character| if character.is_whitespace() { ' ' } else { character })
        .collect();
    visible_name(&line, LONGEST)
}
