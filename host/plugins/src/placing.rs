//! Files that others read at any time: they see the old one or the new one, never a part.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Puts the bytes there in one step. What is not whole lies beside it, hidden and with a name that does not end as the file's
/// does, one per process, so that two of them don't write into each other's.
pub fn place_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = path.with_file_name(format!(".{name}.{}.unfinished", std::process::id()));
    let written = File::create(&unfinished).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.and_then(|()| std::fs::rename(&unfinished, path)).inspect_err(|_| {
        let _ = std::fs::remove_file(&unfinished);
    })
}
