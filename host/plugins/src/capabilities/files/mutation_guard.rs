//! The WASI functions that change a granted tree without opening a file, for example by creating a directory. A refused
//! change is recorded as a denial (P6).

use super::{FILESYSTEM, FilesView, Handle, HasFiles, action_on};
use crate::file_trees::{Times, TreeChange, TreeRefusal};
use crate::recording::files::{FinalLink, PathTarget};
use rustix::fs::{Timespec, UTIME_NOW, UTIME_OMIT};
use std::sync::Arc;
use wasmtime::component::Linker;
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::p2::bindings::filesystem::types::{ErrorCode, NewTimestamp, PathFlags};

/// Defines a WASI function that changes a tree. `$before` resolves the paths of the call, and refuses unrecorded paths
/// in a replay. `$change` prepares the change, which is then made on a blocking thread. `$action` describes the change
/// in a denial, and `$after` records the change.
macro_rules! change {
    ($filesystem:expr, $name:literal, ($($argument:ident: $kind:ty),*), $action:expr,
     |$record:ident, $handle:ident| $before:expr, |$state:ident| $change:expr, |$target:ident| $after:expr) => {
        $filesystem.func_wrap_async(
            concat!("[method]descriptor.", $name),
            |mut store: StoreContextMut<'_, T>, ($handle, $($argument),*): (Handle, $($kind),*)| {
                Box::new(async move {
                    let $state: FilesView<'_> = store.data_mut().capability();
                    let $record = Arc::clone(&$state.call.record);
                    let $target = $before;
                    if $target.contains(&PathTarget::Unrecorded) {
                        return Ok((Err(ErrorCode::NotPermitted),));
                    }
                    let action: String = $action;
                    let change: std::result::Result<TreeChange, TreeRefusal> = $change;
                    let done = match change {
                        Ok(change) => tokio::task::spawn_blocking(move || change.make()).await?,
                        Err(refusal) => Err(refusal),
                    };
                    let answer = $state.answer_change(done, action);
                    match answer {
                        Ok(()) => $after,
                        Err(ErrorCode::NotEmpty | ErrorCode::Exist) => $record.record_not_empty(&$target).await?,
                        Err(_) => {}
                    }
                    Ok((answer,))
                })
            },
        )?
    };
}

pub(super) fn add_to_linker<T: HasFiles>(linker: &mut Linker<T>) -> Result<()> {
    let mut filesystem = linker.instance(FILESYSTEM)?;
    macro_rules! at_path {
        ($name:literal, ($($argument:ident: $kind:ty),*), $path:ident, $action:literal, |$base:ident| $change:expr) => {
            change!(
                filesystem, $name, ($($argument: $kind),*), action_on($action, &$path),
                |record, handle| [record.follow_path(handle.rep(), &$path, FinalLink::Keep).await?],
                |state| state.base(&handle)?.map(|$base| $change),
                |target| record.changed_at(&target)
            )
        };
    }
    at_path!("create-directory-at", (path: String), path, "creating the folder", |base| TreeChange::MakeDirectory { base, path });
    at_path!("remove-directory-at", (path: String), path, "removing the folder", |base| TreeChange::RemoveDirectory { base, path });
    at_path!("unlink-file-at", (path: String), path, "removing", |base| TreeChange::Unlink { base, path });
    at_path!("symlink-at", (to: String, path: String), path, "creating the link", |base| TreeChange::Symlink { base, target: to, path });
    change!(
        filesystem, "link-at", (flags: PathFlags, from: String, other: Handle, path: String),
        action_on("creating the hard link", &path),
        |record, handle| record.follow_both_paths((handle.rep(), &from), (other.rep(), &path)).await?,
        |state| match (state.base(&handle)?, state.base(&other)?) {
            _ if flags.contains(PathFlags::SYMLINK_FOLLOW) => Err(rustix::io::Errno::INVAL.into()),
            (Ok(base), Ok(to)) => Ok(TreeChange::Link { from: (base, from), to: (to, path) }),
            (Err(refusal), _) | (_, Err(refusal)) => Err(refusal),
        },
        |target| record.linked_at(&target)
    );
    change!(
        filesystem, "rename-at", (path: String, other: Handle, to: String), action_on("renaming", &path),
        |record, handle| record.follow_both_paths((handle.rep(), &path), (other.rep(), &to)).await?,
        |state| match (state.base(&handle)?, state.base(&other)?) {
            (Ok(base), Ok(other)) => Ok(TreeChange::Rename { from: (base, path), to: (other, to) }),
            (Err(refusal), _) | (_, Err(refusal)) => Err(refusal),
        },
        |target| record.renamed_at(&target)
    );
    change!(
        filesystem, "set-size", (bytes: u64), "resizing an open file".to_owned(),
        |record, handle| Vec::<PathTarget>::new(),
        |state| state.open_file(&handle)?.map(|(tree, file)| TreeChange::SetSize { tree, file, bytes }),
        |_target| record.changed_open_file(handle.rep())
    );
    change!(
        filesystem, "set-times", (accessed: NewTimestamp, changed: NewTimestamp),
        "setting the times of an open file".to_owned(),
        |record, handle| [record.follow_path(handle.rep(), "", FinalLink::Keep).await?],
        |state| match (state.open_object(&handle)?, times(accessed, changed)) {
            (Ok((tree, file)), Ok(times)) => Ok(TreeChange::SetTimes { tree, file, times }),
            (Err(refusal), _) | (_, Err(refusal)) => Err(refusal),
        },
        |target| record.times_changed_at(&target)
    );
    Ok(())
}

/// Converts the guest's times to times of the operating system.
pub(super) fn times(accessed: NewTimestamp, modified: NewTimestamp) -> std::result::Result<Times, TreeRefusal> {
    let time = |time: NewTimestamp| {
        let special = |nanoseconds| Timespec { tv_sec: 0, tv_nsec: nanoseconds };
        Ok(match time {
            NewTimestamp::NoChange => special(UTIME_OMIT),
            NewTimestamp::Now => special(UTIME_NOW),
            NewTimestamp::Timestamp(time) => {
                let seconds = i64::try_from(time.seconds).map_err(|_| rustix::io::Errno::OVERFLOW)?;
                if time.nanoseconds >= 1_000_000_000 {
                    return Err(TreeRefusal::from(rustix::io::Errno::INVAL));
                }
                Timespec { tv_sec: seconds, tv_nsec: time.nanoseconds.into() }
            }
        })
    };
    Ok(Times { accessed: time(accessed)?, modified: time(modified)? })
}
