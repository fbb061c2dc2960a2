//! Turns the compiler's output into a plugin: embeds the manifest and writes the file.

use super::{BuildError, BuiltPlugin, Project, Written};
use agent_plugins::{Interfaces, interfaces, write_file_atomically};
use std::path::Path;

/// Embeds the manifest in the compiled component and writes `OUT/NAME.wasm` if the component changed.
pub(super) fn finish(project: &Project, compiled: &Path, out: &Path) -> Result<BuiltPlugin, BuildError> {
    let failed = |reason: String| BuildError::NotAComponent { name: project.name().to_owned(), reason };
    let bytes = std::fs::read(compiled).map_err(|source| BuildError::File {
        action: "cannot read",
        path: compiled.to_owned(),
        source,
    })?;
    let bytes = agent_plugins::with_manifest(&bytes, project.manifest()).map_err(|error| failed(error.to_string()))?;
    let Interfaces { imports, exports } =
        interfaces(&bytes).map_err(|error| failed(format!("the imports of the component cannot be read: {error}")))?;
    let path = out.join(format!("{}.wasm", project.name()));
    let written = write_if_changed(&path, &bytes)?;
    Ok(BuiltPlugin {
        path,
        name: project.name().to_owned(),
        version: project.manifest().version.clone(),
        size: bytes.len() as u64,
        digest: agent_plugins::digest_of(&bytes),
        imports,
        exports,
        written,
    })
}

fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<Written, BuildError> {
    if std::fs::read(path).is_ok_and(|current| current == bytes) {
        return Ok(Written::Unchanged);
    }
    let failed = |source| BuildError::File { action: "cannot write", path: path.to_owned(), source };
    write_file_atomically(path, bytes).map(|()| Written::Changed).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn does_not_write_an_unchanged_file() {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let path = directory.path().join("calc.wasm");
        assert_eq!(write_if_changed(&path, b"one").expect("written"), Written::Changed);
        let modified = std::fs::metadata(&path).and_then(|file| file.modified()).expect("there");
        assert_eq!(write_if_changed(&path, b"one").expect("compared"), Written::Unchanged);
        assert_eq!(std::fs::metadata(&path).and_then(|file| file.modified()).expect("there"), modified);
        assert_eq!(write_if_changed(&path, b"two").expect("written"), Written::Changed);
        assert_eq!(std::fs::read(&path).expect("there"), b"two");
        assert_eq!(std::fs::read_dir(directory.path()).expect("there").count(), 1);
    }
}
