//! Updates the files that agent-host wrote into a project: the SDK, or the contract as WIT. A list next to the files
//! contains the digests of the files, so that a newer agent-host can replace the files without overwriting files that
//! the author created or changed.

use crate::embedded::{ProjectFile, javascript_sdk_files, python_sdk_files, sdk_files, wit_files};
use crate::file_list::{FileList, Files, LIST, PYTHON_SDK_FOLDER, SDK_FOLDER};
use crate::language::Language;
use crate::project::Project;
use agent_plugins::{digest_of, write_file_atomically};
use semver::Version;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Maximum number of files that an error message names.
const MAX_NAMED: usize = 5;

/// The result of [`renew`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// The project contains no files that agent-host wrote.
    NothingToRenew,
    /// The files in the project are already the files of this version of agent-host.
    UpToDate,
    /// The files in the project were replaced by the files of this version of agent-host.
    Renewed {
        /// Version of the agent-host that wrote the previous files. Empty if the version is unknown.
        from: String,
        /// Number of files that the renewal added, changed or removed.
        changed: usize,
    },
}

/// A project with files that another version of agent-host wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionMismatch {
    /// Name of the plugin.
    pub plugin: String,
    /// Folder of the project.
    pub project: PathBuf,
    /// Description of the files for messages: `the SDK` or `the contract`.
    pub description: &'static str,
    /// Version of the agent-host that wrote the files. Empty if the version is unknown.
    pub version: String,
    /// Whether the version of the files is older or newer than the version of this agent-host.
    pub age: Age,
}

/// Whether the files in a project are older or newer than this version of agent-host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// The files are older or of the same version, and can be renewed.
    Older,
    /// The files are newer, so this agent-host cannot renew them.
    Newer,
}

