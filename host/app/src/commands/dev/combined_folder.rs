//! The plugin folder of a `dev` session whose agent has a plugin folder of its own: copies of the agent's plugins, and the plugins
//! that `dev` builds in place of those with the same names. The agent's own folder does not change.

use crate::exit::Failure;
use agent_config::DataDirectory;
use agent_devkit::build::BuiltPlugin;
use agent_plugins::{HostLimits, digest_of, read_claims, read_component, read_regular_file, write_file_atomically};
use agent_registry::{LOCK_FILE, LockFile};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// Folder in the development cache that contains the combined folders.
const COMBINED: &str = "combined";
/// The ends of the names of the files that belong to a plugin.
const ENDS: [&str; 3] = [".wasm", ".plugin.toml", ".wasm.minisig"];

/// A folder with the plugins of an agent and the plugins under development.
pub(super) struct CombinedFolder {
    /// The agent's own plugin folder.
    pub(super) agent: PathBuf,
    /// The combined folder, which is in the data folder.
    pub(super) path: PathBuf,
}

impl CombinedFolder {
    /// Creates an empty folder for this agent's plugins and these sources. A later session uses the same folder, so that the
    /// plugins have one history.
    pub(super) fn create(agent: PathBuf, sources: &Path, data: &DataDirectory) -> Result<Self, Failure> {
        let absolute = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let named = format!("{}\n{}", absolute(&agent).display(), absolute(sources).display());
        let digest = digest_of(named.as_bytes());
        let path = data.development_builds().join(COMBINED).join(digest.short());
        let created = std::fs::create_dir_all(&path).and_then(|()| remove_except(&path, &BTreeSet::new()));
        created.map_err(|error| failed(&path, &error))?;
        Ok(Self { agent, path })
    }

    /// Copies the agent's plugins, without those that were built, and removes what no longer belongs to the folder. Returns the
    /// names of the agent's plugins that are replaced.
    pub(super) fn refresh(&self, built: &[BuiltPlugin]) -> Result<Vec<String>, Failure> {
        let is_built = |name: &str| built.iter().any(|plugin| plugin.name == name);
        let failed = |error: &io::Error| failed(&self.agent, error);
        let mut kept: BTreeSet<OsString> =
            built.iter().filter_map(|plugin| Some(plugin.path.file_name()?.to_owned())).collect();
        let mut replaced = Vec::new();
        for stem in component_stems(&self.agent).map_err(|error| failed(&error))? {
            let component = self.agent.join(format!("{stem}.wasm"));
            let bytes = read_component(&component, HostLimits::default().component).ok();
            let name = bytes.and_then(|bytes| read_claims(&stem, &bytes).ok()).map(|claims| claims.identity.name);
            if is_built(&stem) || name.as_deref().is_some_and(is_built) {
                replaced.push(name.unwrap_or(stem));
                continue;
            }
            for end in ENDS {
                let file = format!("{stem}{end}");
                if self.agent.join(&file).exists() {
                    copy(&self.agent.join(&file), &self.path.join(&file)).map_err(|error| failed(&error))?;
                    kept.insert(file.into());
                }
            }
        }
        self.write_lock_file(&is_built)?;
        kept.insert(LOCK_FILE.into());
        remove_except(&self.path, &kept).map_err(|error| failed(&error))?;
        Ok(replaced)
    }

    /// Writes the entries of the agent's plugins into the lock file. Without an entry, a plugin that was built counts as
    /// built here, and the rules for signatures in `[sharing]` apply to it.
    fn write_lock_file(&self, is_built: &dyn Fn(&str) -> bool) -> Result<(), Failure> {
        let mut lock = LockFile::read(&self.agent).map_err(Failure::refused)?;
        let names: Vec<String> = lock.plugins().iter().map(|plugin| plugin.name.clone()).collect();
        for name in names.iter().filter(|name| is_built(name)) {
            lock.take(name);
        }
        let path = LockFile::path(&self.path);
        let written = match lock.plugins().is_empty() {
            true => std::fs::remove_file(&path).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            }),
            false => write_file_atomically(&path, lock.to_text(&self.path).as_bytes()),
        };
        written.map_err(|error| failed(&path, &error))
    }
}

/// Returns the names of the components in a folder, without `.wasm`.
fn component_stems(folder: &Path) -> io::Result<Vec<String>> {
    let mut stems = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        stems.extend(name.to_str().and_then(|name| name.strip_suffix(".wasm")).map(str::to_owned));
    }
    stems.sort();
    Ok(stems)
}

/// Copies a regular file that is not larger than a component may be (row 47) if its contents differ, because a running session loads a file that was written.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let limit = HostLimits::default().component;
    let bytes = read_regular_file(from, limit)?;
    match read_regular_file(to, limit).is_ok_and(|present| present == bytes) {
        true => Ok(()),
        false => write_file_atomically(to, &bytes),
    }
}

/// Removes the files of plugins whose names are not in the set.
fn remove_except(folder: &Path, kept: &BTreeSet<OsString>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_of_plugin = name == LOCK_FILE || ENDS.iter().any(|end| name.to_string_lossy().ends_with(end));
        if is_of_plugin && !kept.contains(&name) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::refused(format!("the plugins of `{}` cannot be copied for this session: {error}", path.display()))
}
