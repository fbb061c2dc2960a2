//! Changes of granted trees that open no file. A refused change is a denial, as for opening (P6).

use crate::files::{Last, Met};
use crate::grants::{file_change_advice, protected, quoted};
use crate::opening::{Answer, FILESYSTEM, SHOWN};
use crate::state::CallState;
use crate::text::clean;
use crate::trees::{Base, Change, Refusal, Times};
use rustix::fs::{Timespec, UTIME_NOW, UTIME_OMIT};
use std::sync::Arc;
use wasmtime::component::{Linker, Resource};
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::p2::bindings::filesystem::types::{ErrorCode, NewTimestamp, PathFlags};

type Store<'a> = StoreContextMut<'a, CallState>;
type Handle = Resource<Descriptor>;

/// Defines a function of WASI that changes a tree. `$before` says where its paths lead; what is not recorded in a replay is refused.
/// `$change` is the change, `$deed` names it where it is refused, and `$after` notes that it was made.
macro_rules! change {
    ($filesystem:expr, $name:literal, ($($argument:ident: $kind:ty),*), $deed:expr,
     |$record:ident, $handle:ident| $before:expr, |$state:ident| $change:expr, |$met:ident| $after:expr) => {
        $filesystem.func_wrap_async(
            concat!("[method]descriptor.", $name),
            |mut store: Store<'_>, ($handle, $($argument),*): (Handle, $($kind),*)| {
                Box::new(async move {
                    let $state = store.data_mut();
                    let $record = Arc::clone(&$state.record);
                    let $met = $before;
                    if $met.contains(&Met::Unrecorded) {
                        return Ok((Err(ErrorCode::NotPermitted),));
                    }
                    let deed: String = $deed;
                    let change: std::result::Result<Change, Refusal> = $change;
                    let done = match change {
                        Ok(change) => tokio::task::spawn_blocking(move || change.make()).await?,
                        Err(refusal) => Err(refusal),
                    };
                    let answer = $state.changed(done, deed);
                    match answer {
                        Ok(()) => $after,
                        Err(ErrorCode::NotEmpty | ErrorCode::Exist) => $record.was_not_empty(&$met).await?,
                        Err(_) => {}
                    }
                    Ok((answer,))
                })
            },
        )?
    };
}

/// Puts these functions in the place of WASI's own.
pub(crate) fn add_to_linker(linker: &mut Linker<CallState>) -> Result<()> {
    let mut filesystem = linker.instance(FILESYSTEM)?;
    macro_rules! at_path {
        ($name:literal, ($($argument:ident: $kind:ty),*), $path:ident, $deed:literal, |$base:ident| $change:expr) => {
            change!(
                filesystem, $name, ($($argument: $kind),*), of($deed, &$path),
                |record, handle| [record.meet(handle.rep(), &$path, Last::Keep).await?],
                |state| state.base(&handle)?.map(|$base| $change),
                |met| record.changed_at(&met)
            )
        };
    }
    at_path!("create-directory-at", (path: String), path, "making the folder", |base| Change::MakeDirectory { base, path });
    at_path!("remove-directory-at", (path: String), path, "removing the folder", |base| Change::RemoveDirectory { base, path });
    at_path!("unlink-file-at", (path: String), path, "removing", |base| Change::Unlink { base, path });
    at_path!("symlink-at", (to: String, path: String), path, "making the link", |base| Change::Symlink { base, target: to, path });
    change!(
        filesystem, "link-at", (flags: PathFlags, from: String, other: Handle, path: String),
        of("making the hard link", &path),
        |record, handle| record.meet_both((handle.rep(), &from), (other.rep(), &path)).await?,
        |state| match (state.base(&handle)?, state.base(&other)?) {
            _ if flags.contains(PathFlags::SYMLINK_FOLLOW) => Err(rustix::io::Errno::INVAL.into()),
            (Ok(base), Ok(to)) => Ok(Change::Link { from: (base, from), to: (to, path) }),
            (Err(refusal), _) | (_, Err(refusal)) => Err(refusal),
        },
        |met| record.linked_at(&met)
    );
    change!(
        filesystem, "rename-at", (path: String, other: Handle, to: String), of("renaming", &path),
        |record, handle| record.meet_both((handle.rep(), &path), (other.rep(), &to)).await?,
        |state| match (state.base(&handle)?, state.base(&other)?) {
            (Ok(base), Ok(other)) => Ok(Change::Rename { from: (base, path), to: (other, to) }),
            (Err(refusal), _) | (_, Err(refusal)) => Err(refusal),
        },
        |met| record.renamed_at(&met)
    );
    change!(
        filesystem, "set-size", (bytes: u64), "resizing an open file".to_owned(),
        |record, handle| Vec::<Met>::new(),
        |state| state.open_file(&handle)?.map(|(tree, file)| Change::SetSize { tree, file, bytes }),
        |_met| record.changed_open(handle.rep())
    );
    change!(
        filesystem, "set-times", (accessed: NewTimestamp, changed: NewTimestamp),
        "setting the times of an open file".to_owned(),
        |record, handle| [record.meet(handle.rep(), "", Last::Keep).await?],
        |state| match (state.open_object(&handle)?, times(accessed, changed)) {
            (Ok((tree, file)), Ok(times)) => Ok(Change::SetTimes { tree, file, times }),
            (Err(refusal), _) | (_, Err(refusal)) => Err(refusal),
        },
        |met| record.dated_at(&met)
    );
    Ok(())
}

