//! Opening a file of a granted tree: what is neither a file nor a directory is refused before it is opened, since opening a
//! named pipe waits for its other end on a thread that nobody could free, and a device does whatever it does (row 33).

use crate::grants::file_denied;
use crate::manifest::Access;
use crate::state::CallState;
use crate::text::clean;
use wasmtime::component::{Linker, Resource};
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemView};
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, DescriptorType, ErrorCode, HostDescriptor, OpenFlags, PathFlags,
};

/// Bytes of a path that a denial names.
const SHOWN: usize = 256;

/// What a guest gives to `open-at`.
type Arguments = (Resource<Descriptor>, PathFlags, String, OpenFlags, DescriptorFlags);
type Opened = std::result::Result<Resource<Descriptor>, ErrorCode>;

/// Puts the check before WASI's own function.
pub(crate) fn add_to_linker(linker: &mut Linker<CallState>) -> Result<()> {
    linker.instance(FILESYSTEM)?.func_wrap_async(
        "[method]descriptor.open-at",
        |mut store: StoreContextMut<'_, CallState>, arguments: Arguments| {
            Box::new(async move { Ok((open(store.data_mut(), arguments).await?,)) })
        },
    )
}

/// As wasmtime-wasi names it.
const FILESYSTEM: &str = "wasi:filesystem/types@0.2.12";

async fn open(state: &mut CallState, (directory, path_flags, path, open, access): Arguments) -> Result<Opened> {
    let mut files = state.filesystem();
    let same_directory = Resource::new_borrow(directory.rep());
    if let Ok(found) = files.stat_at(same_directory, path_flags, path.clone()).await
        && !matches!(
            found.type_,
            DescriptorType::RegularFile | DescriptorType::Directory | DescriptorType::SymbolicLink
        )
    {
        return Ok(Err(ErrorCode::NotPermitted));
    }
    let refused = match files.open_at(directory, path_flags, path.clone(), open, access).await {
        Ok(opened) => return Ok(Ok(opened)),
        Err(error) => error.downcast()?,
    };
    if matches!(refused, ErrorCode::NotPermitted | ErrorCode::ReadOnly) {
        let changes = access.intersects(DescriptorFlags::WRITE | DescriptorFlags::MUTATE_DIRECTORY)
            || open.intersects(OpenFlags::CREATE | OpenFlags::TRUNCATE);
        let access = if changes { Access::ReadWrite } else { Access::Read };
        let (thing, advice) = file_denied(&state.record.plugin.name, &clean(&path, SHOWN), access);
        state.record.deny(thing, advice);
    }
    Ok(Err(refused))
}
