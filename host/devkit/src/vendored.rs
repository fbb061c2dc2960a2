//! What a project has from agent-host itself: the SDK, or the contract as WIT. A list beside it says what was written, so that a
//! newer agent-host can renew it without touching what the author has made or changed.

use crate::build::Project;
use crate::language::Language;
use crate::new::{carried_sdk, carried_wit};
use agent_plugins::{digest_of, place_file};
use semver::Version;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The list's name, in the folder of what it lists.
pub(crate) const LIST: &str = "agent-host.sha256";
/// Where in a project in Rust the SDK lies.
pub(crate) const SDK_FOLDER: &str = "agent-host";
/// Files that a message names.
const NAMED: usize = 5;

/// What became of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// There is nothing of agent-host in it.
    NothingHere,
    /// It has what this agent-host carries.
    UpToDate,
    /// It has it now.
    Renewed {
        /// The version of the agent-host whose files they were.
        from: String,
        /// Files that are new or otherwise, or gone.
        changed: usize,
    },
}

/// What a project has of another agent-host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherVersion {
    /// The plugin's name.
    pub plugin: String,
    /// The project's folder.
    pub project: PathBuf,
    /// What it has: `the SDK` or `the contract`.
    pub what: &'static str,
    /// Of which agent-host.
    pub version: String,
    /// Whether that is newer than this one.
    pub age: Age,
}

/// How two versions stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// It can be renewed.
    Older,
    /// This agent-host can't give what it has.
    Newer,
}

