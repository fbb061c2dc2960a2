//! Replaces wasmtime-wasi's functions of `wasi:filesystem` in a linker with the host functions of the
//! `files` capability.

use super::{HasFiles, directory_listing, file_io, mutation_guard, open_guard, path_escape, preopens};
use wasmtime::Result;
use wasmtime::component::Linker;

/// Adds the host functions of the `files` capability. The linker must allow shadowing, because these functions replace
/// functions of wasmtime-wasi.
pub(crate) fn add_to_linker<T: HasFiles>(linker: &mut Linker<T>) -> Result<()> {
    preopens::add_to_linker(linker)?;
    open_guard::add_to_linker(linker)?;
    path_escape::add_to_linker(linker)?;
    mutation_guard::add_to_linker(linker)?;
    directory_listing::add_to_linker(linker)?;
    file_io::add_to_linker(linker)
}
