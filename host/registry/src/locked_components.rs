//! Finds components that this machine does not have, by the digests that lock files contain (F1).

use crate::error::{RegistryError, display_text};
use crate::fetch::{ComponentCache, SignatureRequest};
use crate::folder::PluginFolder;
use crate::keys::PublicKey;
use crate::lock::{LockFile, LockedPlugin};
use crate::reference::{Repository, Source};
use crate::registry::Registry;
use crate::signature::verify;
use agent_plugins::{ComponentSource, FoundComponent, PluginIdentity};
use async_trait::async_trait;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Maximum time for finding one component. The session that needs the component waits for it.
const MAX_TIME: Duration = Duration::from_secs(120);

/// Entries of lock files that other processes stored with the components that they used.
#[async_trait]
pub trait RecordedEntries: Send + Sync {
    /// Returns the recorded entries of this version, in the form of [`LockedPlugin::origin_entry`]. `None` if there are none.
    /// The error is the reason why they cannot be read.
    async fn find(&self, plugin: &PluginIdentity) -> Result<Option<String>, String>;
}

/// Finds components in the registries that the lock files of plugin folders name.
///
/// A version that a lock file names now is fetched from where the lock file says. A version that it named at another time,
/// or that the lock file of another machine names, is fetched if another process recorded its entry, and only from the
/// repository from which a lock file of this machine takes the plugin of this name. If that lock file says that a trusted
/// key signed the plugin, the same key must have signed the other version. So a changed record leads to no other server, to
/// no other repository, and to no component that somebody else published there.
pub struct LockedComponents {
    pub(crate) registry: Registry,
    pub(crate) cache: ComponentCache,
    folders: Mutex<BTreeSet<PathBuf>>,
    recorded: Box<dyn RecordedEntries>,
}

impl LockedComponents {
    /// Creates a source that knows no folder yet. `cache` has the size limit and the folder of incomplete downloads.
    pub fn new(registry: Registry, cache: ComponentCache, recorded: Box<dyn RecordedEntries>) -> Self {
        Self { registry, cache, folders: Mutex::default(), recorded }
    }

    /// Uses the lock file of this plugin folder from now on.
    pub fn add_folder(&self, folder: &Path) {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner).insert(folder.to_owned());
    }

    /// Returns the plugin folders whose lock files are used.
    pub fn folders(&self) -> Vec<PluginFolder> {
        let folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        folders.iter().map(|folder| PluginFolder::new(folder)).collect()
    }

    /// Returns the entry that says where a version comes from, and the key that must have signed it.
    async fn entry(&self, plugin: &PluginIdentity) -> Result<(LockedPlugin, Option<PublicKey>), String> {
        let mut locked = Vec::new();
        for folder in self.folders() {
            let lock = folder.lock_file().map_err(|error| error.to_string())?;
            locked.extend(lock.plugin(&plugin.name).cloned());
        }
        if let Some(entry) = locked.iter().find(|entry| entry.component == plugin.digest) {
            return Ok((entry.clone(), required_key(entry)?));
        }
        if locked.is_empty() {
            return Err(format!("no plugins.lock of this process contains `{}`", display_text(&plugin.name)));
        }
        let recorded = self.recorded.find(plugin).await?.unwrap_or_default();
        let recorded = LockFile::parse_origin_entries(&recorded).map_err(|error| error.to_string())?;
        let mut elsewhere = None;
        for entry in recorded {
            if entry.name != plugin.name || entry.component != plugin.digest {
                continue;
            }
            let place = repository(&entry).filter(|_| entry.manifest.is_some());
            match locked.iter().find(|locked| place.is_some() && repository(locked) == place) {
                Some(locked) => return Ok((entry, required_key(locked)?)),
                None => elsewhere = Some(entry.reference),
            }
        }
        let trusted: BTreeSet<_> = locked.iter().filter_map(repository).map(|trusted| trusted.to_string()).collect();
        let trusted = trusted.into_iter().collect::<Vec<_>>().join(", ");
        match elsewhere {
            None => Err("no process that had this version has recorded where it comes from".to_owned()),
            Some(reference) if trusted.is_empty() => Err(format!(
                "it is recorded that it comes from {}, but this machine's plugins.lock takes this plugin from no registry",
                display_text(&reference)
            )),
            Some(reference) => Err(format!(
                "it is recorded that it comes from {}, but this machine's plugins.lock takes this plugin from {trusted}",
                display_text(&reference)
            )),
        }
    }
}

#[async_trait]
impl ComponentSource for LockedComponents {
    async fn find(&self, plugin: &PluginIdentity) -> Result<FoundComponent, String> {
        let (entry, key) = self.entry(plugin).await?;
        let place = display_text(&entry.reference);
        let fetched = self.registry.fetch_locked(&entry, &self.cache, &|_, _| {});
        let fetched = tokio::time::timeout(MAX_TIME, fetched).await;
        let fetched = fetched.map_err(|_| format!("{place} did not send it within {} s", MAX_TIME.as_secs()))?;
        let bytes = fetched.map_err(|error| error.to_string())?;
        if let Some(key) = key {
            let signature = entry.signature.as_deref().unwrap_or_default();
            verify(&key, &bytes, signature, &entry.claims()).map_err(|_| {
                format!(
                    "the key {key} signed the version of {} in plugins.lock, but there is no valid signature of this key \
                     for {place} with the digest {}",
                    display_text(&entry.name),
                    entry.component.short()
                )
            })?;
        }
        Ok(FoundComponent { bytes, statement: entry.origin_entry() })
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

/// Returns the trusted key that signed the plugin of an entry. Other versions of the plugin must have its signature too.
fn required_key(entry: &LockedPlugin) -> Result<Option<PublicKey>, String> {
    entry.signer.as_deref().map(PublicKey::parse).transpose().map_err(|error| error.to_string())
}

/// Returns the repository of an entry whose source is in a registry.
fn repository(entry: &LockedPlugin) -> Option<Repository> {
    match entry.source() {
        Ok(Source::Registry(reference)) => Some(reference.repository().clone()),
        _ => None,
    }
}
