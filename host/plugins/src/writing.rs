//! Reads and writes of open files of granted trees: for as long as the tree is granted (row 48), and within its room (row 44). That a
//! file is written is noted (S6).

use crate::opening::{Answer, FILESYSTEM};
use crate::state::CallState;
use crate::trees::{CallTree, GuardedReader, GuardedWriter, Refusal, Refused, WritePosition};
use rustix::io::Errno;
use std::fs::File;
use std::sync::Arc;
use wasmtime::component::{Linker, Resource};
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::FsPerms;
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemView};
use wasmtime_wasi::p2::bindings::filesystem::types::{ErrorCode, HostDescriptor};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream};

type Store<'a> = StoreContextMut<'a, CallState>;
type Handle = Resource<Descriptor>;
type OpenFile = std::result::Result<(Arc<CallTree>, Arc<File>), Refusal>;

/// Puts these functions in the place of WASI's own.
pub(crate) fn add_to_linker(linker: &mut Linker<CallState>) -> Result<()> {
    let mut filesystem = linker.instance(FILESYSTEM)?;
    filesystem.func_wrap_async(
        "[method]descriptor.write",
        |mut store: Store<'_>, (handle, bytes, offset): (Handle, Vec<u8>, u64)| {
            Box::new(async move {
                let state = store.data_mut();
                let written = match state.open_file(&handle)? {
                    Ok((tree, file)) => {
                        let write = move || tree.write_at(&file, &bytes, WritePosition::At(offset));
                        tokio::task::spawn_blocking(write).await?
                    }
                    Err(refusal) => Err(refusal),
                };
                let written = written.map(|bytes| bytes as u64);
                Ok((state.written(handle.rep(), written),))
            })
        },
    )?;
    filesystem.func_wrap(
        "[method]descriptor.write-via-stream",
        |mut store: Store<'_>, (handle, offset): (Handle, u64)| -> Result<(Answer<Resource<DynOutputStream>>,)> {
            Ok((store.data_mut().writer(&handle, WritePosition::At(offset))?,))
        },
    )?;
    filesystem.func_wrap(
        "[method]descriptor.append-via-stream",
        |mut store: Store<'_>, (handle,): (Handle,)| -> Result<(Answer<Resource<DynOutputStream>>,)> {
            Ok((store.data_mut().writer(&handle, WritePosition::End)?,))
        },
    )?;
    filesystem.func_wrap(
        "[method]descriptor.read-via-stream",
        |mut store: Store<'_>, (handle, offset): (Handle, u64)| -> Result<(Answer<Resource<DynInputStream>>,)> {
            Ok((store.data_mut().reader(handle, offset)?,))
        },
    )?;
    filesystem.func_wrap_async(
        "[method]descriptor.read",
        |mut store: Store<'_>, (handle, bytes, offset): (Handle, u64, u64)| {
            Box::new(async move {
                let state = store.data_mut();
                if let Err(code) = state.readable(&handle) {
                    return Ok((Err(code),));
                }
                let read = state.filesystem().read(handle, bytes, offset).await;
                Ok((read.map_or_else(|error| error.downcast().map(Err), |read| Ok(Ok(read)))?,))
            })
        },
    )
}

impl CallState {
    /// A file or directory that the guest has open, to be changed.
    pub(crate) fn open_object(&self, handle: &Handle) -> Result<OpenFile> {
        let (object, permissions) = match self.table.get(handle)? {
            Descriptor::File(file) => (&file.file, file.perms),
            Descriptor::Dir(directory) => (&directory.dir, directory.perms),
        };
        Ok(match self.handles.tree(handle.rep()) {
            Some(tree) if permissions == FsPerms::ReadWrite => Ok((tree, Arc::clone(object))),
            _ => Err(Refusal::NotPermitted),
        })
    }

    /// The same, only for files.
    pub(crate) fn open_file(&self, handle: &Handle) -> Result<OpenFile> {
        match self.table.get(handle)? {
            Descriptor::File(_) => self.open_object(handle),
            Descriptor::Dir(_) => Ok(Err(Errno::BADF.into())),
        }
    }

    /// Whether what the handle stands for may still be read.
    pub(crate) fn readable(&self, handle: &Handle) -> Answer<()> {
        let tree = self.handles.tree(handle.rep()).ok_or(ErrorCode::NotPermitted)?;
        tree.check(crate::manifest::Access::Read).map_err(|_| ErrorCode::NotPermitted)
    }

    fn writer(&mut self, handle: &Handle, position: WritePosition) -> Result<Answer<Resource<DynOutputStream>>> {
        let record = Arc::clone(&self.record);
        let refused: Refused = Arc::new(move |refusal: &Refusal| {
            if let Refusal::Quota(limit) = refusal {
                record.fill_tree(*limit);
            }
        });
        let writer = match self.open_file(handle)? {
            Ok((tree, file)) => tree
                .check(crate::manifest::Access::ReadWrite)
                .map(|()| Box::new(GuardedWriter::new(tree, file, position, refused)) as DynOutputStream),
            Err(refusal) => Err(refusal),
        };
        Ok(match self.written(handle.rep(), writer) {
            Ok(writer) => Ok(self.push(writer)?),
            Err(code) => Err(code),
        })
    }

    fn reader(&mut self, handle: Handle, offset: u64) -> Result<Answer<Resource<DynInputStream>>> {
        let tree = self.handles.tree(handle.rep());
        let (Some(tree), Ok(())) = (tree, self.readable(&handle)) else {
            return Ok(Err(ErrorCode::NotPermitted));
        };
        let inner = match self.filesystem().read_via_stream(handle, offset) {
            Ok(stream) => self.table.delete(stream)?,
            Err(error) => return Ok(Err(error.downcast()?)),
        };
        Ok(Ok(self.push(Box::new(GuardedReader { tree, inner }) as DynInputStream)?))
    }

    /// What the guest is answered; the file is its own from now on.
    fn written<T>(&self, handle: u32, done: std::result::Result<T, Refusal>) -> Answer<T> {
        match done {
            Ok(done) => {
                self.record.changed_open(handle);
                Ok(done)
            }
            Err(refusal) => Err(self.refused(refusal, "writing an open file")),
        }
    }
}
