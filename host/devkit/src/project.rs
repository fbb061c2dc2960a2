//! Plugin projects: folders with a `plugin.toml` and a source in one of the supported languages.

use crate::file_list::{PYTHON_SDK_FOLDER, SDK_FOLDER};
use crate::language::Language;
use agent_plugins::Manifest;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The Python module that is built if `plugin.toml` sets no source.
pub(crate) const PYTHON_SOURCE: &str = "app.py";
/// The JavaScript module that is built if `plugin.toml` sets no source.
pub(crate) const JAVASCRIPT_SOURCE: &str = "app.js";
/// The TypeScript module that is built if there is no JavaScript module and `plugin.toml` sets no source.
pub(crate) const TYPESCRIPT_SOURCE: &str = "app.ts";
/// The file of the SDK for JavaScript that builds a project.
pub(crate) const JAVASCRIPT_BUILD_SCRIPT: &str = "build.mjs";
/// Name of the package that contains the SDK for JavaScript.
const JAVASCRIPT_PACKAGE: &str = "agent-host-sdk";

/// A plugin project whose manifest has been read.
#[derive(Clone, Debug)]
pub struct Project {
    directory: PathBuf,
    manifest: Manifest,
    build: BuildTable,
    language: Language,
}

/// The `[build]` table of `plugin.toml`, which overrides the settings that are detected from the project's files. The
/// `[build]` table is not embedded in the component.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BuildTable {
    /// Language of the project. By default, the language is detected from the files `Cargo.toml`, `app.py`, `app.js`,
    /// `app.ts` or `*.c`.
    pub language: Option<Language>,
    /// Path of the module that implements the world. For C, path of the folder with the sources. The default is
    /// `app.py` for Python, `app.js` or `app.ts` for JavaScript, and the project's folder for C.
    pub source: Option<String>,
    /// Path of the folder with the project's WIT. The default is the folder `wit` if it exists, otherwise the contract
    /// that is embedded in this binary.
    pub wit: Option<String>,
    /// Name of the world that the project implements. The default is the only world in the project's own WIT, or the
    /// world `tool-plugin` if the project uses the contract.
    pub world: Option<String>,
}

/// The place of the SDK that a Python or JavaScript project uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SdkPlace {
    /// A copy in the project, which `plugin new` wrote.
    Project,
    /// This binary, because the project imports the SDK and contains no copy.
    Binary,
}

#[derive(Deserialize)]
struct PluginToml {
    #[serde(default)]
    build: BuildTable,
}

/// The reason why a folder cannot be used as a plugin project.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    /// A file or folder of the project could not be read or written.
    #[error("{action} {}: {source}", path.display())]
    File {
        /// The words of the message that name the failed action, such as `cannot read`.
        action: &'static str,
        /// Path of the file or folder that could not be read or written.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The folder does not exist.
    #[error("there is no folder `{}`: {PROJECT}", path.display())]
    NoFolder {
        /// The path that was given. No folder exists at this path.
        path: PathBuf,
    },
    /// The path is a file.
    #[error("`{}` is not a folder: {PROJECT}", path.display())]
    NotAFolder {
        /// The given path, which is the path of a file.
        path: PathBuf,
    },
    /// The folder contains no project.
    #[error("`{}` is not a plugin project and contains no plugin project: {PROJECT}", path.display())]
    NoProject {
        /// The folder that was searched.
        path: PathBuf,
    },
    /// The folder has a source but no manifest.
    #[error("`{}` has no `plugin.toml`: {PROJECT}", path.display())]
    NoManifest {
        /// Path of the project's folder.
        path: PathBuf,
    },
    /// The folder has a manifest but no source.
    #[error("`{}` has a plugin.toml but no source to build: {PROJECT}", path.display())]
    NothingToBuild {
        /// Path of the project's folder.
        path: PathBuf,
    },
    /// The folder has sources in several languages.
    #[error("`{}` has sources in {}: set the plugin's language in plugin.toml, for example\n  [build]\n  language = \"{}\"",
        path.display(), joined(languages), languages.first().map_or("", |language| language.key()))]
    SeveralLanguages {
        /// Path of the project's folder.
        path: PathBuf,
        /// The languages of the sources that were found in the folder.
        languages: Vec<Language>,
    },
    /// The source file or folder does not exist.
    #[error("`{}` does not exist; if the source is elsewhere, set its path in plugin.toml: [build] source = \"…\"",
        path.display())]
    NoSource {
        /// Path at which the source was expected.
        path: PathBuf,
    },
    /// The manifest is invalid; the message contains the file, the line and the key.
    #[error("{message}")]
    Manifest {
        /// The message for the user, with the file, the line and the key.
        message: String,
    },
    /// Two projects would write the same component file.
    #[error("two plugin projects are named `{name}`: {} and {}; rename one of the plugins in its plugin.toml",
        first.display(), second.display())]
    SameName {
        /// The plugin name that both manifests contain.
        name: String,
        /// Folder of the first project.
        first: PathBuf,
        /// Folder of the second project.
        second: PathBuf,
    },
}

