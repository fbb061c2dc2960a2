//! The port through which plugins read and store the media of sessions.

use super::PortError;
use crate::text::cut;
use agent_core::message::{Digest, Media};

/// Reads and stores the media of sessions.
#[async_trait::async_trait]
pub trait MediaPort: Send + Sync {
    /// Returns the description of a medium, or None if it does not belong to this session.
    async fn describe(&self, session: &str, digest: &Digest) -> Result<Option<Media>, PortError>;

    /// Returns at most `length` bytes from `offset`; fewer at the end of the medium.
    async fn read(&self, session: &str, digest: &Digest, range: MediaRange) -> Result<Vec<u8>, PortError>;

    /// Stores a medium in this session. The port checks the MIME type that the guest gives.
    async fn put(&self, session: &str, medium: MediumToStore) -> Result<Media, PortError>;
}

/// A byte range of a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaRange {
    /// Position of the first byte.
    pub offset: u64,
    /// Maximum number of bytes.
    pub length: u32,
}

/// A medium that a guest created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediumToStore {
    /// Content of the medium.
    pub bytes: Vec<u8>,
    /// MIME type that the guest gives.
    pub mime_type: String,
    /// Name for people.
    pub name: Option<String>,
}

/// Maximum bytes of the MIME type and of the name of a medium.
pub(crate) const MEDIUM_NAME_BYTES: usize = 255;

impl MediumToStore {
    /// Creates a medium with its texts cut to the maximum length.
    pub(crate) fn new(bytes: Vec<u8>, mime_type: &str, name: Option<&str>) -> Self {
        Self { bytes, mime_type: short(mime_type), name: name.map(short) }
    }
}

/// A shortened copy, so that the memory of a long text can be freed.
pub(crate) fn short(text: &str) -> String {
    cut(text, MEDIUM_NAME_BYTES).to_owned()
}
