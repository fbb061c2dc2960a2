//! What changes a granted tree without opening a file for it: where that is refused, it is a denial, as for opening (P6).

use crate::files::{Last, Met};
use crate::grants::{file_change_advice, quoted};
use crate::opening::{Answer, FILESYSTEM, SHOWN};
use crate::state::CallState;
use crate::text::clean;
use std::sync::Arc;
use wasmtime::component::{Linker, Resource};
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemView};
use wasmtime_wasi::p2::FsResult;
use wasmtime_wasi::p2::bindings::filesystem::types::{ErrorCode, HostDescriptor, NewTimestamp, PathFlags};

type Store<'a> = StoreContextMut<'a, CallState>;
type Handle = Resource<Descriptor>;

/// Defines one function of WASI anew: where it leads to something that is not recorded, a refusal; its own work; the denial of
/// `$deed` where it is refused; and `$after`, where it is done. `$before` says where it leads.
macro_rules! change {
    ($filesystem:expr, $name:literal, $method:ident, ($($argument:ident: $kind:ty),*), $deed:expr,
     |$record:ident, $handle:ident| $before:expr, |$met:ident| $after:expr) => {
        $filesystem.func_wrap_async(
            concat!("[method]descriptor.", $name),
            |mut store: Store<'_>, (handle, $($argument),*): (Handle, $($kind),*)| {
                Box::new(async move {
                    let state = store.data_mut();
                    let ($record, $handle) = (Arc::clone(&state.record), handle.rep());
                    let $met = $before;
                    if $met.contains(&Met::Unrecorded) {
                        return Ok((Err(ErrorCode::NotPermitted),));
                    }
                    let deed: String = $deed;
                    let done = state.filesystem().$method(handle, $($argument),*).await;
                    let answer = state.changed(done, deed)?;
                    match answer {
                        Ok(()) => $after,
                        Err(ErrorCode::NotEmpty | ErrorCode::Exist) => state.record.was_not_empty(&$met).await?,
                        Err(_) => {}
                    }
                    Ok((answer,))
                })
            },
        )?
    };
}

/// Puts the notes before WASI's own functions.
pub(crate) fn add_to_linker(linker: &mut Linker<CallState>) -> Result<()> {
    let mut filesystem = linker.instance(FILESYSTEM)?;
    macro_rules! at_path {
        ($name:literal, $method:ident, ($($argument:ident: $kind:ty),*), $path:ident, $deed:literal) => {
            change!(
                filesystem, $name, $method, ($($argument: $kind),*), of($deed, &$path),
                |record, handle| [record.meet(handle, &$path, Last::Keep).await?],
                |met| record.changed_at(&met)
            )
        };
    }
    at_path!("create-directory-at", create_directory_at, (path: String), path, "making the folder");
    at_path!("remove-directory-at", remove_directory_at, (path: String), path, "removing the folder");
    at_path!("unlink-file-at", unlink_file_at, (path: String), path, "removing");
    at_path!("symlink-at", symlink_at, (to: String, path: String), path, "making the link");
    change!(
        filesystem, "link-at", link_at, (flags: PathFlags, from: String, other: Handle, path: String),
        of("making the hard link", &path),
        |record, handle| record.meet_both((handle, &from), (other.rep(), &path)).await?,
        |met| record.linked_at(&met)
    );
    change!(
        filesystem, "rename-at", rename_at, (path: String, other: Handle, to: String), of("renaming", &path),
        |record, handle| record.meet_both((handle, &path), (other.rep(), &to)).await?,
        |met| record.renamed_at(&met)
    );
    change!(
        filesystem, "set-size", set_size, (bytes: u64), "resizing an open file".to_owned(),
        |record, handle| Vec::<Met>::new(),
        |_met| record.changed_open(handle)
    );
    change!(
        filesystem, "set-times", set_times, (accessed: NewTimestamp, changed: NewTimestamp),
        "setting the times of an open file".to_owned(),
        |record, handle| [record.meet(handle, "", Last::Keep).await?],
        |met| record.dated_at(&met)
    );
    Ok(())
}

/// What is done to a path, for people.
pub(crate) fn of(deed: &str, path: &str) -> String {
    format!("{deed} {}", quoted(&clean(path, SHOWN)))
}

impl CallState {
    /// What the guest is answered.
    pub(crate) fn changed(&mut self, done: FsResult<()>, deed: String) -> Result<Answer<()>> {
        let refused = match done {
            Ok(()) => return Ok(Ok(())),
            Err(error) => error.downcast()?,
        };
        if matches!(refused, ErrorCode::NotPermitted | ErrorCode::ReadOnly) {
            let advice = file_change_advice(&self.record.plugin.name);
            self.record.deny(deed, advice);
        }
        Ok(Err(refused))
    }
}
