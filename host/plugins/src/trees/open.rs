//! Opens files and directories of granted trees for guests.

use super::beneath::{self, Entry, Last};
use super::operations::Base;
use super::{FileId, Refusal};
use crate::manifest::Access;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::sync::Arc;
use wasmtime_wasi::FsPerms;
use wasmtime_wasi::filesystem::{Descriptor, Dir, File as GuestFile, OpenMode};
use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorFlags, OpenFlags};

/// Tries to open a file that others make and remove meanwhile.
const TRIES: usize = 8;

/// What a guest asks for with `open-at`.
pub(crate) struct OpenRequest {
    pub(crate) base: Base,
    pub(crate) path: String,
    pub(crate) last: Last,
    pub(crate) open: OpenFlags,
    pub(crate) access: DescriptorFlags,
}

impl OpenRequest {
    /// Whether anything could be changed by opening, or afterwards through the handle.
    fn writes(&self) -> bool {
        self.open.intersects(OpenFlags::CREATE | OpenFlags::TRUNCATE) || self.access.contains(DescriptorFlags::WRITE)
    }

    fn mode(&self) -> OpenMode {
        let reads = self.access.contains(DescriptorFlags::READ) || !self.access.contains(DescriptorFlags::WRITE);
        let mut mode = OpenMode::empty();
        mode.set(OpenMode::READ, reads);
        mode.set(OpenMode::WRITE, self.writes());
        mode
    }

    /// Opens it. It blocks, but never on a pipe or a device.
    pub(crate) fn perform(self) -> Result<Descriptor, Refusal> {
        self.check_flags()?;
        if self.writes() {
            self.base.check_writable()?;
        } else {
            self.base.tree.check(Access::Read)?;
        }
        let is_exclusive = self.open.contains(OpenFlags::CREATE | OpenFlags::EXCLUSIVE);
        let last = if is_exclusive { Last::Keep } else { self.last };
        let entry = beneath::resolve(&self.base.directory, &self.path, last)?;
        let opened = match &entry.name {
            None => self.open_parent(&entry)?,
            Some(name) => self.open_entry(&entry, name)?,
        };
        let mode = self.mode();
        let permissions = self.base.permissions;
        match FileType::from_raw_mode(fstat(&opened)?.st_mode) {
            FileType::Directory => Ok(Descriptor::Dir(Dir::new(File::from(opened), permissions, mode, false))),
            FileType::RegularFile => self.file(File::from(opened), permissions, mode),
            // A pipe or a device that came there just now.
            _ => Err(Refusal::NotPermitted),
        }
    }

    fn check_flags(&self) -> Result<(), Refusal> {
        let synchronous = DescriptorFlags::FILE_INTEGRITY_SYNC
            | DescriptorFlags::DATA_INTEGRITY_SYNC
            | DescriptorFlags::REQUESTED_WRITE_SYNC;
        if self.access.intersects(synchronous) {
            return Err(Refusal::Unsupported);
        }
        let makes = OpenFlags::CREATE | OpenFlags::EXCLUSIVE | OpenFlags::TRUNCATE;
        if self.open.contains(OpenFlags::DIRECTORY) && self.open.intersects(makes) {
            return Err(Errno::INVAL.into());
        }
        Ok(())
    }

    /// The path ends at a directory that is open already.
    fn open_parent(&self, entry: &Entry) -> Result<OwnedFd, Refusal> {
        if self.writes() {
            return Err(Errno::ISDIR.into());
        }
        self.base.tree.protected.private_now().check_directory(entry.parent.as_fd())?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(openat(&entry.parent, ".", flags, Mode::empty())?)
    }

    fn open_entry(&self, entry: &Entry, name: &OsStr) -> Result<OwnedFd, Refusal> {
        let protection = match self.writes() {
            true => self.base.tree.protected.now(),
            false => self.base.tree.protected.private_now(),
        };
        match self.writes() {
            true => protection.check_entry(entry.parent.as_fd(), name)?,
            false => protection.check_directory(entry.parent.as_fd())?,
        }
        let mut flags = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        flags |= match (self.mode().contains(OpenMode::READ), self.mode().contains(OpenMode::WRITE)) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            _ => OFlags::RDONLY,
        };
        if self.open.contains(OpenFlags::DIRECTORY) || entry.names_directory {
            flags |= OFlags::DIRECTORY;
        }
        for _ in 0..TRIES {
            let file = match statat(&entry.parent, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => {
                    self.check_kind(FileType::from_raw_mode(stat.st_mode))?;
                    openat(&entry.parent, name, flags, Mode::empty())
                }
                Err(Errno::NOENT) if self.open.contains(OpenFlags::CREATE) && !entry.names_directory => {
                    self.create(entry, name, flags)?
                }
                Err(errno) => return Err(errno.into()),
            };
            match file {
                Ok(file) => {
                    if self.writes() {
                        protection.check_file(file.as_fd())?;
                    } else if FileType::from_raw_mode(fstat(&file)?.st_mode).is_dir() {
                        protection.check_directory(file.as_fd())?;
                    }
                    return Ok(file);
                }
                // It was made or removed in between.
                Err(Errno::EXIST | Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(Errno::BUSY.into())
    }

    fn check_kind(&self, found: FileType) -> Result<(), Refusal> {
        match found {
            _ if self.open.contains(OpenFlags::CREATE | OpenFlags::EXCLUSIVE) => Err(Errno::EXIST.into()),
            FileType::RegularFile | FileType::Directory => Ok(()),
            FileType::Symlink => Err(Errno::LOOP.into()),
            _ => Err(Refusal::NotPermitted),
        }
    }

    fn create(&self, entry: &Entry, name: &OsStr, flags: OFlags) -> Result<rustix::io::Result<OwnedFd>, Refusal> {
        let tree = &self.base.tree;
        let mut counted = tree.usage.lock();
        counted.add_entry(tree.limits)?;
        let made = openat(&entry.parent, name, flags | OFlags::CREATE | OFlags::EXCL, Mode::from(0o666));
        if made.is_err() {
            counted.remove_entry();
        }
        Ok(made)
    }

    fn file(&self, file: File, permissions: FsPerms, mode: OpenMode) -> Result<Descriptor, Refusal> {
        if self.open.contains(OpenFlags::TRUNCATE) {
            self.base.tree.set_size(&file, 0)?;
        }
        let id = FileId::from(&fstat(&file)?);
        let file = GuestFile::new(file, permissions, mode, false);
        if permissions == FsPerms::ReadWrite {
            self.base.tree.usage.lock().opened(id, &Arc::clone(&file.file));
        }
        Ok(Descriptor::File(file))
    }
}
