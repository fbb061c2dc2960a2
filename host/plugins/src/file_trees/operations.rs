//! Performs the changes that guests make to granted trees. Each change applies to one name in an open parent directory,
//! so that no guest can redirect the name between the check and the change. The check refuses a change of a name on
//! which a protected file depends.

use super::protected::Protection;
use super::quota::Counted;
use super::resolve::{self, Entry, FinalLink};
use super::{CallTree, FileId, TreeRefusal};
use crate::grants::manifest::Access;
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
pub(crate) struct OpenDirectory {
    pub(crate) directory: Arc<File>,
    pub(crate) permissions: FsPerms,
    pub(crate) tree: Arc<CallTree>,
}

/// A change to one granted tree, or a change that involves two granted trees.
pub(crate) enum TreeChange {
    MakeDirectory { base: OpenDirectory, path: String },
    RemoveDirectory { base: OpenDirectory, path: String },
    Unlink { base: OpenDirectory, path: String },
    Symlink { base: OpenDirectory, target: String, path: String },
    Link { from: (OpenDirectory, String), to: (OpenDirectory, String) },
    Rename { from: (OpenDirectory, String), to: (OpenDirectory, String) },
    SetTimesAt { base: OpenDirectory, path: String, final_link: FinalLink, times: Times },
    SetTimes { tree: Arc<CallTree>, file: Arc<File>, times: Times },
    SetSize { tree: Arc<CallTree>, file: Arc<File>, bytes: u64 },
}

/// The new access and modification times of a file.
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

impl TreeChange {
    /// Performs the change to the files. This function blocks the current thread.
    pub(crate) fn make(self) -> Result<(), TreeRefusal> {
        match self {
            TreeChange::MakeDirectory { base, path } => {
                let target = Target::find(&base, &path, Errno::EXIST)?;
                base.add_entry(|| Ok(mkdirat(&target.entry.parent, &target.name, Mode::from(0o777))?))
            }
            TreeChange::RemoveDirectory { base, path } => {
                let target = Target::find(&base, &path, Errno::INVAL)?;
                let mut counted = base.tree.usage.lock();
                unlinkat(&target.entry.parent, &target.name, AtFlags::REMOVEDIR)?;
                counted.remove_entry();
                Ok(())
            }
            TreeChange::Unlink { base, path } => {
                let target = Target::find(&base, &path, Errno::ISDIR)?.require_non_directory()?;
                let mut counted = base.tree.usage.lock();
                let before = target.stat();
                unlinkat(&target.entry.parent, &target.name, AtFlags::empty())?;
                count_removal(&mut counted, before);
                Ok(())
            }
            TreeChange::Symlink { base, target: to, path } => {
                // A link whose target contains `..` could lead out of the tree, immediately or after the link has
                // been moved.
                if to.starts_with('/') || to.split('/').any(|component| component == "..") {
                    return Err(TreeRefusal::NotPermitted);
                }
                let target = Target::find(&base, &path, Errno::EXIST)?.require_non_directory()?;
                base.add_entry(|| Ok(symlinkat(&*to, &target.entry.parent, &target.name)?))
            }
            TreeChange::Link { from: (from, from_path), to: (to, to_path) } => {
                let source = Target::find(&from, &from_path, Errno::PERM)?.require_non_directory()?;
                let target = Target::find(&to, &to_path, Errno::EXIST)?.require_non_directory()?;
                let (old, new) = (&source.entry.parent, &target.entry.parent);
                to.add_entry(|| Ok(linkat(old, &source.name, new, &target.name, AtFlags::empty())?))
            }
            TreeChange::Rename { from: (from, from_path), to: (to, to_path) } => {
                rename((&from, &from_path), (&to, &to_path))
            }
            TreeChange::SetTimesAt { base, path, final_link, times } => set_times_at(&base, &path, final_link, times),
            TreeChange::SetTimes { tree, file, times } => tree.set_times(&file, times),
            TreeChange::SetSize { tree, file, bytes } => tree.set_size(&file, bytes),
        }
    }
}

fn set_times_at(base: &OpenDirectory, path: &str, final_link: FinalLink, times: Times) -> Result<(), TreeRefusal> {
    base.check_writable()?;
    let protection = base.tree.protected.now();
    let Entry { parent, name, .. } = resolve::resolve(&base.directory, path, final_link)?;
    match &name {
        Some(name) => protection.check_entry(parent.as_fd(), name)?,
        None => protection.check_directory(parent.as_fd())?,
    }
    let name = name.unwrap_or_else(|| ".".into());
    utimensat(&parent, name, &times.timestamps(), AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}

fn rename((from, from_path): (&OpenDirectory, &str), (to, to_path): (&OpenDirectory, &str)) -> Result<(), TreeRefusal> {
    let source = Target::find(from, from_path, Errno::BUSY)?;
    let target = Target::find(to, to_path, Errno::BUSY)?;
    let is_directory = source.stat().is_some_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir());
    if (source.entry.names_directory || target.entry.names_directory) && !is_directory {
        return Err(Errno::NOTDIR.into());
    }
    // A moved directory may contain files that are protected code only in the old parent directory or only in the new
    // one, so the whole content of the moved directory would have to be checked. The error `EXDEV` makes guest
    // libraries copy the directory instead of moving it.
    let has_same_code =
        |protection: &Protection| protection.has_same_code(source.entry.parent.as_fd(), target.entry.parent.as_fd());
    if is_directory && !has_same_code(&to.tree.protected.now())? {
        return Err(Errno::XDEV.into());
    }
    // If both names refer to the same file, the operating system keeps both names, so the usage of the quota does
    // not change.
    let is_same =
        target.stat().is_some_and(|target| Some(FileId::from(&target)) == source.stat().as_ref().map(FileId::from));
    if is_same {
        return Ok(renameat(&source.entry.parent, &source.name, &target.entry.parent, &target.name)?);
    }
    if from.tree.is_same(&to.tree) {
        let mut counted = to.tree.usage.lock();
        let replaced = target.stat();
        renameat(&source.entry.parent, &source.name, &target.entry.parent, &target.name)?;
        count_removal(&mut counted, replaced);
        return Ok(());
    }
    // If a directory were moved to another tree, its whole content would have to be counted for the quota of that tree.
    // The error `EXDEV` makes guest libraries copy the directory instead of moving it.
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
    count_removal(&mut to.tree.usage.lock(), replaced);
    count_removal(&mut from.tree.usage.lock(), Some(moved));
    Ok(())
}

