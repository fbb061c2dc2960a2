//! Adds `wasi:http` to a linker.

use wasmtime::Result;
use wasmtime::component::Linker;
use wasmtime_wasi_http::WasiHttpView;

/// Adds the functions of `wasi:http`. Calls without authority (calls of output validators and media policies) get the
/// functions too, but every request of such a call is denied.
pub(crate) fn add_to_linker<T: WasiHttpView + 'static>(linker: &mut Linker<T>) -> Result<()> {
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(linker)
}
