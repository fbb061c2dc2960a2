//! From bytes to a plugin (P15): size and digest, the lock and the signature, and only then a child process that examines and
//! compiles the bytes, or the cache; then linking, and asking the component once what it is.

mod claim;
mod code;
mod error;
mod learning;
mod linking;
mod reading;
mod vetted;

pub use error::LoadError;
pub use reading::read_component;
pub(crate) use vetted::Origin;

use crate::engine::Metering;
use crate::failure::CallFailure;
use crate::identity::PluginIdentity;
use crate::introduction::Claimed;
use crate::limits::REASON_BYTES;
use crate::manifest::name_of_stem;
use crate::plugin::{Facts, Links, LoadedPlugin};
use crate::room::Room;
use crate::sandbox::{Sandbox, Shared};
use crate::scan::NotAComponent;
use crate::store::{PluginStore, digest_of};
use crate::text::clean;
use agent_core::message::Digest;
use code::Examined;
use learning::New;
use linking::link;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::OnceCell;
use wasmtime::component::Component;

/// Progress of loading, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadEvent {
    /// An unknown component is being compiled.
    Compiling {
        /// Its name.
        name: String,
        /// Its bytes.
        size: u64,
    },
    /// What was compiled is no plugin, or could not be compiled.
    Refused {
        /// Its name.
        name: String,
    },
    /// It is ready.
    Loaded {
        /// Its name.
        name: String,
        /// Where its compiled code came from.
        code: CodeSource,
    },
}

/// Where compiled code came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeSource {
    /// The compiler.
    Compiled,
    /// The cache on disk, verified.
    Cache,
    /// This process had it loaded already.
    Memory,
}

/// Is told about progress; from any thread.
pub type Progress<'a> = dyn Fn(LoadEvent) + Send + Sync + 'a;

impl Sandbox {
    /// Loads a component from a file.
    pub async fn load_file(&self, path: &Path) -> Result<Arc<LoadedPlugin>, LoadError> {
        self.load_file_with(path, &|_| {}).await
    }

    /// Loads a component from a file, telling about its progress.
    pub async fn load_file_with(&self, path: &Path, progress: &Progress<'_>) -> Result<Arc<LoadedPlugin>, LoadError> {
        self.load_path(path, &Origin::Named, progress).await.map(|(plugin, _)| plugin)
    }

    /// The same for who is served by it: what may not serve from its folder is refused before anything of it runs.
    pub async fn load_serving_file_with(
        &self,
        path: &Path,
        progress: &Progress<'_>,
    ) -> Result<Arc<LoadedPlugin>, LoadError> {
        self.load_path(path, &Origin::Folder(path.to_owned()), progress).await.map(|(plugin, _)| plugin)
    }

    /// The same, with the file's bytes where they had to be read. Those that are known here, with a copy in the plugin store,
    /// are only looked at: reading them whole takes as long as all the rest.
    pub(crate) async fn load_path(
        &self,
        path: &Path,
        origin: &Origin,
        progress: &Progress<'_>,
    ) -> Result<(Arc<LoadedPlugin>, Option<Arc<Vec<u8>>>), LoadError> {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let (name, room) = (name_of_stem(&stem), self.room()?);
        let (shared, there, known, file) = (Arc::clone(&self.shared), Arc::clone(&room), name.clone(), path.to_owned());
        let look = blocking(move || look_at_file(&shared, &there, (&known, &file))).await??;
        if let Some((known, size)) = look {
            self.vet(origin, &known.identity(&name), None).await?;
            return Ok((self.ready(known, (&name, size, room), progress)?, None));
        }
        let (path, most) = (path.to_owned(), self.shared.largest_component);
        let bytes = Arc::new(blocking(move || reading::read_component(&path, most)).await??);
        let plugin = self.load_in(room, (&stem, origin), Arc::clone(&bytes), progress).await?;
        Ok((plugin, Some(bytes)))
    }

    /// Loads a component from memory. `name` is its name if it has no manifest.
    pub async fn load_bytes(&self, name: &str, bytes: Vec<u8>) -> Result<Arc<LoadedPlugin>, LoadError> {
        self.load_bytes_with(name, bytes, &|_| {}).await
    }

    /// Loads a component from memory, telling about its progress.
    pub async fn load_bytes_with(
        &self,
        name: &str,
        bytes: Vec<u8>,
        progress: &Progress<'_>,
    ) -> Result<Arc<LoadedPlugin>, LoadError> {
        self.load_in(self.room()?, (name, &Origin::Named), Arc::new(bytes), progress).await
    }

