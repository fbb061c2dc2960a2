//! Blobs (D1): bytes addressed by their SHA-256 digest. Each blob is stored once, and only sessions that put it can read it.

use crate::StoreError;
use agent_core::message::{Digest, Dimensions, Media};
use async_trait::async_trait;
use sha2::{Digest as _, Sha256};

/// Maximum size of a blob, in bytes.
pub const MAX_BLOB_BYTES: u64 = 512 << 20;

/// Maximum number of bytes that one read returns; a longer read is shortened to this.
pub const MAX_READ_BYTES: u32 = 16 << 20;

/// Stores media, and the texts that step records refer to.
#[async_trait]
pub trait Blobs: Send + Sync {
    /// Stores the bytes and makes them visible to this session. Equal bytes are stored once for all sessions. The newest
    /// description replaces the session's previous one.
    async fn put(&self, session: &str, bytes: Vec<u8>, about: MediaDescription) -> Result<Media, StoreError>;

    /// Returns the description of a medium that this session has put, or `None` if it has not put it.
    async fn media(&self, session: &str, digest: &Digest) -> Result<Option<Media>, StoreError>;

    /// Reads bytes from `offset`, at most `length` and at most [`MAX_READ_BYTES`]. The result is shorter at the end of the blob
    /// and empty past it. A partial read never loads the whole blob.
    async fn read(&self, session: &str, digest: &Digest, offset: u64, length: u32) -> Result<Vec<u8>, StoreError>;

    /// Stores a text that a step record of this session refers to. The text is not a medium: only [`Blobs::text`] reads it.
    async fn put_text(&self, session: &str, text: String) -> Result<Digest, StoreError>;

    /// Returns the media and texts that this session refers to, ordered by digest: those after `after`, at most `limit`.
    async fn references(
        &self,
        session: &str,
        after: Option<&Digest>,
        limit: usize,
    ) -> Result<Vec<BlobReference>, StoreError>;

    /// Makes media of session `from` visible to session `to`, with the same descriptions. The bytes are not copied. Either all
    /// media are shared or none; a digest that `from` cannot see gives [`StoreError::NoBlob`].
    async fn share(&self, from: &str, to: &str, media: &[Digest]) -> Result<(), StoreError>;

    /// Returns a text, no matter which session put it. For use by the host itself.
    async fn text(&self, digest: &Digest) -> Result<String, StoreError>;
}

/// A blob that a session refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlobReference {
    /// A medium, such as an image.
    Media(Media),
    /// A text that the session's step records refer to.
    Text {
        /// Digest of the text.
        digest: Digest,
        /// Size in bytes.
        size: u64,
    },
}

impl BlobReference {
    /// Digest of the blob's bytes.
    pub fn digest(&self) -> &Digest {
        match self {
            Self::Media(media) => &media.digest,
            Self::Text { digest, .. } => digest,
        }
    }
}

/// Metadata of a medium.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MediaDescription {
    /// IANA media type in lower case, without parameters.
    pub mime_type: String,
    /// Size in pixels, for images whose header could be read.
    pub dimensions: Option<Dimensions>,
    /// File name or title, for people.
    pub name: Option<String>,
}

/// Computes the SHA-256 digest of these bytes.
pub fn digest_of(bytes: &[u8]) -> Digest {
    Digest::from_sha256(Sha256::digest(bytes).into())
}
