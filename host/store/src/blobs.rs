//! Blobs (D1): bytes addressed by their SHA-256 digest. Each blob is stored once. A session can read a blob only if
//! the session stored the blob, or if another session shared the blob with it.

use crate::StoreError;
use agent_core::message::{Digest, Dimensions, Media};
use async_trait::async_trait;
use sha2::{Digest as _, Sha256};

/// Maximum size of a blob, in bytes.
pub const MAX_BLOB_BYTES: u64 = 512 << 20;

/// Maximum number of bytes that one read returns. A read that requests more bytes returns this number of bytes.
pub const MAX_READ_BYTES: u32 = 16 << 20;

/// Stores media items, such as images, and the texts that step records refer to.
#[async_trait]
pub trait Blobs: Send + Sync {
    /// Stores the bytes and makes them visible to this session. Equal bytes are stored once for all sessions. The
    /// description `about` replaces the session's previous description of the same bytes.
    async fn put(&self, session: &str, bytes: Vec<u8>, about: MediaDescription) -> Result<Media, StoreError>;

    /// Returns the description of a media item, or `None` if the item is not visible to this session.
    async fn media(&self, session: &str, digest: &Digest) -> Result<Option<Media>, StoreError>;

    /// Reads up to `length` bytes from `offset`, but no more than [`MAX_READ_BYTES`]. The result is shorter if the
    /// blob ends before `length` bytes are read, and empty if `offset` is past the end of the blob. A read of a part
    /// of a blob does not load the whole blob.
    async fn read(&self, session: &str, digest: &Digest, offset: u64, length: u32) -> Result<Vec<u8>, StoreError>;

    /// Stores a text that a step record of this session refers to. The text is not a media item, so only
    /// [`Blobs::text`] can read it.
    async fn put_text(&self, session: &str, text: String) -> Result<Digest, StoreError>;

    /// Returns up to `limit` media items and texts that this session refers to, ordered by digest. The list starts
    /// with the first digest that is greater than `after`.
    async fn references(
        &self,
        session: &str,
        after: Option<&Digest>,
        limit: usize,
    ) -> Result<Vec<BlobReference>, StoreError>;

    /// Makes media items of session `from` visible to session `to`, with the same descriptions. The bytes are not
    /// copied. Either all items are shared, or no items are shared. Fails with [`StoreError::NoBlob`] if one of the
    /// items is not visible to `from`.
    async fn share(&self, from: &str, to: &str, media: &[Digest]) -> Result<(), StoreError>;

    /// Returns a text that was stored for the session. Fails with [`StoreError::NoBlob`] if the session does not refer
    /// to the text, even if another session does. This check is necessary because an imported record may contain the
    /// digest of any text.
    async fn text(&self, session: &str, digest: &Digest) -> Result<String, StoreError>;
}

/// A blob that a session refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlobReference {
    /// A media item, such as an image.
    Media(Media),
    /// A text that the session's step records refer to.
    Text {
        /// Digest of the text.
        digest: Digest,
        /// Size of the text in bytes.
        size: u64,
    },
}

impl BlobReference {
    /// Returns the digest of the blob's bytes.
    pub fn digest(&self) -> &Digest {
        match self {
            Self::Media(media) => &media.digest,
            Self::Text { digest, .. } => digest,
        }
    }
}

/// Metadata of a media item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MediaDescription {
    /// IANA media type in lower case, without parameters.
    pub mime_type: String,
    /// Width and height of an image in pixels. `None` if the size could not be read from the image's header.
    pub dimensions: Option<Dimensions>,
    /// File name or title to show to users.
    pub name: Option<String>,
}

/// Computes the SHA-256 digest of these bytes.
pub fn digest_of(bytes: &[u8]) -> Digest {
    Digest::from_sha256(Sha256::digest(bytes).into())
}
