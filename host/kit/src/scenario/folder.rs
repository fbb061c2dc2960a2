//! The folder of a scenario: what is laid into it before it is played, and what must stand in it afterwards.

use super::file::Scenario;
use super::report::Failure;
use super::script::FileContent;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io;
use std::path::Path;

/// Deepest folder that is copied.
const DEPTH: usize = 16;

/// Lays the scenario's files into the folder. A path that ends with `/` is an empty folder.
pub(crate) fn lay(scenario: &Scenario, folder: &Path) -> Result<(), String> {
    for (path, content) in &scenario.script.files {
        let to = folder.join(path);
        let written = match content.get_ref() {
            FileContent::Text(text) if text.is_empty() && path.ends_with('/') => std::fs::create_dir_all(&to),
            FileContent::Text(text) => write(&to, text.as_bytes()),
            FileContent::Base64(text) => {
                STANDARD.decode(text).map_err(io::Error::other).and_then(|bytes| write(&to, &bytes))
            }
            FileContent::Copy(from) => copy(&scenario.folder().join(from), &to, DEPTH),
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

fn copy(from: &Path, to: &Path, depth: usize) -> io::Result<()> {
    if !from.is_dir() {
        return write(to, &std::fs::read(from)?);
    }
    if depth == 0 {
        return Err(io::Error::other(format!("`{}` lies too deep", from.display())));
    }
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()), depth - 1)?;
    }
    Ok(())
}

/// What of the folder is not as the scenario says.
pub(crate) fn differences(scenario: &Scenario, folder: &Path) -> Vec<Failure> {
    let mut failures = Vec::new();
    for (path, pattern) in &scenario.script.files_after {
        let place = scenario.place(pattern.span(), format!("files_after.{path:?}"));
        match std::fs::read(folder.join(path)) {
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
