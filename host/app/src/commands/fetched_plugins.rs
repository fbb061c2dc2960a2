//! Fetches plugins for processes that keep running (`--fetch-plugins`): what the lock files of plugin folders name, and the
//! versions with which turns began on other machines (F1).

use super::plugin::{component_cache, registry};
use crate::arguments::sharing::RegistryAccess;
use crate::exit::Failure;
use crate::terminal::{Terminal, YELLOW, text};
use agent_config::assembly::DelegateReader;
use agent_config::{ConfigError, DataDirectory, HostEnvironment, Settings};
use agent_core::message::Digest;
use agent_plugins::{ComponentSources, PluginIdentity};
use agent_registry::{LockedComponents, LockedPlugin, LockedSources, RegistryError, SharedRecords};
use agent_store::{AuditAction, Store};
use async_trait::async_trait;
use std::collections::BTreeSet;
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
pub(super) struct FetchedPlugins {
    sources: Arc<LockedSources>,
    environment: HostEnvironment,
    terminal: Terminal,
    /// Folders whose lock files are followed.
    followed: Mutex<BTreeSet<PathBuf>>,
    stop: CancellationToken,
}

/// Follows the lock file of one folder.
struct Follower {
    components: Arc<LockedComponents>,
    folder: PathBuf,
    terminal: Terminal,
    /// Digest of the lock file whose plugins are in the folder.
    lock: Option<Digest>,
    /// What failed after that.
    failure: Option<FetchFailure>,
}

/// The plugins of a lock file that could not be fetched.
struct FetchFailure {
    reason: String,
    /// Digest of the lock file.
    lock: Option<Digest>,
    /// Time at which the plugins are tried again. If the lock file changes, they are tried at once.
    next: Instant,
}

impl FetchedPlugins {
    /// `settings` are those of the first agent, whose limits apply. The tasks end when `stop` is cancelled.
    pub(super) fn new(
        access: &RegistryAccess,
        (data, settings): (&DataDirectory, &Settings),
        store: Arc<dyn Store>,
        (terminal, stop): (&Terminal, CancellationToken),
    ) -> Result<Self, Failure> {
        let registry = registry(access.clone(), terminal)?;
        let mut cache = component_cache(data);
        cache.downloads.most = settings.host_limits().component;
        let sources = Arc::new(LockedSources::new(registry, cache, Arc::new(RecordsInStore(store))));
        let mut environment = settings.environment.clone();
        environment.component_sources = Some(sources.clone());
        Ok(Self { sources, environment, terminal: terminal.clone(), followed: Mutex::default(), stop })
    }

    /// Returns the sources of the versions that this machine does not have.
    pub(super) fn sources(&self) -> Arc<dyn ComponentSources> {
        self.sources.clone()
    }

    /// Fetches the plugins of one folder that are missing, and follows the folder's lock file from now on.
    pub(super) async fn prepare(&self, folder: &Path) -> Result<(), ConfigError> {
        let components = self.sources.of(folder);
        let (folder, terminal) = (folder.to_owned(), self.terminal.clone());
        let mut follower = Follower { components, folder: folder.clone(), terminal, lock: None, failure: None };
        let restored = async {
            let lock = follower.components.lock_digest().await?;
            follower.restore().await?;
            Ok::<_, RegistryError>(lock)
        };
        let restored = restored.await;
        follower.lock =
            restored.map_err(|error| ConfigError::Fetch { folder: folder.clone(), reason: error.to_string() })?;
        if self.followed.lock().unwrap_or_else(PoisonError::into_inner).insert(folder) {
            tokio::spawn(follower.run(self.stop.clone()));
        }
        Ok(())
    }
}

impl Follower {
    /// Fetches what the lock file names whenever it changes.
    async fn run(mut self, stop: CancellationToken) {
        loop {
            let followed = async {
                tokio::time::sleep(POLL_INTERVAL).await;
                self.follow().await;
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = followed => {}
            }
        }
    }

    async fn follow(&mut self) {
        let lock = match self.components.lock_digest().await {
            Ok(lock) => lock,
            Err(error) => return self.fail(None, error.to_string()),
        };
        let may_try = |failure: &FetchFailure| failure.next <= Instant::now() || failure.lock != lock;
        if lock == self.lock || !self.failure.as_ref().is_none_or(may_try) {
            return;
        }
        match self.restore().await {
            Ok(()) => (self.lock, self.failure) = (lock, None),
            Err(error) => self.fail(lock, error.to_string()),
        }
    }

    /// Shows a failure once, and remembers when to try again.
    fn fail(&mut self, lock: Option<Digest>, reason: String) {
        if self.failure.as_ref().is_none_or(|known| known.reason != reason) {
            let problem = format!("the plugins of `{}` cannot be fetched: {reason}", self.folder.display());
            let seconds = RETRY_INTERVAL.as_secs();
            self.terminal.note(format!(
                "{YELLOW}!{YELLOW:#} {}; the plugins stay as they are, and are tried again every {seconds} s",
                text::harmless(&problem)
            ));
        }
        self.failure = Some(FetchFailure { reason, lock, next: Instant::now() + RETRY_INTERVAL });
    }

    async fn restore(&self) -> Result<(), RegistryError> {
        for LockedPlugin { name, version, component, reference, .. } in self.components.restore().await? {
            let line = format!("fetched {name} {version} ({}) from {reference}", component.short());
            self.terminal.note(text::one_line(&line, 1000));
        }
        Ok(())
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

/// What the processes record in their database.
struct RecordsInStore(Arc<dyn Store>);

#[async_trait]
impl SharedRecords for RecordsInStore {
    async fn entries(&self, plugin: &PluginIdentity) -> Result<Option<String>, String> {
        self.0.plugin_source(&plugin.name, &plugin.digest).await.map_err(|error| error.to_string())
    }

    async fn refused(&self, folder: &Path, plugin: &str, reason: &str) {
        let directory = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned()).display().to_string();
        let refused = AuditAction::Refused { directory, subject: plugin.to_owned(), reason: reason.to_owned() };
        if let Err(error) = self.0.audit(vec![refused]).await {
            tracing::error!(%error, "a refusal could not be recorded in the audit log");
        }
    }
}
