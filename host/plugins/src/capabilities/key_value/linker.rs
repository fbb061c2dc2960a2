//! Adds both drafts of `wasi:keyvalue` to a linker.

use super::KeyValueState;
use super::bindings::wasi::{keyvalue0_2_0_draft as draft, keyvalue0_2_0_draft2 as draft2};
use crate::capabilities::{Capability, HasCapability};
use wasmtime::Result;
use wasmtime::component::Linker;

pub(crate) fn add_to_linker<T: HasCapability<KeyValueState>>(linker: &mut Linker<T>) -> Result<()> {
    draft::store::add_to_linker::<T, Capability<KeyValueState>>(linker, T::capability)?;
    draft::atomics::add_to_linker::<T, Capability<KeyValueState>>(linker, T::capability)?;
    draft::batch::add_to_linker::<T, Capability<KeyValueState>>(linker, T::capability)?;
    draft2::store::add_to_linker::<T, Capability<KeyValueState>>(linker, T::capability)?;
    draft2::atomics::add_to_linker::<T, Capability<KeyValueState>>(linker, T::capability)?;
    draft2::batch::add_to_linker::<T, Capability<KeyValueState>>(linker, T::capability)
}
