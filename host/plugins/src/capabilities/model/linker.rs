//! Adds `agent-host:model` to a linker.

use super::ModelState;
use super::bindings::agent_host::model::host_model;
use crate::capabilities::{Capability, HasCapability};
use wasmtime::Result;
use wasmtime::component::{HasData, Linker};

pub(crate) fn add_to_linker<T: HasCapability<ModelState>>(linker: &mut Linker<T>) -> Result<()> {
    host_model::add_to_linker::<T, Capability<ModelState>>(linker, T::capability)
}

/// Adds the functions of this interface for output validators and media policies. In calls to such a plugin, these
/// functions deny every request to the model.
pub(crate) fn add_inert_to_linker<T: Send + 'static>(linker: &mut Linker<T>) -> Result<()> {
    host_model::add_to_linker::<T, Inert>(linker, |_| Inert)
}

struct Inert;

impl HasData for Inert {
    type Data<'a> = Inert;
}

impl host_model::Host for Inert {
    async fn ask(&mut self, _: host_model::Question) -> Result<Result<host_model::Answer, host_model::Error>> {
        Ok(Err(host_model::Error::Denied))
    }
}
