//! Opens files and directories of granted trees for guests.

use super::operations::OpenDirectory;
use super::resolve::{self, Entry, FinalLink};
use super::{FileId, TreeRefusal};
use crate::grants::manifest::Access;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::sync::Arc;
use wasmtime_wasi::FsPerms;
use wasmtime_wasi::filesystem::{Descriptor, Dir, File as GuestFile, OpenMode};
use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorFlags, OpenFlags};

/// Maximum number of attempts to open a file while other processes create and remove it.
const OPEN_ATTEMPTS: usize = 8;

/// The arguments with which a guest called `open-at`.
pub(crate) struct OpenRequest {
    pub(crate) base: OpenDirectory,
    pub(crate) path: String,
    pub(crate) final_link: FinalLink,
    pub(crate) open: OpenFlags,
    pub(crate) access: DescriptorFlags,
}

impl OpenRequest {
    /// Whether opening the file, or later using its handle, could change the file or its directory.
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

    /// Opens the file or directory. This function blocks the current thread, but it never waits for a pipe or a device.
    pub(crate) fn perform(self) -> Result<Descriptor, TreeRefusal> {
        self.check_flags()?;
        if self.writes() {
            self.base.check_writable()?;
        } else {
            self.base.tree.check(Access::Read)?;
        }
        let is_exclusive = self.open.contains(OpenFlags::CREATE | OpenFlags::EXCLUSIVE);
        let final_link = if is_exclusive { FinalLink::Keep } else { self.final_link };
        let entry = resolve::resolve(&self.base.directory, &self.path, final_link)?;
        let opened = match &entry.name {
            None => self.open_parent(&entry)?,
            Some(name) => self.open_entry(&entry, name)?,
        };
        let mode = self.mode();
        let permissions = self.base.permissions;
        match FileType::from_raw_mode(fstat(&opened)?.st_mode) {
            FileType::Directory => Ok(Descriptor::Dir(Dir::new(File::from(opened), permissions, mode, false))),
            FileType::RegularFile => self.file(File::from(opened), permissions, mode),
            // The file has been replaced with a pipe or a device since its type was checked.
            _ => Err(TreeRefusal::NotPermitted),
        }
    }

    fn check_flags(&self) -> Result<(), TreeRefusal> {
        let synchronous = DescriptorFlags::FILE_INTEGRITY_SYNC
            | DescriptorFlags::DATA_INTEGRITY_SYNC
            | DescriptorFlags::REQUESTED_WRITE_SYNC;
        if self.access.intersects(synchronous) {
            return Err(TreeRefusal::Unsupported);
        }
        let file_only = OpenFlags::CREATE | OpenFlags::EXCLUSIVE | OpenFlags::TRUNCATE;
        if self.open.contains(OpenFlags::DIRECTORY) && self.open.intersects(file_only) {
            return Err(Errno::INVAL.into());
        }
        Ok(())
    }

    /// Opens the parent directory of `entry`, because the path ends at this directory, not at an entry in it.
    fn open_parent(&self, entry: &Entry) -> Result<OwnedFd, TreeRefusal> {
        if self.writes() {
            return Err(Errno::ISDIR.into());
        }
        self.base.tree.protected.private_folders_now().check_directory(entry.parent.as_fd())?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(openat(&entry.parent, ".", flags, Mode::empty())?)
    }

    fn open_entry(&self, entry: &Entry, name: &OsStr) -> Result<OwnedFd, TreeRefusal> {
        let protection = match self.writes() {
            true => self.base.tree.protected.now(),
            false => self.base.tree.protected.private_folders_now(),
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
        for _ in 0..OPEN_ATTEMPTS {
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
                // Another process created or removed the file after `statat` had looked for it.
                Err(Errno::EXIST | Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(Errno::BUSY.into())
    }

    fn check_kind(&self, found: FileType) -> Result<(), TreeRefusal> {
        match found {
            _ if self.open.contains(OpenFlags::CREATE | OpenFlags::EXCLUSIVE) => Err(Errno::EXIST.into()),
            FileType::RegularFile | FileType::Directory => Ok(()),
            FileType::Symlink => Err(Errno::LOOP.into()),
            _ => Err(TreeRefusal::NotPermitted),
        }
    }

    fn create(&self, entry: &Entry, name: &OsStr, flags: OFlags) -> Result<rustix::io::Result<OwnedFd>, TreeRefusal> {
        let tree = &self.base.tree;
        let mut counted = tree.usage.lock();
        counted.add_entry(tree.limits)?;
        let created = openat(&entry.parent, name, flags | OFlags::CREATE | OFlags::EXCL, Mode::from(0o666));
        if created.is_err() {
            counted.remove_entry();
        }
        Ok(created)
    }

    fn file(&self, file: File, permissions: FsPerms, mode: OpenMode) -> Result<Descriptor, TreeRefusal> {
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
