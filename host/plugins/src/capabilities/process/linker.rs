//! In a linker, replaces the functions of wasmtime-wasi for the process environment with the host functions of the
//! `process` capability.

use super::{ProcessState, environment};
use crate::capabilities::{Capability, HasCapability};
use wasmtime::Result;
use wasmtime::component::Linker;
use wasmtime_wasi::cli::WasiCliView;
use wasmtime_wasi::p2::bindings::random::{insecure, random};

/// Adds the host functions of the `process` capability. The linker must allow shadowing, because these functions
/// replace functions of wasmtime-wasi.
pub(crate) fn add_to_linker<T: HasCapability<ProcessState> + WasiCliView>(linker: &mut Linker<T>) -> Result<()> {
    random::add_to_linker::<T, Capability<ProcessState>>(linker, T::capability)?;
    insecure::add_to_linker::<T, Capability<ProcessState>>(linker, T::capability)?;
    environment::add_to_linker(linker)
}
