//! Finds components that this machine does not have, by the digests that lock files contain (F1).

use crate::error::{RegistryError, display_text};
use crate::fetch::{ComponentCache, SignatureRequest};
use crate::folder::PluginFolder;
use crate::keys::PublicKey;
use crate::lock::{LockFile, LockedPlugin};
use crate::reference::{Repository, Source};
use crate::registry::Registry;
use crate::signature::verify;
use agent_plugins::{ComponentSource, ComponentSources, FindError, FoundComponent, PluginIdentity};
use async_trait::async_trait;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Maximum time for one component.
pub(crate) const MAX_TIME: Duration = Duration::from_secs(120);
/// Time for which a failure is repeated instead of asking the registry again.
const FAILURE_TIME: Duration = Duration::from_secs(10);
/// Maximum number of places that are tried for one component.
const MAX_CANDIDATES: usize = 4;
/// Number of components about which attempts are remembered, before those that are not in progress are forgotten.
const MAX_ATTEMPTS: usize = 256;

/// What other processes have recorded in a database that the machines share, and where refusals are recorded.
#[async_trait]
pub trait SharedRecords: Send + Sync {
    /// Returns the recorded entries of this version, in the form of [`LockedPlugin::origin_entry`]. `None` if there are none.
    /// The error is the reason why they cannot be read.
    async fn entries(&self, plugin: &PluginIdentity) -> Result<Option<String>, String>;

    /// Records that the host has refused what a registry sent for a plugin of this folder (O3).
    async fn refused(&self, folder: &Path, plugin: &str, reason: &str);
}

/// What the sources of all plugin folders of a process share. Cloning it is cheap.
#[derive(Clone)]
pub(crate) struct Access {
    pub(crate) registry: Arc<Registry>,
    pub(crate) cache: ComponentCache,
    pub(crate) records: Arc<dyn SharedRecords>,
}

/// The sources of the plugin folders of a process.
pub struct LockedSources {
    access: Access,
    folders: Mutex<BTreeMap<PathBuf, Arc<LockedComponents>>>,
}

/// Finds components in the registries that the lock file of one plugin folder names.
///
/// A version that the lock file names now is fetched from where the lock file says. A version that it named at another time,
/// or that the lock file of another machine names, is fetched if another process recorded its entry, and only from the
/// repository from which this lock file takes the plugin of this name. If the lock file says that a trusted key signed the
/// plugin, the same key must have signed the other version. So a changed record leads to no other server, to no other
/// repository, and to no component that somebody else published there.
pub struct LockedComponents {
    pub(crate) folder: PluginFolder,
    pub(crate) access: Access,
    /// The latest attempt for each component. The lock is held during an attempt, so that requests for the same component wait
    /// for each other.
    attempts: Mutex<HashMap<PluginIdentity, Arc<tokio::sync::Mutex<Option<Failure>>>>>,
}

/// A place from which a component can be fetched, and the key that must have signed the component.
#[derive(Clone, Debug, PartialEq)]
struct Candidate {
    entry: LockedPlugin,
    key: Option<String>,
}

/// An attempt that has failed.
struct Failure {
    candidates: Vec<Candidate>,
    time: Instant,
    reason: String,
}

impl LockedSources {
    /// Creates the sources of a process. `cache` has the size limit and the folder of incomplete downloads.
    pub fn new(registry: Registry, cache: ComponentCache, records: Arc<dyn SharedRecords>) -> Self {
        Self { access: Access { registry: Arc::new(registry), cache, records }, folders: Mutex::default() }
    }

    /// Returns the source for one plugin folder.
    pub fn of(&self, folder: &Path) -> Arc<LockedComponents> {
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let (folder, access) = (PluginFolder::new(folder), self.access.clone());
            Arc::new(LockedComponents { folder, access, attempts: Mutex::default() })
        };
        folders.entry(folder.to_owned()).or_insert_with(new).clone()
    }
}

impl ComponentSources for LockedSources {
    fn of_folder(&self, folder: &Path) -> Arc<dyn ComponentSource> {
        self.of(folder)
    }
}

#[async_trait]
impl ComponentSource for LockedComponents {
    async fn find(&self, plugin: &PluginIdentity) -> Result<FoundComponent, FindError> {
        let candidates = self.candidates(plugin).await?;
        let attempt = self.attempt(plugin);
        let mut failure = attempt.lock().await;
        if let Some(known) = &*failure
            && known.candidates == candidates
            && known.time.elapsed() < FAILURE_TIME
        {
            return Err(FindError::Failed(known.reason.clone()));
        }
        let found = tokio::time::timeout(MAX_TIME, self.fetch_first(&candidates)).await;
        let found = found.unwrap_or_else(|_| Err(format!("it was not received within {} s", MAX_TIME.as_secs())));
        *failure = match &found {
            Ok(_) => None,
            Err(reason) => Some(Failure { candidates, time: Instant::now(), reason: reason.clone() }),
        };
        found.map_err(FindError::Failed)
    }
}

impl LockedComponents {
    fn attempt(&self, plugin: &PluginIdentity) -> Arc<tokio::sync::Mutex<Option<Failure>>> {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        if attempts.len() >= MAX_ATTEMPTS {
            attempts.retain(|_, attempt| Arc::strong_count(attempt) > 1);
        }
        attempts.entry(plugin.clone()).or_default().clone()
    }

