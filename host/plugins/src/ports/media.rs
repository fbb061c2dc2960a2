//! The port through which plugins read and store the media items of sessions.

use super::PortError;
use crate::text::cut;
use agent_core::message::{Digest, Media};

/// Reads and stores the media items of sessions.
#[async_trait::async_trait]
pub trait MediaPort: Send + Sync {
    /// Returns the description of a media item, or None if the item does not belong to this session.
    async fn describe(&self, session: &str, digest: &Digest) -> Result<Option<Media>, PortError>;

    /// Returns the bytes of a media item in this range. Returns fewer bytes if the media item ends before the end of
    /// the range.
    async fn read(&self, session: &str, digest: &Digest, range: MediaRange) -> Result<Vec<u8>, PortError>;

    /// Stores a media item in this session. The implementation must check the MIME type that the guest declares.
    async fn put(&self, session: &str, item: NewMediaItem) -> Result<Media, PortError>;
}

/// A byte range of a media item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaRange {
    /// Position of the range's first byte, counted from the start of the media item.
    pub offset: u64,
    /// Maximum number of bytes in the range.
    pub length: u32,
}

/// A media item that a guest created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMediaItem {
    /// Content of the media item.
    pub bytes: Vec<u8>,
    /// MIME type that the guest declares.
    pub mime_type: String,
    /// Name of the media item for users. `None` means that the item has no name.
    pub name: Option<String>,
}

/// Maximum size of a media item's name in bytes. The same maximum applies to the MIME type.
pub(crate) const MEDIA_ITEM_NAME_BYTES: usize = 255;

impl NewMediaItem {
    /// Creates a media item from the data of a guest. Cuts the MIME type and the name to their maximum size.
    pub(crate) fn new(bytes: Vec<u8>, mime_type: &str, name: Option<&str>) -> Self {
        Self { bytes, mime_type: short(mime_type), name: name.map(short) }
    }
}

/// A copy of the text, cut to the maximum size. The text is copied so that the memory of a longer text can be freed.
pub(crate) fn short(text: &str) -> String {
    cut(text, MEDIA_ITEM_NAME_BYTES).to_owned()
}