/// The reason why the files in a project were not renewed.
#[derive(Debug, thiserror::Error)]
pub enum RenewError {
    /// The author of the project changed, added or removed files in the folder of the SDK or the contract.
    #[error("in `{}`, these files were changed, added or removed since agent-host wrote them: {}; nothing was overwritten. \
             Restore the original files (for example with git), keep your own changes elsewhere, and run the command again",
        folder.display(), list_of_files(files))]
    Changed {
        /// Path of the folder that contains the files that agent-host wrote.
        folder: PathBuf,
        /// Paths of the files that were changed, added or removed, relative to the folder.
        files: Vec<String>,
    },
    /// The list of the files that agent-host wrote is missing.
    #[error("`{}` has no {LIST}, so agent-host cannot tell whether files in the folder were changed; nothing was \
             overwritten. Move the folder away, and run the command again", folder.display())]
    Unlisted {
        /// Path of the folder that contains the files that agent-host wrote.
        folder: PathBuf,
    },
    /// A newer agent-host wrote the files.
    #[error("`{}` was written by agent-host {version}, which is newer than this agent-host ({}): update agent-host",
        folder.display(), env!("CARGO_PKG_VERSION"))]
    Newer {
        /// Path of the folder that contains the files that agent-host wrote.
        folder: PathBuf,
        /// Version of the agent-host that wrote the files.
        version: String,
    },
    /// The SDK files that are embedded in this binary cannot be used.
    #[error("the SDK that this agent-host contains cannot be written: {reason}")]
    Embedded {
        /// The reason why the files cannot be used.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("cannot {action} `{}`: {source}", path.display())]
    File {
        /// The failed action: `read`, `write` or `remove`.
        action: &'static str,
        /// Path of the file that could not be read, written or removed.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
}

fn list_of_files(files: &[String]) -> String {
    let named: Vec<_> = files.iter().take(MAX_NAMED).map(|file| format!("`{file}`")).collect();
    let more = files.len().saturating_sub(MAX_NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{more}", named.join(", "))
}

/// A folder in a project that contains files that agent-host wrote, and the current versions of these files.
struct VendoredFiles {
    folder: PathBuf,
    description: &'static str,
    embedded: Files,
    scope: Scope,
}

/// The files in a folder that agent-host manages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// All files, except for build output.
    All,
    /// The packages that agent-host wrote. The author may have added other packages.
    OwnPackages,
}

/// Replaces the files that agent-host wrote into the project with the files of this version of agent-host.
pub fn renew(project: &Project) -> Result<Renewal, RenewError> {
    let Some(VendoredFiles { folder, embedded, scope, .. }) = VendoredFiles::find(project)? else {
        return Ok(Renewal::NothingToRenew);
    };
    let present = digests_of_files(&folder, scope)?;
    let list = std::fs::read_to_string(folder.join(LIST)).ok().map(|text| FileList::parse(&text));
    let new_list = FileList::of(&embedded);
    let Some(list) = list.or_else(|| present.is_empty().then(FileList::default)) else {
        return Err(RenewError::Unlisted { folder });
    };
    if age(&list.version) == Age::Newer {
        return Err(RenewError::Newer { folder, version: list.version });
    }
    // A file that already has its new content was not changed by the author, but an interrupted renewal may have
    // written it.
    let is_ours = |path: &String, digest: Option<&String>| {
        digest == list.files.get(path) || digest == new_list.files.get(path) || (digest.is_none() && present.is_empty())
    };
    let paths = list.files.keys().chain(present.keys());
    let mut foreign: Vec<String> = paths.filter(|path| !is_ours(path, present.get(*path))).cloned().collect();
    foreign.sort();
    foreign.dedup();
    if !foreign.is_empty() {
        return Err(RenewError::Changed { folder, files: foreign });
    }
    let changed: Vec<_> = embedded.iter().filter(|(path, _)| present.get(*path) != new_list.files.get(*path)).collect();
    let removed: Vec<_> = present.keys().filter(|path| !embedded.contains_key(*path)).collect();
    let number = changed.len() + removed.len();
    if number == 0 && list.text() == new_list.text() {
        return Ok(Renewal::UpToDate);
    }
    for (path, text) in changed {
        write(&folder.join(path), text)?;
    }
    for path in removed.into_iter().map(|path| folder.join(path)) {
        std::fs::remove_file(&path).map_err(|source| RenewError::File { action: "remove", path, source })?;
    }
    write(&folder.join(LIST), &new_list.text())?;
    Ok(Renewal::Renewed { from: list.version, changed: number })
}

/// Returns a mismatch if another version of agent-host wrote the SDK or the contract in the project. Returns None if
/// these files cannot be read, because a mismatch does not prevent a build.
pub(crate) fn version_mismatch(project: &Project) -> Option<VersionMismatch> {
    let VendoredFiles { folder, description, embedded, .. } = VendoredFiles::find(project).ok()??;
    let list = std::fs::read_to_string(folder.join(LIST)).ok()?;
    if list == FileList::of(&embedded).text() {
        return None;
    }
    let version = FileList::parse(&list).version;
    let age = age(&version);
    let (plugin, project) = (project.name().to_owned(), project.directory().to_owned());
    Some(VersionMismatch { plugin, project, description, version, age })
}

fn age(version: &str) -> Age {
    let number = |text: &str| Version::parse(text).unwrap_or(Version::new(0, 0, 0));
    if number(version) > number(env!("CARGO_PKG_VERSION")) { Age::Newer } else { Age::Older }
}

impl VendoredFiles {
    /// Returns the folder in the project that contains the SDK or the contract. Returns None if the project contains
    /// neither the SDK nor the contract: such a project uses an SDK in another folder, or the contract that is
    /// embedded in this binary.
    fn find(project: &Project) -> Result<Option<Self>, RenewError> {
        if project.language() == Language::Rust {
            if !uses_own_sdk(project) {
                return Ok(None);
            }
            let embedded = sdk_files().map_err(|error| RenewError::Embedded { reason: error.to_string() })?;
            return Ok(Some(Self::sdk(project, SDK_FOLDER, embedded)));
        }
        // A project that uses the SDK of this binary gets a copy.
        match (project.sdk(), project.language()) {
            (Some(_), Language::Python) => {
                return Ok(Some(Self::sdk(project, PYTHON_SDK_FOLDER, python_sdk_files())));
            }
            (Some(_), _) => return Ok(Some(Self::sdk(project, SDK_FOLDER, javascript_sdk_files()))),
            (None, _) => {}
        }
        let folder = project.directory().join(project.build().wit.as_deref().unwrap_or("wit")).join("deps");
        let embedded: Files = wit_files().into_iter().collect();
        let scope = Scope::OwnPackages;
        Ok(folder.is_dir().then_some(Self { folder, description: "the contract", embedded, scope }))
    }

    fn sdk(project: &Project, folder: &str, embedded: Vec<ProjectFile>) -> Self {
        let folder = project.directory().join(folder);
        let embedded = embedded.into_iter().collect();
        Self { folder, description: "the SDK", embedded, scope: Scope::All }
    }
}

/// Whether the project depends on a copy of the SDK in its own folder.
fn uses_own_sdk(project: &Project) -> bool {
    let text = std::fs::read_to_string(project.directory().join("Cargo.toml")).unwrap_or_default();
    let manifest: toml::Table = text.parse().unwrap_or_default();
    let sdk = manifest.get("dependencies").and_then(|dependencies| dependencies.get("agent-host-sdk"));
    let path = sdk.and_then(|sdk| sdk.get("path")).and_then(toml::Value::as_str);
    path.is_some_and(|path| Path::new(path) == Path::new(SDK_FOLDER).join("sdk"))
}

/// Returns the digests of the files in the folder. The keys are the paths of the files, relative to the folder.
fn digests_of_files(folder: &Path, scope: Scope) -> Result<BTreeMap<String, String>, RenewError> {
    let package = |path: &str| path.split('/').next().unwrap_or_default().to_owned();
    let packages: BTreeSet<String> = wit_files().iter().map(|(path, _)| package(path)).collect();
    let (mut present, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        let failed = |source| RenewError::File { action: "read", path: next.clone(), source };
        let entries = match std::fs::read_dir(&next) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            let name = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().replace('\\', "/");
            if scope == Scope::OwnPackages && !packages.contains(&package(&name)) {
                continue;
            }
            if path.is_dir() {
                // Skip build output that cargo, rust-analyzer, Python or npm may have created in the SDK.
                let is_output = matches!(name.as_str(), "target" | "sdk/target" | "node_modules");
                if !is_output && !path.ends_with("__pycache__") {
                    folders.push(path);
                }
            } else if name != LIST && !name.ends_with("Cargo.lock") {
                let bytes = std::fs::read(&path).map_err(|source| RenewError::File { action: "read", path, source })?;
                present.insert(name, digest_of(&bytes).hex().to_owned());
            }
        }
    }
    Ok(present)
}

fn write(path: &Path, text: &str) -> Result<(), RenewError> {
    let created = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    let written = created.and_then(|()| write_file_atomically(path, text.as_bytes()));
    written.map_err(|source| RenewError::File { action: "write", path: path.to_owned(), source })
}
