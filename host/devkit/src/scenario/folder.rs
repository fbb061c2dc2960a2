//! The folder of a scenario: what is laid into it before it is played, and what must stand in it afterwards.

use super::file::Scenario;
use super::report::Failure;
use super::script::FileContent;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io::{self, Read};
use std::path::Path;

/// Deepest folder that is copied.
const DEPTH: usize = 16;
/// Most bytes that are copied into one scenario's folder, so that a scenario is soon over.
const MOST_BYTES: u64 = 256 * 1024 * 1024;
/// Most files and folders that are.
const MOST_FILES: usize = 20_000;

/// Lays the scenario's files into the folder. A path that ends with `/` is an empty folder.
pub(crate) fn lay(scenario: &Scenario, folder: &Path) -> Result<(), String> {
    let mut room = Room { bytes: MOST_BYTES, files: MOST_FILES };
    for (path, content) in &scenario.script.files {
        let to = folder.join(path);
        let written = match content.get_ref() {
            FileContent::Text(text) if text.is_empty() && path.ends_with('/') => std::fs::create_dir_all(&to),
            FileContent::Text(text) => write(&to, text.as_bytes()),
            FileContent::Base64(text) => {
                STANDARD.decode(text).map_err(io::Error::other).and_then(|bytes| write(&to, &bytes))
            }
            FileContent::Copy(from) => copy(&scenario.folder().join(from), &to, DEPTH, &mut room),
        };
        written.map_err(|error| {
            let place = scenario.place(content.span(), format!("files.{path:?}"));
            format!("{place} cannot be laid into the scenario's folder: {error}")
        })?;
    }
    Ok(())
}

fn write(to: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = to.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(to, bytes)
}

/// What may still be copied.
struct Room {
    bytes: u64,
    files: usize,
}

impl Room {
    /// A file's bytes. What is neither file nor folder may never end.
    fn read(&mut self, from: &Path) -> io::Result<Vec<u8>> {
        let bytes = read(from, self.bytes)?;
        self.bytes -= bytes.len() as u64;
        Ok(bytes)
    }

    fn take_place(&mut self) -> io::Result<()> {
        let full = || io::Error::other(format!("there are more than {MOST_FILES} files and folders"));
        self.files = self.files.checked_sub(1).ok_or_else(full)?;
        Ok(())
    }
}

/// The bytes of a regular file, at most so many.
pub(super) fn read(from: &Path, most: u64) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(from)?.is_file() {
        return Err(io::Error::other(format!("`{}` is no regular file", from.display())));
    }
    let mut bytes = Vec::new();
    agent_plugins::open_regular_file(from)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let (path, most) = (from.display(), MOST_BYTES >> 20);
        return Err(io::Error::other(format!("with `{path}` there are more than {most} MiB")));
    }
    Ok(bytes)
}

fn copy(from: &Path, to: &Path, depth: usize, room: &mut Room) -> io::Result<()> {
    room.take_place()?;
    if !from.is_dir() {
        return write(to, &room.read(from)?);
    }
    if depth == 0 {
        return Err(io::Error::other(format!("`{}` lies too deep", from.display())));
    }
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()), depth - 1, room)?;
    }
    Ok(())
}

/// What of the folder is not as the scenario says.
pub(crate) fn differences(scenario: &Scenario, folder: &Path) -> Vec<Failure> {
    let mut failures = Vec::new();
    for (path, pattern) in &scenario.script.files_after {
        let place = scenario.place(pattern.span(), format!("files_after.{path:?}"));
        match agent_plugins::read_regular_file(&folder.join(path), MOST_BYTES) {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes);
                failures.extend(Failure::of(&place, pattern.get_ref().mismatches(&text, None)));
            }
            Err(error) => failures.push(Failure::at(place, "a file", error.to_string())),
        }
    }
    for path in scenario.script.files_gone.iter().filter(|path| folder.join(path.get_ref()).exists()) {
        let place = scenario.place(path.span(), "files_gone".to_owned());
        failures.push(Failure::at(place, &format!("no `{}`", path.get_ref()), "it is there".to_owned()));
    }
    failures
}