    /// Loads a component of the plugin store, if it may serve.
    pub(crate) async fn load_kept(&self, name: &str, bytes: Vec<u8>) -> Result<Arc<LoadedPlugin>, LoadError> {
        self.load_in(self.room()?, (name, &Origin::Store), Arc::new(bytes), &|_| {}).await
    }

    /// Whether a plugin of the store that is loaded already may serve.
    pub(crate) async fn vet_kept(&self, plugin: &LoadedPlugin) -> Result<(), LoadError> {
        self.vet(&Origin::Store, plugin.identity(), None).await
    }

    /// Loads a component so that its fuel is counted.
    pub(crate) async fn load_metered(&self, name: &str, bytes: Arc<Vec<u8>>) -> Result<Arc<LoadedPlugin>, LoadError> {
        let room = self.shared.rooms.room(Metering::Fuel);
        let room = room.map_err(|error| LoadError::Stopped(error.to_string()))?;
        // It is one that serves.
        self.load_in(room, (name, &Origin::Named), bytes, &|_| {}).await
    }

    /// That of plugins whose fuel is not counted.
    fn room(&self) -> Result<Arc<Room>, LoadError> {
        self.shared.rooms.room(Metering::Off).map_err(|error| LoadError::Stopped(error.to_string()))
    }

    async fn load_in(
        &self,
        room: Arc<Room>,
        (name, origin): (&str, &Origin),
        bytes: Arc<Vec<u8>>,
        progress: &Progress<'_>,
    ) -> Result<Arc<LoadedPlugin>, LoadError> {
        let name = name_of_stem(name);
        let size = bytes.len() as u64;
        let (shared, known) = (Arc::clone(&self.shared), Arc::clone(&bytes));
        let look = || {
            let (shared, known, name, room) =
                (Arc::clone(&shared), Arc::clone(&known), name.clone(), Arc::clone(&room));
            blocking(move || first_look(&shared, &room, (&name, &known)))
        };
        let mut first = look().await??;
        let mut claim = None;
        if let FirstLook::Unknown(claimed) = &mut first {
            self.vet(origin, &claimed.identity, Some(&bytes)).await?;
            if let Some(problem) = claimed.problem.take() {
                return Err(problem);
            }
            claim = claim::claim(room.cache.as_ref(), &claimed.identity.digest).await;
            // Another process may have compiled it meanwhile.
            first = look().await??;
        }
        match first {
            FirstLook::Known(known) => {
                self.vet(origin, &known.identity(&name), Some(&bytes)).await?;
                self.ready(known, (&name, size, room), progress)
            }
            FirstLook::Unknown(claimed) => {
                let shown = claimed.identity.name.clone();
                progress(LoadEvent::Compiling { name: shown.clone(), size });
                let built = self.build(*claimed, bytes, room).await;
                drop(claim);
                if built.is_err() {
                    progress(LoadEvent::Refused { name: shown });
                }
                let plugin = built?;
                self.tell_loaded(&name, (&plugin, CodeSource::Compiled), progress);
                Ok(plugin)
            }
        }
    }

    /// The plugin of a component whose code is there.
    fn ready(
        &self,
        known: Known,
        (name, size, room): (&str, u64, Arc<Room>),
        progress: &Progress<'_>,
    ) -> Result<Arc<LoadedPlugin>, LoadError> {
        let (plugin, code) = match known {
            Known::Loaded(plugin) => (plugin, CodeSource::Memory),
            Known::Cached { digest, component, facts, pin } => {
                let identity = identity(name, digest, &facts);
                let links = link(&room, &component, &facts)?;
                (loaded(New::of(identity, room), *facts, links, (size, Some(pin))), CodeSource::Cache)
            }
        };
        self.tell_loaded(name, (&plugin, code), progress);
        Ok(plugin)
    }

    fn tell_loaded(&self, name: &str, (plugin, code): (&Arc<LoadedPlugin>, CodeSource), progress: &Progress<'_>) {
        self.shared.remember(name, plugin);
        progress(LoadEvent::Loaded { name: plugin.name().to_owned(), code });
    }

