//! Reads a component from a file. Only regular files are opened, and only files within the size limit are read.

use crate::component::load_error::LoadError;
use crate::component::manifest_file::with_manifest_file;
use agent_core::message::Digest;
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Number of bytes that are read from the file at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// Reads a component of at most `max_bytes` bytes. If a manifest file is beside the component
/// ([`manifest_file_of`](crate::manifest_file_of)), its manifest is put into the returned bytes, so that their digest
/// covers both files. The file must be a regular file, because opening a pipe, for example, can block forever.
pub fn read_component(path: &Path, max_bytes: u64) -> Result<Vec<u8>, LoadError> {
    with_manifest_file(path, read_component_alone(path, max_bytes)?)
}

/// Like [`read_component`], but ignores a manifest file beside the component.
pub fn read_component_alone(path: &Path, max_bytes: u64) -> Result<Vec<u8>, LoadError> {
    let (file, size) = open(path, max_bytes)?;
    let mut bytes = Vec::with_capacity(size as usize);
    file.take(max_bytes + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the digest and the size of a file. The file is read in chunks, because allocating memory for the whole file
/// would take longer than hashing the file.
pub(super) fn digest_of_file(path: &Path, max_bytes: u64) -> Result<(Digest, u64), LoadError> {
    let (file, _) = open(path, max_bytes)?;
    let (mut file, mut hasher, mut size) = (file.take(max_bytes + 1), Sha256::new(), 0);
    let mut chunk = [0; CHUNK_BYTES];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => {
                hasher.update(&chunk[..read]);
                size += read as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    check_size(size, max_bytes)?;
    Ok((Digest::from_sha256(hasher.finalize().into()), size))
}

fn open(path: &Path, max_bytes: u64) -> Result<(File, u64), LoadError> {
    // Opening some devices has side effects, so the file type is checked first. The file type is checked a second time
    // after the file is opened, because the file may have been replaced after the first check.
    check_regular(&path.metadata()?)?;
    let file = open_without_waiting(path)?;
    let metadata = file.metadata()?;
    check_regular(&metadata)?;
    check_size(metadata.len(), max_bytes)?;
    Ok((file, metadata.len()))
}

/// Opens a file without blocking, because the file may have been replaced with a named pipe, and opening a named pipe
/// waits for a writer. Reading can block, too: some files that the kernel provides, such as `/proc/kmsg`, make a
/// reader wait.
#[cfg(unix)]
pub(super) fn open_without_waiting(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::NONBLOCK.union(rustix::fs::OFlags::NOCTTY).bits();
    File::options().read(true).custom_flags(flags as i32).open(path)
}

#[cfg(not(unix))]
pub(super) fn open_without_waiting(path: &Path) -> std::io::Result<File> {
    File::open(path)
}

fn check_regular(metadata: &std::fs::Metadata) -> std::io::Result<()> {
    if metadata.is_file() { Ok(()) } else { Err(std::io::Error::other("it is not a regular file")) }
}

pub(super) fn check_size(size: u64, max_bytes: u64) -> Result<(), LoadError> {
    if size > max_bytes { Err(LoadError::TooLarge { size, most: max_bytes }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Opening a pipe can block forever, so the file type is checked before the file is opened.
    #[cfg(unix)]
    #[test]
    fn pipes_and_directories_are_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let pipe = directory.path().join("x.wasm");
        let status = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
        assert!(status.success());
        for path in [pipe.as_path(), directory.path()] {
            let error = read_component(path, 1000).expect_err("refused").to_string();
            assert!(error.contains("not a regular file"), "{error}");
            let error = digest_of_file(path, 1000).expect_err("refused").to_string();
            assert!(error.contains("not a regular file"), "{error}");
        }
    }

    #[test]
    fn digest_of_file_hashes_a_file_of_several_chunks() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("x.wasm");
        let bytes: Vec<u8> = (0..2 * CHUNK_BYTES + 3).map(|index| (index % 253) as u8).collect();
        std::fs::write(&path, &bytes).expect("written");
        let size = bytes.len() as u64;
        assert_eq!(
            digest_of_file(&path, size).expect("read"),
            (crate::component::plugin_store::digest_of(&bytes), size)
        );
        assert!(matches!(digest_of_file(&path, size - 1), Err(LoadError::TooLarge { .. })));
        assert_eq!(read_component(&path, size).expect("read"), bytes);
    }
}
