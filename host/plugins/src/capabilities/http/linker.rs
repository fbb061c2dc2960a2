//! Adds `wasi:http` to a linker.

use wasmtime::Result;
use wasmtime::component::Linker;
use wasmtime_wasi_http::WasiHttpView;

/// Adds the functions of `wasi:http`. Calls without authority also get these functions, but all their requests
/// are denied.
pub(crate) fn add_to_linker<T: WasiHttpView + 'static>(linker: &mut Linker<T>) -> Result<()> {
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(linker)
}