/// The end of several error messages, which explains the term "plugin project".
const PROJECT: &str = "a plugin project is a folder with `plugin.toml` and a source: `Cargo.toml` (Rust), `app.py` \
                       (Python), `app.js` or `app.ts` (JavaScript) or `*.c` (C); `agent-host plugin new NAME` creates one";

fn joined(languages: &[Language]) -> String {
    languages.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

impl Project {
    /// Reads the project in `directory`.
    pub fn read(directory: &Path) -> Result<Self, ProjectError> {
        if !is_project(directory) {
            return Err(no_project(directory));
        }
        let failed = |action, path: &Path, source| ProjectError::File { action, path: path.to_owned(), source };
        // The path of the folder must be absolute and without links: cargo identifies packages by such paths, and the
        // toolchain may run in another folder.
        let directory = directory.canonicalize().map_err(|source| failed("cannot open", directory, source))?;
        let path = directory.join("plugin.toml");
        let text = std::fs::read_to_string(&path).map_err(|source| failed("cannot read", &path, source))?;
        let manifest =
            Manifest::from_toml(&text, &path).map_err(|error| ProjectError::Manifest { message: error.to_string() })?;
        let PluginToml { build } = toml::from_str(&text).map_err(|error| {
            let line =
                error.span().map_or(1, |span| text[..text.floor_char_boundary(span.start)].matches('\n').count() + 1);
            let reason = error.message().replace('\n', " ");
            ProjectError::Manifest { message: format!("{}:{line}: {reason}", path.display()) }
        })?;
        let language = match (build.language, languages(&directory).as_slice()) {
            (Some(language), _) | (None, &[language]) => language,
            (None, several) => {
                return Err(ProjectError::SeveralLanguages { path: directory, languages: several.to_vec() });
            }
        };
        Ok(Self { directory, manifest, build, language })
    }

    /// Returns the absolute path of the project's folder.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the manifest in `plugin.toml`.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the name of the plugin as written in its manifest.
    pub fn name(&self) -> &str {
        &self.manifest.name
    }

    /// Returns the language that the project is written in.
    pub fn language(&self) -> Language {
        self.language
    }

    /// Returns the `[build]` table of `plugin.toml`. All values are None if `plugin.toml` does not contain this table.
    pub fn build(&self) -> &BuildTable {
        &self.build
    }

    /// Returns the path of the source and the path of the WIT folder, but only those that `plugin.toml` sets.
    pub fn named_paths(&self) -> impl Iterator<Item = PathBuf> {
        let named = [&self.build.source, &self.build.wit].into_iter().flatten();
        named.map(|path| self.directory.join(path))
    }

    /// Returns the place of the SDK for Python or JavaScript, or None if the project does not use the SDK or has another
    /// language.
    pub(crate) fn sdk(&self) -> Option<SdkPlace> {
        let (has_copy, package, defaults): (bool, _, &[&str]) = match self.language {
            Language::Python => (self.directory.join(PYTHON_SDK_FOLDER).is_dir(), PYTHON_SDK_FOLDER, &[PYTHON_SOURCE]),
            Language::JavaScript => {
                (self.has_javascript_sdk(), JAVASCRIPT_PACKAGE, &[JAVASCRIPT_SOURCE, TYPESCRIPT_SOURCE])
            }
            Language::Rust | Language::C => return None,
        };
        let mut sources = self.build.source.as_deref().map_or(defaults.to_vec(), |source| vec![source]).into_iter();
        let imports_sdk =
            |name| std::fs::read_to_string(self.directory.join(name)).is_ok_and(|text| text.contains(package));
        match (has_copy, sources.any(imports_sdk)) {
            (true, _) => Some(SdkPlace::Project),
            (false, true) => Some(SdkPlace::Binary),
            (false, false) => None,
        }
    }

    /// Whether the project contains the SDK for JavaScript, or `package.json` names its folder, even if the folder is
    /// missing.
    fn has_javascript_sdk(&self) -> bool {
        let text = std::fs::read_to_string(self.directory.join("package.json")).unwrap_or_default();
        let package: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        self.directory.join(SDK_FOLDER).join(JAVASCRIPT_BUILD_SCRIPT).is_file()
            || package["dependencies"][JAVASCRIPT_PACKAGE] == format!("file:{SDK_FOLDER}").as_str()
    }

    pub(crate) fn cargo_manifest(&self) -> PathBuf {
        self.directory.join("Cargo.toml")
    }

    /// Returns the path of the source. The path is `default` unless `plugin.toml` sets another path.
    pub(crate) fn source(&self, default: &str) -> Result<PathBuf, ProjectError> {
        let name = self.build.source.as_deref().unwrap_or(default);
        let path = self.directory.join(name);
        if path.exists() { Ok(path) } else { Err(ProjectError::NoSource { path }) }
    }

    /// Whether the project has WIT of its own, instead of the WIT that agent-host contains.
    pub(crate) fn has_own_wit(&self) -> bool {
        self.build.wit.is_some() || self.directory.join("wit").exists()
    }

    /// Creates the project's folder for intermediate files of builds, if it does not exist. Later builds reuse the
    /// files in this folder. Returns the path of the folder.
    pub(crate) fn build_folder(&self) -> Result<PathBuf, ProjectError> {
        let path = self.directory.join("build");
        std::fs::create_dir_all(&path).map_err(|source| ProjectError::File {
            action: "cannot create",
            path: path.clone(),
            source,
        })?;
        Ok(path)
    }
}

/// Reads the project in `directory`, or, if `directory` is not a project, all projects directly below it.
pub fn projects_at(directory: &Path) -> Result<Vec<Project>, ProjectError> {
    let projects = if is_project(directory) { vec![Project::read(directory)?] } else { projects_in(directory)? };
    if projects.is_empty() { Err(no_project(directory)) } else { Ok(projects) }
}

/// Reads the projects directly below `directory`, sorted by folder name. Ignores files, and folders
/// that are not projects.
pub fn projects_in(directory: &Path) -> Result<Vec<Project>, ProjectError> {
    let failed = |source: std::io::Error| {
        let path = directory.to_owned();
        match source.kind() {
            std::io::ErrorKind::NotFound => ProjectError::NoFolder { path },
            std::io::ErrorKind::NotADirectory => ProjectError::NotAFolder { path },
            _ => ProjectError::File { action: "cannot read", path, source },
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

/// Whether the folder contains a manifest, and a source or a `[build]` table.
pub fn is_project(directory: &Path) -> bool {
    let manifest = directory.join("plugin.toml");
    manifest.is_file() && (!languages(directory).is_empty() || has_build_table(&manifest))
}

fn has_build_table(manifest: &Path) -> bool {
    let text = std::fs::read_to_string(manifest).unwrap_or_default();
    text.lines().any(|line| line.trim() == "[build]")
}

/// Returns the languages of the sources that the folder contains. A folder with a `Cargo.toml` is a Rust project even
/// if it also contains sources in other languages.
fn languages(directory: &Path) -> Vec<Language> {
    if directory.join("Cargo.toml").is_file() {
        return vec![Language::Rust];
    }
    let has_c = || {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).any(|path| is_c_source(&path))
    };
    let found = [
        (Language::Python, directory.join(PYTHON_SOURCE).is_file()),
        (
            Language::JavaScript,
            [JAVASCRIPT_SOURCE, TYPESCRIPT_SOURCE].iter().any(|name| directory.join(name).is_file()),
        ),
        (Language::C, has_c()),
    ];
    found.into_iter().filter_map(|(language, is_present)| is_present.then_some(language)).collect()
}

/// Whether the path is a C file that is not a test.
pub(crate) fn is_c_source(path: &Path) -> bool {
    let is_test = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("test"));
    path.extension().is_some_and(|extension| extension == "c") && !is_test && path.is_file()
}

/// Returns the error for a folder that is not a plugin project.
fn no_project(directory: &Path) -> ProjectError {
    let path = directory.to_owned();
    match (directory.join("plugin.toml").is_file(), languages(directory).is_empty()) {
        (true, true) => ProjectError::NothingToBuild { path },
        (false, false) => ProjectError::NoManifest { path },
        _ => ProjectError::NoProject { path },
    }
}

/// Checks that no two projects have the same name, because the component file of a project is named after its plugin.
pub(crate) fn check_names(projects: &[Project]) -> Result<(), ProjectError> {
    let mut seen: BTreeMap<&str, &Project> = BTreeMap::new();
    for project in projects {
        if let Some(first) = seen.insert(project.name(), project) {
            return Err(ProjectError::SameName {
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
    fn errors_name_the_missing_file() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let problem = || Project::read(folder.path()).expect_err("not a project").to_string();
        assert!(problem().contains("is not a plugin project and contains no plugin project"), "{}", problem());
        let absent = projects_in(&folder.path().join("nope")).expect_err("no folder").to_string();
        assert!(absent.contains("there is no folder") && absent.contains("plugin new NAME"), "{absent}");
        std::fs::write(folder.path().join("app.py"), "").expect("written");
        assert!(problem().contains("has no `plugin.toml`"), "{}", problem());
        let file = projects_in(&folder.path().join("app.py")).expect_err("a file").to_string();
        assert!(file.contains("is not a folder") && file.contains("`plugin.toml` and a source"), "{file}");
        std::fs::rename(folder.path().join("app.py"), folder.path().join("plugin.toml")).expect("renamed");
        assert!(problem().contains("no source to build"), "{}", problem());
    }

    /// S2: the language is detected from the files of the project, unless plugin.toml sets it.
    #[test]
    fn language_is_detected() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let add = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
        let language = || Project::read(folder.path()).map(|project| project.language());
        add("plugin.toml", "name = \"x\"\n");
        add("test_app.c", "");
        assert!(matches!(language(), Err(ProjectError::NothingToBuild { .. })), "a test is not a source");
        add("app.c", "");
        assert_eq!(language().expect("C"), Language::C);
        add("app.js", "");
        let several = language().expect_err("two languages").to_string();
        assert!(several.contains("JavaScript and C") && several.contains("[build]"), "{several}");
        add("plugin.toml", "name = \"x\"\n[build]\nlanguage = \"js\"\n");
        assert_eq!(language().expect("set in plugin.toml"), Language::JavaScript);
        add("Cargo.toml", "");
        add("plugin.toml", "name = \"x\"\n");
        assert_eq!(language().expect("a crate"), Language::Rust);
        add("plugin.toml", "name = \"x\"\n\n[build]\nlanguage = \"java\"\n");
        let unknown = language().expect_err("unknown language").to_string();
        assert!(unknown.contains("plugin.toml:4: ") && unknown.contains("python"), "{unknown}");
        add("plugin.toml", "name = \"x\"\n[build]\nwrold = \"x\"\n");
        let unknown = language().expect_err("unknown key").to_string();
        assert!(unknown.contains("plugin.toml:3: ") && unknown.contains("`wrold`"), "{unknown}");
    }
}
