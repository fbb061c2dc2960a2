//! Changes of granted trees. Each is made on an open parent directory and one name in it, after the check that nothing
//! protected depends on that name: between the check and the change no guest can make the name mean something else.

use super::beneath::{self, Entry, Last};
use super::protected::Protection;
use super::quota::Counted;
use super::{CallTree, FileId, Refusal};
use crate::manifest::Access;
use rustix::fd::AsFd;
use rustix::fs::{
    AtFlags, FileType, Mode, Stat, Timespec, Timestamps, fstat, futimens, linkat, mkdirat, renameat, statat, symlinkat,
    unlinkat, utimensat,
};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::sync::Arc;
use wasmtime_wasi::FsPerms;

/// A directory that a guest has open.
#[derive(Clone)]
pub(crate) struct Base {
    pub(crate) directory: Arc<File>,
    pub(crate) permissions: FsPerms,
    pub(crate) tree: Arc<CallTree>,
}

/// A change of a tree.
pub(crate) enum Change {
    MakeDirectory { base: Base, path: String },
    RemoveDirectory { base: Base, path: String },
    Unlink { base: Base, path: String },
    Symlink { base: Base, target: String, path: String },
    Link { from: (Base, String), to: (Base, String) },
    Rename { from: (Base, String), to: (Base, String) },
    SetTimesAt { base: Base, path: String, last: Last, times: Times },
    SetTimes { tree: Arc<CallTree>, file: Arc<File>, times: Times },
    SetSize { tree: Arc<CallTree>, file: Arc<File>, bytes: u64 },
}

/// New times of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) accessed: Timespec,
    pub(crate) modified: Timespec,
}

impl Times {
    fn timestamps(self) -> Timestamps {
        Timestamps { last_access: self.accessed, last_modification: self.modified }
    }
}

impl Change {
    /// Makes the change. It blocks.
    pub(crate) fn make(self) -> Result<(), Refusal> {
        match self {
            Change::MakeDirectory { base, path } => {
                let target = Target::find(&base, &path, Errno::EXIST)?;
                base.add_entry(|| Ok(mkdirat(&target.entry.parent, &target.name, Mode::from(0o777))?))
            }
            Change::RemoveDirectory { base, path } => {
                let target = Target::find(&base, &path, Errno::INVAL)?;
                let mut counted = base.tree.usage.lock();
                unlinkat(&target.entry.parent, &target.name, AtFlags::REMOVEDIR)?;
                counted.remove_entry();
                Ok(())
            }
            Change::Unlink { base, path } => {
                let target = Target::find(&base, &path, Errno::ISDIR)?.not_a_directory()?;
                let mut counted = base.tree.usage.lock();
                let before = target.stat();
                unlinkat(&target.entry.parent, &target.name, AtFlags::empty())?;
                gone(&mut counted, before);
                Ok(())
            }
            Change::Symlink { base, target: to, path } => {
                // One that climbs could lead out of the tree for others who follow it, also once it was moved.
                if to.starts_with('/') || to.split('/').any(|component| component == "..") {
                    return Err(Refusal::NotPermitted);
                }
                let target = Target::find(&base, &path, Errno::EXIST)?.not_a_directory()?;
                base.add_entry(|| Ok(symlinkat(&*to, &target.entry.parent, &target.name)?))
            }
            Change::Link { from: (from, from_path), to: (to, to_path) } => {
                let source = Target::find(&from, &from_path, Errno::PERM)?.not_a_directory()?;
                let target = Target::find(&to, &to_path, Errno::EXIST)?.not_a_directory()?;
                let (old, new) = (&source.entry.parent, &target.entry.parent);
                to.add_entry(|| Ok(linkat(old, &source.name, new, &target.name, AtFlags::empty())?))
            }
            Change::Rename { from: (from, from_path), to: (to, to_path) } => {
                rename((&from, &from_path), (&to, &to_path))
            }
            Change::SetTimesAt { base, path, last, times } => set_times_at(&base, &path, last, times),
            Change::SetTimes { tree, file, times } => tree.set_times(&file, times),
            Change::SetSize { tree, file, bytes } => tree.set_size(&file, bytes),
        }
    }
}

fn set_times_at(base: &Base, path: &str, last: Last, times: Times) -> Result<(), Refusal> {
    base.check_writable()?;
    let protection = base.tree.protected.now();
    let Entry { parent, name, .. } = beneath::resolve(&base.directory, path, last)?;
    match &name {
        Some(name) => protection.check_entry(parent.as_fd(), name)?,
        None => protection.check_directory(parent.as_fd())?,
    }
    let name = name.unwrap_or_else(|| ".".into());
    utimensat(&parent, name, &times.timestamps(), AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}

fn rename((from, from_path): (&Base, &str), (to, to_path): (&Base, &str)) -> Result<(), Refusal> {
    let source = Target::find(from, from_path, Errno::BUSY)?;
    let target = Target::find(to, to_path, Errno::BUSY)?;
    let is_directory = source.stat().is_some_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir());
    if (source.entry.names_directory || target.entry.names_directory) && !is_directory {
        return Err(Errno::NOTDIR.into());
    }
    // What is in a directory may be code in one place and not in the other: libraries copy it then.
    let has_same_code =
        |protection: &Protection| protection.has_same_code(source.entry.parent.as_fd(), target.entry.parent.as_fd());
    if is_directory && !has_same_code(&to.tree.protected.now())? {
        return Err(Errno::XDEV.into());
    }
    // Two names of one file stay both: the system does nothing then.
    let is_same =
        target.stat().is_some_and(|target| Some(FileId::from(&target)) == source.stat().as_ref().map(FileId::from));
    if is_same {
        return Ok(renameat(&source.entry.parent, &source.name, &target.entry.parent, &target.name)?);
    }
    if from.tree.is_same(&to.tree) {
        let mut counted = to.tree.usage.lock();
        let replaced = target.stat();
        renameat(&source.entry.parent, &source.name, &target.entry.parent, &target.name)?;
        gone(&mut counted, replaced);
        return Ok(());
    }
    // What is in a directory would have to be counted for the other tree: libraries copy it then.
    if is_directory {
        return Err(Errno::XDEV.into());
    }
    let moved = source.stat().ok_or(Errno::NOENT)?;
    let bytes = size(&moved);
    let replaced = {
        let mut counted = to.tree.usage.lock();
        counted.add_entry(to.tree.limits)?;
        if let Err(refusal) = counted.grow(bytes, to.tree.limits) {
            counted.remove_entry();
            return Err(refusal);
        }
        let replaced = target.stat();
        if let Err(errno) = renameat(&source.entry.parent, &source.name, &target.entry.parent, &target.name) {
            counted.remove_entry();
            counted.shrink(bytes);
            return Err(errno.into());
        }
        replaced
    };
    gone(&mut to.tree.usage.lock(), replaced);
    gone(&mut from.tree.usage.lock(), Some(moved));
    Ok(())
}

