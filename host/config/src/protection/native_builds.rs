//! Finds the files that build tools read when the host builds plugins. Build tools run as native code, outside the
//! sandbox (row 40).

use super::protected_path;
use agent_plugins::{ProtectedKind, ProtectedPath};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Files and folders that cargo and rustup look for in the folder of a project and in every folder above it.
pub(super) const CARGO_ANCESTOR_FILES: [&str; 4] = [".cargo", "Cargo.toml", "rust-toolchain", "rust-toolchain.toml"];
/// Files and folders that the build tools of other languages look for in the folder of a project and in every folder
/// above it.
const OTHER_ANCESTOR_FILES: [&str; 2] = ["node_modules", "package.json"];
/// Maximum number of packages whose dependencies the host examines for one plugin directory.
const MAX_PACKAGES: usize = 200;
/// Name of the file that marks a folder as a plugin project.
const PROJECT_FILE: &str = "plugin.toml";
/// Maximum size of a TOML file that is read, in bytes. Files that are larger are ignored.
const MAX_BYTES: u64 = 1 << 20;

/// Endings of the names of source files. In a package that contains the agent's folder, only files with these endings
/// are protected, because plugins work in the agent's folder.
const SOURCES: &[&str] = &[".rs", "cargo.toml", "cargo.lock"];

/// Returns the paths to protect for a folder of plugin projects: the packages that the projects depend on, and the
/// files that affect the build and are in folders above these packages. The result is empty for a folder without
/// projects. `agent` is the folder of the agent.
pub(super) fn source_paths(folder: &Path, agent: &Path) -> Vec<ProtectedPath> {
    let projects = projects_at(folder);
    if projects.is_empty() {
        return Vec::new();
    }
    let what = "files that are read to build plugins";
    let mut packages: BTreeSet<PathBuf> = [folder.to_owned()].into_iter().filter_map(canonical).collect();
    packages.extend(projects.iter().flat_map(|project| named_paths(project)).filter_map(canonical));
    let mut unread: Vec<PathBuf> = projects.into_iter().filter_map(canonical).collect();
    while let Some(package) = unread.pop().filter(|_| packages.len() < MAX_PACKAGES) {
        for dependency in dependencies(&package.join("Cargo.toml")).into_iter().filter_map(canonical) {
            if packages.insert(dependency.clone()) {
                unread.push(dependency);
            }
        }
    }
    let ancestor_files: BTreeSet<PathBuf> = packages
        .iter()
        .flat_map(|package| package.ancestors().skip(1))
        .flat_map(|above| CARGO_ANCESTOR_FILES.iter().chain(&OTHER_ANCESTOR_FILES).map(|name| above.join(name)))
        .collect();
    let agent = canonical(agent.to_owned());
    let plugin_directory = canonical(folder.to_owned());
    let kind = |package: &Path| match &agent {
        // All files in the plugin directory are protected, even if the plugin directory contains the agent's folder.
        Some(agent) if agent.starts_with(package) && plugin_directory.as_deref() != Some(package) => {
            ProtectedKind::CodeFiles(SOURCES)
        }
        _ => ProtectedKind::Folder,
    };
    let folders = packages.into_iter().map(|package| {
        let kind = kind(&package);
        protected_path(package, what, kind)
    });
    folders.chain(ancestor_files.into_iter().map(|file| protected_path(file, what, ProtectedKind::File))).collect()
}

/// If the folder is a plugin project, returns the folder itself. If the folder is not a plugin project, returns the
/// projects in the folder. Every folder with a `plugin.toml` is a project, even if it cannot be built yet, because it
/// may be completed later.
fn projects_at(folder: &Path) -> Vec<PathBuf> {
    let is_project = |folder: &PathBuf| folder.join(PROJECT_FILE).is_file();
    if is_project(&folder.to_owned()) {
        return vec![folder.to_owned()];
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(is_project).collect()
}

/// Returns the paths of the source and the WIT folder that the `[build]` table of a project names.
fn named_paths(project: &Path) -> Vec<PathBuf> {
    let table = read_table(&project.join(PROJECT_FILE));
    let build = table.as_ref().and_then(|table| table.get("build")?.as_table());
    let named = ["source", "wit"].into_iter().filter_map(|key| build?.get(key)?.as_str());
    named.map(|path| project.join(path)).collect()
}

/// Reads and parses a TOML file. Returns None if the file is too large, cannot be read or is not valid TOML.
fn read_table(path: &Path) -> Option<toml::Table> {
    let is_short = fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() <= MAX_BYTES);
    if is_short { fs::read_to_string(path).ok()?.parse().ok() } else { None }
}

