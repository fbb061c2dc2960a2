//! Adds the contract's interface `media-store` to a linker.

use super::MediaState;
use super::bindings::agent_host::plugin::media_store;
use super::inert::Inert;
use crate::capabilities::{Capability, HasCapability};
use wasmtime::Result;
use wasmtime::component::Linker;

pub(crate) fn add_to_linker<T: HasCapability<MediaState>>(linker: &mut Linker<T>) -> Result<()> {
    media_store::add_to_linker::<T, Capability<MediaState>>(linker, T::capability)
}

/// Adds versions of the functions that give no access to media items, for output validators and media policies.
pub(crate) fn add_inert_to_linker<T: Send + 'static>(linker: &mut Linker<T>) -> Result<()> {
    media_store::add_to_linker::<T, Inert>(linker, |_| Inert)
}
