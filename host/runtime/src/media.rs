//! Media of a session: what plugins reach of them, and how new ones are described.

mod cache;
mod label;
mod reduce;
mod resample;
mod scale;

pub(crate) use label::{about, with_labels};
pub use scale::Downscaler;
pub(crate) use scale::ScaleError;

use crate::session::{Session, Shared};
use agent_core::message::{Digest, Dimensions, Media};
use agent_core::model::Downscaled;
use agent_models::{MediaBytes, MediaSource};
use agent_plugins::{MediaPort, MediaRange, MediumToStore, PortError};
use agent_store::{Blobs, MAX_READ_BYTES, MediaDescription, Store, StoreError, digest_of};
use async_trait::async_trait;
use std::sync::Arc;

/// The blob store as plugins reach it: each session sees its own media.
pub(crate) struct StoredMedia(pub(crate) Arc<dyn Store>);

#[async_trait]
impl MediaPort for StoredMedia {
    async fn describe(&self, session: &str, digest: &Digest) -> Result<Option<Media>, PortError> {
        self.0.media(session, digest).await.map_err(port_error)
    }

    async fn read(&self, session: &str, digest: &Digest, range: MediaRange) -> Result<Vec<u8>, PortError> {
        self.0.read(session, digest, range.offset, range.length).await.map_err(port_error)
    }

    async fn put(&self, session: &str, medium: MediumToStore) -> Result<Media, PortError> {
        let MediumToStore { bytes, mime_type, name } = medium;
        let about = describe(&bytes, &mime_type, name).map_err(PortError::Refused)?;
        self.0.put(session, bytes, about).await.map_err(port_error)
    }
}

/// A medium as it would be stored, which it is not.
pub(crate) fn described(medium: MediumToStore) -> Result<Media, PortError> {
    let MediumToStore { bytes, mime_type, name } = medium;
    let MediaDescription { mime_type, dimensions, name } =
        describe(&bytes, &mime_type, name).map_err(PortError::Refused)?;
    Ok(Media { digest: digest_of(&bytes), mime_type, size: bytes.len() as u64, dimensions, name })
}

/// Bytes of one medium that are sent to a provider, or made smaller for it. They stand in memory as a whole.
pub const MAX_SENT_BYTES: u64 = 64 << 20;

/// The bytes of one request's media, as the provider sends them: the policy may want some of them smaller.
pub(crate) struct OutgoingMedia<'m> {
    shared: &'m Shared,
    downscaled: &'m [Downscaled],
}

impl<'m> OutgoingMedia<'m> {
    pub(crate) fn new(shared: &'m Shared, downscaled: &'m [Downscaled]) -> Self {
        Self { shared, downscaled }
    }
}

#[async_trait]
impl MediaSource for OutgoingMedia<'_> {
    async fn read(&self, media: &Media) -> Result<MediaBytes, String> {
        let original = async { read_whole(&*self.shared.store, &self.shared.subject, media).await };
        let smaller = match self.downscaled.iter().find(|downscaled| downscaled.media.digest == media.digest) {
            None => None,
            Some(Downscaled { to, .. }) => {
                let scaled = self.shared.downscaler.scaled(media, *to, original).await;
                scaled.map_err(|error| format!("{} is to be sent smaller, and {error}", media.digest))?
            }
        };
        match smaller {
            Some(smaller) => Ok(smaller),
            None => {
                let bytes = read_whole(&*self.shared.store, &self.shared.subject, media).await;
                let bytes = bytes.map_err(|error| format!("{}: {error}", media.digest))?;
                Ok(MediaBytes { mime_type: media.mime_type.clone(), bytes: bytes.into() })
            }
        }
    }
}

/// A medium whose bytes are not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// There are too many.
    #[error("it has {size} bytes; at most {MAX_SENT_BYTES} are sent")]
    TooLarge {
        /// Bytes.
        size: u64,
    },
    /// The store does not give them.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// All bytes of a medium. The store gives them in pieces.
