//! A generation: the immutable set of plugins that an agent has at one moment, identified by its digest (P10). Each
//! turn uses one generation from its start to its end.

use crate::component::component_source::ComponentSource;
use crate::component::load::stored::GenerationError;
use crate::component::load::{Origin, Progress};
use crate::component::load_error::LoadError;
use crate::component::plugin::LoadedPlugin;
use crate::component::plugin_store::digest_of;
use crate::component::sandbox::Sandbox;
use agent_core::message::Digest;
use futures::StreamExt;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Number of components that are loaded at the same time.
const CONCURRENT_LOADS: usize = 8;

/// The plugins that an agent has at one moment, each under its name.
#[derive(Clone, Debug)]
pub struct Generation {
    digest: Digest,
    plugins: BTreeMap<String, Arc<LoadedPlugin>>,
    /// For each plugin that was loaded from a file, the path of that file.
    origins: BTreeMap<String, PathBuf>,
}

/// A file of the plugin directory that cannot be loaded. The other plugins of the directory are still used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct LoadProblem {
    /// Path of the file that cannot be loaded.
    pub path: PathBuf,
    /// The reason why the file cannot be loaded.
    #[source]
    pub reason: LoadError,
}

impl Generation {
    /// Loads all components (`*.wasm`) in a directory, but not in its subdirectories, and stores each component in the
    /// plugin store. Returns the generation, and the files that cannot be loaded, each with the reason.
    pub async fn load(
        sandbox: &Sandbox,
        directory: &Path,
        progress: &Progress<'_>,
    ) -> Result<(Self, Vec<LoadProblem>), GenerationError> {
        let files = components_in(directory).await?;
        let loads = files.into_iter().map(|path| async move {
            let loaded = load_and_store(sandbox, &path, progress).await;
            (path, loaded)
        });
        let loaded: Vec<_> = futures::stream::iter(loads).buffered(CONCURRENT_LOADS).collect().await;
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

    /// Creates a generation of these plugins and the files from which they were loaded. If two plugins have the same
    /// name, the last of them is used.
    pub fn of_files(plugins: impl IntoIterator<Item = (PathBuf, Arc<LoadedPlugin>)>) -> Self {
        let files: Vec<_> = plugins.into_iter().collect();
        let origins = files.iter().map(|(path, plugin)| (plugin.name().to_owned(), path.clone())).collect();
        Self { origins, ..Self::new(files.into_iter().map(|(_, plugin)| plugin)) }
    }

    /// Returns the generation without the plugin of this name.
    #[must_use]
    pub fn without(&self, name: &str) -> Self {
        let mut origins = self.origins.clone();
        origins.remove(name);
        let remaining = self.plugins().filter(|plugin| plugin.name() != name).cloned();
        Self { origins, ..Self::new(remaining) }
    }

    /// Loads a generation that a turn has pinned. The components come from the plugin store. Fails if a plugin of the
    /// generation cannot be loaded.
    pub async fn from_digests(sandbox: &Sandbox, pinned: &[(String, Digest)]) -> Result<Self, GenerationError> {
        Self::load_pinned(sandbox, pinned, None).await
    }

    /// Loads a generation as [`Generation::from_digests`], and asks a source for the components that the plugin store does not
    /// contain.
    pub async fn from_source(
        sandbox: &Sandbox,
        pinned: &[(String, Digest)],
        source: Arc<dyn ComponentSource>,
    ) -> Result<Self, GenerationError> {
        Self::load_pinned(sandbox, pinned, Some(source)).await
    }

    async fn load_pinned(
        sandbox: &Sandbox,
        pinned: &[(String, Digest)],
        source: Option<Arc<dyn ComponentSource>>,
    ) -> Result<Self, GenerationError> {
        // The items are cloned, because a future that borrows them could not be sent to another thread.
        let loads = pinned.iter().cloned().map(|(name, digest)| {
            let source = source.clone();
            async move {
                match source {
                    Some(source) => sandbox.load_or_find(&name, &digest, &*source).await,
                    None => sandbox.load_stored(&name, &digest).await,
                }
            }
        });
        let plugins: Vec<Result<_, GenerationError>> =
            futures::stream::iter(loads).buffered(CONCURRENT_LOADS).collect().await;
        Ok(Self::new(plugins.into_iter().collect::<Result<Vec<_>, _>>()?))
    }

    /// Creates a generation of these plugins. If two plugins have the same name, the last of them is used.
    pub fn new(plugins: impl IntoIterator<Item = Arc<LoadedPlugin>>) -> Self {
        let plugins: BTreeMap<_, _> = plugins.into_iter().map(|plugin| (plugin.name().to_owned(), plugin)).collect();
        let mut names = String::new();
        for (name, plugin) in &plugins {
            let _ = writeln!(names, "{} {name}", plugin.digest());
        }
        Self { digest: digest_of(names.as_bytes()), plugins, origins: BTreeMap::new() }
    }

    /// Digest of the generation. Two generations with the same plugins under the same names have the same digest.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The names and digests of the plugins, as stored in a session's state.
    pub fn pinned(&self) -> Vec<(String, Digest)> {
        self.plugins.iter().map(|(name, plugin)| (name.clone(), plugin.digest().clone())).collect()
    }

    /// All plugins, sorted by name.
    pub fn plugins(&self) -> impl ExactSizeIterator<Item = &Arc<LoadedPlugin>> {
        self.plugins.values()
    }

    /// The file from which the plugin was loaded, or None if the plugin was not loaded from a file.
    pub fn origin(&self, name: &str) -> Option<&Path> {
        self.origins.get(name).map(PathBuf::as_path)
    }

    /// The plugin with this name, if the generation has one.
    pub fn plugin(&self, name: &str) -> Option<&Arc<LoadedPlugin>> {
        self.plugins.get(name)
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

/// Loads a plugin from a file, if the verifier allows the file, and stores the component in the plugin store.
pub(crate) async fn load_and_store(
    sandbox: &Sandbox,
    path: &Path,
    progress: &Progress<'_>,
) -> Result<Arc<LoadedPlugin>, LoadError> {
    let (plugin, bytes) = sandbox.load_path(path, &Origin::Folder(path.to_owned()), progress).await?;
    // If `bytes` is None, the plugin store already contains the component.
    if let (Some(store), Some(bytes)) = (sandbox.store(), bytes) {
        let (store, digest) = (store.clone(), plugin.digest().clone());
        let stored = tokio::task::spawn_blocking(move || store.put(&digest, &bytes)).await;
        stored.map_err(|error| LoadError::Stopped(error.to_string()))??;
    }
    Ok(plugin)
}
