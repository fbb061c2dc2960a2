//! The folder that plugins are taken into, and what can be said of it without any network: `plugin remove`, `plugin verify`.

use super::super::print;
use super::failed;
use crate::arguments::sharing::{FolderArguments, RemoveArguments};
use crate::configuration::AgentFile;
use crate::exit::{Exit, Failure};
use crate::settings::agents;
use crate::terminal::{BOLD, DIM, GREEN, RED, Terminal, YELLOW, text};
use agent_plugins::HostLimits;
use agent_plugins::limits::HOST_LIMITS;
use agent_registry::{Folder, LOCK_FILE, LockedPlugin, Removed, Signer, State, Trust};
use std::path::{Path, PathBuf};

/// A folder, whose signatures count for it, and what its agent's file says of the host's limits.
pub(super) struct Place {
    pub(super) folder: Folder,
    pub(super) trust: Trust,
    pub(super) limits: HostLimits,
}

impl Place {
    /// The folder that is named, else that of the agent.
    pub(super) fn read(asked: &FolderArguments) -> Result<Self, Failure> {
        let place = Self::read_or_new(asked)?;
        let path = place.folder.path();
        if path.is_dir() {
            return Ok(place);
        }
        Err(Failure::refused(format!(
            "there is no folder `{}`: `plugin add` makes it with its first plugin",
            path.display()
        )))
    }

    /// The same, where the folder may be made.
    pub(super) fn read_or_new(asked: &FolderArguments) -> Result<Self, Failure> {
        let path = asked.agent.as_deref().map(|asked| agents::find(asked, Path::new("."))).transpose()?;
        let file = match &path {
            Some(path) => AgentFile::read(path).map_err(Failure::refused)?,
            None => AgentFile::default(),
        };
        let folder = asked.plugins.clone().or(file.plugin_directory);
        let folder: PathBuf = folder.ok_or_else(|| {
            Failure::refused("name the folder with the plugins, --plugins DIR, or the agent that has one, --agent FILE")
        })?;
        if folder.exists() && !folder.is_dir() {
            return Err(Failure::refused(format!("`{}` is no folder", folder.display())));
        }
        let mut limits = HostLimits::default();
        file.host_limits.set(&HOST_LIMITS, &mut limits);
        Ok(Self { folder: Folder::new(&folder), trust: file.sharing, limits })
    }
}

/// Takes a plugin out of the lock, and its file out of the folder.
pub(in super::super) async fn remove(
    asked: RemoveArguments,
    _: Option<&Path>,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let place = Place::read(&asked.folder)?;
    let file = if asked.keep_file { Removed::EntryAlone } else { Removed::File };
    let removed = place.folder.remove(&asked.name, file).map_err(|error| Failure::refused(error.to_string()))?;
    let what = if asked.keep_file { "not locked any more; its file stays" } else { "removed" };
    print(terminal, format!("{} {what}", named(&removed)))
}

/// Checks every locked plugin by what is here alone.
pub(in super::super) async fn verify(asked: FolderArguments, terminal: &Terminal) -> Result<Exit, Failure> {
    let Place { folder, trust, .. } = Place::read(&asked)?;
    let lock = folder.lock_file().map_err(failed)?;
    let mut wrong = 0;
    for plugin in lock.plugins() {
        let path = folder.file(plugin);
        let path = path.display();
        let (mark, said) = match folder.state(plugin, &trust) {
            State::Right(Signer::Trusted { key, .. }) => (GREEN, format!("signed by {key}")),
            State::Right(Signer::Nobody { because }) if because.is_empty() => {
                (GREEN, "signatures are not looked at".to_owned())
            }
            State::Right(Signer::Nobody { because }) => (YELLOW, because),
            State::Missing => (RED, format!("{path} is not there; `agent-host plugin add` fetches it")),
            State::Differs(found) => (
                RED,
                format!(
                    "{path} is another one: it has {}, and {LOCK_FILE} says {}",
                    found.short(),
                    plugin.component.short()
                ),
            ),
            State::Untrusted(error) | State::Unreadable(error) => (RED, error.to_string()),
        };
        wrong += usize::from(mark == RED);
        let sign = if mark == GREEN {
            "✓"
        } else if mark == RED {
            "✗"
        } else {
            "!"
        };
        print(terminal, format!("{mark}{sign}{mark:#} {}  {}", named(plugin), text::one_line(&said, 1000)))?;
    }
    for name in unlocked(&folder) {
        let may_serve = folder.unlocked_may_serve(&folder.path().join(&name), &trust);
        let name = text::one_line(&name, 300);
        match may_serve {
            Ok(()) => print(terminal, format!("{DIM}- {name}  not locked: it was built or copied here{DIM:#}"))?,
            Err(reason) => {
                wrong += 1;
                print(terminal, format!("{RED}✗{RED:#} {name}  not locked: {}", text::one_line(&reason, 1000)))?;
            }
        }
    }
    if lock.plugins().is_empty() {
        terminal.note(format!("`{}` locks no plugin; `agent-host plugin add` does", folder.path().display()));
    }
    Ok(if wrong == 0 { Exit::Done } else { Exit::Failed })
}

/// Name, version and origin of a locked plugin.
pub(super) fn named(plugin: &LockedPlugin) -> String {
    let version = text::one_line(&plugin.version, 100);
    format!(
        "{BOLD}{}{BOLD:#} {version} {DIM}{} {}{DIM:#}",
        plugin.name,
        plugin.component.short(),
        text::one_line(&plugin.reference, 300)
    )
}

/// Components of the folder that nobody has locked, by the names of their files.
fn unlocked(folder: &Folder) -> Vec<String> {
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
