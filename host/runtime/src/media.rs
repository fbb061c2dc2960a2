//! The media of sessions: gives plugins access to media, reads media for providers, and describes new media.

mod cache;
mod label;
mod reduce;
mod scale;

pub(crate) use label::{about, with_labels};
pub use scale::Downscaler;
pub(crate) use scale::ScaleError;

use agent_core::message::{Digest, Dimensions, Media};
use agent_core::model::Downscaled;
use agent_models::{MediaBytes, MediaSource};
use agent_plugins::{MediaPort, MediaRange, NewMediaItem, PortError};
use agent_store::{MAX_READ_BYTES, MediaDescription, Store, StoreError, digest_of};
use async_trait::async_trait;
use std::sync::Arc;

/// The media port, through which plugins describe, read and add media items. The items are in the blob store. A plugin
/// can access only the media of the session for which it is called.
pub(crate) struct StoredMedia(pub(crate) Arc<dyn Store>);

#[async_trait]
impl MediaPort for StoredMedia {
    async fn describe(&self, session: &str, digest: &Digest) -> Result<Option<Media>, PortError> {
        self.0.media(session, digest).await.map_err(port_error)
    }

    async fn read(&self, session: &str, digest: &Digest, range: MediaRange) -> Result<Vec<u8>, PortError> {
        self.0.read(session, digest, range.offset, range.length).await.map_err(port_error)
    }

    async fn put(&self, session: &str, medium: NewMediaItem) -> Result<Media, PortError> {
        let NewMediaItem { bytes, mime_type, name } = medium;
        let about = describe(&bytes, &mime_type, name).map_err(PortError::Refused)?;
        self.0.put(session, bytes, about).await.map_err(port_error)
    }
}

/// Returns the description of a media item, as if the item had been added to the session, but does not store the item.
pub(crate) fn describe_without_storing(medium: NewMediaItem) -> Result<Media, PortError> {
    let NewMediaItem { bytes, mime_type, name } = medium;
    let MediaDescription { mime_type, dimensions, name } =
        describe(&bytes, &mime_type, name).map_err(PortError::Refused)?;
    Ok(Media { digest: digest_of(&bytes), mime_type, size: bytes.len() as u64, dimensions, name })
}

/// Maximum size, in bytes, of a media item that is sent to a provider or scaled down for a provider. The size is
/// limited because the host keeps the complete item in memory.
pub const MAX_SENT_BYTES: u64 = 64 << 20;

/// Gives a model provider the bytes of the media items in one request. If the media policy requires a smaller version
/// of a picture, the picture is scaled down.
pub(crate) struct OutgoingMedia<'m> {
    pub(crate) store: &'m dyn Store,
    /// Id (subject) of the session in which the media are stored.
    pub(crate) session: &'m str,
    pub(crate) downscaler: &'m Downscaler,
    pub(crate) downscaled: &'m [Downscaled],
}

#[async_trait]
impl MediaSource for OutgoingMedia<'_> {
    async fn read(&self, media: &Media) -> Result<MediaBytes, String> {
        let original = async { read_whole(self.store, self.session, media).await };
        let smaller = match self.downscaled.iter().find(|downscaled| downscaled.media.digest == media.digest) {
            None => None,
            Some(Downscaled { to, .. }) => {
                let scaled = self.downscaler.scaled(media, *to, original).await;
                scaled
                    .map_err(|error| format!("{} must be scaled down before it is sent, but {error}", media.digest))?
            }
        };
        match smaller {
            Some(smaller) => Ok(smaller),
            None => {
                let bytes = read_whole(self.store, self.session, media).await;
                let bytes = bytes.map_err(|error| format!("{}: {error}", media.digest))?;
                Ok(MediaBytes { mime_type: media.mime_type.clone(), bytes: bytes.into() })
            }
        }
    }
}

