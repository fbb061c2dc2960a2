//! Loads a component (P15) in these steps: check the size and the digest, verify the lock and the signature, get the
//! compiled code from the cache or from the compiler process, link the component, and get its tool definitions once.

mod compile_lock;
mod compiled_code;
mod development;
mod installing;
mod introspection;
mod linking;
mod reading;
pub(crate) mod stored;
mod verification;

pub use installing::InstallError;
pub use reading::{read_component, read_component_alone};
pub(crate) use verification::Origin;

use super::claims::UnverifiedClaims;
use super::engine_context::EngineContext;
use super::load_error::LoadError;
use super::manifest_file::existing_manifest_file;
use super::plugin::{Facts, Links, LoadedPlugin};
use super::plugin_store::{PluginStore, digest_of};
use super::sandbox::{Sandbox, Shared};
use crate::binary::scan::NotAComponent;
use crate::execution::engine::Metering;
use crate::execution::failure::CallFailure;
use crate::grants::manifest::name_of_stem;
use crate::identity::PluginIdentity;
use crate::limits::REASON_BYTES;
use crate::text::clean;
use agent_core::message::Digest;
use compiled_code::Examined;
use introspection::NewComponent;
use linking::link;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::OnceCell;
use wasmtime::component::Component;

/// A step in loading a component, shown to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadEvent {
    /// The component is not in the cache and is being compiled.
    Compiling {
        /// Name of the plugin.
        name: String,
        /// Size of the component in bytes.
        size: u64,
    },
    /// The component could not be compiled, or the host refused the compiled component.
    Refused {
        /// Name of the plugin.
        name: String,
    },
    /// The plugin is ready to be called.
    Loaded {
        /// Name of the plugin.
        name: String,
        /// The source of the compiled code.
        code: CodeSource,
    },
}

/// The source of a plugin's compiled code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeSource {
    /// The code was compiled while the plugin was loaded.
    Compiled,
    /// The code was read from the cache on disk or from the installed code, and verified.
    Cache,
    /// The plugin was already loaded in this process.
    Memory,
}

/// A callback that receives events while a component is loaded. The host may call the callback from any thread.
pub type Progress<'a> = dyn Fn(LoadEvent) + Send + Sync + 'a;

impl Sandbox {
    /// Loads a component from a file.
    pub async fn load_file(&self, path: &Path) -> Result<Arc<LoadedPlugin>, LoadError> {
        self.load_file_with(path, &|_| {}).await
    }

    /// Loads a component from a file and reports the progress.
    pub async fn load_file_with(&self, path: &Path, progress: &Progress<'_>) -> Result<Arc<LoadedPlugin>, LoadError> {
        self.load_path(path, &Origin::Named, progress).await.map(|(plugin, _)| plugin)
    }

    /// Loads a component from a file of a plugin folder and reports the progress. If the verifier does not allow the
    /// component to be used from the plugin folder, loading fails before any code of the component runs.
    pub async fn load_verified_file_with(
        &self,
        path: &Path,
        progress: &Progress<'_>,
    ) -> Result<Arc<LoadedPlugin>, LoadError> {
        self.load_path(path, &Origin::Folder(path.to_owned()), progress).await.map(|(plugin, _)| plugin)
    }

    /// Loads a component from a file. The result also contains the bytes of the file if they had to be read into
    /// memory. If the compiled code is available and the plugin store has a copy of the component, the file is hashed
    /// without keeping its bytes in memory, because keeping them would double the time for loading.
    pub(crate) async fn load_path(
        &self,
        path: &Path,
        origin: &Origin,
        progress: &Progress<'_>,
    ) -> Result<(Arc<LoadedPlugin>, Option<Arc<Vec<u8>>>), LoadError> {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let (name, context) = (name_of_stem(&stem), self.engine_context()?);
        let (shared, engine_context, file_name, file) =
            (Arc::clone(&self.shared), Arc::clone(&context), name.clone(), path.to_owned());
        let available = blocking(move || find_available_file(&shared, &engine_context, (&file_name, &file))).await??;
        if let Some((known, size)) = available {
            self.verify(origin, &known.identity(&name), None).await?;
            return Ok((self.available_plugin(known, (&name, size, context), progress)?, None));
        }
        let (path, max_bytes) = (path.to_owned(), self.shared.largest_component);
        let bytes = Arc::new(blocking(move || reading::read_component(&path, max_bytes)).await??);
        let plugin = self.load_with_context(context, (&stem, origin), Arc::clone(&bytes), progress).await?;
        Ok((plugin, Some(bytes)))
    }

