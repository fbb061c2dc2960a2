//! Loads components from the plugin store by digest, and finds components that the plugin store does not contain.

use super::blocking;
use crate::component::component_source::{ComponentSource, FindError, FoundComponent};
use crate::component::load_error::LoadError;
use crate::component::plugin::LoadedPlugin;
use crate::component::plugin_store::{PluginStore, PluginStoreError, digest_of};
use crate::component::sandbox::Sandbox;
use crate::execution::engine::Metering;
use crate::identity::PluginIdentity;
use agent_core::message::Digest;
use std::path::PathBuf;
use std::sync::Arc;

/// The reason why a generation cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum GenerationError {
    /// The plugin directory cannot be read.
    #[error("the plugin directory {} cannot be read: {source}", path.display())]
    Directory {
        /// Path of the plugin directory that cannot be read.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The plugin store no longer contains a component of the generation, or the stored copy is damaged.
    #[error("plugin `{name}` is no longer available: {reason}")]
    Gone {
        /// Name that the plugin had when the turn pinned its generation.
        name: String,
        /// The reason why the plugin store cannot return the component.
        #[source]
        reason: PluginStoreError,
    },
    /// The plugin store does not contain a component of the generation, and the agent's source of components does not find
    /// it.
    #[error("`{plugin}` is not in the plugin store of this machine, and cannot be fetched: {reason}")]
    NotFound {
        /// The plugin, with the name that it had when the turn pinned its generation.
        plugin: Box<PluginIdentity>,
        /// The reason why the source does not find the component.
        reason: FindError,
    },
    /// The plugin store contains a component of the generation, but this host cannot load it.
    #[error("plugin `{name}` cannot be loaded again: {reason}")]
    Load {
        /// Name that the plugin had when the turn pinned its generation.
        name: String,
        /// The reason why the component cannot be loaded.
        #[source]
        reason: LoadError,
    },
    /// The sandbox was set up without a plugin store.
    #[error("plugins cannot be loaded by their digests, because this sandbox has no plugin store")]
    NoStore,
}

impl GenerationError {
    /// Whether every later attempt to load the generation would also fail. False if a later attempt may succeed.
    pub fn is_permanent(&self) -> bool {
        match self {
            GenerationError::Gone { reason, .. } => {
                matches!(reason, PluginStoreError::Missing { .. } | PluginStoreError::Damaged { .. })
            }
            GenerationError::Load { reason, .. } => reason.is_permanent(),
            GenerationError::NoStore => true,
            GenerationError::NotFound { reason, .. } => matches!(reason, FindError::Unknown(_)),
            GenerationError::Directory { .. } => false,
        }
    }

    /// Whether a source may have a component that can be used instead of what the plugin store contains.
    fn may_be_found(&self) -> bool {
        match self {
            GenerationError::Gone { reason, .. } => {
                matches!(reason, PluginStoreError::Missing { .. } | PluginStoreError::Damaged { .. })
            }
            // The stored statements may be those of another agent.
            GenerationError::Load { reason, .. } => matches!(reason, LoadError::Refused(_)),
            GenerationError::Directory { .. } | GenerationError::NoStore | GenerationError::NotFound { .. } => false,
        }
    }
}

impl Sandbox {
    /// Loads a plugin from the plugin store. Fails if the verifier no longer accepts the statements that were stored with the
    /// component, or if the component contains a plugin with another name, because grants belong to names.
    pub async fn load_stored(&self, name: &str, digest: &Digest) -> Result<Arc<LoadedPlugin>, GenerationError> {
        let store = self.store().ok_or(GenerationError::NoStore)?.clone();
        let load = |reason| GenerationError::Load { name: name.to_owned(), reason };
        let plugin = if let Some(plugin) = self.shared.loaded(digest, name, Metering::Off) {
            self.verify_stored(&plugin).await.map_err(load)?;
            plugin
        } else {
            let bytes = self.read_stored(name, digest, store).await?;
            self.load_stored_bytes(name, bytes).await.map_err(load)?
        };
        if plugin.name() != name {
            let other = format!("the component {} contains the plugin `{}`", digest.short(), plugin.name());
            return Err(load(LoadError::Refused(other)));
        }
        Ok(plugin)
    }

    /// Loads a plugin as [`Sandbox::load_stored`]. If the plugin store does not contain a component that can be used, asks the
    /// source for it and stores it first.
    pub async fn load_or_find(
        &self,
        name: &str,
        digest: &Digest,
        source: &dyn ComponentSource,
    ) -> Result<Arc<LoadedPlugin>, GenerationError> {
        match self.load_stored(name, digest).await {
            Err(error) if error.may_be_found() => {}
            loaded => return loaded,
        }
        let plugin = PluginIdentity { name: name.to_owned(), digest: digest.clone() };
        let found = source.find(&plugin).await;
        let found = found.map_err(|reason| GenerationError::NotFound { plugin: Box::new(plugin.clone()), reason })?;
        self.store_found(plugin, found).await?;
        self.load_stored(name, digest).await
    }

    /// Returns the plugin with compiled code that counts fuel. The code that counts fuel is compiled only once, from
    /// the component in the plugin store.
    pub(crate) async fn metered(&self, plugin: &LoadedPlugin) -> Result<Arc<LoadedPlugin>, GenerationError> {
        let (name, digest) = (plugin.name(), plugin.digest());
        let metered = plugin.metered.get_or_try_init(|| async {
            let store = self.store().ok_or(GenerationError::NoStore)?.clone();
            let bytes = self.read_stored(name, digest, store).await?;
            let load = |reason| GenerationError::Load { name: name.to_owned(), reason };
            self.load_metered(name, Arc::new(bytes)).await.map_err(load)
        });
        metered.await.cloned()
    }

    async fn read_stored(&self, name: &str, digest: &Digest, store: PluginStore) -> Result<Vec<u8>, GenerationError> {
        let digest = digest.clone();
        let read = blocking(move || store.get(&digest)).await;
        read.map_err(|reason| GenerationError::Load { name: name.to_owned(), reason })?
            .map_err(|reason| GenerationError::Gone { name: name.to_owned(), reason })
    }

    /// Stores a component that a source has found, if its digest is right and the verifier accepts it.
    async fn store_found(&self, plugin: PluginIdentity, found: FoundComponent) -> Result<(), GenerationError> {
        let store = self.store().ok_or(GenerationError::NoStore)?.clone();
        let (verifier, wanted) = (self.verifier.clone(), plugin.clone());
        let stored = blocking(move || {
            let FoundComponent { bytes, statement } = found;
            let digest = digest_of(&bytes);
            if digest != wanted.digest {
                return Err(format!("what was found has the digest {}", digest.short()));
            }
            let bytes = Arc::new(bytes);
            if let Some(verifier) = verifier {
                verifier.verify_stored(Some(&statement), &wanted, &|| Ok(Arc::clone(&bytes)))?;
            }
            // The statement is stored first, because a component without statements counts as the user's own plugin.
            store
                .vouch(&digest, &statement)
                .and_then(|()| store.put(&digest, &bytes))
                .map_err(|error| error.to_string())?;
            tracing::info!(plugin = %wanted, bytes = bytes.len(), "a plugin version that this machine did not have was fetched");
            Ok(())
        });
        let stored = stored.await.map_err(|reason| GenerationError::Load { name: plugin.name.clone(), reason })?;
        stored
            .map_err(|reason| GenerationError::NotFound { plugin: Box::new(plugin), reason: FindError::Failed(reason) })
    }
}
