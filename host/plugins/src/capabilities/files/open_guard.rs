//! Opens files of granted trees for guests. Named pipes, devices and other objects that are neither files nor
//! directories are refused before they are opened (row 33). Opening a named pipe would block a thread until the other
//! end of the pipe is opened, and opening a device can have side effects.

use super::mutation_guard::times;
use super::{Answer, FILESYSTEM, FilesView, HasFiles, action_on, final_link};
use crate::file_trees::{OpenRequest, SHOWN_PATH_BYTES, TreeChange, TreeRefusal};
use crate::grants::file_denied;
use crate::recording::files::{FileKind, Opened, PathTarget};
use crate::text::clean;
use std::sync::Arc;
use wasmtime::component::{Linker, Resource};
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorFlags, ErrorCode, NewTimestamp, OpenFlags, PathFlags};

/// Arguments of `open-at`.
type OpenArguments = (Resource<Descriptor>, PathFlags, String, OpenFlags, DescriptorFlags);
/// Arguments of `set-times-at`, which opens the file to set its times.
type SetTimesArguments = (Resource<Descriptor>, PathFlags, String, NewTimestamp, NewTimestamp);

pub(super) fn add_to_linker<T: HasFiles>(linker: &mut Linker<T>) -> Result<()> {
    let mut filesystem = linker.instance(FILESYSTEM)?;
    filesystem.func_wrap_async(
        "[method]descriptor.open-at",
        |mut store: StoreContextMut<'_, T>, arguments: OpenArguments| {
            Box::new(async move { Ok((open(store.data_mut().capability(), arguments).await?,)) })
        },
    )?;
    filesystem.func_wrap_async(
        "[method]descriptor.set-times-at",
        |mut store: StoreContextMut<'_, T>, arguments: SetTimesArguments| {
            Box::new(async move { Ok((set_times(store.data_mut().capability(), arguments).await?,)) })
        },
    )
}

async fn open(
    mut files: FilesView<'_>,
    (directory, path_flags, path, open, access): OpenArguments,
) -> Result<Answer<Resource<Descriptor>>> {
    let record = &files.call.record;
    let target = record.follow_path(directory.rep(), &path, final_link(path_flags)).await?;
    if matches!(target, PathTarget::Unrecorded | PathTarget::At(_, FileKind::Other)) {
        return Ok(Err(ErrorCode::NotPermitted));
    }
    let final_link = final_link(path_flags);
    let request =
        files.base(&directory)?.map(|base| OpenRequest { base, path: path.clone(), final_link, open, access });
    let opened = match request {
        Ok(request) => {
            let tree = Arc::clone(&request.base.tree);
            let opened = tokio::task::spawn_blocking(move || request.perform()).await?;
            opened.map(|descriptor| (tree, descriptor))
        }
        Err(refusal) => Err(refusal),
    };
    let (code, is_protected) = match opened {
        Ok((tree, descriptor)) => {
            let handle = files.push(descriptor)?;
            files.state.handles.insert(handle.rep(), tree);
            return record_opened(files, handle, target, open).await;
        }
        Err(refusal) => {
            let is_protected = matches!(refusal, TreeRefusal::Protected(_));
            (files.error_code(refusal, &action_on("opening", &path)), is_protected)
        }
    };
    if is_protected {
        return Ok(Err(code));
    }
    if matches!(code, ErrorCode::Access) {
        record.refused_opening(target);
    }
    if matches!(code, ErrorCode::NotPermitted | ErrorCode::ReadOnly) {
        let changes = access.intersects(DescriptorFlags::WRITE | DescriptorFlags::MUTATE_DIRECTORY)
            || open.intersects(OpenFlags::CREATE | OpenFlags::TRUNCATE);
        if changes {
            let (thing, advice) = file_denied(&record.plugin.name, &clean(&path, SHOWN_PATH_BYTES));
            record.deny(thing, advice);
        } else {
            // Every grant of a directory tree allows reading. A refusal to open a file for reading therefore means
            // that the path leads out of the tree.
            files.call.deny_path_escape(&path);
        }
    }
    Ok(Err(code))
}

/// Records the content of an opened file before the guest gets the handle of the file.
async fn record_opened(
    files: FilesView<'_>,
    handle: Resource<Descriptor>,
    target: PathTarget,
    open: OpenFlags,
) -> Result<Answer<Resource<Descriptor>>> {
    let created = open.contains(OpenFlags::CREATE) && matches!(target, PathTarget::At(_, FileKind::Nothing));
    let opened = match files.table.get(&handle)? {
        Descriptor::Dir(_) => Opened::Directory,
        Descriptor::File(_) if created || open.contains(OpenFlags::TRUNCATE) => Opened::Emptied,
        Descriptor::File(file) => Opened::File(Arc::clone(&file.file)),
    };
    match files.call.record.opened(handle.rep(), target, opened).await? {
        Ok(()) => Ok(Ok(handle)),
        Err(refused) => {
            files.table.delete(handle)?;
            Ok(Err(refused))
        }
    }
}

async fn set_times(
    files: FilesView<'_>,
    (directory, path_flags, path, accessed, changed): SetTimesArguments,
) -> Result<Answer<()>> {
    let record = &files.call.record;
    let target = record.follow_path(directory.rep(), &path, final_link(path_flags)).await?;
    if matches!(target, PathTarget::Unrecorded | PathTarget::At(_, FileKind::Other)) {
        return Ok(Err(ErrorCode::NotPermitted));
    }
    let action = action_on("setting the times of", &path);
    let change = match (files.base(&directory)?, times(accessed, changed)) {
        (Ok(base), Ok(times)) => Ok(TreeChange::SetTimesAt { base, path, final_link: final_link(path_flags), times }),
        (Err(refusal), _) | (_, Err(refusal)) => Err(refusal),
    };
    let done = match change {
        Ok(change) => tokio::task::spawn_blocking(move || change.make()).await?,
        Err(refusal) => Err(refusal),
    };
    let answer = files.answer_change(done, action);
    if let (Ok(()), PathTarget::At(location, _)) = (&answer, target) {
        record.times_changed(&location);
    }
    Ok(answer)
}
