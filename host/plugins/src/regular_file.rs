//! Reads files that a person is expected to have written: only regular ones, up to a bound. A pipe, a device or an endless file in
//! such a place is refused at once (row 47).

use rustix::fs::{Mode, OFlags, open};
use std::fs::File;
use std::io::{Error, Read, Result};
use std::path::Path;

/// Opens a regular file for reading. It never waits for the other end of a pipe.
pub fn open_regular_file(path: &Path) -> Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let found = std::fs::metadata(path)?;
    if !found.is_file() {
        return Err(not_a_file(&found));
    }
    let file = File::from(open(path, flags, Mode::empty())?);
    // Something else may have come there in between.
    let found = file.metadata()?;
    if found.is_file() { Ok(file) } else { Err(not_a_file(&found)) }
}

/// All bytes of a regular file, unless there are more than `most`.
pub fn read_regular_file(path: &Path, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = open_regular_file(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if read as u64 > most {
        return Err(Error::other(format!("it has more than {} KiB", most / 1024)));
    }
    Ok(bytes)
}

fn not_a_file(found: &std::fs::Metadata) -> Error {
    let kind = if found.is_dir() { "a folder" } else { "a pipe, a socket or a device" };
    Error::other(format!("it is {kind}, not a file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Row 47: what is not a regular file, or is endless, is refused at once.
    #[test]
    fn only_regular_files_within_their_bound_are_read() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("text"), "12345").expect("written");
        assert_eq!(read_regular_file(&path("text"), 5).expect("read"), b"12345");
        assert!(read_regular_file(&path("text"), 4).is_err());
        let made = std::process::Command::new("mkfifo").arg(path("pipe")).status().expect("mkfifo runs");
        assert!(made.success());
        for path in [path("pipe"), "/dev/zero".into(), "/dev/tty".into(), folder.path().to_owned()] {
            let error = read_regular_file(&path, 5).expect_err("refused");
            assert!(error.to_string().contains("not a file"), "{}: {error}", path.display());
        }
        let huge = File::create(path("huge")).expect("created");
        huge.set_len(1 << 40).expect("a sparse file");
        assert!(read_regular_file(&path("huge"), 1024).is_err());
    }
}
