//! A component's file: what is no regular file is not opened, and what is too large is not read.

use super::LoadError;
use std::io::Read;
use std::path::Path;

pub(super) fn read_component(path: &Path, most: u64) -> Result<Vec<u8>, LoadError> {
    // Opening a named pipe waits for its writer, so this comes first; what was opened counts.
    check_regular(&path.metadata()?)?;
    let file = std::fs::File::open(path)?;
    let metadata = file.metadata()?;
    check_regular(&metadata)?;
    check_size(metadata.len(), most)?;
    let mut bytes = Vec::with_capacity(metadata.len() as usize);
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
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
        }
    }
}