    /// Loads a component from memory. `name` is the name of the plugin if the component has no manifest.
    pub async fn load_bytes(&self, name: &str, bytes: Vec<u8>) -> Result<Arc<LoadedPlugin>, LoadError> {
        self.load_bytes_with(name, bytes, &|_| {}).await
    }

    /// Loads a component from memory and reports the progress.
    pub async fn load_bytes_with(
        &self,
        name: &str,
        bytes: Vec<u8>,
        progress: &Progress<'_>,
    ) -> Result<Arc<LoadedPlugin>, LoadError> {
        self.load_with_context(self.engine_context()?, (name, &Origin::Named), Arc::new(bytes), progress).await
    }

    /// Loads a component that was read from the plugin store. Fails if the verifier does not allow the component to
    /// be used.
    pub(crate) async fn load_stored_bytes(&self, name: &str, bytes: Vec<u8>) -> Result<Arc<LoadedPlugin>, LoadError> {
        self.load_with_context(self.engine_context()?, (name, &Origin::Store), Arc::new(bytes), &|_| {}).await
    }

    /// Asks the verifier whether a plugin that was loaded from the plugin store may still be used.
    pub(crate) async fn verify_stored(&self, plugin: &LoadedPlugin) -> Result<(), LoadError> {
        self.verify(&Origin::Store, plugin.identity(), None).await
    }

    /// Loads a component with compiled code that counts fuel.
    pub(crate) async fn load_metered(&self, name: &str, bytes: Arc<Vec<u8>>) -> Result<Arc<LoadedPlugin>, LoadError> {
        let context = self.shared.engines.get(Metering::Fuel);
        let context = context.map_err(|error| LoadError::Stopped(error.to_string()))?;
        // The component was verified when it was loaded without metering, so it is not verified a second time.
        self.load_with_context(context, (name, &Origin::Named), bytes, &|_| {}).await
    }

    /// The engine context for plugins whose fuel is not counted.
    fn engine_context(&self) -> Result<Arc<EngineContext>, LoadError> {
        self.shared.engines.get(Metering::Off).map_err(|error| LoadError::Stopped(error.to_string()))
    }

    async fn load_with_context(
        &self,
        context: Arc<EngineContext>,
        (name, origin): (&str, &Origin),
        bytes: Arc<Vec<u8>>,
        progress: &Progress<'_>,
    ) -> Result<Arc<LoadedPlugin>, LoadError> {
        let name = name_of_stem(name);
        let size = bytes.len() as u64;
        let (shared, component) = (Arc::clone(&self.shared), Arc::clone(&bytes));
        let look_up = || {
            let (shared, component, name, context) =
                (Arc::clone(&shared), Arc::clone(&component), name.clone(), Arc::clone(&context));
            blocking(move || find_available(&shared, &context, (&name, &component)))
        };
        let mut found = look_up().await??;
        let mut compile_lock = None;
        if let KnownOrNew::New(claimed) = &mut found {
            self.verify(origin, &claimed.identity, Some(&bytes)).await?;
            if let Some(problem) = claimed.problem.take() {
                return Err(problem);
            }
            compile_lock = compile_lock::acquire(context.cache.as_ref(), &claimed.identity.digest).await;
            // While this process waited for the lock, another process may have compiled the component.
            found = look_up().await??;
        }
        match found {
            KnownOrNew::Known(known) => {
                self.verify(origin, &known.identity(&name), Some(&bytes)).await?;
                self.available_plugin(known, (&name, size, context), progress)
            }
            KnownOrNew::New(claimed) => {
                let plugin_name = claimed.identity.name.clone();
                progress(LoadEvent::Compiling { name: plugin_name.clone(), size });
                let built = self.build(*claimed, bytes, context).await;
                drop(compile_lock);
                if built.is_err() {
                    progress(LoadEvent::Refused { name: plugin_name });
                }
                let plugin = built?;
                self.report_loaded(&name, (&plugin, CodeSource::Compiled), progress);
                Ok(plugin)
            }
        }
    }

