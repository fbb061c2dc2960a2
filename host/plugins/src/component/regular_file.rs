//! Reads files that users write, such as configuration files. Only regular files up to a size limit are read. A pipe, a
//! device or an endless file is refused before it is read (row 47).

use rustix::fs::{Mode, OFlags, open};
use std::fs::File;
use std::io::{Error, Read, Result};
use std::path::Path;

/// Opens a regular file for reading. Fails if the path is not a regular file. If the path is a
/// named pipe, fails without waiting until another process opens the other end.
pub fn open_regular_file(path: &Path) -> Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(not_a_file(&metadata));
    }
    let file = File::from(open(path, flags, Mode::empty())?);
    // The file type is checked a second time, because the file may have been replaced since the first check.
    let metadata = file.metadata()?;
    if metadata.is_file() { Ok(file) } else { Err(not_a_file(&metadata)) }
}

/// Reads a whole regular file. Fails if the file has more than `max_bytes` bytes.
pub fn read_regular_file(path: &Path, max_bytes: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = open_regular_file(path)?.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if read as u64 > max_bytes {
        return Err(Error::other(format!("it has more than {} KiB", max_bytes / 1024)));
    }
    Ok(bytes)
}

fn not_a_file(metadata: &std::fs::Metadata) -> Error {
    let kind = if metadata.is_dir() { "a folder" } else { "a pipe, a socket or a device" };
    Error::other(format!("it is {kind}, not a file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Row 47: pipes, devices, directories and endless files are refused without blocking.
    #[test]
    fn row_47_only_regular_files_within_the_size_limit_are_read() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("text"), "12345").expect("written");
        assert_eq!(read_regular_file(&path("text"), 5).expect("read"), b"12345");
        assert!(read_regular_file(&path("text"), 4).is_err());
        let status = std::process::Command::new("mkfifo").arg(path("pipe")).status().expect("mkfifo runs");
        assert!(status.success());
        for path in [path("pipe"), "/dev/zero".into(), "/dev/tty".into(), folder.path().to_owned()] {
            let error = read_regular_file(&path, 5).expect_err("refused");
            assert!(error.to_string().contains("not a file"), "{}: {error}", path.display());
        }
        let huge = File::create(path("huge")).expect("created");
        huge.set_len(1 << 40).expect("a sparse file");
        assert!(read_regular_file(&path("huge"), 1024).is_err());
    }
}
