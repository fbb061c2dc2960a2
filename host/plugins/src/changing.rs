//! What changes a granted tree without opening a file for it: where that is refused, it is a denial, as for opening (P6).

use crate::grants::{file_change_advice, quoted};
use crate::opening::{Answer, FILESYSTEM, SHOWN};
use crate::state::CallState;
use crate::text::clean;
use wasmtime::component::{Linker, Resource};
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemView};
use wasmtime_wasi::p2::FsResult;
use wasmtime_wasi::p2::bindings::filesystem::types::{ErrorCode, HostDescriptor, NewTimestamp, PathFlags};

type Store<'a> = StoreContextMut<'a, CallState>;
type Handle = Resource<Descriptor>;

/// Defines one function of WASI anew: its own work, and the denial of `$deed` where it is refused.
macro_rules! change {
    ($filesystem:expr, $name:literal, $method:ident, ($($argument:ident: $kind:ty),*), $deed:expr) => {
        $filesystem.func_wrap_async(
            concat!("[method]descriptor.", $name),
            |mut store: Store<'_>, (handle, $($argument),*): (Handle, $($kind),*)| {
                Box::new(async move {
                    let state = store.data_mut();
                    let deed: String = $deed;
                    let done = state.filesystem().$method(handle, $($argument),*).await;
                    Ok((state.changed(done, deed)?,))
                })
            },
        )?
    };
}

/// Puts the notes before WASI's own functions.
pub(crate) fn add_to_linker(linker: &mut Linker<CallState>) -> Result<()> {
    let mut filesystem = linker.instance(FILESYSTEM)?;
    change!(filesystem, "create-directory-at", create_directory_at, (path: String), of("making the folder", &path));
    change!(filesystem, "remove-directory-at", remove_directory_at, (path: String), of("removing the folder", &path));
    change!(filesystem, "unlink-file-at", unlink_file_at, (path: String), of("removing", &path));
    change!(filesystem, "symlink-at", symlink_at, (to: String, path: String), of("making the link", &path));
    change!(
        filesystem, "link-at", link_at,
        (flags: PathFlags, from: String, other: Handle, path: String), of("making the hard link", &path)
    );
    change!(filesystem, "rename-at", rename_at, (path: String, other: Handle, to: String), of("renaming", &path));
    change!(filesystem, "set-size", set_size, (bytes: u64), "resizing an open file".to_owned());
    change!(filesystem, "set-times", set_times, (accessed: NewTimestamp, changed: NewTimestamp), "setting the times of an open file".to_owned());
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
