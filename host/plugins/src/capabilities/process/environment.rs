//! The environment variables of a guest. When a guest reads its variables, the host records this fact: from then on,
//! each variable that the plugin needs and that is not granted counts as denied.

use crate::capabilities::HasCall;
use wasmtime::component::Linker;
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::cli::WasiCliView;
use wasmtime_wasi::p2::bindings::cli::environment::Host as _;

pub(super) fn add_to_linker<T: HasCall + WasiCliView>(linker: &mut Linker<T>) -> Result<()> {
    // wasmtime-wasi adds its interfaces to the linker with this version in their names.
    linker.instance("wasi:cli/environment@0.2.12")?.func_wrap(
        "get-environment",
        |mut store: StoreContextMut<'_, T>, ()| {
            let state = store.data_mut();
            state.call().record.missed_lookups.note_environment();
            Ok((state.cli().get_environment()?,))
        },
    )
}