    /// Returns the plugin for a component whose compiled code is already loaded or in the cache.
    fn available_plugin(
        &self,
        known: AvailablePlugin,
        (name, size, context): (&str, u64, Arc<EngineContext>),
        progress: &Progress<'_>,
    ) -> Result<Arc<LoadedPlugin>, LoadError> {
        let (plugin, code) = match known {
            AvailablePlugin::Loaded(plugin) => (plugin, CodeSource::Memory),
            AvailablePlugin::Cached { digest, component, facts, pin } => {
                let identity = identity(name, digest, &facts);
                let links = link(&context, &component, &facts)?;
                (loaded(NewComponent::of(identity, context), *facts, links, (size, Some(pin))), CodeSource::Cache)
            }
        };
        self.report_loaded(name, (&plugin, code), progress);
        Ok(plugin)
    }

    fn report_loaded(&self, name: &str, (plugin, code): (&Arc<LoadedPlugin>, CodeSource), progress: &Progress<'_>) {
        self.shared.remember(name, plugin);
        progress(LoadEvent::Loaded { name: plugin.name().to_owned(), code });
    }

    /// Examines and compiles a new component, instantiates and checks each exported plugin kind, and stores the
    /// compiled code.
    async fn build(
        &self,
        claimed: UnverifiedClaims,
        bytes: Arc<Vec<u8>>,
        context: Arc<EngineContext>,
    ) -> Result<Arc<LoadedPlugin>, LoadError> {
        let size = bytes.len() as u64;
        let identity = Arc::new(claimed.identity);
        let development = development::read(&bytes).await?;
        let (examined, pin) = match &development {
            Some(build) => self.examine_development_build(build, &identity, bytes, &context).await?,
            None => (self.examine(&identity, bytes, &context).await?, None),
        };
        let Examined { component, facts: bytes_facts, kinds } = examined;
        if bytes_facts.has_async_lift && !kinds.is_empty() {
            return Err(NotAComponent::AsyncExport.into());
        }
        let mut facts = Facts {
            manifest: claimed.manifest,
            kinds,
            imports: bytes_facts.needed_imports(),
            interfaces: bytes_facts.interfaces,
            tools: Vec::new(),
            generic: Default::default(),
            sources: development.map(|build| build.sources),
        };
        let docs = Arc::new(bytes_facts.docs);
        let mut links = link(&context, &component, &facts)?;
        let new = NewComponent::of(identity, context);
        links.generic = match self.introspect(&new, (&component, &docs), &links, &mut facts).await {
            // The component needs more memory than the default limits allow. The component is loaded anyway, because
            // its agent may configure larger limits. If the agent does not configure larger limits, each call fails
            // with an error that names the limit.
            Err(LoadError::Start(CallFailure::Limit { limit, .. })) if limit.is_memory_limit() => {
                let generous = NewComponent { limits: new.limits.with_maximum_memory(), ..new.clone() };
                self.introspect(&generous, (&component, &docs), &links, &mut facts).await?
            }
            result => result?,
        };
        // The facts about a development build are not stored, because they belong to sources that the author is changing.
        if facts.sources.is_some() {
            return Ok(loaded(new, facts, links, (size, pin)));
        }
        let (context, stored_facts, digest) = (Arc::clone(&new.context), facts.clone(), new.identity.digest.clone());
        let pin = blocking(move || compiled_code::store_in_cache(&context, &digest, &stored_facts, &component)).await?;
        Ok(loaded(new, facts, links, (size, pin)))
    }
}