    /// Has an unknown component examined and compiled, checks each exported kind in an instance, and keeps the compiled code.
    async fn build(
        &self,
        claimed: Claimed,
        bytes: Arc<Vec<u8>>,
        room: Arc<Room>,
    ) -> Result<Arc<LoadedPlugin>, LoadError> {
        let size = bytes.len() as u64;
        let identity = Arc::new(claimed.identity);
        let Examined { component, facts: found, kinds } = self.examine(&identity, bytes, &room).await?;
        if found.has_async_lift && !kinds.is_empty() {
            return Err(NotAComponent::AsyncExport.into());
        }
        let mut facts = Facts {
            manifest: claimed.manifest,
            kinds,
            imports: found.needed_imports(),
            interfaces: found.interfaces,
            tools: Vec::new(),
            plain: Default::default(),
        };
        let docs = Arc::new(found.docs);
        let mut links = link(&room, &component, &facts)?;
        let new = New::of(identity, room);
        links.plain = match self.learn_all(&new, (&component, &docs), &links, &mut facts).await {
            // Its agent may be configured to give it more: then its calls say what it has too little of.
            Err(LoadError::Start(CallFailure::Limit { limit, .. })) if limit.is_room() => {
                let roomy = New { limits: new.limits.roomy(), ..new.clone() };
                self.learn_all(&roomy, (&component, &docs), &links, &mut facts).await?
            }
            learned => learned?,
        };
        let (there, kept, digest) = (Arc::clone(&new.room), facts.clone(), new.identity.digest.clone());
        let pin = blocking(move || code::keep(&there, &digest, &kept, &component)).await?;
        Ok(loaded(new, facts, links, (size, pin)))
    }
}

/// A component whose code is there.
enum Known {
    Loaded(Arc<LoadedPlugin>),
    Cached {
        digest: Digest,
        component: Component,
        facts: Box<Facts>,
        /// Keeps the code in the cache as long as it is in use.
        pin: File,
    },
}

impl Known {
    fn identity(&self, name: &str) -> Arc<PluginIdentity> {
        match self {
            Self::Loaded(plugin) => Arc::clone(&plugin.identity),
            Self::Cached { digest, facts, .. } => identity(name, digest.clone(), facts),
        }
    }

    fn find(shared: &Shared, room: &Room, (name, digest): (&str, &Digest)) -> Option<Self> {
        if let Some(plugin) = shared.loaded(digest, name, room.metering) {
            return Some(Self::Loaded(plugin));
        }
        let (component, facts, pin) = code::cached(room, digest)?;
        Some(Self::Cached { digest: digest.clone(), component, facts: Box::new(facts), pin })
    }
}

/// What is known of the bytes before anything is asked about them.
enum FirstLook {
    /// Their code is here.
    Known(Known),
    /// Only what they claim to be.
    Unknown(Box<Claimed>),
}

/// A file whose component is known, and kept in the store where there is one; with its size.
fn look_at_file(shared: &Shared, room: &Room, (name, path): (&str, &Path)) -> Result<Option<(Known, u64)>, LoadError> {
    let (digest, size) = reading::digest_of_file(path, shared.largest_component)?;
    let is_kept =
        |store: &PluginStore| reading::open_without_waiting(path).is_ok_and(|file| store.holds(&digest, file));
    if !shared.store.as_ref().is_none_or(is_kept) {
        return Ok(None);
    }
    Ok(Known::find(shared, room, (name, &digest)).map(|known| (known, size)))
}

fn first_look(shared: &Shared, room: &Room, (name, bytes): (&str, &[u8])) -> Result<FirstLook, LoadError> {
    reading::check_size(bytes.len() as u64, shared.largest_component)?;
    let digest = digest_of(bytes);
    if let Some(known) = Known::find(shared, room, (name, &digest)) {
        return Ok(FirstLook::Known(known));
    }
    Ok(FirstLook::Unknown(Box::new(Claimed::read(name, bytes, digest))))
}

fn identity(name: &str, digest: Digest, facts: &Facts) -> Arc<PluginIdentity> {
    let name = facts.manifest.as_ref().map_or(name, |manifest| &manifest.name).to_owned();
    Arc::new(PluginIdentity { name, digest })
}

fn loaded(new: New, mut facts: Facts, links: Links, (size, pin): (u64, Option<File>)) -> Arc<LoadedPlugin> {
    let New { identity, room, .. } = new;
    facts.plain.name_command(&identity.name, &mut facts.tools);
    Arc::new(LoadedPlugin { identity, facts, size, links, room, metered: OnceCell::new(), _pin: pin })
}

fn reason(error: &wasmtime::Error) -> String {
    clean(&format!("{error:#}"), REASON_BYTES)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, LoadError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| LoadError::Stopped(error.to_string()))
}