/// What is done to a path, for people.
pub(crate) fn of(deed: &str, path: &str) -> String {
    format!("{deed} {}", quoted(&clean(path, SHOWN)))
}

/// Times as the system takes them.
pub(crate) fn times(accessed: NewTimestamp, modified: NewTimestamp) -> std::result::Result<Times, Refusal> {
    let time = |time: NewTimestamp| {
        let special = |nanoseconds| Timespec { tv_sec: 0, tv_nsec: nanoseconds };
        Ok(match time {
            NewTimestamp::NoChange => special(UTIME_OMIT),
            NewTimestamp::Now => special(UTIME_NOW),
            NewTimestamp::Timestamp(time) => {
                let seconds = i64::try_from(time.seconds).map_err(|_| rustix::io::Errno::OVERFLOW)?;
                if time.nanoseconds >= 1_000_000_000 {
                    return Err(Refusal::from(rustix::io::Errno::INVAL));
                }
                Timespec { tv_sec: seconds, tv_nsec: time.nanoseconds.into() }
            }
        })
    };
    Ok(Times { accessed: time(accessed)?, modified: time(modified)? })
}

impl CallState {
    /// A directory of a tree that the guest has open.
    pub(crate) fn base(&self, handle: &Handle) -> Result<std::result::Result<Base, Refusal>> {
        Ok(self.handles.base(handle.rep(), self.table.get(handle)?))
    }

    /// What the guest is answered.
    pub(crate) fn changed<T>(&self, done: std::result::Result<T, Refusal>, deed: String) -> Answer<T> {
        match done {
            Ok(done) => Ok(done),
            Err(refusal) => {
                let code = self.refused(refusal, &deed);
                if matches!(code, ErrorCode::NotPermitted | ErrorCode::ReadOnly) {
                    let advice = file_change_advice(&self.record.plugin.name);
                    self.record.deny(deed, advice);
                }
                Err(code)
            }
        }
    }

    /// Notes why something was refused, where that is more than the system's word.
    pub(crate) fn refused(&self, refusal: Refusal, deed: &str) -> ErrorCode {
        match refusal {
            Refusal::System(error) => ErrorCode::from(&error),
            Refusal::NotPermitted => ErrorCode::NotPermitted,
            Refusal::Unsupported => ErrorCode::Unsupported,
            Refusal::Protected(why) => {
                let (thing, advice) = protected(deed, &why);
                self.record.deny(thing, advice);
                ErrorCode::Access
            }
            Refusal::Quota(limit) => {
                self.record.fill_tree(limit);
                ErrorCode::InsufficientSpace
            }
        }
    }
}
