//! Where in the world of Cargo a new project stands: in a workspace that takes it as a member, or alone.

use super::NewError;
use std::path::{Path, PathBuf};

/// Where a project stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Of its own: also below a workspace that does not know it.
    Alone,
    /// In a workspace whose members it is among.
    Member {
        /// Whether the workspace says where the SDK is.
        sdk: WorkspaceSdk,
    },
}

/// Whether `[workspace.dependencies]` has `agent-host-sdk`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkspaceSdk {
    Named,
    Absent,
}

impl Place {
    /// Of the project that will be `directory/name`. What Cargo cannot read is none of our business: Cargo will say so.
    pub(super) fn of(directory: &Path, name: &str) -> Result<Self, NewError> {
        let failed = |source| NewError::File { action: "open", path: directory.to_owned(), source };
        let directory = match directory.as_os_str().is_empty() {
            true => Path::new("."),
            false => directory,
        };
        let project = directory.canonicalize().map_err(failed)?.join(name);
        for root in project.ancestors().skip(1) {
            let Ok(text) = std::fs::read_to_string(root.join("Cargo.toml")) else { continue };
            let manifest: toml::Table = text.parse().unwrap_or_default();
            let Some(workspace) = manifest.get("workspace") else { continue };
            let lists = |key: &str| {
                let patterns = workspace.get(key).and_then(toml::Value::as_array).into_iter().flatten();
                patterns.filter_map(toml::Value::as_str).any(|pattern| fits(&root.join(pattern), &project))
            };
            if !lists("members") || lists("exclude") {
                return Ok(Place::Alone);
            }
            let dependencies = workspace.get("dependencies");
            let names_sdk = dependencies.and_then(|dependencies| dependencies.get("agent-host-sdk")).is_some();
            let sdk = if names_sdk { WorkspaceSdk::Named } else { WorkspaceSdk::Absent };
            return Ok(Place::Member { sdk });
        }
        Ok(Place::Alone)
    }
}

/// Whether a path fits a pattern of members, in which `*` stands for one folder.
fn fits(pattern: &Path, path: &Path) -> bool {
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
    fn a_member_is_known_by_the_workspaces_patterns() {
        let top = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir_all(top.path().join("plugins/notes")).expect("made");
        let place = |manifest: &str, folder: &str| {
            std::fs::write(top.path().join("Cargo.toml"), manifest).expect("written");
            Place::of(&top.path().join(folder), "new").expect("a folder")
        };
        let member = |sdk| Place::Member { sdk };
        let named =
            "[workspace]\nmembers = [\"plugins/*\"]\n[workspace.dependencies]\nagent-host-sdk = { path = \"sdk\" }\n";
        assert_eq!(place(named, "plugins"), member(WorkspaceSdk::Named));
        assert_eq!(place("[workspace]\nmembers = [\"plugins/n*\"]", "plugins"), member(WorkspaceSdk::Absent));
        assert_eq!(place(named, "."), Place::Alone);
        assert_eq!(place(named, "plugins/notes"), Place::Alone, "a star is one folder");
        let but = "[workspace]\nmembers = [\"plugins/*\"]\nexclude = [\"plugins/new\"]";
        assert_eq!(place(but, "plugins"), Place::Alone);
        assert_eq!(place("[package]\nname = \"x\"", "plugins"), Place::Alone);
        assert_eq!(place("[workspace", "plugins"), Place::Alone, "Cargo says what is wrong with that");
    }
}