/// Gives back what stood under a name that was removed.
fn gone(counted: &mut Counted, before: Option<Stat>) {
    let Some(stat) = before else { return };
    counted.remove_entry();
    if stat.st_nlink == 1 {
        counted.removed(FileId::from(&stat), size(&stat));
    }
}

/// Bytes of a regular file.
fn size(stat: &Stat) -> u64 {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => u64::try_from(stat.st_size).unwrap_or_default(),
        _ => 0,
    }
}

/// An entry that may be changed.
struct Target {
    entry: Entry,
    name: OsString,
}

impl Target {
    /// Finds the entry that a path names. A path such as `.` names the directory itself and no entry in it: the change fails
    /// with `without_name` then, as the system call would.
    fn find(base: &Base, path: &str, without_name: Errno) -> Result<Self, Refusal> {
        base.check_writable()?;
        let entry = beneath::resolve(&base.directory, path, Last::Keep)?;
        let name = entry.name.clone().ok_or(without_name)?;
        base.tree.protected.now().check_entry(entry.parent.as_fd(), &name)?;
        Ok(Self { entry, name })
    }

    /// A path that ends with a slash names a directory, which this is not about.
    fn not_a_directory(self) -> Result<Self, Refusal> {
        if self.entry.names_directory { Err(Errno::NOTDIR.into()) } else { Ok(self) }
    }

    /// None: there is nothing.
    fn stat(&self) -> Option<Stat> {
        statat(&self.entry.parent, &self.name, AtFlags::SYMLINK_NOFOLLOW).ok()
    }
}

impl Base {
    pub(super) fn check_writable(&self) -> Result<(), Refusal> {
        if self.permissions == FsPerms::ReadOnly {
            return Err(Refusal::NotPermitted);
        }
        self.tree.check(Access::ReadWrite)
    }

    /// Makes one more entry, if there is room for it.
    fn add_entry(&self, make: impl FnOnce() -> Result<(), Refusal>) -> Result<(), Refusal> {
        let mut counted = self.tree.usage.lock();
        counted.add_entry(self.tree.limits)?;
        make().inspect_err(|_| counted.remove_entry())
    }
}

impl CallTree {
    /// Writes to an open file, as far as there is room. It blocks.
    pub(crate) fn write_at(&self, file: &File, bytes: &[u8], position: super::WritePosition) -> Result<usize, Refusal> {
        self.check(Access::ReadWrite)?;
        let mut counted = self.usage.lock();
        let before = file.metadata()?.len();
        let begin = match position {
            super::WritePosition::At(offset) => offset,
            super::WritePosition::End => before,
        };
        let end = begin.checked_add(bytes.len() as u64).ok_or(Errno::FBIG)?;
        let growth = if bytes.is_empty() { 0 } else { end.saturating_sub(before) };
        counted.grow(growth, self.limits)?;
        let written = super::streams::write(file, bytes, position);
        let grown = file.metadata().map_or(growth, |after| after.len().saturating_sub(before));
        if grown < growth {
            counted.shrink(growth - grown);
        }
        Ok(written?)
    }

    /// Changes the size of an open file. It blocks.
    pub(super) fn set_size(&self, file: &File, size: u64) -> Result<(), Refusal> {
        self.check(Access::ReadWrite)?;
        let mut counted = self.usage.lock();
        let before = file.metadata()?.len();
        counted.grow(size.saturating_sub(before), self.limits)?;
        match file.set_len(size) {
            Ok(()) => {
                counted.shrink(before.saturating_sub(size));
                Ok(())
            }
            Err(error) => {
                counted.shrink(size.saturating_sub(before));
                Err(error.into())
            }
        }
    }

    /// Gives an open file or directory other times. It blocks.
    fn set_times(&self, file: &File, times: Times) -> Result<(), Refusal> {
        self.check(Access::ReadWrite)?;
        let protection = self.protected.now();
        check_open(&protection, file)?;
        futimens(file, &times.timestamps())?;
        Ok(())
    }
}

/// Refuses to change an open file or directory that is protected.
pub(super) fn check_open(protection: &Protection, file: &File) -> Result<(), Refusal> {
    match FileType::from_raw_mode(fstat(file)?.st_mode) {
        FileType::Directory => protection.check_directory(file.as_fd()),
        _ => protection.check_file(file.as_fd()),
    }
}