/// A component that does not have to be compiled, because its compiled code is loaded or in the cache.
enum AvailablePlugin {
    Loaded(Arc<LoadedPlugin>),
    Cached {
        digest: Digest,
        component: Component,
        facts: Box<Facts>,
        /// Prevents the cache from deleting the code while it is in use.
        pin: File,
    },
}

impl AvailablePlugin {
    fn identity(&self, name: &str) -> Arc<PluginIdentity> {
        match self {
            Self::Loaded(plugin) => Arc::clone(&plugin.identity),
            Self::Cached { digest, facts, .. } => identity(name, digest.clone(), facts),
        }
    }

    fn find(shared: &Shared, context: &EngineContext, (name, digest): (&str, &Digest)) -> Option<Self> {
        if let Some(plugin) = shared.loaded(digest, name, context.metering) {
            return Some(Self::Loaded(plugin));
        }
        let (component, facts, pin) = compiled_code::load_stored(context, digest)?;
        Some(Self::Cached { digest: digest.clone(), component, facts: Box::new(facts), pin })
    }
}

/// The information that the host has about a component before it calls the verifier.
enum KnownOrNew {
    /// The compiled code is loaded or in the cache.
    Known(AvailablePlugin),
    /// The compiled code is neither loaded nor in the cache. The host knows only the claims in the component's bytes.
    New(Box<UnverifiedClaims>),
}

/// If the compiled code for a file is available, returns the plugin and the size of the file. Returns None if the code
/// is not available, if the sandbox has a plugin store without a copy of the file, or if the manifest of the component is
/// in a file beside it.
fn find_available_file(
    shared: &Shared,
    context: &EngineContext,
    (name, path): (&str, &Path),
) -> Result<Option<(AvailablePlugin, u64)>, LoadError> {
    if existing_manifest_file(path).is_some() {
        return Ok(None);
    }
    let (digest, size) = reading::digest_of_file(path, shared.largest_component)?;
    let is_stored =
        |store: &PluginStore| reading::open_without_waiting(path).is_ok_and(|file| store.contains(&digest, file));
    if !shared.store.as_ref().is_none_or(is_stored) {
        return Ok(None);
    }
    Ok(AvailablePlugin::find(shared, context, (name, &digest)).map(|known| (known, size)))
}

fn find_available(
    shared: &Shared,
    context: &EngineContext,
    (name, bytes): (&str, &[u8]),
) -> Result<KnownOrNew, LoadError> {
    reading::check_size(bytes.len() as u64, shared.largest_component)?;
    let digest = digest_of(bytes);
    if let Some(known) = AvailablePlugin::find(shared, context, (name, &digest)) {
        return Ok(KnownOrNew::Known(known));
    }
    Ok(KnownOrNew::New(Box::new(UnverifiedClaims::read(name, bytes, digest))))
}

fn identity(name: &str, digest: Digest, facts: &Facts) -> Arc<PluginIdentity> {
    let name = facts.manifest.as_ref().map_or(name, |manifest| &manifest.name).to_owned();
    Arc::new(PluginIdentity { name, digest })
}

fn loaded(new: NewComponent, mut facts: Facts, links: Links, (size, pin): (u64, Option<File>)) -> Arc<LoadedPlugin> {
    let NewComponent { identity, context, .. } = new;
    facts.generic.name_command((&identity.name, facts.manifest.as_ref()), &mut facts.tools);
    Arc::new(LoadedPlugin {
        identity,
        facts,
        size,
        links,
        engine_context: context,
        metered: OnceCell::new(),
        _pin: pin,
    })
}

fn reason(error: &wasmtime::Error) -> String {
    clean(&format!("{error:#}"), REASON_BYTES)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, LoadError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| LoadError::Stopped(error.to_string()))
}
