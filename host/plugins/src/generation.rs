//! A generation: the immutable set of plugins that an agent has at one moment, named by digests (P10). A turn pins one.

use crate::engine::Metering;
use crate::load::{LoadError, Origin, Progress};
use crate::plugin::LoadedPlugin;
use crate::sandbox::Sandbox;
use crate::store::{PluginStore, PluginStoreError, digest_of};
use agent_core::message::Digest;
use futures::StreamExt;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Components that are loaded at once.
const LOADING: usize = 8;

/// The plugins of an agent, by name.
#[derive(Clone, Debug)]
pub struct Generation {
    digest: Digest,
    plugins: BTreeMap<String, Arc<LoadedPlugin>>,
    /// Files of those that were loaded from one.
    origins: BTreeMap<String, PathBuf>,
}

/// A file of the directory that is no plugin. The others serve.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct LoadProblem {
    /// The file.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub reason: LoadError,
}

/// A generation that cannot be had at all.
#[derive(Debug, thiserror::Error)]
pub enum GenerationError {
    /// The directory cannot be read.
    #[error("the plugin directory {} cannot be read: {source}", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A pinned component is gone or damaged.
    #[error("plugin `{name}` is not available any more: {reason}")]
    Gone {
        /// Its name when it was pinned.
        name: String,
        /// Why.
        #[source]
        reason: PluginStoreError,
    },
    /// A pinned component is there but cannot be loaded by this host.
    #[error("plugin `{name}` cannot be loaded again: {reason}")]
    Load {
        /// Its name when it was pinned.
        name: String,
        /// Why.
        #[source]
        reason: LoadError,
    },
    /// There is no store to load pinned components from.
    #[error("plugins cannot be loaded by their digests, because this sandbox has no plugin store")]
    NoStore,
}

impl GenerationError {
    /// Whether a pinned generation is gone for good; else it may be there another time.
    pub fn is_lasting(&self) -> bool {
        match self {
            GenerationError::Gone { reason, .. } => {
                matches!(reason, PluginStoreError::Missing { .. } | PluginStoreError::Damaged { .. })
            }
            GenerationError::Load { reason, .. } => reason.is_lasting(),
            GenerationError::NoStore => true,
            GenerationError::Directory { .. } => false,
        }
    }
}

impl Generation {
    /// All components (`*.wasm`) of a directory, sorted by name, without its subdirectories. Files that are no plugins
    /// are reported beside; each plugin is kept in the plugin store.
    pub async fn load(
        sandbox: &Sandbox,
        directory: &Path,
        progress: &Progress<'_>,
    ) -> Result<(Self, Vec<LoadProblem>), GenerationError> {
        let files = components_in(directory).await?;
        let loads = files.into_iter().map(|path| async move {
            let loaded = load_and_keep(sandbox, &path, progress).await;
            (path, loaded)
        });
        let loaded: Vec<_> = futures::stream::iter(loads).buffered(LOADING).collect().await;
        let mut problems = Vec::new();
        let mut plugins: BTreeMap<String, (PathBuf, Arc<LoadedPlugin>)> = BTreeMap::new();
        for (path, loaded) in loaded {
            match loaded {
                Ok(plugin) => match plugins.get(plugin.name()) {
                    Some((other, _)) => {
                        let (name, other) = (plugin.name().to_owned(), other.clone());
                        problems.push(LoadProblem { path, reason: LoadError::DuplicateName { name, other } });
                    }
                    None => {
                        plugins.insert(plugin.name().to_owned(), (path, plugin));
                    }
                },
                Err(reason) => problems.push(LoadProblem { path, reason }),
            }
        }
        Ok((Self::of_files(plugins.into_values()), problems))
    }

    /// Of plugins with their files. Of two with one name the last counts.
    pub fn of_files(plugins: impl IntoIterator<Item = (PathBuf, Arc<LoadedPlugin>)>) -> Self {
        let files: Vec<_> = plugins.into_iter().collect();
        let origins = files.iter().map(|(path, plugin)| (plugin.name().to_owned(), path.clone())).collect();
        Self { origins, ..Self::new(files.into_iter().map(|(_, plugin)| plugin)) }
    }

    /// The same without the plugin of that name.
    #[must_use]
    pub fn without(&self, name: &str) -> Self {
        let mut origins = self.origins.clone();
        origins.remove(name);
        let stay = self.plugins().filter(|plugin| plugin.name() != name).cloned();
        Self { origins, ..Self::new(stay) }
    }

