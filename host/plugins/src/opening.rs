//! Opens files of granted trees for guests. Whatever is neither a file nor a directory is refused before it is opened: opening a
//! named pipe waits for its other end on a thread that nobody could free, and a device does whatever it does (row 33).

use crate::changing::{of, times};
use crate::files::{Kind, Last, Met, Opened};
use crate::grants::file_denied;
use crate::state::CallState;
use crate::text::clean;
use crate::trees::{Change, OpenRequest, Refusal};
use std::sync::Arc;
use wasmtime::component::{Linker, Resource};
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorFlags, ErrorCode, NewTimestamp, OpenFlags, PathFlags};

/// Bytes of a path that a denial names.
pub(crate) const SHOWN: usize = 256;

/// What a guest gives to `open-at`.
type Opening = (Resource<Descriptor>, PathFlags, String, OpenFlags, DescriptorFlags);
/// What a guest gives to `set-times-at`, which opens the file, too.
type Dating = (Resource<Descriptor>, PathFlags, String, NewTimestamp, NewTimestamp);
/// What a guest is answered.
pub(crate) type Answer<T> = std::result::Result<T, ErrorCode>;

/// Puts these functions in the place of WASI's own.
pub(crate) fn add_to_linker(linker: &mut Linker<CallState>) -> Result<()> {
    let mut filesystem = linker.instance(FILESYSTEM)?;
    filesystem.func_wrap_async(
        "[method]descriptor.open-at",
        |mut store: StoreContextMut<'_, CallState>, arguments: Opening| {
            Box::new(async move { Ok((open(store.data_mut(), arguments).await?,)) })
        },
    )?;
    filesystem.func_wrap_async(
        "[method]descriptor.set-times-at",
        |mut store: StoreContextMut<'_, CallState>, arguments: Dating| {
            Box::new(async move { Ok((date(store.data_mut(), arguments).await?,)) })
        },
    )
}

/// As wasmtime-wasi names it.
pub(crate) const FILESYSTEM: &str = "wasi:filesystem/types@0.2.12";

async fn open(
    state: &mut CallState,
    (directory, path_flags, path, open, access): Opening,
) -> Result<Answer<Resource<Descriptor>>> {
    let met = state.record.meet(directory.rep(), &path, last(path_flags)).await?;
    if matches!(met, Met::Unrecorded | Met::At(_, Kind::Other)) {
        return Ok(Err(ErrorCode::NotPermitted));
    }
    let last = last(path_flags);
    let base = state.base(&directory)?;
    let request = base.map(|base| OpenRequest { base, path: path.clone(), last, open, access });
    let opened = match request {
        Ok(request) => {
            let tree = Arc::clone(&request.base.tree);
            let opened = tokio::task::spawn_blocking(move || request.perform()).await?;
            opened.map(|descriptor| (tree, descriptor))
        }
        Err(refusal) => Err(refusal),
    };
    let refused = match opened {
        Ok((tree, descriptor)) => {
            let handle = state.push(descriptor)?;
            state.handles.insert(handle.rep(), tree);
            return met_open(state, handle, met, open).await;
        }
        Err(refusal @ Refusal::Protected(_)) => return Ok(Err(state.refused(refusal, &of("opening", &path)))),
        Err(refusal) => state.refused(refusal, &of("opening", &path)),
    };
    if matches!(refused, ErrorCode::Access) {
        state.record.refused_opening(met);
    }
    if matches!(refused, ErrorCode::NotPermitted | ErrorCode::ReadOnly) {
        let changes = access.intersects(DescriptorFlags::WRITE | DescriptorFlags::MUTATE_DIRECTORY)
            || open.intersects(OpenFlags::CREATE | OpenFlags::TRUNCATE);
        if changes {
            let (thing, advice) = file_denied(&state.record.plugin.name, &clean(&path, SHOWN));
            state.record.deny(thing, advice);
        } else {
            // Reading is what every tree is granted for.
            state.deny_leaving(&path);
        }
    }
    Ok(Err(refused))
}

/// What is in a file is known before its handle is the guest's.
async fn met_open(
    state: &mut CallState,
    handle: Resource<Descriptor>,
    met: Met,
    open: OpenFlags,
) -> Result<Answer<Resource<Descriptor>>> {
    let made = open.contains(OpenFlags::CREATE) && matches!(met, Met::At(_, Kind::Nothing));
    let opened = match state.table.get(&handle)? {
        Descriptor::Dir(_) => Opened::Directory,
        Descriptor::File(_) if made || open.contains(OpenFlags::TRUNCATE) => Opened::Emptied,
        Descriptor::File(file) => Opened::File(Arc::clone(&file.file)),
    };
    match state.record.opened(handle.rep(), met, opened).await? {
        Ok(()) => Ok(Ok(handle)),
        Err(refused) => {
            state.table.delete(handle)?;
            Ok(Err(refused))
        }
    }
}

/// What is done with a link at a path's end.
pub(crate) fn last(flags: PathFlags) -> Last {
    if flags.contains(PathFlags::SYMLINK_FOLLOW) { Last::Follow } else { Last::Keep }
}

async fn date(state: &mut CallState, (directory, path_flags, path, accessed, changed): Dating) -> Result<Answer<()>> {
    let met = state.record.meet(directory.rep(), &path, last(path_flags)).await?;
    if matches!(met, Met::Unrecorded | Met::At(_, Kind::Other)) {
        return Ok(Err(ErrorCode::NotPermitted));
    }
    let deed = of("setting the times of", &path);
    let change = match (state.base(&directory)?, times(accessed, changed)) {
        (Ok(base), Ok(times)) => Ok(Change::SetTimesAt { base, path, last: last(path_flags), times }),
        (Err(refusal), _) | (_, Err(refusal)) => Err(refusal),
    };
    let dated = match change {
        Ok(change) => tokio::task::spawn_blocking(move || change.make()).await?,
        Err(refusal) => Err(refusal),
    };
    let answer = state.changed(dated, deed);
    if let (Ok(()), Met::At(place, _)) = (&answer, met) {
        state.record.dated(&place);
    }
    Ok(answer)
}
