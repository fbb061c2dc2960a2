//! Restores the plugins of a folder from the entries of its lock file, without a user (F1).

use crate::error::RegistryError;
use crate::files::{MAX_COMPONENT_BYTES, read_if_exists};
use crate::folder::{PluginFolder, ReplacePolicy};
use crate::lock::{LockFile, LockedPlugin};
use crate::locked_components::LockedComponents;
use crate::reference::Source;
use agent_core::message::Digest;
use agent_plugins::digest_of;

impl LockedComponents {
    /// Fetches the plugins that the folder's lock file names and that are missing from the folder, and writes their files.
    /// Returns their entries. A file with other contents is replaced only if this machine has fetched those contents, so that
    /// nothing that was built or changed here is lost: the host refuses to load such a file.
    ///
    /// All plugins are fetched before the first file is written, so that a running host sees their files change together.
    /// If one plugin cannot be fetched, no file changes.
    pub async fn restore(&self, folder: &PluginFolder) -> Result<Vec<LockedPlugin>, RegistryError> {
        let mut fetched = Vec::new();
        for plugin in folder.lock_file()?.plugins() {
            let Some(replace) = self.replace_policy(folder, plugin)? else { continue };
            let bytes = match self.cache.store.get(&plugin.component) {
                Ok(bytes) => bytes,
                Err(_) => self.registry.fetch_locked(plugin, &self.cache, &|_, _| {}).await?,
            };
            fetched.push((plugin.clone(), bytes, replace));
        }
        let mut restored = Vec::new();
        for (plugin, bytes, replace) in fetched {
            folder.install(plugin.clone(), &bytes, replace)?;
            restored.push(plugin);
        }
        Ok(restored)
    }

    /// Returns how the plugin's file may be written. `None` if the file must stay as it is.
    fn replace_policy(
        &self,
        folder: &PluginFolder,
        plugin: &LockedPlugin,
    ) -> Result<Option<ReplacePolicy>, RegistryError> {
        let existing = read_if_exists(&folder.file(plugin), MAX_COMPONENT_BYTES)?.map(|bytes| digest_of(&bytes));
        Ok(match existing {
            None => Some(ReplacePolicy::LockedFile),
            Some(existing) if existing == plugin.component => None,
            Some(existing) => self.was_fetched(&plugin.name, &existing).then_some(ReplacePolicy::AnyFile),
        })
    }

    /// Returns whether a component with this digest came from a registry or a web server, and not from a file of this machine.
    fn was_fetched(&self, name: &str, component: &Digest) -> bool {
        let statements = self.cache.store.vouched(component).ok().flatten().unwrap_or_default();
        let entries = LockFile::parse_origin_entries(&statements).unwrap_or_default();
        entries.iter().any(|entry| {
            entry.name == name
                && entry.component == *component
                && matches!(entry.source(), Ok(Source::Registry(_) | Source::Web(_)))
        })
    }
}
