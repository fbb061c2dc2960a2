//! Plugin projects: folders with a `plugin.toml` and a `Cargo.toml`.

use super::BuildError;
use agent_plugins::Manifest;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A plugin project whose manifest has been read.
#[derive(Clone, Debug)]
pub struct Project {
    directory: PathBuf,
    manifest: Manifest,
}

impl Project {
    /// Reads the project in `directory`.
    pub fn read(directory: &Path) -> Result<Self, BuildError> {
        if !is_project(directory) {
            return Err(no_project(directory));
        }
        let failed = |action, path: &Path, source| BuildError::File { action, path: path.to_owned(), source };
        // Cargo names packages by whole paths without links, and the toolchain may run in another folder.
        let directory = directory.canonicalize().map_err(|source| failed("cannot open", directory, source))?;
        let path = directory.join("plugin.toml");
        let text = std::fs::read_to_string(&path).map_err(|source| failed("cannot read", &path, source))?;
        let manifest =
            Manifest::from_toml(&text, &path).map_err(|error| BuildError::Manifest { message: error.to_string() })?;
        Ok(Self { directory, manifest })
    }

    /// The folder, absolute.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The manifest of its `plugin.toml`.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The manifest's name.
    pub fn name(&self) -> &str {
        &self.manifest.name
    }

    pub(super) fn cargo_manifest(&self) -> PathBuf {
        self.directory.join("Cargo.toml")
    }
}

/// The projects directly in `directory`, by folder name. Other folders and files are passed over.
pub fn projects_in(directory: &Path) -> Result<Vec<Project>, BuildError> {
    let failed = |source| BuildError::File { action: "cannot read", path: directory.to_owned(), source };
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if is_project(&path) {
            folders.push(path);
        }
    }
    folders.sort();
    folders.iter().map(|folder| Project::read(folder)).collect()
}

/// Whether the folder holds both files.
pub(super) fn is_project(directory: &Path) -> bool {
    directory.join("plugin.toml").is_file() && directory.join("Cargo.toml").is_file()
}

/// Why a folder without a project is none.
pub(super) fn no_project(directory: &Path) -> BuildError {
    let path = directory.to_owned();
    let has = |name: &str| directory.join(name).is_file();
    match (has("plugin.toml"), has("Cargo.toml")) {
        (true, false) => BuildError::HalfProject { path, missing: "Cargo.toml" },
        (false, true) => BuildError::HalfProject { path, missing: "plugin.toml" },
        _ => BuildError::NoProject { path },
    }
}

/// Names become file names, so each may occur once.
pub(super) fn check_names(projects: &[Project]) -> Result<(), BuildError> {
    let mut seen: BTreeMap<&str, &Project> = BTreeMap::new();
    for project in projects {
        if let Some(first) = seen.insert(project.name(), project) {
            return Err(BuildError::SameName {
                name: project.name().to_owned(),
                first: first.directory.clone(),
                second: project.directory.clone(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missing_file_is_named() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let missing = || match Project::read(folder.path()) {
            Err(BuildError::HalfProject { missing, .. }) => Some(missing),
            Err(BuildError::NoProject { .. }) => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(missing(), None);
        std::fs::write(folder.path().join("Cargo.toml"), "").expect("written");
        assert_eq!(missing(), Some("plugin.toml"));
        std::fs::remove_file(folder.path().join("Cargo.toml")).expect("removed");
        std::fs::write(folder.path().join("plugin.toml"), "").expect("written");
        assert_eq!(missing(), Some("Cargo.toml"));
    }
}
