//! The host functions of the contract's interface `media-store`.

use super::bindings::agent_host::plugin::media_store;
use super::{Growth, MediaItemWriter, MediaView, OpenMediaItem};
use crate::contract::v0_1::bindings::agent_host::plugin::types;
use crate::contract::v0_1::conversion;
use crate::grants::media_denied;
use crate::limits::{MEDIA_CHUNK_BYTES, NEW_MEDIA_BYTES};
use crate::ports::media::{MediaRange, NewMediaItem};
use agent_core::change::Denial;
use agent_core::message::Digest;
use wasmtime::component::Resource;

impl MediaView<'_> {
    /// If the media items of the conversation are not granted to the plugin, records a denial and returns the error for
    /// the guest.
    fn media_denied(&mut self) -> Option<media_store::Error> {
        if self.call.grants().media {
            return None;
        }
        let (thing, advice) = media_denied(&self.call.record.plugin.name);
        let message = Denial::in_error(&thing, &advice.to_string());
        self.call.record.deny(thing, advice);
        Some(media_store::Error::Failed(message))
    }
}

type Answer<T> = wasmtime::Result<Result<T, media_store::Error>>;

impl media_store::Host for MediaView<'_> {
    async fn open(&mut self, digest: String) -> Answer<Resource<OpenMediaItem>> {
        if let Some(denied) = self.media_denied() {
            return Ok(Err(denied));
        }
        let (Ok(digest), Some(port)) = (Digest::parse(&digest), self.state.port.clone()) else {
            return Ok(Err(media_store::Error::NotFound));
        };
        match port.describe(&self.call.session, &digest).await {
            Ok(Some(media)) => Ok(Ok(self.push(OpenMediaItem { media })?)),
            Ok(None) => Ok(Err(media_store::Error::NotFound)),
            Err(error) => Ok(Err(media_store::Error::Failed(error.to_string()))),
        }
    }
}

impl media_store::HostMedium for MediaView<'_> {
    async fn describe(&mut self, item: Resource<OpenMediaItem>) -> wasmtime::Result<types::Media> {
        Ok(conversion::media_out(&self.table.get(&item)?.media))
    }

    async fn read(&mut self, item: Resource<OpenMediaItem>, offset: u64, length: u32) -> Answer<Vec<u8>> {
        // If the grant is revoked during the call, the guest can no longer read media items that are already open
        // (row 48).
        if let Some(denied) = self.media_denied() {
            return Ok(Err(denied));
        }
        let media = &self.table.get(&item)?.media;
        if offset > media.size {
            return Ok(Err(media_store::Error::OutOfRange));
        }
        let left = u32::try_from(media.size - offset).unwrap_or(u32::MAX);
        let length = length.min(MEDIA_CHUNK_BYTES as u32).min(left);
        let Some(port) = self.state.port.clone() else {
            return Ok(Err(media_store::Error::NotFound));
        };
        if length == 0 {
            return Ok(Ok(Vec::new()));
        }
        let read = port.read(&self.call.session, &media.digest, MediaRange { offset, length }).await;
        self.call.record.count_bytes_to_guest(read.as_ref().map_or(0, Vec::len));
        Ok(read.map_err(|error| media_store::Error::Failed(error.to_string())))
    }

    async fn drop(&mut self, item: Resource<OpenMediaItem>) -> wasmtime::Result<()> {
        self.table.delete(item)?;
        Ok(())
    }
}

impl media_store::HostNewMedium for MediaView<'_> {
    async fn new(&mut self, mime_type: String, name: Option<String>) -> wasmtime::Result<Resource<MediaItemWriter>> {
        self.push(MediaItemWriter::new(&mime_type, name.as_deref()))
    }

    async fn write(&mut self, item: Resource<MediaItemWriter>, data: Vec<u8>) -> Answer<()> {
        if data.len() > MEDIA_CHUNK_BYTES {
            return Ok(Err(too_large("at most 1 MiB may be written at once")));
        }
        let growing = self.table.get_mut(&item)?;
        let Growth::Open(bytes) = &mut growing.state else {
            return Ok(Err(finished()));
        };
        if self.state.new_media_bytes + data.len() > NEW_MEDIA_BYTES {
            return Ok(Err(too_large("the new media of a call may have at most 32 MiB in total")));
        }
        self.state.new_media_bytes += data.len();
        self.call.record.count_bytes_from_guest(data.len());
        bytes.extend_from_slice(&data);
        Ok(Ok(()))
    }

    async fn finish(&mut self, item: Resource<MediaItemWriter>) -> Answer<types::Media> {
        let growing = self.table.get_mut(&item)?;
        let Growth::Open(bytes) = std::mem::replace(&mut growing.state, Growth::Finished) else {
            return Ok(Err(finished()));
        };
        // The size of a finished item still counts towards the limit, because the limit applies to all media items of a
        // call together.
        let item = NewMediaItem::new(bytes, &growing.mime_type, growing.name.as_deref());
        let Some(port) = self.state.port.clone() else {
            return Ok(Err(media_store::Error::Failed("this call cannot store media".to_owned())));
        };
        match port.put(&self.call.session, item).await {
            Ok(media) => Ok(Ok(conversion::media_out(&media))),
            Err(error) => Ok(Err(media_store::Error::Failed(error.to_string()))),
        }
    }

    async fn drop(&mut self, item: Resource<MediaItemWriter>) -> wasmtime::Result<()> {
        if let Growth::Open(bytes) = self.table.delete(item)?.state {
            self.state.new_media_bytes -= bytes.len();
        }
        Ok(())
    }
}

fn too_large(limit: &str) -> media_store::Error {
    media_store::Error::TooLarge(limit.to_owned())
}

fn finished() -> media_store::Error {
    media_store::Error::Failed("this media item is already finished".to_owned())
}
