//! Loads components from the plugin store by digest.

use crate::component::load_error::LoadError;
use crate::component::plugin::LoadedPlugin;
use crate::component::plugin_store::{PluginStore, PluginStoreError};
use crate::component::sandbox::Sandbox;
use crate::execution::engine::Metering;
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
            GenerationError::Directory { .. } => false,
        }
    }

    /// Whether the plugin store of this process does not contain a component. The plugin store of another machine may
    /// contain it.
    pub fn is_missing_here(&self) -> bool {
        matches!(self, GenerationError::Gone { reason: PluginStoreError::Missing { .. }, .. })
    }
}

impl Sandbox {
    /// Loads a plugin from the plugin store. Fails if the verifier no longer accepts the statements that were stored
    /// with the component.
    pub async fn load_stored(&self, name: &str, digest: &Digest) -> Result<Arc<LoadedPlugin>, GenerationError> {
        let store = self.store().ok_or(GenerationError::NoStore)?.clone();
        let load = |reason| GenerationError::Load { name: name.to_owned(), reason };
        if let Some(plugin) = self.shared.loaded(digest, name, Metering::Off) {
            self.verify_stored(&plugin).await.map_err(load)?;
            return Ok(plugin);
        }
        let bytes = self.read_stored(name, digest, store).await?;
        self.load_stored_bytes(name, bytes).await.map_err(load)
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
        let read = tokio::task::spawn_blocking(move || store.get(&digest)).await;
        let load = |reason| GenerationError::Load { name: name.to_owned(), reason };
        read.map_err(|error| load(LoadError::Stopped(error.to_string())))?
            .map_err(|reason| GenerationError::Gone { name: name.to_owned(), reason })
    }
}
