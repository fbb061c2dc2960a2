//! What is read when the host builds plugins: build tools run as native code, without a sandbox (row 40).

use super::path;
use agent_devkit::build::{Project, projects_at};
use agent_plugins::{ProtectedKind, ProtectedPath};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What cargo and rustup look for in the folder of a project and in every folder above it.
pub(super) const CARGO_LOOKS_ABOVE: [&str; 4] = [".cargo", "Cargo.toml", "rust-toolchain", "rust-toolchain.toml"];
/// The same for the tools of the other languages.
const OTHERS_LOOK_ABOVE: [&str; 2] = ["node_modules", "package.json"];
/// Packages that one folder of plugins is built of.
const MOST_PACKAGES: usize = 200;
/// Bytes of a Cargo.toml that is read.
const MOST_BYTES: u64 = 1 << 20;

/// What is built in a package that the agent itself lies in, by the ends of names: plugins are meant to work in that folder.
const SOURCES: &[&str] = &[".rs", "cargo.toml", "cargo.lock"];

/// For a folder of projects: the packages that they depend on, wherever these lie, and the files in the folders above them
/// that decide how they are built. Nothing for a folder without projects. `agent` is the agent's own folder.
pub(super) fn of_sources(folder: &Path, agent: &Path) -> Vec<ProtectedPath> {
    let Ok(projects) = projects_at(folder) else { return Vec::new() };
    let what = "what is read to build plugins";
    let mut packages: BTreeSet<PathBuf> = [folder.to_owned()].into_iter().filter_map(whole).collect();
    packages.extend(projects.iter().flat_map(Project::named_paths).filter_map(whole));
    let mut unread: Vec<PathBuf> =
        projects.iter().filter_map(|project| whole(project.directory().to_owned())).collect();
    while let Some(package) = unread.pop().filter(|_| packages.len() < MOST_PACKAGES) {
        for dependency in dependencies(&package.join("Cargo.toml")).into_iter().filter_map(whole) {
            if packages.insert(dependency.clone()) {
                unread.push(dependency);
            }
        }
    }
    let looked_for: BTreeSet<PathBuf> = packages
        .iter()
        .flat_map(|package| package.ancestors().skip(1))
        .flat_map(|above| CARGO_LOOKS_ABOVE.iter().chain(&OTHERS_LOOK_ABOVE).map(|name| above.join(name)))
        .collect();
    let agent = whole(agent.to_owned());
    let own = whole(folder.to_owned());
    let kind = |package: &Path| match &agent {
        // The folder of the plugins is protected in any case.
        Some(agent) if agent.starts_with(package) && own.as_deref() != Some(package) => {
            ProtectedKind::CodeFiles(SOURCES)
        }
        _ => ProtectedKind::Folder,
    };
    let folders = packages.into_iter().map(|package| {
        let kind = kind(&package);
        path(package, what, kind)
    });
    folders.chain(looked_for.into_iter().map(|file| path(file, what, ProtectedKind::File))).collect()
}

/// A path without links, of something that is there.
fn whole(path: PathBuf) -> Option<PathBuf> {
    path.canonicalize().ok()
}

/// Every folder that a Cargo.toml names as a `path` or by the `build` script of the package.
fn dependencies(manifest: &Path) -> Vec<PathBuf> {
    let Some(folder) = manifest.parent() else { return Vec::new() };
    let is_short = fs::metadata(manifest).is_ok_and(|found| found.is_file() && found.len() <= MOST_BYTES);
    let text = if is_short { fs::read_to_string(manifest).unwrap_or_default() } else { String::new() };
    let Ok(table) = text.parse::<toml::Table>() else { return Vec::new() };
    let mut found = Vec::new();
    let mut unread = vec![&table];
    while let Some(table) = unread.pop() {
        for (key, value) in table {
            match value {
                toml::Value::Table(inner) => unread.push(inner),
                toml::Value::Array(items) => unread.extend(items.iter().filter_map(toml::Value::as_table)),
                toml::Value::String(named) if ["path", "build"].contains(&key.as_str()) => {
                    found.push(folder.join(named));
                }
                _ => {}
            }
        }
    }
    // `[lib] path = "src/lib.rs"` names a file.
    let folder_of = |place: PathBuf| if place.is_file() { place.parent().map(Path::to_owned) } else { Some(place) };
    found.into_iter().filter_map(folder_of).filter(|place| place.is_dir()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // P13, row 40: a plugin cannot change what another plugin is built of.
    #[test]
    fn p13_what_plugins_are_built_of_is_protected() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let root = place.path().canonicalize().expect("there");
        for name in ["plugins/notes/src", "shared/words/src", "shared/deep", "other"] {
            fs::create_dir_all(root.join(name)).expect("created");
        }
        let package = |name: &str, rest: &str| format!("[package]\nname = \"{name}\"\nversion = \"1.0.0\"\n{rest}");
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
        let found = of_sources(&root.join("plugins"), &root.join("other"));
        let folders: Vec<_> = found.iter().filter(|path| path.is_folder()).map(|path| path.path.clone()).collect();
        assert_eq!(folders, ["plugins", "shared/deep", "shared/words"].map(|name| root.join(name)));
        for name in
            [".cargo", "Cargo.toml", "rust-toolchain.toml", "shared/.cargo", "shared/Cargo.toml", "node_modules"]
        {
            assert!(found.iter().any(|path| path.path == root.join(name)), "{name}");
        }
        assert_eq!(of_sources(&root.join("other"), &root), []);
        // An agent that lies in such a package keeps a folder to work in: only what is compiled is protected there.
        let found = of_sources(&root.join("plugins"), &root.join("shared/deep"));
        let deep = found.iter().find(|path| path.path == root.join("shared/deep")).expect("it is protected");
        assert_eq!(deep.kind, ProtectedKind::CodeFiles(SOURCES));
    }
}
