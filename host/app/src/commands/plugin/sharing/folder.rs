//! The folder into which plugins are installed. The commands `plugin remove` and `plugin verify` work on this folder
//! without the network.

use super::super::print;
use super::failed;
use crate::arguments::sharing::{FolderArguments, RemoveArguments};
use crate::exit::{Exit, Failure};
use crate::terminal::{BOLD, DIM, GREEN, RED, Terminal, YELLOW, text};
use agent_config::settings::agent_lookup;
use agent_config::{AgentFile, DataLocation};
use agent_plugins::HostLimits;
use agent_plugins::limits::HOST_LIMITS;
use agent_registry::{LOCK_FILE, LockedPlugin, PluginFolder, PluginState, RemoveMode, Signer, Trust};
use std::path::{Path, PathBuf};

/// A plugin folder, with the trusted keys and the host limits from the agent's file.
pub(super) struct FolderWithTrust {
    pub(super) folder: PluginFolder,
    pub(super) trust: Trust,
    pub(super) limits: HostLimits,
}

impl FolderWithTrust {
    /// Opens the folder that the arguments name. If the arguments do not name a folder, opens the plugin folder of
    /// the agent. The folder must exist.
    pub(super) fn read(arguments: &FolderArguments) -> Result<Self, Failure> {
        let target = Self::read_or_new(arguments)?;
        let path = target.folder.path();
        if path.is_dir() {
            return Ok(target);
        }
        Err(Failure::refused(format!(
            "there is no folder `{}`: `agent-host plugin add` creates it with its first plugin",
            path.display()
        )))
    }

    /// Opens the folder as [`FolderWithTrust::read`] does, but does not require that the folder exists.
    pub(super) fn read_or_new(arguments: &FolderArguments) -> Result<Self, Failure> {
        let path =
            arguments.agent.as_deref().map(|agent| agent_lookup::find_agent(agent, Path::new("."))).transpose()?;
        let file = match &path {
            Some(path) => AgentFile::read(path).map_err(Failure::refused)?,
            None => AgentFile::default(),
        };
        let folder = arguments.plugins.clone().or(file.plugin_directory);
        let folder: PathBuf = folder.ok_or_else(|| {
            Failure::refused(
                "name the plugin folder with --plugins DIR, or use --agent FILE to name an agent that has a plugin \
                 folder",
            )
        })?;
        if folder.exists() && !folder.is_dir() {
            return Err(Failure::refused(format!("`{}` is not a folder", folder.display())));
        }
        let mut limits = HostLimits::default();
        file.host_limits.set(&HOST_LIMITS, &mut limits);
        Ok(Self { folder: PluginFolder::new(&folder), trust: file.sharing, limits })
    }
}

/// Removes a plugin from the lock file, and its component from the folder.
pub(in super::super) async fn remove(
    arguments: RemoveArguments,
    _: DataLocation<'_>,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let target = FolderWithTrust::read(&arguments.folder)?;
    let mode = if arguments.keep_file { RemoveMode::EntryOnly } else { RemoveMode::EntryAndFile };
    let removed = target.folder.remove(&arguments.name, mode).map_err(|error| Failure::refused(error.to_string()))?;
    let what = if arguments.keep_file { "removed from plugins.lock; its file was kept" } else { "removed" };
    print(terminal, format!("{} {what}", summary(&removed)))
}

/// Checks every plugin in the lock file, without using the network.
pub(in super::super) async fn verify(arguments: FolderArguments, terminal: &Terminal) -> Result<Exit, Failure> {
    let FolderWithTrust { folder, trust, .. } = FolderWithTrust::read(&arguments)?;
    let lock = folder.lock_file().map_err(failed)?;
    let mut wrong = 0;
    for plugin in lock.plugins() {
        let path = folder.file(plugin);
        let path = path.display();
        let (mark, result) = match folder.state(plugin, &trust) {
            PluginState::Valid(Signer::Trusted { key, .. }) => (GREEN, format!("signed by {key}")),
            PluginState::Valid(Signer::Untrusted { reason }) if reason.is_empty() => {
                (GREEN, "signatures are not checked".to_owned())
            }
            PluginState::Valid(Signer::Untrusted { reason }) => (YELLOW, reason),
            PluginState::Missing => (RED, format!("{path} is missing; `agent-host plugin add` fetches it")),
            PluginState::Modified(found) => (
                RED,
                format!(
                    "{path} differs: its digest is {}, and {LOCK_FILE} has {}; `agent-host plugin add` restores it",
                    found.short(),
                    plugin.component.short()
                ),
            ),
            PluginState::Untrusted(error) | PluginState::Unreadable(error) => (RED, error.to_string()),
        };
        wrong += usize::from(mark == RED);
        let sign = if mark == GREEN {
            "✓"
        } else if mark == RED {
            "✗"
        } else {
            "!"
        };
        print(terminal, format!("{mark}{sign}{mark:#} {}  {}", summary(plugin), text::one_line(&result, 1000)))?;
    }
    for name in unlocked(&folder) {
        let allowed = folder.check_unlocked(&folder.path().join(&name), &trust);
        let name = text::one_line(&name, 300);
        match allowed {
            Ok(()) => {
                print(terminal, format!("{DIM}- {name}  not in plugins.lock: it was built or copied here{DIM:#}"))?
            }
            Err(reason) => {
                wrong += 1;
                let reason = text::one_line(&reason, 1000);
                print(terminal, format!("{RED}✗{RED:#} {name}  not in plugins.lock: {reason}"))?;
            }
        }
    }
    if lock.plugins().is_empty() {
        terminal.note(format!(
            "the plugins.lock of `{}` contains no plugins; `agent-host plugin add` adds one",
            folder.path().display()
        ));
    }
    Ok(if wrong == 0 { Exit::Done } else { Exit::Failed })
}

/// Formats the name, version, digest and origin of a plugin in the lock file.
pub(super) fn summary(plugin: &LockedPlugin) -> String {
    let version = text::one_line(&plugin.version, 100);
    format!(
        "{BOLD}{}{BOLD:#} {version} {DIM}{} {}{DIM:#}",
        plugin.name,
        plugin.component.short(),
        text::one_line(&plugin.reference, 300)
    )
}

/// Returns the file names of the components in the folder that have no entry in the lock file.
fn unlocked(folder: &PluginFolder) -> Vec<String> {
    let locked: Vec<_> = match folder.lock_file() {
        Ok(lock) => lock.plugins().iter().map(LockedPlugin::file_name).collect(),
        Err(_) => return Vec::new(),
    };
    let entries = std::fs::read_dir(folder.path()).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.filter(|name| name.ends_with(".wasm") && !locked.contains(name)).collect();
    names.sort_unstable();
    names
}