pub(crate) async fn read_whole(store: &dyn Store, session: &str, media: &Media) -> Result<Vec<u8>, ReadError> {
    if media.size > MAX_SENT_BYTES {
        return Err(ReadError::TooLarge { size: media.size });
    }
    let mut bytes = Vec::with_capacity(usize::try_from(media.size).unwrap_or(0));
    loop {
        let piece = store.read(session, &media.digest, bytes.len() as u64, MAX_READ_BYTES).await?;
        if piece.is_empty() {
            return Ok(bytes);
        }
        bytes.extend_from_slice(&piece);
        if bytes.len() as u64 >= media.size {
            return Ok(bytes);
        }
    }
}

/// A medium that a session does not take.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The bytes are not what they are said to be.
    #[error("{0}")]
    Refused(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Session {
    /// Stores a medium in this session, for an input that holds it: [`TurnInput::Message`] with a [`Part::Media`].
    /// Equal bytes are stored once.
    ///
    /// [`TurnInput::Message`]: agent_core::message::TurnInput::Message
    /// [`Part::Media`]: agent_core::message::Part::Media
    pub async fn attach(&self, medium: MediumToStore) -> Result<Media, AttachError> {
        let MediumToStore { bytes, mime_type, name } = medium;
        let about = describe(&bytes, &mime_type, name).map_err(AttachError::Refused)?;
        Ok(Blobs::put(&*self.shared.store, self.subject(), bytes, about).await?)
    }
}

fn port_error(error: StoreError) -> PortError {
    PortError::Failed(error.to_string())
}

/// First bytes of the types that can be told by them.
const SIGNATURES: &[(&str, &[u8])] = &[
    ("image/png", b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", b"\xff\xd8\xff"),
    ("image/gif", b"GIF8"),
    ("application/pdf", b"%PDF-"),
];

/// Describes new bytes; refuses those that are something else than they are said to be.
pub fn describe(bytes: &[u8], mime_type: &str, name: Option<String>) -> Result<MediaDescription, String> {
    let mime_type = mime_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let valid = mime_type.split_once('/').is_some_and(|(kind, subtype)| {
        let token = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
        token(kind) && token(subtype)
    });
    if !valid {
        return Err(format!("`{mime_type}` is not a media type such as `image/png`"));
    }
    if let Some(found) = told_by_bytes(bytes).filter(|found| *found != mime_type) {
        return Err(format!("the bytes are {found}, not {mime_type}"));
    }
    if told_by_bytes(bytes).is_none() && is_known(&mime_type) {
        return Err(format!("the bytes are not {mime_type}"));
    }
    let dimensions = mime_type.starts_with("image/").then(|| imagesize::blob_size(bytes).ok()).flatten();
    let dimensions = dimensions.and_then(|size| {
        let (width, height) = (u32::try_from(size.width).ok()?, u32::try_from(size.height).ok()?);
        (width > 0 && height > 0).then_some(Dimensions { width, height })
    });
    Ok(MediaDescription { mime_type, dimensions, name })
}

/// The media type that the first bytes tell, where they do: PNG, JPEG, GIF, WebP, PDF.
pub fn told_by_bytes(bytes: &[u8]) -> Option<&'static str> {
    if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        return Some("image/webp");
    }
    SIGNATURES.iter().find(|(_, signature)| bytes.starts_with(signature)).map(|(mime_type, _)| *mime_type)
}

fn is_known(mime_type: &str) -> bool {
    mime_type == "image/webp" || SIGNATURES.iter().any(|(known, _)| *known == mime_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p2_a_medium_is_what_its_first_bytes_say() {
        let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        png.extend([0, 0, 7, 128, 0, 0, 4, 56, 8, 2, 0, 0, 0]);
        let about = describe(&png, "Image/PNG; q=1", None).unwrap();
        assert_eq!(about.mime_type, "image/png");
        assert_eq!(about.dimensions, Some(Dimensions { width: 1920, height: 1080 }));
        assert_eq!(describe(&png, "image/jpeg", None).unwrap_err(), "the bytes are image/png, not image/jpeg");
        assert_eq!(describe(b"hello", "image/png", None).unwrap_err(), "the bytes are not image/png");
        assert!(describe(b"hello", "text/plain", None).is_ok());
        assert!(describe(b"hello", "nonsense", None).is_err());
    }
}
