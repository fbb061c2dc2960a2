//! The folder into which plugins are installed. The commands `plugin remove` and `plugin verify` work on this folder
//! without the network.

use super::super::plugin_names::PLUGIN_FOLDER;
use super::super::{print, user_wide};
use super::failed;
use crate::arguments::sharing::{FolderArguments, RemoveArguments};
use crate::commands::starting_agent;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::terminal::{BOLD, DIM, GREEN, RED, Terminal, YELLOW, text};
use agent_config::settings::{AGENT_FILE, agent_lookup};
use agent_config::user_file::check_owner;
use agent_config::{AgentFile, DataLocation};
use agent_plugins::HostLimits;
use agent_plugins::limits::HOST_LIMITS;
use agent_registry::{LOCK_FILE, LockedPlugin, PluginFolder, PluginState, RemoveMode, Signer, Trust};
use std::path::{Path, PathBuf};

/// What a command does with a plugin folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FolderUse {
    /// The command only reads the plugins.
    Reads,
    /// The command adds, replaces or removes plugins.
    Changes,
}

/// A plugin folder, with the trusted keys and the host limits from the agent's file.
pub(super) struct FolderWithTrust {
    pub(super) folder: PluginFolder,
    pub(super) trust: Trust,
    pub(super) limits: HostLimits,
}

impl FolderWithTrust {
    /// Opens the folder that the arguments name, or the plugin folder of the agent that they name. If they name neither,
    /// opens the folder `plugins` below the current folder, or else the folder of the user-wide configuration. The folder must
    /// exist.
    pub(super) fn read(arguments: &FolderArguments, access: FolderUse, terminal: &Terminal) -> Result<Self, Failure> {
        let target = Self::read_or_new(arguments, access, terminal)?;
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
    pub(super) fn read_or_new(
        arguments: &FolderArguments,
        access: FolderUse,
        terminal: &Terminal,
    ) -> Result<Self, Failure> {
        let path =
            arguments.agent.as_deref().map(|agent| agent_lookup::find_agent(agent, Path::new("."))).transpose()?;
        let (file, folder) = match (&path, &arguments.plugins) {
            (Some(path), folder) => (AgentFile::read(path).map_err(Failure::refused)?, folder.clone()),
            (None, Some(folder)) => (AgentFile::default(), Some(folder.clone())),
            (None, None) => unnamed(access, terminal)?,
        };
        let folder: PathBuf = folder.or(file.plugin_directory).ok_or_else(|| {
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

/// Returns the agent's file and the folder that are used if the arguments name neither, and shows the folder. An `agent.toml` in
/// the current folder is not used without being named, because it decides which keys are trusted, and may come from somebody
/// else.
fn unnamed(access: FolderUse, terminal: &Terminal) -> Result<(AgentFile, Option<PathBuf>), Failure> {
    let environment = environment::host();
    if let Some(file) = starting_agent::file_of_folder(&environment) {
        let file = file.display();
        return Err(Failure::refused(format!(
            "name the plugin folder with --plugins DIR, or use the plugin folder and the trusted keys of the agent in this \
             folder with --agent {file}"
        )));
    }
    if Path::new(PLUGIN_FOLDER).is_dir() {
        user_wide::announce_local_folder(terminal);
        return Ok((AgentFile::default(), Some(PLUGIN_FOLDER.into())));
    }
    if let (FolderUse::Changes, Some(file)) = (access, agent_file_above()) {
        return Err(Failure::refused(format!(
            "the current folder is in the project of `{}`: change to its folder, or name the plugin folder with --plugins DIR",
            file.display()
        )));
    }
    let Some(path) = starting_agent::user_file(&environment) else { return Ok((AgentFile::default(), None)) };
    check_owner(&path)?;
    let file = AgentFile::read(&path).map_err(Failure::refused)?;
    let shown = path.display();
    let Some(folder) = &file.plugin_directory else {
        return Err(Failure::refused(format!(
            "the user-wide configuration `{shown}` names no `plugin_directory`: choose plugins with `agent-host setup`, or \
             name the plugin folder with --plugins DIR"
        )));
    };
    let canonical = |folder: &Path| folder.canonicalize().ok();
    let installed = environment.installed_plugins().and_then(|folder| canonical(&folder));
    if access == FolderUse::Changes && installed.is_some() && canonical(folder) == installed {
        return Err(Failure::refused(format!(
            "the plugin folder `{}` of the user-wide configuration belongs to the installation, which changes it: copy the \
             standard plugins that you use into a folder of your own with `agent-host setup --standard NAMES`, or name a \
             folder with --plugins DIR",
            folder.display()
        )));
    }
    let used = format!("using the plugin folder `{}` of the user-wide configuration `{shown}`", folder.display());
    terminal.note(format!("{DIM}{}{DIM:#}", text::harmless(&used)));
    Ok((file, None))
}

/// Returns the `agent.toml` of the project that contains the current folder, if there is one.
fn agent_file_above() -> Option<PathBuf> {
    let current = std::env::current_dir().ok()?;
    let files = current.ancestors().skip(1).map(|folder| folder.join(AGENT_FILE));
    files.into_iter().find(|file| file.is_file())
}

/// Removes a plugin from the lock file, and its component from the folder.
pub(in super::super) async fn remove(
    arguments: RemoveArguments,
    _: DataLocation<'_>,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let target = FolderWithTrust::read(&arguments.folder, FolderUse::Changes, terminal)?;
    let mode = if arguments.keep_file { RemoveMode::EntryOnly } else { RemoveMode::EntryAndFile };
    let removed = target.folder.remove(&arguments.name, mode).map_err(|error| Failure::refused(error.to_string()))?;
    let what = if arguments.keep_file { "removed from plugins.lock; its file was kept" } else { "removed" };
    print(terminal, format!("{} {what}", summary(&removed)))
}

/// Checks every plugin in the lock file, without using the network.
pub(in super::super) async fn verify(arguments: FolderArguments, terminal: &Terminal) -> Result<Exit, Failure> {
    let FolderWithTrust { folder, trust, .. } = FolderWithTrust::read(&arguments, FolderUse::Reads, terminal)?;
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
                    "{path} differs: its digest is {}, and {LOCK_FILE} has {}; `agent-host plugin add --replace` restores it",
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