/// The reason why the bytes of a media item cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The media item is larger than [`MAX_SENT_BYTES`].
    #[error("it has {size} bytes, but at most {MAX_SENT_BYTES} bytes can be sent")]
    TooLarge {
        /// Size of the media item in bytes.
        size: u64,
    },
    /// The store returned other bytes than were stored.
    #[error("its bytes differ from those that were stored")]
    Changed,
    /// The store failed or does not contain the media item.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Reads all bytes of a media item, in pieces of at most `MAX_READ_BYTES`. Stores compare the digest only if they read all bytes
/// at once, so this function compares it if there are several pieces.
pub(crate) async fn read_whole(store: &dyn Store, session: &str, media: &Media) -> Result<Vec<u8>, ReadError> {
    if media.size > MAX_SENT_BYTES {
        return Err(ReadError::TooLarge { size: media.size });
    }
    let mut bytes = Vec::with_capacity(usize::try_from(media.size).unwrap_or(0));
    loop {
        let piece = store.read(session, &media.digest, bytes.len() as u64, MAX_READ_BYTES).await?;
        let is_end = piece.is_empty();
        bytes.extend_from_slice(&piece);
        if is_end || bytes.len() as u64 >= media.size {
            break;
        }
    }
    if bytes.len() as u64 <= u64::from(MAX_READ_BYTES) {
        return Ok(bytes);
    }
    let digest = media.digest.clone();
    let compared = tokio::task::spawn_blocking(move || (digest_of(&bytes) == digest).then_some(bytes)).await;
    compared.ok().flatten().ok_or(ReadError::Changed)
}

/// The reason why a media item cannot be attached to a session.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The media type is invalid, or the bytes of the media item do not match the media type. The text
    /// describes the problem.
    #[error("{0}")]
    Refused(String),
    /// The store failed, so the media item was not attached.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn port_error(error: StoreError) -> PortError {
    PortError::Failed(error.to_string())
}

/// Media types that can be recognised by the first bytes of a file. Each entry contains the media type and the first
/// bytes of its files. WebP is not in the list, because its signature is not at the beginning of the file.
const SIGNATURES: &[(&str, &[u8])] = &[
    ("image/png", b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", b"\xff\xd8\xff"),
    ("image/gif", b"GIF8"),
    ("application/pdf", b"%PDF-"),
];

/// Checks a new media item and returns its description. If the media type is invalid or does not match the bytes, the
/// error is a text that explains the problem.
pub fn describe(bytes: &[u8], mime_type: &str, name: Option<String>) -> Result<MediaDescription, String> {
    let mime_type = mime_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let valid = mime_type.split_once('/').is_some_and(|(kind, subtype)| {
        let token = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
        token(kind) && token(subtype)
    });
    if !valid {
        return Err(format!("`{mime_type}` is not a media type such as `image/png`"));
    }
    if let Some(detected) = media_type_from_bytes(bytes).filter(|detected| *detected != mime_type) {
        return Err(format!("the bytes are {detected}, not {mime_type}"));
    }
    if media_type_from_bytes(bytes).is_none() && has_known_signature(&mime_type) {
        return Err(format!("the bytes are not {mime_type}"));
    }
    let dimensions = mime_type.starts_with("image/").then(|| imagesize::blob_size(bytes).ok()).flatten();
    let dimensions = dimensions.and_then(|size| {
        let (width, height) = (u32::try_from(size.width).ok()?, u32::try_from(size.height).ok()?);
        (width > 0 && height > 0).then_some(Dimensions { width, height })
    });
    Ok(MediaDescription { mime_type, dimensions, name })
}

/// Detects the media type from the first bytes: PNG, JPEG, GIF, WebP or PDF. `None` if the bytes match none of
/// these types.
pub fn media_type_from_bytes(bytes: &[u8]) -> Option<&'static str> {
    if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        return Some("image/webp");
    }
    SIGNATURES.iter().find(|(_, signature)| bytes.starts_with(signature)).map(|(mime_type, _)| *mime_type)
}

fn has_known_signature(mime_type: &str) -> bool {
    mime_type == "image/webp" || SIGNATURES.iter().any(|(name, _)| *name == mime_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p2_the_media_type_must_match_the_first_bytes() {
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
