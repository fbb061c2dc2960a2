//! Media of a tool call outside of any session: kept in memory for as long as the process lives.

use agent_core::message::{Digest, Media};
use agent_plugins::{MediaPort, MediaRange, MediumToStore, PortError, digest_of};
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Most bytes of all media together.
const MOST_BYTES: usize = 64 * 1024 * 1024;

/// The media that one call has made.
#[derive(Default)]
pub(super) struct CallMedia {
    made: Mutex<BTreeMap<Digest, (Media, Vec<u8>)>>,
}

#[async_trait]
impl MediaPort for CallMedia {
    async fn describe(&self, _session: &str, digest: &Digest) -> Result<Option<Media>, PortError> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(made.get(digest).map(|(media, _)| media.clone()))
    }

    async fn read(&self, _session: &str, digest: &Digest, range: MediaRange) -> Result<Vec<u8>, PortError> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, bytes) = made.get(digest).ok_or_else(|| PortError::Refused("there is no such medium".to_owned()))?;
        let from = usize::try_from(range.offset).unwrap_or(usize::MAX).min(bytes.len());
        let to = from.saturating_add(range.length as usize).min(bytes.len());
        Ok(bytes[from..to].to_vec())
    }

    async fn put(&self, _session: &str, medium: MediumToStore) -> Result<Media, PortError> {
        let MediumToStore { bytes, mime_type, name } = medium;
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let total = made.values().map(|(_, bytes)| bytes.len()).sum::<usize>();
        if total.saturating_add(bytes.len()) > MOST_BYTES {
            return Err(PortError::Refused(format!("the media of one call have more than {} MiB", MOST_BYTES >> 20)));
        }
        let (digest, size) = (digest_of(&bytes), bytes.len() as u64);
        let media = Media { digest: digest.clone(), mime_type, size, dimensions: None, name };
        made.insert(digest, (media.clone(), bytes));
        Ok(media)
    }
}
