//! Compiled code that nobody can change any more. On Linux it is a sealed file in memory: code is mapped from there, a page
//! when it is needed, and not copied once more. A file on disk can be cut while it is mapped, which ends the process that
//! reads there; this one cannot.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::PathBuf;

/// Verified code.
pub(crate) enum CompiledCode {
    /// In a sealed file in memory.
    Sealed(File),
    /// In memory of this process.
    Bytes(Vec<u8>),
}

/// What becomes verified code, while it is written.
pub(crate) struct UnsealedCode(CompiledCode);

impl UnsealedCode {
    pub(crate) fn new() -> Self {
        Self(memory_file().map_or_else(|| CompiledCode::Bytes(Vec::new()), CompiledCode::Sealed))
    }

    pub(crate) fn seal(self) -> io::Result<CompiledCode> {
        if let CompiledCode::Sealed(file) = &self.0 {
            seal(file)?;
        }
        Ok(self.0)
    }
}

impl Write for UnsealedCode {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            CompiledCode::Sealed(file) => file.write(bytes),
            CompiledCode::Bytes(memory) => memory.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl CompiledCode {
    /// Where this process can open it, if it is a file.
    #[cfg(target_os = "linux")]
    pub(crate) fn path(&self) -> Option<PathBuf> {
        match self {
            CompiledCode::Sealed(file) => {
                Some(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file)).into())
            }
            CompiledCode::Bytes(_) => None,
        }
    }

    /// Where this process can open it, if it is a file.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn path(&self) -> Option<PathBuf> {
        None
    }

    /// A copy in memory of this process.
    pub(crate) fn into_bytes(self) -> io::Result<Vec<u8>> {
        match self {
            CompiledCode::Sealed(mut file) => {
                let mut bytes = Vec::new();
                file.rewind()?;
                file.read_to_end(&mut bytes)?;
                Ok(bytes)
            }
            CompiledCode::Bytes(bytes) => Ok(bytes),
        }
    }
}

#[cfg(target_os = "linux")]
fn memory_file() -> Option<File> {
    use rustix::fs::{MemfdFlags, memfd_create};
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    memfd_create("agent-host-code", flags).ok().map(File::from)
}

#[cfg(target_os = "linux")]
fn seal(file: &File) -> io::Result<()> {
    use rustix::fs::{SealFlags, fcntl_add_seals};
    Ok(fcntl_add_seals(file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?)
}

#[cfg(not(target_os = "linux"))]
fn memory_file() -> Option<File> {
    None
}

#[cfg(not(target_os = "linux"))]
fn seal(_: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // P9: what was verified stays what it was: nobody writes to it, makes it shorter or longer.
    #[cfg(target_os = "linux")]
    #[test]
    fn sealed_code_cannot_be_changed() {
        let mut code = UnsealedCode::new();
        code.write_all(b"code").expect("written");
        let code = code.seal().expect("sealed");
        let CompiledCode::Sealed(file) = &code else { panic!("a file in memory") };
        for change in [file.set_len(1), file.set_len(100), (&*file).write_all(b"x")] {
            assert_eq!(change.expect_err("refused").kind(), io::ErrorKind::PermissionDenied);
        }
        let path = code.path().expect("a path");
        let opened = File::options().write(true).open(&path).expect("opened");
        assert!((&opened).write_all(b"x").is_err());
        assert_eq!(std::fs::read(path).expect("read"), b"code");
        assert_eq!(code.into_bytes().expect("read"), b"code");
    }

    // P9: without such files the code stands in memory.
    #[test]
    fn code_in_memory_is_the_same() {
        let mut code = UnsealedCode(CompiledCode::Bytes(Vec::new()));
        code.write_all(b"code").expect("written");
        let code = code.seal().expect("sealed");
        assert!(code.path().is_none());
        assert_eq!(code.into_bytes().expect("there"), b"code");
    }
}
