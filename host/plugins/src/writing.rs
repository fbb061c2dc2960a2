//! What writes to an open file of a granted tree: that it is written is noted (S6), and WASI does it.

use crate::opening::{Answer, FILESYSTEM};
use crate::state::CallState;
use wasmtime::component::{Linker, Resource};
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemView};
use wasmtime_wasi::p2::DynOutputStream;
use wasmtime_wasi::p2::FsResult;
use wasmtime_wasi::p2::bindings::filesystem::types::HostDescriptor;

type Store<'a> = StoreContextMut<'a, CallState>;
type Handle = Resource<Descriptor>;
type Stream = Resource<DynOutputStream>;

/// Puts the notes before WASI's own functions.
pub(crate) fn add_to_linker(linker: &mut Linker<CallState>) -> Result<()> {
    let mut filesystem = linker.instance(FILESYSTEM)?;
    filesystem.func_wrap_async(
        "[method]descriptor.write",
        |mut store: Store<'_>, (handle, bytes, offset): (Handle, Vec<u8>, u64)| {
            Box::new(async move {
                let (state, written) = (store.data_mut(), handle.rep());
                let done = state.filesystem().write(handle, bytes, offset).await;
                Ok((state.written(written, done)?,))
            })
        },
    )?;
    filesystem.func_wrap(
        "[method]descriptor.write-via-stream",
        |mut store: Store<'_>, (handle, offset): (Handle, u64)| -> Result<(Answer<Stream>,)> {
            let (state, written) = (store.data_mut(), handle.rep());
            let done = state.filesystem().write_via_stream(handle, offset);
            Ok((state.written(written, done)?,))
        },
    )?;
    filesystem.func_wrap(
        "[method]descriptor.append-via-stream",
        |mut store: Store<'_>, (handle,): (Handle,)| -> Result<(Answer<Stream>,)> {
            let (state, written) = (store.data_mut(), handle.rep());
            let done = state.filesystem().append_via_stream(handle);
            Ok((state.written(written, done)?,))
        },
    )
}

impl CallState {
    /// What the guest is answered; the file is its own from now on.
    fn written<T>(&self, handle: u32, done: FsResult<T>) -> Result<Answer<T>> {
        match done {
            Ok(done) => {
                self.record.changed_open(handle);
                Ok(Ok(done))
            }
            Err(error) => Ok(Err(error.downcast()?)),
        }
    }
}
