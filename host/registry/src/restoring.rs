//! Restores the plugins of a folder from the entries of its lock file, without a user (F1).

use crate::error::RegistryError;
use crate::files::{MAX_COMPONENT_BYTES, read_if_exists};
use crate::folder::{PluginFolder, refuse_manifest_file, remove_manifest_file, write};
use crate::lock::{LockFile, LockedPlugin};
use crate::locked_components::{Access, LockedComponents, MAX_TIME, blocking};
use crate::reference::Source;
use agent_core::message::Digest;
use agent_plugins::{PluginStore, PluginStoreError, digest_of, read_claims};

impl LockedComponents {
    /// Returns the digest of the folder's lock file. `None` if there is no lock file.
    pub async fn lock_digest(&self) -> Result<Option<Digest>, RegistryError> {
        blocking(&self.folder, PluginFolder::lock_digest).await
    }

    /// Fetches the plugins that the folder's lock file names and that are missing from the folder, and writes their files.
    /// Returns their entries. A file with other contents is replaced only if this machine has fetched those contents, so that
    /// nothing that was built or changed here is lost: the host refuses to load such a file.
    ///
    /// All plugins are fetched before the first file is written, so that a running host sees their files change together.
    /// If one plugin cannot be fetched, no file changes. The lock file is never written, and a plugin whose entry changes
    /// meanwhile is left as it is. Each component may take two minutes.
    pub async fn restore(&self) -> Result<Vec<LockedPlugin>, RegistryError> {
        let Access { cache, .. } = &self.access;
        let store = cache.store.clone();
        let missing = blocking(&self.folder, move |folder| folder.missing(&store)).await?;
        for plugin in &missing {
            let (store, component) = (cache.store.clone(), plugin.component.clone());
            if blocking(&self.folder, move |_| Ok(store.get(&component).is_ok())).await? {
                continue;
            }
            let fetched = tokio::time::timeout(MAX_TIME, self.fetch(plugin, plugin.signer.as_deref())).await;
            let bytes = fetched.unwrap_or_else(|_| {
                let reason = format!("it was not received within {} s", MAX_TIME.as_secs());
                Err(RegistryError::Unreachable { place: plugin.reference.clone(), reason })
            })?;
            let (store, plugin) = (cache.store.clone(), plugin.clone());
            blocking(&self.folder, move |_| {
                // The statement is stored first, because a component without statements counts as the user's own plugin.
                let stored = store.vouch(&plugin.component, &plugin.origin_entry());
                stored.and_then(|()| store.put(&plugin.component, &bytes)).map_err(RegistryError::from)
            })
            .await?;
        }
        let store = cache.store.clone();
        blocking(&self.folder, move |folder| folder.write_locked(missing, &store)).await
    }
}

impl PluginFolder {
    /// Returns the digest of the lock file. `None` if there is no lock file.
    fn lock_digest(&self) -> Result<Option<Digest>, RegistryError> {
        Ok(LockFile::bytes(self.path())?.map(|bytes| digest_of(&bytes)))
    }

    /// Returns the entries of the lock file whose files are missing or may be replaced.
    fn missing(&self, store: &PluginStore) -> Result<Vec<LockedPlugin>, RegistryError> {
        let lock = self.lock_file()?;
        let mut missing = Vec::new();
        for plugin in lock.plugins() {
            if self.may_write(plugin, store)? {
                missing.push(plugin.clone());
            }
        }
        Ok(missing)
    }

    /// Whether the file of this entry is missing, or contains something else that this machine has fetched.
    fn may_write(&self, plugin: &LockedPlugin, store: &PluginStore) -> Result<bool, RegistryError> {
        let existing = read_if_exists(&self.file(plugin), MAX_COMPONENT_BYTES)?.map(|bytes| digest_of(&bytes));
        Ok(existing.is_none_or(|existing| existing != plugin.component && was_fetched(store, &plugin.name, &existing)))
    }

    /// Writes the files of those entries that the lock file still contains, from the plugin store. Checks all of them before it
    /// writes the first one.
    fn write_locked(
        &self,
        plugins: Vec<LockedPlugin>,
        store: &PluginStore,
    ) -> Result<Vec<LockedPlugin>, RegistryError> {
        if plugins.is_empty() {
            return Ok(plugins);
        }
        let _lock = self.lock_folder()?;
        let lock = self.lock_file()?;
        let mut checked = Vec::new();
        for plugin in plugins {
            if lock.plugin(&plugin.name) != Some(&plugin) || !self.may_write(&plugin, store)? {
                continue;
            }
            self.refuse_duplicate_name(&plugin)?;
            if !self.file(&plugin).exists() {
                refuse_manifest_file(&self.file(&plugin))?;
            }
            let place = self.file(&plugin).display().to_string();
            let claims = read_claims(&plugin.name, &store.get(&plugin.component)?);
            let name =
                claims.map_err(|error| RegistryError::Conflict { place: place.clone(), reason: error.to_string() })?;
            if name.identity.name != plugin.name {
                let reason = format!("its component contains the plugin `{}`", name.identity.name);
                return Err(RegistryError::Conflict { place, reason });
            }
            checked.push(plugin);
        }
        for plugin in &checked {
            // The manifest file belonged to the component that is replaced: the new component contains its own manifest.
            remove_manifest_file(&self.file(plugin))?;
            write(&self.file(plugin), &store.get(&plugin.component)?)?;
        }
        Ok(checked)
    }
}

impl From<PluginStoreError> for RegistryError {
    fn from(error: PluginStoreError) -> Self {
        Self::file("the plugin store", "used", std::io::Error::other(error))
    }
}

/// Returns whether a component with this digest came from a registry or a web server, and not from a file of this machine.
fn was_fetched(store: &PluginStore, name: &str, component: &Digest) -> bool {
    let statements = store.vouched(component).ok().flatten().unwrap_or_default();
    let entries = LockFile::parse_origin_entries(&statements).unwrap_or_default();
    entries.iter().any(|entry| {
        entry.name == name
            && entry.component == *component
            && matches!(entry.source(), Ok(Source::Registry(_) | Source::Web(_)))
    })
}