/// Reduces the used quota after a directory entry was removed. If no other directory entry refers to the same file, the
/// bytes of the file no longer count either.
fn count_removal(counted: &mut Counted, before: Option<Stat>) {
    let Some(stat) = before else { return };
    counted.remove_entry();
    if stat.st_nlink == 1 {
        counted.removed(FileId::from(&stat), size(&stat));
    }
}

/// Size of a regular file in bytes, or 0 for an entry that is not a regular file.
fn size(stat: &Stat) -> u64 {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => u64::try_from(stat.st_size).unwrap_or_default(),
        _ => 0,
    }
}

/// A directory entry that the guest may change, because it is in a writable tree and not protected.
struct Target {
    entry: Entry,
    name: OsString,
}

impl Target {
    /// Finds the entry that a path names. Some paths, such as `.`, name the directory itself and not an entry in it. If
    /// the path names the directory itself, this function fails with the error `without_name`, which must be the error
    /// that the system call would return.
    fn find(base: &OpenDirectory, path: &str, without_name: Errno) -> Result<Self, TreeRefusal> {
        base.check_writable()?;
        let entry = resolve::resolve(&base.directory, path, FinalLink::Keep)?;
        let name = entry.name.clone().ok_or(without_name)?;
        base.tree.protected.now().check_entry(entry.parent.as_fd(), &name)?;
        Ok(Self { entry, name })
    }

    /// Fails if the path ends with a slash, because such a path names a directory.
    fn require_non_directory(self) -> Result<Self, TreeRefusal> {
        if self.entry.names_directory { Err(Errno::NOTDIR.into()) } else { Ok(self) }
    }

    /// Returns the metadata of the entry, or None if the entry does not exist.
    fn stat(&self) -> Option<Stat> {
        statat(&self.entry.parent, &self.name, AtFlags::SYMLINK_NOFOLLOW).ok()
    }
}

impl OpenDirectory {
    pub(super) fn check_writable(&self) -> Result<(), TreeRefusal> {
        if self.permissions == FsPerms::ReadOnly {
            return Err(TreeRefusal::NotPermitted);
        }
        self.tree.check(Access::ReadWrite)
    }

    /// Creates an entry if the quota allows it.
    fn add_entry(&self, create: impl FnOnce() -> Result<(), TreeRefusal>) -> Result<(), TreeRefusal> {
        let mut counted = self.tree.usage.lock();
        counted.add_entry(self.tree.limits)?;
        create().inspect_err(|_| counted.remove_entry())
    }
}

impl CallTree {
    /// Writes to an open file if the quota allows it. This function blocks the current thread.
    pub(crate) fn write_at(
        &self,
        file: &File,
        bytes: &[u8],
        position: super::WritePosition,
    ) -> Result<usize, TreeRefusal> {
        self.check(Access::ReadWrite)?;
        let mut counted = self.usage.lock();
        let before = file.metadata()?.len();
        let start = match position {
            super::WritePosition::At(offset) => offset,
            super::WritePosition::End => before,
        };
        let end = start.checked_add(bytes.len() as u64).ok_or(Errno::FBIG)?;
        let growth = if bytes.is_empty() { 0 } else { end.saturating_sub(before) };
        counted.grow(growth, self.limits)?;
        let written = super::streams::write(file, bytes, position);
        let grown = file.metadata().map_or(growth, |after| after.len().saturating_sub(before));
        if grown < growth {
            counted.shrink(growth - grown);
        }
        Ok(written?)
    }

    /// Changes the size of an open file. This function blocks the current thread.
    pub(super) fn set_size(&self, file: &File, size: u64) -> Result<(), TreeRefusal> {
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

    /// Sets the times of an open file or directory. This function blocks the current thread.
    fn set_times(&self, file: &File, times: Times) -> Result<(), TreeRefusal> {
        self.check(Access::ReadWrite)?;
        let protection = self.protected.now();
        check_open(&protection, file)?;
        futimens(file, &times.timestamps())?;
        Ok(())
    }
}

/// Refuses to change an open file or directory that is protected.
pub(super) fn check_open(protection: &Protection, file: &File) -> Result<(), TreeRefusal> {
    match FileType::from_raw_mode(fstat(file)?.st_mode) {
        FileType::Directory => protection.check_directory(file.as_fd()),
        _ => protection.check_file(file.as_fd()),
    }
}