    /// A pinned generation, from the plugin store. All of it, or the reason why not.
    pub async fn from_digests(sandbox: &Sandbox, pinned: &[(String, Digest)]) -> Result<Self, GenerationError> {
        // Owned: a future that borrows an item of the list cannot be sent to a task of its own.
        let loads =
            pinned.iter().cloned().map(|(name, digest)| async move { sandbox.load_stored(&name, &digest).await });
        let plugins: Vec<Result<_, GenerationError>> = futures::stream::iter(loads).buffered(LOADING).collect().await;
        Ok(Self::new(plugins.into_iter().collect::<Result<Vec<_>, _>>()?))
    }

    /// Of these plugins. Of two with one name the last counts.
    pub fn new(plugins: impl IntoIterator<Item = Arc<LoadedPlugin>>) -> Self {
        let plugins: BTreeMap<_, _> = plugins.into_iter().map(|plugin| (plugin.name().to_owned(), plugin)).collect();
        let mut names = String::new();
        for (name, plugin) in &plugins {
            let _ = writeln!(names, "{} {name}", plugin.digest());
        }
        Self { digest: digest_of(names.as_bytes()), plugins, origins: BTreeMap::new() }
    }

    /// Names the generation: equal plugins under equal names have equal digests.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Names and digests, as a session's state keeps them.
    pub fn pinned(&self) -> Vec<(String, Digest)> {
        self.plugins.iter().map(|(name, plugin)| (name.clone(), plugin.digest().clone())).collect()
    }

    /// All plugins, sorted by name.
    pub fn plugins(&self) -> impl ExactSizeIterator<Item = &Arc<LoadedPlugin>> {
        self.plugins.values()
    }

    /// The file that the plugin was loaded from, where it was.
    pub fn origin(&self, name: &str) -> Option<&Path> {
        self.origins.get(name).map(PathBuf::as_path)
    }

    /// The plugin with this name.
    pub fn plugin(&self, name: &str) -> Option<&Arc<LoadedPlugin>> {
        self.plugins.get(name)
    }
}

impl Sandbox {
    /// A plugin from the plugin store, if what vouched for it when it came does so still.
    pub async fn load_stored(&self, name: &str, digest: &Digest) -> Result<Arc<LoadedPlugin>, GenerationError> {
        let store = self.store().ok_or(GenerationError::NoStore)?.clone();
        let load = |reason| GenerationError::Load { name: name.to_owned(), reason };
        if let Some(plugin) = self.shared.loaded(digest, name, Metering::Off) {
            self.vet_kept(&plugin).await.map_err(load)?;
            return Ok(plugin);
        }
        let bytes = self.stored(name, digest, store).await?;
        self.load_kept(name, bytes).await.map_err(load)
    }

    /// The same plugin, its code counting fuel. It is made once, of the component in the plugin store.
    pub(crate) async fn metered(&self, plugin: &LoadedPlugin) -> Result<Arc<LoadedPlugin>, GenerationError> {
        let (name, digest) = (plugin.name(), plugin.digest());
        let made = plugin.metered.get_or_try_init(|| async {
            let store = self.store().ok_or(GenerationError::NoStore)?.clone();
            let bytes = self.stored(name, digest, store).await?;
            let load = |reason| GenerationError::Load { name: name.to_owned(), reason };
            self.load_metered(name, Arc::new(bytes)).await.map_err(load)
        });
        made.await.cloned()
    }

    async fn stored(&self, name: &str, digest: &Digest, store: PluginStore) -> Result<Vec<u8>, GenerationError> {
        let wanted = digest.clone();
        let read = tokio::task::spawn_blocking(move || store.get(&wanted)).await;
        let load = |reason| GenerationError::Load { name: name.to_owned(), reason };
        read.map_err(|error| load(LoadError::Stopped(error.to_string())))?
            .map_err(|reason| GenerationError::Gone { name: name.to_owned(), reason })
    }
}

async fn components_in(directory: &Path) -> Result<Vec<PathBuf>, GenerationError> {
    let problem = |source| GenerationError::Directory { path: directory.to_owned(), source };
    let mut entries = tokio::fs::read_dir(directory).await.map_err(problem)?;
    let mut files = Vec::new();
    while let Some(entry) = entries.next_entry().await.map_err(problem)? {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "wasm") {
            files.push(path);
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Loads a file that may serve, and keeps what is in it in the plugin store.
pub(crate) async fn load_and_keep(
    sandbox: &Sandbox,
    path: &Path,
    progress: &Progress<'_>,
) -> Result<Arc<LoadedPlugin>, LoadError> {
    let (plugin, bytes) = sandbox.load_path(path, &Origin::Folder(path.to_owned()), progress).await?;
    // Without its bytes the store has it already.
    if let (Some(store), Some(bytes)) = (sandbox.store(), bytes) {
        let (store, digest) = (store.clone(), plugin.digest().clone());
        let kept = tokio::task::spawn_blocking(move || store.put(&digest, &bytes)).await;
        kept.map_err(|error| LoadError::Stopped(error.to_string()))??;
    }
    Ok(plugin)
}
