//! Plugin projects: folders with a `plugin.toml` and a source in one of the languages.

use super::{BuildError, c, javascript, python};
use crate::language::Language;
use agent_plugins::Manifest;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A plugin project whose manifest has been read.
#[derive(Clone, Debug)]
pub struct Project {
    directory: PathBuf,
    manifest: Manifest,
    build: BuildTable,
    language: Language,
}

/// `[build]` of `plugin.toml`: how it is built, where its files don't say. It does not become part of the component.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BuildTable {
    /// Default: by its files: `Cargo.toml`, `app.py`, `app.js`, or `*.c`.
    pub language: Option<Language>,
    /// The module that implements the world, or for C the folder of its sources. Default: `app.py`, `app.js`, the project's folder.
    pub source: Option<String>,
    /// The folder of its WIT. Default: `wit`, and without that the contract.
    pub wit: Option<String>,
    /// The world of that WIT that it implements. Default: the only one; of the contract, `tool-plugin`.
    pub world: Option<String>,
}

#[derive(Deserialize)]
struct PluginToml {
    #[serde(default)]
    build: BuildTable,
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
        let PluginToml { build } = toml::from_str(&text).map_err(|error| {
            let line =
                error.span().map_or(1, |span| text[..text.floor_char_boundary(span.start)].matches('\n').count() + 1);
            let reason = error.message().replace('\n', " ");
            BuildError::Manifest { message: format!("{}:{line}: {reason}", path.display()) }
        })?;
        let language = match (build.language, languages(&directory).as_slice()) {
            (Some(language), _) | (None, &[language]) => language,
            (None, several) => {
                return Err(BuildError::SeveralLanguages { path: directory, languages: several.to_vec() });
            }
        };
        Ok(Self { directory, manifest, build, language })
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

    /// What it is written in.
    pub fn language(&self) -> Language {
        self.language
    }

    /// What its `plugin.toml` says of building.
    pub fn build(&self) -> &BuildTable {
        &self.build
    }

    /// Where its `plugin.toml` says that its source and its WIT are.
    pub fn named_paths(&self) -> impl Iterator<Item = PathBuf> {
        let named = [&self.build.source, &self.build.wit].into_iter().flatten();
        named.map(|path| self.directory.join(path))
    }

    pub(super) fn cargo_manifest(&self) -> PathBuf {
        self.directory.join("Cargo.toml")
    }

    /// Where its source is; in the project in any case.
    pub(super) fn source(&self, usual: &str) -> Result<PathBuf, BuildError> {
        let name = self.build.source.as_deref().unwrap_or(usual);
        let path = self.directory.join(name);
        if path.exists() { Ok(path) } else { Err(BuildError::NoSource { path }) }
    }

    /// A folder for what is made on the way, which is kept for the next time.
    pub(super) fn made(&self) -> Result<PathBuf, BuildError> {
        let path = self.directory.join("build");
        std::fs::create_dir_all(&path).map_err(|source| BuildError::File {
            action: "cannot create",
            path: path.clone(),
            source,
        })?;
        Ok(path)
    }
}

/// The projects directly in `directory`, by folder name. Other folders and files are passed over.
pub fn projects_in(directory: &Path) -> Result<Vec<Project>, BuildError> {
    let failed = |source: std::io::Error| {
        let path = directory.to_owned();
        match source.kind() {
            std::io::ErrorKind::NotFound => BuildError::NoFolder { path },
            std::io::ErrorKind::NotADirectory => BuildError::NotAFolder { path },
            _ => BuildError::File { action: "cannot read", path, source },
        }
    };
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

/// Whether the folder holds a manifest, and something that can be built.
pub fn is_project(directory: &Path) -> bool {
    let manifest = directory.join("plugin.toml");
    manifest.is_file() && (!languages(directory).is_empty() || says_language(&manifest))
}

fn says_language(manifest: &Path) -> bool {
    let text = std::fs::read_to_string(manifest).unwrap_or_default();
    text.lines().any(|line| line.trim() == "[build]")
}

/// What the folder's files are written in. A crate may have sources in other languages, too.
fn languages(directory: &Path) -> Vec<Language> {
    if directory.join("Cargo.toml").is_file() {
        return vec![Language::Rust];
    }
    let has_c = || {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).any(|path| c::is_source(&path))
    };
    let found = [
        (Language::Python, directory.join(python::SOURCE).is_file()),
        (Language::JavaScript, directory.join(javascript::SOURCE).is_file()),
        (Language::C, has_c()),
    ];
    found.into_iter().filter_map(|(language, is_there)| is_there.then_some(language)).collect()
}

/// Why a folder without a project is none.
pub(super) fn no_project(directory: &Path) -> BuildError {
    let path = directory.to_owned();
    match (directory.join("plugin.toml").is_file(), languages(directory).is_empty()) {
        (true, true) => BuildError::NothingToBuild { path },
        (false, false) => BuildError::NoManifest { path },
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
    fn what_is_missing_is_named() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let problem = || Project::read(folder.path()).expect_err("no project").to_string();
        assert!(problem().contains("is no plugin project and holds none"), "{}", problem());
        let absent = projects_in(&folder.path().join("nope")).expect_err("no folder").to_string();
        assert!(absent.contains("there is no folder") && absent.contains("plugin new NAME"), "{absent}");
        std::fs::write(folder.path().join("app.py"), "").expect("written");
        assert!(problem().contains("has no `plugin.toml`"), "{}", problem());
        let file = projects_in(&folder.path().join("app.py")).expect_err("a file").to_string();
        assert!(file.contains("is no folder") && file.contains("`plugin.toml` and a source"), "{file}");
        std::fs::rename(folder.path().join("app.py"), folder.path().join("plugin.toml")).expect("renamed");
        assert!(problem().contains("has nothing to build"), "{}", problem());
    }

    /// S2: the language is that of the files, or what plugin.toml says.
    #[test]
    fn the_language_is_recognised() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let add = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
        let language = || Project::read(folder.path()).map(|project| project.language());
        add("plugin.toml", "name = \"x\"\n");
        add("test_app.c", "");
        assert!(matches!(language(), Err(BuildError::NothingToBuild { .. })), "a test is no source");
        add("app.c", "");
        assert_eq!(language().expect("C"), Language::C);
        add("app.js", "");
        let several = language().expect_err("two of them").to_string();
        assert!(several.contains("JavaScript and C") && several.contains("[build]"), "{several}");
        add("plugin.toml", "name = \"x\"\n[build]\nlanguage = \"js\"\n");
        assert_eq!(language().expect("it says so"), Language::JavaScript);
        add("Cargo.toml", "");
        add("plugin.toml", "name = \"x\"\n");
        assert_eq!(language().expect("a crate"), Language::Rust);
        add("plugin.toml", "name = \"x\"\n\n[build]\nlanguage = \"java\"\n");
        let unknown = language().expect_err("unknown").to_string();
        assert!(unknown.contains("plugin.toml:4: ") && unknown.contains("python"), "{unknown}");
        add("plugin.toml", "name = \"x\"\n[build]\nwrold = \"x\"\n");
        let unknown = language().expect_err("unknown").to_string();
        assert!(unknown.contains("plugin.toml:3: ") && unknown.contains("`wrold`"), "{unknown}");
    }
}
