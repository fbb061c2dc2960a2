//! Determines whether a new Rust project becomes a member of a Cargo workspace.

use super::NewError;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Whether a project is a member of a Cargo workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CargoMembership {
    /// The project is not a member of a workspace. If a parent folder contains a workspace, this workspace does not
    /// list the project.
    Standalone,
    /// The project is a member of a workspace in a parent folder.
    Member {
        /// Whether the workspace declares the SDK.
        sdk: WorkspaceSdk,
    },
}

/// Whether `[workspace.dependencies]` contains `agent-host-sdk`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkspaceSdk {
    Declared,
    Absent,
}

impl CargoMembership {
    /// Determines whether the new project `directory/name` is a member of a Cargo workspace. A manifest that cannot be
    /// parsed is ignored, because Cargo reports the error.
    pub(super) fn of(directory: &Path, name: &str) -> Result<Self, NewError> {
        let failed = |source| NewError::File { action: "open", path: directory.to_owned(), source };
        let directory = match directory.as_os_str().is_empty() {
            true => Path::new("."),
            false => directory,
        };
        let project = resolved(directory).map_err(failed)?.join(name);
        for root in project.ancestors().skip(1) {
            let Ok(text) = std::fs::read_to_string(root.join("Cargo.toml")) else { continue };
            let manifest: toml::Table = text.parse().unwrap_or_default();
            let Some(workspace) = manifest.get("workspace") else { continue };
            let lists = |key: &str| {
                let patterns = workspace.get(key).and_then(toml::Value::as_array).into_iter().flatten();
                patterns.filter_map(toml::Value::as_str).any(|pattern| matches(&root.join(pattern), &project))
            };
            if !lists("members") || lists("exclude") {
                return Ok(CargoMembership::Standalone);
            }
            let dependencies = workspace.get("dependencies");
            let names_sdk = dependencies.and_then(|dependencies| dependencies.get("agent-host-sdk")).is_some();
            let sdk = if names_sdk { WorkspaceSdk::Declared } else { WorkspaceSdk::Absent };
            return Ok(CargoMembership::Member { sdk });
        }
        Ok(CargoMembership::Standalone)
    }
}

/// Resolves the links in the part of the path that exists. The rest of the path is created later.
fn resolved(directory: &Path) -> io::Result<PathBuf> {
    match (directory.canonicalize(), directory.parent(), directory.file_name()) {
        (Err(error), Some(parent), Some(name)) if error.kind() == ErrorKind::NotFound => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Ok(resolved(parent)?.join(name))
        }
        (resolved, ..) => resolved,
    }
}

/// Whether a path matches a pattern in the list of members. A `*` matches any characters within one folder name.
fn matches(pattern: &Path, path: &Path) -> bool {
    let (pattern, path): (PathBuf, PathBuf) = (pattern.components().collect(), path.components().collect());
    pattern.components().count() == path.components().count()
        && pattern.components().zip(path.components()).all(|(part, name)| {
            let (part, name) = (part.as_os_str().to_string_lossy(), name.as_os_str().to_string_lossy());
            match part.split_once('*') {
                Some((before, after)) => name.starts_with(before) && name.ends_with(after),
                None => part == name,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_members_by_workspace_patterns() {
        let top = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir_all(top.path().join("plugins/notes")).expect("made");
        let membership = |manifest: &str, folder: &str| {
            std::fs::write(top.path().join("Cargo.toml"), manifest).expect("written");
            CargoMembership::of(&top.path().join(folder), "new").expect("a folder")
        };
        let member = |sdk| CargoMembership::Member { sdk };
        let named =
            "[workspace]\nmembers = [\"plugins/*\"]\n[workspace.dependencies]\nagent-host-sdk = { path = \"sdk\" }\n";
        assert_eq!(membership(named, "plugins"), member(WorkspaceSdk::Declared));
        assert_eq!(membership("[workspace]\nmembers = [\"plugins/n*\"]", "plugins"), member(WorkspaceSdk::Absent));
        assert_eq!(membership(named, "."), CargoMembership::Standalone);
        assert_eq!(membership(named, "plugins/notes"), CargoMembership::Standalone, "a star matches one folder");
        assert_eq!(membership(named, "plugins/missing"), CargoMembership::Standalone, "the folder is created later");
        let excluded = "[workspace]\nmembers = [\"plugins/*\"]\nexclude = [\"plugins/new\"]";
        assert_eq!(membership(excluded, "plugins"), CargoMembership::Standalone);
        assert_eq!(membership("[package]\nname = \"x\"", "plugins"), CargoMembership::Standalone);
        assert_eq!(
            membership("[workspace", "plugins"),
            CargoMembership::Standalone,
            "Cargo reports the broken manifest"
        );
    }
}
