//! The interface `media-store` for output validators and media policies: the guest cannot access existing media items
//! and cannot create new media items.

use super::bindings::agent_host::plugin::media_store;
use super::{MediaItemWriter, OpenMediaItem};
use crate::contract::v0_1::bindings::agent_host::plugin::types;
use wasmtime::Result;
use wasmtime::component::{HasData, Resource};

/// An implementation of `media-store` that contains no media items.
pub(super) struct Inert;

impl HasData for Inert {
    type Data<'a> = Inert;
}

impl media_store::Host for Inert {
    async fn open(&mut self, _: String) -> Result<Result<Resource<OpenMediaItem>, media_store::Error>> {
        Ok(Err(media_store::Error::NotFound))
    }
}

impl media_store::HostMedium for Inert {
    async fn describe(&mut self, _: Resource<OpenMediaItem>) -> Result<types::Media> {
        Err(no_media())
    }

    async fn read(
        &mut self,
        _: Resource<OpenMediaItem>,
        _: u64,
        _: u32,
    ) -> Result<Result<Vec<u8>, media_store::Error>> {
        Err(no_media())
    }

    async fn drop(&mut self, _: Resource<OpenMediaItem>) -> Result<()> {
        Ok(())
    }
}

impl media_store::HostNewMedium for Inert {
    async fn new(&mut self, _: String, _: Option<String>) -> Result<Resource<MediaItemWriter>> {
        Err(no_media())
    }

    async fn write(&mut self, _: Resource<MediaItemWriter>, _: Vec<u8>) -> Result<Result<(), media_store::Error>> {
        Err(no_media())
    }

    async fn finish(&mut self, _: Resource<MediaItemWriter>) -> Result<Result<types::Media, media_store::Error>> {
        Err(no_media())
    }

    async fn drop(&mut self, _: Resource<MediaItemWriter>) -> Result<()> {
        Ok(())
    }
}

fn no_media() -> wasmtime::Error {
    wasmtime::Error::msg("output validators and media policies have no media store")
}