/// Resolves symbolic links in a path. Returns None if the path does not exist.
fn canonical(path: PathBuf) -> Option<PathBuf> {
    path.canonicalize().ok()
}

/// Returns the folders that a `Cargo.toml` names: the `path` of each dependency and target, and the folder of its
/// `build` script.
fn dependencies(manifest: &Path) -> Vec<PathBuf> {
    let Some(folder) = manifest.parent() else { return Vec::new() };
    let Some(table) = read_table(manifest) else { return Vec::new() };
    let mut paths = Vec::new();
    let mut unread = vec![&table];
    while let Some(table) = unread.pop() {
        for (key, value) in table {
            match value {
                toml::Value::Table(inner) => unread.push(inner),
                toml::Value::Array(items) => unread.extend(items.iter().filter_map(toml::Value::as_table)),
                toml::Value::String(named) if ["path", "build"].contains(&key.as_str()) => {
                    paths.push(folder.join(named));
                }
                _ => {}
            }
        }
    }
    // The `path` of a target, such as `[lib] path = "src/lib.rs"`, names a file, so the folder of the file is returned.
    let folder_of = |path: PathBuf| if path.is_file() { path.parent().map(Path::to_owned) } else { Some(path) };
    paths.into_iter().filter_map(folder_of).filter(|path| path.is_dir()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P13, row 40: a plugin cannot change the sources of another plugin.
    #[test]
    fn p13_protects_sources_of_plugins() {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let root = directory.path().canonicalize().expect("exists");
        for name in ["plugins/notes/src", "shared/words/src", "shared/deep", "other"] {
            fs::create_dir_all(root.join(name)).expect("created");
        }
        let package = |name: &str, tables: &str| format!("[package]\nname = \"{name}\"\nversion = \"1.0.0\"\n{tables}");
        for (file, text) in [
            ("plugins/notes/plugin.toml", "name = \"notes\"\nversion = \"1.0.0\"\n".to_owned()),
            (
                "plugins/notes/Cargo.toml",
                package("notes", "[dependencies]\nwords = { path = \"../../shared/words\" }\n"),
            ),
            (
                "shared/words/Cargo.toml",
                package("words", "[target.'cfg(unix)'.build-dependencies.deep]\npath = \"../deep\"\n"),
            ),
            ("shared/deep/Cargo.toml", package("deep", "[lib]\npath = \"src/lib.rs\"\n")),
        ] {
            fs::write(root.join(file), text).expect("written");
        }
        let found = source_paths(&root.join("plugins"), &root.join("other"));
        let folders: Vec<_> = found.iter().filter(|path| path.is_folder()).map(|path| path.path.clone()).collect();
        assert_eq!(folders, ["plugins", "shared/deep", "shared/words"].map(|name| root.join(name)));
        for name in
            [".cargo", "Cargo.toml", "rust-toolchain.toml", "shared/.cargo", "shared/Cargo.toml", "node_modules"]
        {
            assert!(found.iter().any(|path| path.path == root.join(name)), "{name}");
        }
        assert_eq!(source_paths(&root.join("other"), &root), []);
        // If a package contains the agent's folder, only the source files of the package are protected, so that plugins
        // can work in the agent's folder.
        let found = source_paths(&root.join("plugins"), &root.join("shared/deep"));
        let deep = found.iter().find(|path| path.path == root.join("shared/deep")).expect("it is protected");
        assert_eq!(deep.kind, ProtectedKind::CodeFiles(SOURCES));
    }
}
