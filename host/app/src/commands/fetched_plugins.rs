//! Fetches plugins for processes that keep running (`--fetch-plugins`): what the lock files of plugin folders name, and the
//! versions with which turns began on other machines (F1).

use super::plugin::{component_cache, registry};
use crate::arguments::sharing::ConnectionArguments;
use crate::exit::Failure;
use crate::terminal::{Terminal, YELLOW, text};
use agent_config::assembly::DelegateReader;
use agent_config::{ConfigError, DataDirectory, HostEnvironment, Settings};
use agent_plugins::{ComponentSource, PluginIdentity};
use agent_registry::{LockFile, LockedComponents, LockedPlugin, PluginFolder, RecordedEntries};
use agent_store::Store;
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Time between two checks whether a lock file has changed.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Time after which plugins that could not be fetched are tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// Fetches the plugins of all plugin folders of a process.
#[derive(Clone)]
pub(super) struct FetchedPlugins {
    components: Arc<LockedComponents>,
    /// What was done for each folder.
    folders: Arc<Mutex<BTreeMap<PathBuf, FolderStatus>>>,
    environment: HostEnvironment,
    terminal: Terminal,
}

/// What was done for a folder.
#[derive(Clone, Debug, Default)]
struct FolderStatus {
    /// Contents of the lock file whose plugins are in the folder.
    lock: Option<Vec<u8>>,
    /// What failed after that.
    failure: Option<FetchFailure>,
}

/// The plugins of a lock file that could not be fetched.
#[derive(Clone, Debug)]
struct FetchFailure {
    reason: String,
    /// Contents of the lock file.
    lock: Option<Vec<u8>>,
    /// Time at which the plugins are tried again. If the lock file changes, they are tried at once.
    next: Instant,
}

impl FetchedPlugins {
    pub(super) fn new(
        connection: &ConnectionArguments,
        (data, environment): (&DataDirectory, &HostEnvironment),
        store: Arc<dyn Store>,
        terminal: &Terminal,
    ) -> Result<Self, Failure> {
        let registry = registry(connection, terminal)?;
        let components = LockedComponents::new(registry, component_cache(data), Box::new(RecordedInStore(store)));
        Ok(Self {
            components: Arc::new(components),
            folders: Arc::default(),
            environment: environment.clone(),
            terminal: terminal.clone(),
        })
    }

    /// Returns the source of the versions that this machine does not have.
    pub(super) fn source(&self) -> Arc<dyn ComponentSource> {
        self.components.clone()
    }

    /// Fetches the plugins of one folder that are missing, and uses the folder's lock file from now on.
    pub(super) async fn prepare(&self, folder: &Path) -> Result<(), ConfigError> {
        self.components.add_folder(folder);
        let lock = read_lock(folder);
        let failed = |reason: String| ConfigError::Fetch { folder: folder.to_owned(), reason };
        self.restore(&PluginFolder::new(folder)).await.map_err(failed)?;
        self.set_status(folder, FolderStatus { lock, failure: None });
        Ok(())
    }

    /// Fetches the plugins of changed lock files until the process stops.
    pub(super) async fn follow_lock_files(self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
            for folder in self.components.folders() {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = self.follow(&folder) => {}
                }
            }
        }
    }

    async fn follow(&self, folder: &PluginFolder) {
        let lock = read_lock(folder.path());
        let before = self.status(folder.path());
        let may_try = |failure: &FetchFailure| failure.next <= Instant::now() || failure.lock != lock;
        if lock == before.lock || !before.failure.as_ref().is_none_or(may_try) {
            return;
        }
        let status = match self.restore(folder).await {
            Ok(()) => FolderStatus { lock, failure: None },
            Err(reason) => {
                if before.failure.is_none_or(|known| known.reason != reason) {
                    let problem = format!("the plugins of `{}` cannot be fetched: {reason}", folder.path().display());
                    let seconds = RETRY_INTERVAL.as_secs();
                    self.terminal.note(format!(
                        "{YELLOW}!{YELLOW:#} {}; the plugins stay as they are, and are tried again every {seconds} s",
                        text::harmless(&problem)
                    ));
                }
                let next = Instant::now() + RETRY_INTERVAL;
                FolderStatus { lock: before.lock, failure: Some(FetchFailure { reason, lock, next }) }
            }
        };
        self.set_status(folder.path(), status);
    }

    async fn restore(&self, folder: &PluginFolder) -> Result<(), String> {
        let restored = self.components.restore(folder).await.map_err(|error| error.to_string())?;
        for LockedPlugin { name, version, component, reference, .. } in restored {
            let line = format!("fetched {name} {version} ({}) from {reference}", component.short());
            self.terminal.note(text::one_line(&line, 1000));
        }
        Ok(())
    }

    fn status(&self, folder: &Path) -> FolderStatus {
        let folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        folders.get(folder).cloned().unwrap_or_default()
    }

    fn set_status(&self, folder: &Path, status: FolderStatus) {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner).insert(folder.to_owned(), status);
    }
}

/// Reads the settings of delegates, and fetches the plugins of their folders.
#[async_trait]
impl DelegateReader for FetchedPlugins {
    fn settings(&self, path: &Path) -> Result<Settings, ConfigError> {
        self.environment.settings(path)
    }

    async fn prepare_plugins(&self, folder: &Path) -> Result<(), ConfigError> {
        self.prepare(folder).await
    }
}

/// The entries that other processes have recorded in the database.
struct RecordedInStore(Arc<dyn Store>);

#[async_trait]
impl RecordedEntries for RecordedInStore {
    async fn find(&self, plugin: &PluginIdentity) -> Result<Option<String>, String> {
        self.0.plugin_source(&plugin.name, &plugin.digest).await.map_err(|error| error.to_string())
    }
}

/// Returns the contents of a folder's lock file. `None` if it cannot be read, so that it counts as empty until it can.
fn read_lock(folder: &Path) -> Option<Vec<u8>> {
    std::fs::read(LockFile::path(folder)).ok()
}
