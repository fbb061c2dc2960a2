//! A component's file: what is no regular file is not opened, and what is too large is not read.

use super::LoadError;
use agent_core::message::Digest;
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// What is read at once.
const PIECE_BYTES: usize = 64 * 1024;

/// The bytes of a file of at most so many. What is no regular file is not opened, since opening some of them waits for ever.
pub fn read_component(path: &Path, most: u64) -> Result<Vec<u8>, LoadError> {
    let (file, size) = open(path, most)?;
    let mut bytes = Vec::with_capacity(size as usize);
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The digest of a file, and its size: read piece by piece, since new memory for the whole takes longer than hashing it.
pub(super) fn digest_of_file(path: &Path, most: u64) -> Result<(Digest, u64), LoadError> {
    let (file, _) = open(path, most)?;
    let (mut file, mut hasher, mut size) = (file.take(most + 1), Sha256::new(), 0);
    let mut piece = [0; PIECE_BYTES];
    loop {
        match file.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => {
                hasher.update(&piece[..read]);
                size += read as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    check_size(size, most)?;
    Ok((Digest::from_sha256(hasher.finalize().into()), size))
}

fn open(path: &Path, most: u64) -> Result<(File, u64), LoadError> {
    // Opening some devices does something, so this comes first; what was opened counts.
    check_regular(&path.metadata()?)?;
    let file = open_without_waiting(path)?;
    let metadata = file.metadata()?;
    check_regular(&metadata)?;
    check_size(metadata.len(), most)?;
    Ok((file, metadata.len()))
}

/// Opening a named pipe, which may have taken the file's place meanwhile, waits for its writer; and some files of the kernel
/// would keep a reader waiting.
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

pub(super) fn check_size(size: u64, most: u64) -> Result<(), LoadError> {
    if size > most { Err(LoadError::TooLarge { size, most }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    // What is no regular file is refused before it is opened, since opening some of them waits for ever.
    #[cfg(unix)]
    #[test]
    fn only_regular_files_are_opened() {
        let directory = tempfile::tempdir().expect("a directory");
        let pipe = directory.path().join("x.wasm");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
        assert!(made.success());
        for path in [pipe.as_path(), directory.path()] {
            let error = read_component(path, 1000).expect_err("refused").to_string();
            assert!(error.contains("not a regular file"), "{error}");
            let error = digest_of_file(path, 1000).expect_err("refused").to_string();
            assert!(error.contains("not a regular file"), "{error}");
        }
    }

    #[test]
    fn a_file_is_hashed_as_it_is_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("x.wasm");
        let bytes: Vec<u8> = (0..2 * PIECE_BYTES + 3).map(|index| (index % 253) as u8).collect();
        std::fs::write(&path, &bytes).expect("written");
        let size = bytes.len() as u64;
        assert_eq!(digest_of_file(&path, size).expect("read"), (crate::store::digest_of(&bytes), size));
        assert!(matches!(digest_of_file(&path, size - 1), Err(LoadError::TooLarge { .. })));
        assert_eq!(read_component(&path, size).expect("read"), bytes);
    }
}