    /// Returns the places from which a version may be fetched.
    async fn candidates(&self, plugin: &PluginIdentity) -> Result<Vec<Candidate>, FindError> {
        let lock = blocking(&self.folder, PluginFolder::lock_file).await;
        let lock = lock.map_err(|error| FindError::Failed(error.to_string()))?;
        let Some(locked) = lock.plugin(&plugin.name) else {
            let (file, name) = (LockFile::path(self.folder.path()), display_text(&plugin.name));
            return Err(FindError::Unknown(format!("{} does not contain `{name}`", file.display())));
        };
        let key = locked.signer.clone();
        if locked.component == plugin.digest {
            return Ok(vec![Candidate { entry: locked.clone(), key }]);
        }
        let recorded = self.access.records.entries(plugin).await.map_err(FindError::Failed)?.unwrap_or_default();
        let recorded = LockFile::parse_origin_entries(&recorded);
        let recorded = recorded.map_err(|error| FindError::Failed(error.to_string()))?;
        let trusted = repository(locked);
        let mut elsewhere = None;
        let mut candidates = Vec::new();
        for entry in recorded {
            if entry.name != plugin.name || entry.component != plugin.digest {
                continue;
            }
            if trusted.is_some() && repository(&entry) == trusted && entry.manifest.is_some() {
                candidates.push(Candidate { entry, key: key.clone() });
            } else {
                elsewhere = Some(entry.reference);
            }
        }
        // The entries that were recorded last come first, because an earlier one may lack a signature that was added later.
        candidates.reverse();
        candidates.truncate(MAX_CANDIDATES);
        if !candidates.is_empty() {
            return Ok(candidates);
        }
        Err(FindError::Unknown(match (elsewhere, trusted) {
            (None, _) => "no process that had this version has recorded where it comes from".to_owned(),
            (Some(reference), trusted) => format!(
                "it is recorded that it comes from {}, but this machine's plugins.lock takes this plugin from {}",
                display_text(&reference),
                trusted.map_or_else(|| "no registry".to_owned(), |trusted| trusted.to_string())
            ),
        }))
    }

    /// Fetches the component from the first place that has it.
    async fn fetch_first(&self, candidates: &[Candidate]) -> Result<FoundComponent, String> {
        let mut problem = String::new();
        for Candidate { entry, key } in candidates {
            match self.fetch(entry, key.as_deref()).await {
                Ok(bytes) => return Ok(FoundComponent { bytes, statement: entry.origin_entry() }),
                Err(error) => problem = error.to_string(),
            }
        }
        Err(problem)
    }

    /// Fetches the component of an entry. If there is a key, it must have signed the component with the claims of the entry.
    pub(crate) async fn fetch(&self, entry: &LockedPlugin, key: Option<&str>) -> Result<Vec<u8>, RegistryError> {
        let Access { registry, cache, records } = &self.access;
        let fetched = registry.fetch_locked(entry, cache, &|_, _| {}).await;
        let checked = fetched.and_then(|bytes| match key.map(PublicKey::parse).transpose()? {
            None => Ok(bytes),
            Some(key) => {
                let signature = entry.signature.as_deref().unwrap_or_default();
                verify(&key, &bytes, signature, &entry.claims()).map_err(|_| RegistryError::Signature {
                    place: display_text(&entry.reference),
                    reason: format!(
                        "the key {key} signed the version in plugins.lock, but there is no valid signature of this key for \
                         the component {}",
                        entry.component.short()
                    ),
                })?;
                Ok(bytes)
            }
        });
        if let Err(error) = &checked
            && error.is_refusal()
        {
            records.refused(self.folder.path(), &entry.name, &error.to_string()).await;
        }
        checked
    }
}

impl Registry {
    /// Fetches the component of an entry in a lock file, without its signatures, because the entry already contains the
    /// signature. Fails if the source now contains another component.
    pub async fn fetch_locked(
        &self,
        plugin: &LockedPlugin,
        cache: &ComponentCache,
        progress: &crate::Progress<'_>,
    ) -> Result<Vec<u8>, RegistryError> {
        let source = match (plugin.source()?, &plugin.manifest) {
            (Source::Registry(reference), Some(manifest)) => Source::Registry(reference.with_digest(manifest)),
            (source, _) => source,
        };
        let found = self.resolve(&source).await?;
        // A component with another digest is not downloaded.
        let (found, bytes) = match found.component() {
            Some(digest) if *digest != plugin.component => (digest.clone(), Vec::new()),
            _ => {
                let fetched = self.fetch(&found, cache, SignatureRequest::Skip, progress).await?;
                (fetched.digest(), fetched.bytes)
            }
        };
        if found == plugin.component {
            return Ok(bytes);
        }
        Err(RegistryError::Changed {
            place: display_text(&plugin.reference),
            plugin: plugin.name.clone(),
            expected: plugin.component.short().to_owned(),
            found: found.short().to_owned(),
        })
    }
}

impl fmt::Debug for LockedComponents {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LockedComponents").field("folder", &self.folder.path()).finish_non_exhaustive()
    }
}

/// Does work with the files of a folder outside of the asynchronous tasks.
pub(crate) async fn blocking<T: Send + 'static>(
    folder: &PluginFolder,
    work: impl FnOnce(&PluginFolder) -> Result<T, RegistryError> + Send + 'static,
) -> Result<T, RegistryError> {
    let path = folder.path().to_owned();
    let done = tokio::task::spawn_blocking({
        let path = path.clone();
        move || work(&PluginFolder::new(&path))
    });
    done.await.unwrap_or_else(|error| Err(RegistryError::file(path, "read", std::io::Error::other(error))))
}

/// Returns the repository of an entry whose source is in a registry.
fn repository(entry: &LockedPlugin) -> Option<Repository> {
    match entry.source() {
        Ok(Source::Registry(reference)) => Some(reference.repository().clone()),
        _ => None,
    }
}
