//! Creates the files in a scenario's folder before the scenario is played, and compares the files in the folder with
//! the expectations of the scenario after the scenario was played.

use super::file::Scenario;
use super::report::Failure;
use super::script::FileContent;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io::{self, Read};
use std::path::Path;

/// Maximum depth of the subfolders in a copied folder.
const MAX_DEPTH: usize = 16;
/// Maximum total size of the files that are copied into a scenario's folder, in bytes.
const MAX_BYTES: u64 = 256 * 1024 * 1024;
/// Maximum number of files and folders that are copied into a scenario's folder.
const MAX_FILES: usize = 20_000;

/// Creates the scenario's files in `folder`. A path that ends with `/` creates an empty folder.
pub(crate) fn create_files(scenario: &Scenario, folder: &Path) -> Result<(), String> {
    let mut budget = CopyBudget { bytes: MAX_BYTES, files: MAX_FILES };
    for (path, content) in &scenario.script.files {
        let to = folder.join(path);
        let written = match content.get_ref() {
            FileContent::Text(text) if text.is_empty() && path.ends_with('/') => std::fs::create_dir_all(&to),
            FileContent::Text(text) => write(&to, text.as_bytes()),
            FileContent::Base64(text) => {
                STANDARD.decode(text).map_err(io::Error::other).and_then(|bytes| write(&to, &bytes))
            }
            FileContent::Copy(from) => copy(&scenario.folder().join(from), &to, MAX_DEPTH, &mut budget),
        };
        written.map_err(|error| {
            let place = scenario.place(content.span(), format!("files.{path:?}"));
            format!("{place} cannot be created in the scenario's folder: {error}")
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

/// The number of bytes and the number of files that may still be copied into the scenario's folder.
struct CopyBudget {
    bytes: u64,
    files: usize,
}

impl CopyBudget {
    /// Reads a regular file and subtracts its size from the budget.
    fn read(&mut self, from: &Path) -> io::Result<Vec<u8>> {
        let bytes = read(from, self.bytes)?;
        self.bytes -= bytes.len() as u64;
        Ok(bytes)
    }

    fn take_file(&mut self) -> io::Result<()> {
        let full = || io::Error::other(format!("there are more than {MAX_FILES} files and folders to copy"));
        self.files = self.files.checked_sub(1).ok_or_else(full)?;
        Ok(())
    }
}

/// Reads a regular file. Fails if the file is larger than `limit` bytes. Also fails if the file is a pipe or a
/// device, because reading such a file might never end.
pub(super) fn read(from: &Path, limit: u64) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(from)?.is_file() {
        return Err(io::Error::other(format!("`{}` is not a regular file", from.display())));
    }
    let mut bytes = Vec::new();
    agent_plugins::open_regular_file(from)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let (path, limit) = (from.display(), MAX_BYTES >> 20);
        return Err(io::Error::other(format!("`{path}` exceeds the limit of {limit} MiB for the total size of files")));
    }
    Ok(bytes)
}

fn copy(from: &Path, to: &Path, depth: usize, budget: &mut CopyBudget) -> io::Result<()> {
    budget.take_file()?;
    if !from.is_dir() {
        return write(to, &budget.read(from)?);
    }
    if depth == 0 {
        return Err(io::Error::other(format!("the path `{}` is nested too deeply", from.display())));
    }
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()), depth - 1, budget)?;
    }
    Ok(())
}

/// Compares the files in the scenario's folder with the expectations in `files_after` and `files_gone`.
pub(crate) fn differences(scenario: &Scenario, folder: &Path) -> Vec<Failure> {
    let mut failures = Vec::new();
    for (path, pattern) in &scenario.script.files_after {
        let place = scenario.place(pattern.span(), format!("files_after.{path:?}"));
        match agent_plugins::read_regular_file(&folder.join(path), MAX_BYTES) {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes);
                failures.extend(Failure::of(&place, pattern.get_ref().mismatches(&text, None)));
            }
            Err(error) => failures.push(Failure::at(place, "a file", error.to_string())),
        }
    }
    for path in scenario.script.files_gone.iter().filter(|path| folder.join(path.get_ref()).exists()) {
        let place = scenario.place(path.span(), "files_gone".to_owned());
        failures.push(Failure::at(place, &format!("no `{}`", path.get_ref()), "it exists".to_owned()));
    }
    failures
}
