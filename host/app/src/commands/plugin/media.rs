//! Stores the media of a tool call that runs outside any session. The media stay in memory until the process ends.

use agent_core::message::{Digest, Media};
use agent_plugins::{MediaPort, MediaRange, NewMediaItem, PortError, digest_of};
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Maximum total size, in bytes, of the media that one call stores.
const MAX_TOTAL_BYTES: usize = 64 * 1024 * 1024;

/// The media items that one call has stored.
#[derive(Default)]
pub(super) struct CallMedia {
    stored: Mutex<BTreeMap<Digest, (Media, Vec<u8>)>>,
}

#[async_trait]
impl MediaPort for CallMedia {
    async fn describe(&self, _session: &str, digest: &Digest) -> Result<Option<Media>, PortError> {
        let stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(stored.get(digest).map(|(media, _)| media.clone()))
    }

    async fn read(&self, _session: &str, digest: &Digest, range: MediaRange) -> Result<Vec<u8>, PortError> {
        let stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, bytes) = stored
            .get(digest)
            .ok_or_else(|| PortError::Refused("the call has stored no media item with this digest".to_owned()))?;
        let from = usize::try_from(range.offset).unwrap_or(usize::MAX).min(bytes.len());
        let to = from.saturating_add(range.length as usize).min(bytes.len());
        Ok(bytes[from..to].to_vec())
    }

    async fn put(&self, _session: &str, item: NewMediaItem) -> Result<Media, PortError> {
        let NewMediaItem { bytes, mime_type, name } = item;
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        let total = stored.values().map(|(_, bytes)| bytes.len()).sum::<usize>();
        if total.saturating_add(bytes.len()) > MAX_TOTAL_BYTES {
            return Err(PortError::Refused(format!("the media of one call exceed {} MiB", MAX_TOTAL_BYTES >> 20)));
        }
        let (digest, size) = (digest_of(&bytes), bytes.len() as u64);
        let media = Media { digest: digest.clone(), mime_type, size, dimensions: None, name };
        stored.insert(digest, (media.clone(), bytes));
        Ok(media)
    }
}