/// Why nothing was renewed; nothing was written either.
#[derive(Debug, thiserror::Error)]
pub enum RenewError {
    /// The author has changed it.
    #[error("in `{}` this was changed, added or removed since agent-host wrote it: {}; nothing is overwritten. Put back what was there \
             (git can), keep changes of your own elsewhere, and run it again", folder.display(), listed(files))]
    Changed {
        /// The folder of what agent-host wrote.
        folder: PathBuf,
        /// Paths in it.
        files: Vec<String>,
    },
    /// It is not known what was written.
    #[error("`{}` has no {LIST}, so that nobody knows whether it was changed; nothing is overwritten. Move it away, and run it again", folder.display())]
    Unlisted {
        /// The folder of what agent-host wrote.
        folder: PathBuf,
    },
    /// It is of a newer agent-host.
    #[error("`{}` is of agent-host {version}, and this is {}: update agent-host", folder.display(), env!("CARGO_PKG_VERSION"))]
    Newer {
        /// The folder of what agent-host wrote.
        folder: PathBuf,
        /// Of which.
        version: String,
    },
    /// What this agent-host carries cannot be used.
    #[error("what this agent-host carries cannot be written: {reason}")]
    Carried {
        /// Why not.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("cannot {action} `{}`: {source}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

fn listed(files: &[String]) -> String {
    let named: Vec<_> = files.iter().take(NAMED).map(|file| format!("`{file}`")).collect();
    let more = files.len().saturating_sub(NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{more}", named.join(", "))
}

/// Files by their path in the folder.
type Files = BTreeMap<String, String>;

/// A project's folder of such files.
struct Vendored {
    folder: PathBuf,
    what: &'static str,
    carried: Files,
}

/// Has the project build on what this agent-host carries.
pub fn renew(project: &Project) -> Result<Renewal, RenewError> {
    let Some(Vendored { folder, carried, .. }) = Vendored::of(project)? else {
        return Ok(Renewal::NothingHere);
    };
    let present = present(&folder, project.language())?;
    let list = std::fs::read_to_string(folder.join(LIST)).ok().map(|text| List::parse(&text));
    let wanted = List::of(&carried);
    let Some(list) = list.or_else(|| present.is_empty().then(List::default)) else {
        return Err(RenewError::Unlisted { folder });
    };
    if age(&list.version) == Age::Newer {
        return Err(RenewError::Newer { folder, version: list.version });
    }
    // What a renewal that was broken off has written already is fine, too.
    let is_ours = |path: &String, digest: Option<&String>| {
        digest == list.files.get(path) || digest == wanted.files.get(path) || (digest.is_none() && present.is_empty())
    };
    let paths = list.files.keys().chain(present.keys());
    let mut foreign: Vec<String> = paths.filter(|path| !is_ours(path, present.get(*path))).cloned().collect();
    foreign.sort();
    foreign.dedup();
    if !foreign.is_empty() {
        return Err(RenewError::Changed { folder, files: foreign });
    }
    let changed: Vec<_> = carried.iter().filter(|(path, _)| present.get(*path) != wanted.files.get(*path)).collect();
    let gone: Vec<_> = present.keys().filter(|path| !carried.contains_key(*path)).collect();
    let number = changed.len() + gone.len();
    if number == 0 && list.text() == wanted.text() {
        return Ok(Renewal::UpToDate);
    }
    for (path, text) in changed {
        write(&folder.join(path), text)?;
    }
    for path in gone.into_iter().map(|path| folder.join(path)) {
        std::fs::remove_file(&path).map_err(|source| RenewError::File { action: "remove", path, source })?;
    }
    write(&folder.join(LIST), &wanted.text())?;
    Ok(Renewal::Renewed { from: list.version, changed: number })
}

/// What the project has of another agent-host than this one. What cannot be read is none of a build's business.
pub(crate) fn other_version(project: &Project) -> Option<OtherVersion> {
    let Vendored { folder, what, carried } = Vendored::of(project).ok()??;
    let list = std::fs::read_to_string(folder.join(LIST)).ok()?;
    if list == List::of(&carried).text() {
        return None;
    }
    let version = List::parse(&list).version;
    let age = age(&version);
    let (plugin, project) = (project.name().to_owned(), project.directory().to_owned());
    Some(OtherVersion { plugin, project, what, version, age })
}

/// The list of new files.
pub(crate) fn list(files: impl Iterator<Item = (String, String)>) -> String {
    List::of(&files.collect()).text()
}

fn age(version: &str) -> Age {
    let number = |text: &str| Version::parse(text).unwrap_or(Version::new(0, 0, 0));
    if number(version) > number(env!("CARGO_PKG_VERSION")) { Age::Newer } else { Age::Older }
}

impl Vendored {
    /// None: it builds on what lies elsewhere, or on what each build brings.
    fn of(project: &Project) -> Result<Option<Self>, RenewError> {
        if project.language() == Language::Rust {
            if !names_own_sdk(project) {
                return Ok(None);
            }
            let carried = carried_sdk().map_err(|error| RenewError::Carried { reason: error.to_string() })?;
            let folder = project.directory().join(SDK_FOLDER);
            return Ok(Some(Self { folder, what: "the SDK", carried: carried.into_iter().collect() }));
        }
        let folder = project.directory().join(project.build().wit.as_deref().unwrap_or("wit")).join("deps");
        let carried: Files = carried_wit().into_iter().collect();
        Ok(folder.is_dir().then_some(Self { folder, what: "the contract", carried }))
    }
}

/// Whether it is built on the SDK in its own folder.
fn names_own_sdk(project: &Project) -> bool {
    let text = std::fs::read_to_string(project.directory().join("Cargo.toml")).unwrap_or_default();
    let manifest: toml::Table = text.parse().unwrap_or_default();
    let sdk = manifest.get("dependencies").and_then(|dependencies| dependencies.get("agent-host-sdk"));
    let path = sdk.and_then(|sdk| sdk.get("path")).and_then(toml::Value::as_str);
    path.is_some_and(|path| Path::new(path) == Path::new(SDK_FOLDER).join("sdk"))
}

/// Digests of what lies in the folder. Of the dependencies of WIT only packages of agent-host's: others are the author's.
fn present(folder: &Path, language: Language) -> Result<BTreeMap<String, String>, RenewError> {
    let package = |path: &str| path.split('/').next().unwrap_or_default().to_owned();
    let packages: BTreeSet<String> = carried_wit().iter().map(|(path, _)| package(path)).collect();
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
            if language != Language::Rust && !packages.contains(&package(&name)) {
                continue;
            }
            if path.is_dir() {
                // What cargo and rust-analyzer may leave there.
                if !matches!(name.as_str(), "target" | "sdk/target") {
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
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    let written = made.and_then(|()| place_file(path, text.as_bytes()));
    written.map_err(|source| RenewError::File { action: "write", path: path.to_owned(), source })
}

/// What was written, by whom: lines that `sha256sum -c` reads.
#[derive(Debug, Default, PartialEq, Eq)]
struct List {
    version: String,
    /// Digests by path.
    files: BTreeMap<String, String>,
}

/// Before the version.
const BEGINNING: &str = "# Written by agent-host ";

impl List {
    fn of(files: &Files) -> Self {
        let digest = |text: &String| digest_of(text.as_bytes()).hex().to_owned();
        let files = files.iter().map(|(path, text)| (path.clone(), digest(text))).collect();
        Self { version: env!("CARGO_PKG_VERSION").to_owned(), files }
    }

    fn parse(text: &str) -> Self {
        let mut list = Self::default();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix(BEGINNING) {
                list.version = rest.split([';', ' ']).next().unwrap_or_default().to_owned();
            } else if let Some((digest, path)) = line.split_once("  ").filter(|_| !line.starts_with('#')) {
                list.files.insert(path.to_owned(), digest.to_owned());
            }
        }
        list
    }

    fn text(&self) -> String {
        let lines = self.files.iter().map(|(path, digest)| format!("{digest}  {path}\n"));
        let heading =
            format!("{BEGINNING}{}; `agent-host plugin renew` replaces it with a newer one's.\n", self.version);
        std::iter::once(heading).chain(lines).collect()
    }
}
