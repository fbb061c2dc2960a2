//! Reads and writes open files of granted trees. A read or write fails if the grant was revoked (row 48). A write also
//! fails if it would exceed the quota (row 44). The host records each successful write (S6).

use super::{Answer, FILESYSTEM, FilesView, Handle, HasFiles};
use crate::file_trees::{GuardedReader, GuardedWriter, OnRefusal, TreeRefusal, WritePosition};
use crate::grants::manifest::Access;
use std::sync::Arc;
use wasmtime::component::{Linker, Resource};
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::p2::bindings::filesystem::types::{ErrorCode, HostDescriptor};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream};

pub(super) fn add_to_linker<T: HasFiles>(linker: &mut Linker<T>) -> Result<()> {
    let mut filesystem = linker.instance(FILESYSTEM)?;
    filesystem.func_wrap_async(
        "[method]descriptor.write",
        |mut store: StoreContextMut<'_, T>, (handle, bytes, offset): (Handle, Vec<u8>, u64)| {
            Box::new(async move {
                let files = store.data_mut().capability();
                let written = match files.open_file(&handle)? {
                    Ok((tree, file)) => {
                        let write = move || tree.write_at(&file, &bytes, WritePosition::At(offset));
                        tokio::task::spawn_blocking(write).await?
                    }
                    Err(refusal) => Err(refusal),
                };
                let written = written.map(|bytes| bytes as u64);
                Ok((files.answer_write(handle.rep(), written),))
            })
        },
    )?;
    filesystem.func_wrap(
        "[method]descriptor.write-via-stream",
        |mut store: StoreContextMut<'_, T>,
         (handle, offset): (Handle, u64)|
         -> Result<(Answer<Resource<DynOutputStream>>,)> {
            Ok((store.data_mut().capability().writer(&handle, WritePosition::At(offset))?,))
        },
    )?;
    filesystem.func_wrap(
        "[method]descriptor.append-via-stream",
        |mut store: StoreContextMut<'_, T>, (handle,): (Handle,)| -> Result<(Answer<Resource<DynOutputStream>>,)> {
            Ok((store.data_mut().capability().writer(&handle, WritePosition::End)?,))
        },
    )?;
    filesystem.func_wrap(
        "[method]descriptor.read-via-stream",
        |mut store: StoreContextMut<'_, T>,
         (handle, offset): (Handle, u64)|
         -> Result<(Answer<Resource<DynInputStream>>,)> { Ok((reader(store.data_mut(), handle, offset)?,)) },
    )?;
    filesystem.func_wrap_async(
        "[method]descriptor.read",
        |mut store: StoreContextMut<'_, T>, (handle, bytes, offset): (Handle, u64, u64)| {
            Box::new(async move {
                let state = store.data_mut();
                if let Err(code) = state.capability().check_readable(&handle) {
                    return Ok((Err(code),));
                }
                let read = state.filesystem().read(handle, bytes, offset).await;
                Ok((read.map_or_else(|error| error.downcast().map(Err), |read| Ok(Ok(read)))?,))
            })
        },
    )
}

impl FilesView<'_> {
    fn writer(&mut self, handle: &Handle, position: WritePosition) -> Result<Answer<Resource<DynOutputStream>>> {
        let record = Arc::clone(&self.call.record);
        let refused: OnRefusal = Arc::new(move |refusal: &TreeRefusal| {
            if let TreeRefusal::Quota(limit) = refusal {
                record.record_tree_limit(*limit);
            }
        });
        let writer = match self.open_file(handle)? {
            Ok((tree, file)) => tree
                .check(Access::ReadWrite)
                .map(|()| Box::new(GuardedWriter::new(tree, file, position, refused)) as DynOutputStream),
            Err(refusal) => Err(refusal),
        };
        Ok(match self.answer_write(handle.rep(), writer) {
            Ok(writer) => Ok(self.push(writer)?),
            Err(code) => Err(code),
        })
    }

    /// Converts the result of writing to a file into the result that the guest receives. If the write succeeded,
    /// records that the call changed the file.
    fn answer_write<T>(&self, handle: u32, done: std::result::Result<T, TreeRefusal>) -> Answer<T> {
        match done {
            Ok(done) => {
                self.call.record.changed_open_file(handle);
                Ok(done)
            }
            Err(refusal) => Err(self.error_code(refusal, "writing an open file")),
        }
    }
}

fn reader<T: HasFiles>(state: &mut T, handle: Handle, offset: u64) -> Result<Answer<Resource<DynInputStream>>> {
    let files = state.capability();
    let tree = files.state.handles.tree(handle.rep());
    let (Some(tree), Ok(())) = (tree, files.check_readable(&handle)) else {
        return Ok(Err(ErrorCode::NotPermitted));
    };
    let stream = match state.filesystem().read_via_stream(handle, offset) {
        Ok(stream) => stream,
        Err(error) => return Ok(Err(error.downcast()?)),
    };
    let mut files = state.capability();
    let inner = files.table.delete(stream)?;
    Ok(Ok(files.push(Box::new(GuardedReader { tree, inner }) as DynInputStream)?))
}
