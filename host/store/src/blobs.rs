//! Bytes by their SHA-256, stored once and seen only by the sessions that put them (D1).

use crate::StoreError;
use agent_core::message::{Digest, Dimensions, Media};
use async_trait::async_trait;
use sha2::{Digest as _, Sha256};

/// Most bytes of one blob.
pub const MAX_BLOB_BYTES: u64 = 512 << 20;

/// Most bytes of one read; longer reads come back shorter.
pub const MAX_READ_BYTES: u32 = 16 << 20;

/// Media, and the texts that step records refer to.
#[async_trait]
pub trait Blobs: Send + Sync {
    /// Stores the bytes once over all sessions and lets this session see them. The newest description is kept.
    async fn put(&self, session: &str, bytes: Vec<u8>, about: MediaDescription) -> Result<Media, StoreError>;

    /// Description of a medium that this session has put.
    async fn media(&self, session: &str, digest: &Digest) -> Result<Option<Media>, StoreError>;

    /// Bytes from `offset`, at most `length` and [`MAX_READ_BYTES`], fewer at the end, none behind it. Never reads the
    /// whole blob for a part of it.
    async fn read(&self, session: &str, digest: &Digest, offset: u64, length: u32) -> Result<Vec<u8>, StoreError>;

    /// Stores a text that a step record of this session refers to. It is no medium: only [`Blobs::text`] reads it.
    async fn put_text(&self, session: &str, text: String) -> Result<Digest, StoreError>;

    /// What this session refers to, media and texts, in the order of their digests: those behind `after`, at most
    /// `limit`.
    async fn references(
        &self,
        session: &str,
        after: Option<&Digest>,
        limit: usize,
    ) -> Result<Vec<BlobReference>, StoreError>;

    /// Lets session `to` see media of session `from`, as it describes them. Nothing is copied: the bytes stay stored
    /// once. All of them or none; one that `from` does not see is [`StoreError::NoBlob`].
    async fn share(&self, from: &str, to: &str, media: &[Digest]) -> Result<(), StoreError>;

    /// A text, for the host itself: whichever session put it.
    async fn text(&self, digest: &Digest) -> Result<String, StoreError>;
}

/// A blob that a session refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlobReference {
    /// A medium.
    Media(Media),
    /// A text of its step records.
    Text {
        /// Address of its bytes.
        digest: Digest,
        /// Bytes.
        size: u64,
    },
}

impl BlobReference {
    /// Address of its bytes.
    pub fn digest(&self) -> &Digest {
        match self {
            Self::Media(media) => &media.digest,
            Self::Text { digest, .. } => digest,
        }
    }
}

/// What a medium is, beside its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MediaDescription {
    /// IANA media type without parameters, lower case.
    pub mime_type: String,
    /// Of images whose header could be read.
    pub dimensions: Option<Dimensions>,
    /// For people.
    pub name: Option<String>,
}

/// The address of these bytes.
pub fn digest_of(bytes: &[u8]) -> Digest {
    Digest::from_sha256(Sha256::digest(bytes).into())
}
