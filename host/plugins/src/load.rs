//! From bytes to a plugin: looked at, checked, compiled or found in the cache, linked, and asked once what it is.

use crate::admission::LaneName;
use crate::bindings::exports::agent_host::plugin as exports;
use crate::compiler::{self, CompilerError};
use crate::engine::Metering;
use crate::failure::{CallFailure, Stop};
use crate::identity::{Authority, Kind, PluginIdentity};
use crate::imports::{self, Imports, InterfaceProblem};
use crate::limits::{COMPONENT_BYTES, CallLimits, DEFINITIONS_TIME, ERROR_TEXT_BYTES, LIFTED_BYTES_WITHOUT_MEDIA};
use crate::manifest::{Manifest, ManifestError, name_of_stem};
use crate::plain::{self, LeftOut, Told};
use crate::plugin::{Entrance, Facts, Links, LoadedPlugin};
use crate::room::Room;
use crate::run::{GuestStore, Ticket};
use crate::sandbox::{Sandbox, Shared};
use crate::scan::{NotAComponent, imports_of_types, scan};
use crate::state::{CallState, Reach};
use crate::store::{PluginStoreError, digest_of};
use crate::text::clean;
use crate::tools;
use agent_core::message::Digest;
use agent_core::tool::ToolDefinition;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
use wasmtime::component::{Component, InstancePre};

/// A file that cannot be a plugin. The messages complete "`file`: …".
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Reading failed.
    #[error("it cannot be read: {0}")]
    Read(#[from] std::io::Error),
    /// It is too large.
    #[error("it has {size} bytes; a component may have at most {COMPONENT_BYTES}")]
    TooLarge {
        /// Its bytes, as far as they are known.
        size: u64,
    },
    /// It is something else.
    #[error(transparent)]
    NotAComponent(#[from] NotAComponent),
    /// It needs or exports an interface that this host does not have.
    #[error(transparent)]
    Interface(#[from] InterfaceProblem),
    /// Its manifest is broken.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// It is a component, but there is nothing in it to call.
    #[error(
        "it exports none of the four plugin kinds (tool, context-builder, output-validator, media-policy of \
         agent-host:plugin@0.1.x) and no function that can be a tool{}",
        reasons(left_out)
    )]
    NothingOffered {
        /// What it exports, and why that is no tool.
        left_out: Vec<LeftOut>,
    },
    /// Compiling failed.
    #[error("it cannot be compiled: {reason}")]
    Compile {
        /// What the compiler said.
        reason: String,
    },
    /// Compiling took too long.
    #[error("it was not compiled within {0:?}; make it smaller, or try again when the machine is less busy")]
    CompileTime(Duration),
    /// An import has another type than this host gives it.
    #[error("its imports do not fit: {reason}; rebuild it against agent-host:plugin@0.1.x and WASI 0.2")]
    Link {
        /// What does not fit.
        reason: String,
    },
    /// An export has another type than the contract.
    #[error("its export {kind} does not fit the contract: {reason}; rebuild it against agent-host:plugin@0.1.x")]
    Export {
        /// Which export.
        kind: Kind,
        /// What does not fit.
        reason: String,
    },
    /// It could not be started, or its definitions failed.
    #[error("it cannot be started: {0}")]
    Start(#[source] CallFailure),
    /// What it says about its tools is not allowed.
    #[error("the tool definitions of {plugin} are not usable: {reason}")]
    Definitions {
        /// Whose.
        plugin: Arc<PluginIdentity>,
        /// Which tool, and why.
        reason: String,
    },
    /// Another plugin has its name.
    #[error("its name `{name}` is taken by {}; rename one of them in its plugin.toml", other.display())]
    DuplicateName {
        /// The name.
        name: String,
        /// The file that has it.
        other: PathBuf,
    },
    /// It cannot be kept.
    #[error(transparent)]
    Store(#[from] PluginStoreError),
    /// The host gave up.
    #[error("the host stopped loading it: {0}")]
    Stopped(String),
}

impl LoadError {
    /// Whether the same bytes will be refused by this host whenever they are tried; else it may go better another time.
    pub fn is_lasting(&self) -> bool {
        match self {
            LoadError::TooLarge { .. }
            | LoadError::NotAComponent(_)
            | LoadError::Interface(_)
            | LoadError::Manifest(_)
            | LoadError::NothingOffered { .. }
            | LoadError::Link { .. }
            | LoadError::Export { .. }
            | LoadError::Definitions { .. }
            | LoadError::DuplicateName { .. } => true,
            LoadError::Start(failure) => {
                matches!(failure, CallFailure::Trap { .. } | CallFailure::InvalidResult { .. })
            }
            // A compiler may have been stopped by a machine that is full.
            LoadError::Compile { .. }
            | LoadError::CompileTime(_)
            | LoadError::Read(_)
            | LoadError::Store(_)
            | LoadError::Stopped(_) => false,
        }
    }
}

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
        self.load_with_bytes(path, progress).await.map(|(plugin, _)| plugin)
    }

    /// The same, with the file's bytes: a plugin does not hold them, since they are as much as its code again.
    pub(crate) async fn load_with_bytes(
        &self,
        path: &Path,
        progress: &Progress<'_>,
    ) -> Result<(Arc<LoadedPlugin>, Arc<Vec<u8>>), LoadError> {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let path = path.to_owned();
        let bytes = Arc::new(blocking(move || read_component(&path)).await??);
        Ok((self.load(&stem, Arc::clone(&bytes), progress).await?, bytes))
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
        self.load(name, Arc::new(bytes), progress).await
    }

    /// Loads a component so that its fuel is counted.
    pub(crate) async fn load_metered(&self, name: &str, bytes: Arc<Vec<u8>>) -> Result<Arc<LoadedPlugin>, LoadError> {
        let room = self.shared.rooms.room(Metering::Fuel);
        let room = room.map_err(|error| LoadError::Stopped(error.to_string()))?;
        self.load_in(room, name, bytes, &|_| {}).await
    }

    async fn load(
        &self,
        name: &str,
        bytes: Arc<Vec<u8>>,
        progress: &Progress<'_>,
    ) -> Result<Arc<LoadedPlugin>, LoadError> {
        let room = self.shared.rooms.room(Metering::Off);
        let room = room.map_err(|error| LoadError::Stopped(error.to_string()))?;
        self.load_in(room, name, bytes, progress).await
    }

    async fn load_in(
        &self,
        room: Arc<Room>,
        name: &str,
        bytes: Arc<Vec<u8>>,
        progress: &Progress<'_>,
    ) -> Result<Arc<LoadedPlugin>, LoadError> {
        let name = name_of_stem(name);
        let size = bytes.len() as u64;
        let (shared, known) = (Arc::clone(&self.shared), Arc::clone(&bytes));
        let first = {
            let (name, room) = (name.clone(), Arc::clone(&room));
            blocking(move || first_look(&shared, &room, (&name, &known))).await??
        };
        let (plugin, code) = match first {
            FirstLook::Loaded(plugin) => (plugin, CodeSource::Memory),
            FirstLook::Cached { digest, component, facts } => {
                let identity = identity(&name, digest, &facts);
                let links = link(&room, &component, &facts)?;
                (loaded(identity, facts, links, (size, room)), CodeSource::Cache)
            }
            FirstLook::Unknown { digest, facts } => {
                let shown = identity(&name, digest.clone(), &facts).name.clone();
                progress(LoadEvent::Compiling { name: shown.clone(), size });
                let built = self.build(&name, (digest, facts), bytes, room).await;
                if built.is_err() {
                    progress(LoadEvent::Refused { name: shown });
                }
                (built?, CodeSource::Compiled)
            }
        };
        self.shared.remember(&name, &plugin);
        progress(LoadEvent::Loaded { name: plugin.name().to_owned(), code });
        Ok(plugin)
    }

    /// Compiles an unknown component, checks each exported kind in an instance, and keeps the compiled code.
    async fn build(
        &self,
        name: &str,
        (digest, mut facts): (Digest, Facts),
        bytes: Arc<Vec<u8>>,
        room: Arc<Room>,
    ) -> Result<Arc<LoadedPlugin>, LoadError> {
        let size = bytes.len() as u64;
        let component = self.compile(Arc::clone(&bytes), &room).await?;
        let identity = identity(name, digest, &facts);
        let mut links = link(&room, &component, &facts)?;
        let new = New { identity, room };
        facts.tools = self.learn(&new, &links).await?;
        links.plain = self.learn_functions(&new, &component, bytes, &mut facts).await?;
        let New { identity, room } = new;
        let (there, kept, digest) = (Arc::clone(&room), facts.clone(), identity.digest.clone());
        blocking(move || keep(&there, &digest, &kept, &component)).await?;
        Ok(loaded(identity, facts, links, (size, room)))
    }

    async fn compile(&self, bytes: Arc<Vec<u8>>, room: &Arc<Room>) -> Result<Component, LoadError> {
        let permit = Arc::clone(&self.shared.compiling).acquire_owned().await;
        if let Some(command) = &self.shared.compiler {
            let limit = self.shared.compile_time;
            let compiled = compiler::compile(command, room, &bytes, limit).await;
            let code = compiled.map_err(|error| match error {
                CompilerError::Time => LoadError::CompileTime(limit),
                error => LoadError::Compile { reason: error.to_string() },
            })?;
            let room = Arc::clone(room);
            let loaded = blocking(move || deserialize(&room, &code)).await?;
            drop(permit);
            return loaded.map_err(|error| LoadError::Compile { reason: reason(&error) });
        }
        let engine = room.engine.clone();
        let compiled = blocking(move || {
            let compiled = Component::from_binary(&engine, &bytes);
            drop(permit);
            compiled
        });
        let limit = self.shared.compile_time;
        let compiled = tokio::time::timeout(limit, compiled).await.map_err(|_| LoadError::CompileTime(limit))??;
        compiled.map_err(|error| LoadError::Compile { reason: reason(&error) })
    }

    /// Finds the plain functions (P3). They are looked at off the async threads, and the component is started once.
    async fn learn_functions(
        &self,
        new: &New,
        component: &Component,
        bytes: Arc<Vec<u8>>,
        facts: &mut Facts,
    ) -> Result<Option<plain::PlainLinks>, LoadError> {
        let (looked_at, known) = (component.clone(), facts.clone());
        let (found, tools) = blocking(move || {
            let (manifest, imports) = (known.manifest.as_ref(), known.imports.as_slice());
            plain::survey(&looked_at, &Told { bytes: &bytes, manifest, imports, tools: &known.tools })
        })
        .await?;
        if facts.kinds.is_empty() && tools.is_empty() {
            return Err(LoadError::NothingOffered { left_out: found.left_out });
        }
        for function in &found.left_out {
            tracing::info!(plugin = %new.identity, "{function}");
        }
        facts.plain = found;
        facts.tools.extend(tools);
        let imports = imports::check(facts.imports.iter().map(String::as_str))?;
        let links = link_plain(&new.room, component, facts, imports)?;
        if let Some(links) = &links {
            self.check_kind(new, Kind::Tool, links.instance(), |_, _| Ok(())).await?;
        }
        Ok(links)
    }

    /// Instantiates each exported kind once without grants, which checks all types of its functions, and asks for the
    /// tools.
    async fn learn(&self, new: &New, links: &Links) -> Result<Vec<ToolDefinition>, LoadError> {
        macro_rules! check {
            ($entrance:expr, $kind:expr) => {
                if let Some(entrance) = $entrance {
                    let load = |store: &mut _, instance: &_| entrance.indices.load(store, instance).map(drop);
                    self.check_kind(new, $kind, &entrance.instance, load).await?;
                }
            };
        }
        check!(&links.context_builder, Kind::ContextBuilder);
        check!(&links.step_context, Kind::StepContext);
        check!(&links.output_validator, Kind::OutputValidator);
        check!(&links.media_policy, Kind::MediaPolicy);
        check!(&links.tool, Kind::Tool);
        let Some(tool) = &links.tool else { return Ok(Vec::new()) };
        let report = self
            .run(load_ticket(new, Kind::Tool), |mut store, _| async move {
                let instance = tool.instance.instantiate_async(&mut store).await?;
                let guest = tool.indices.load(&mut store, &instance)?;
                Ok::<_, Stop>(guest.call_definitions(&mut store).await?)
            })
            .await;
        let definitions = report.result.map_err(LoadError::Start)?;
        let refused = |reason| LoadError::Definitions { plugin: Arc::clone(&new.identity), reason };
        tools::definitions_in(definitions).map_err(refused)
    }

    async fn check_kind(
        &self,
        new: &New,
        kind: Kind,
        pre: &InstancePre<CallState>,
        load: impl FnOnce(&mut GuestStore, &wasmtime::component::Instance) -> wasmtime::Result<()>,
    ) -> Result<(), LoadError> {
        let report = self
            .run(load_ticket(new, kind), |mut store, _| async move {
                let instance = pre.instantiate_async(&mut store).await?;
                Ok::<_, Stop>(load(&mut store, &instance))
            })
            .await;
        let loaded = report.result.map_err(LoadError::Start)?;
        loaded.map_err(|error| LoadError::Export { kind, reason: reason(&error) })
    }
}

/// What the bytes are, by themselves and by what is remembered of them.
enum FirstLook {
    Loaded(Arc<LoadedPlugin>),
    Cached { digest: Digest, component: Component, facts: Facts },
    Unknown { digest: Digest, facts: Facts },
}

/// A component that is being loaded.
struct New {
    identity: Arc<PluginIdentity>,
    room: Arc<Room>,
}

fn first_look(shared: &Shared, room: &Room, (name, bytes): (&str, &[u8])) -> Result<FirstLook, LoadError> {
    check_size(bytes.len() as u64)?;
    let digest = digest_of(bytes);
    if let Some(plugin) = shared.loaded(&digest, name, room.metering) {
        return Ok(FirstLook::Loaded(plugin));
    }
    if let Some((component, facts)) = cached(room, &digest) {
        return Ok(FirstLook::Cached { digest, component, facts });
    }
    let mut scan = scan(bytes)?;
    if imports::check(scan.imports.iter().map(String::as_str)).is_err() {
        // Looking closer costs more, and is for the few whose imports have names that are not known here.
        let of_types = imports_of_types(bytes, &scan.imports);
        scan.imports.retain(|name| !of_types.contains(name));
        imports::check(scan.imports.iter().map(String::as_str))?;
    }
    let kinds = imports::kinds(scan.exports.iter().map(String::as_str))?;
    if scan.has_async_lift && !kinds.is_empty() {
        return Err(NotAComponent::AsyncExport.into());
    }
    let manifest = scan.manifest.as_deref().map(Manifest::from_section).transpose()?;
    let facts = Facts { manifest, kinds, imports: scan.imports, tools: Vec::new(), plain: Default::default() };
    Ok(FirstLook::Unknown { digest, facts })
}

fn cached(room: &Room, digest: &Digest) -> Option<(Component, Facts)> {
    let entry = room.cache.as_ref()?.get(digest)?;
    let facts = serde_json::from_slice(entry.record()).ok()?;
    match deserialize(room, entry.code()) {
        Ok(component) => Some((component, facts)),
        Err(error) => {
            tracing::warn!(%digest, %error, "compiled code in the cache is not usable; it is built again");
            None
        }
    }
}

#[allow(
    unsafe_code,
    reason = "compiled code can only be loaded unsafely; its origin is the cache's keyed hash, or the own child's pipe"
)]
fn deserialize(room: &Room, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: these bytes are what wasmtime's compiler made in this program for this engine. An entry of the cache only
    // exists after its keyed hash was verified over exactly them, with a key that only this user can read; what a child
    // made came whole through a pipe that only the two of them have.
    unsafe { Component::deserialize(&room.engine, code) }
}

/// Keeps compiled code and facts for the next start. Failing is no reason not to run.
fn keep(room: &Room, digest: &Digest, facts: &Facts, component: &Component) {
    let Some(cache) = &room.cache else { return };
    let record = serde_json::to_vec(facts).map_err(std::io::Error::other);
    let code = component.serialize().map_err(std::io::Error::other);
    let kept = record.and_then(|record| cache.put(digest, &record, &code?));
    if let Err(error) = kept {
        tracing::warn!(%digest, %error, "compiled code cannot be kept; the next start compiles again");
    }
}

/// Resolves imports and finds the functions of each exported kind.
fn link(room: &Room, component: &Component, facts: &Facts) -> Result<Links, LoadError> {
    let imports = imports::check(facts.imports.iter().map(String::as_str))?;
    let has = |kind: &Kind| facts.kinds.contains(kind);
    let instance = |authority| link_with(room, component, authority, imports);
    let mut links = Links::default();
    if facts.kinds.iter().any(|kind| kind.authority() == Authority::Granted) {
        let granted = instance(Authority::Granted)?;
        links.tool = entrance(Kind::Tool, has, &granted, exports::tool::GuestIndices::new)?;
        links.context_builder =
            entrance(Kind::ContextBuilder, has, &granted, exports::context_builder::GuestIndices::new)?;
        links.step_context = entrance(Kind::StepContext, has, &granted, exports::step_context::GuestIndices::new)?;
    }
    if facts.kinds.iter().any(|kind| kind.authority() == Authority::Inert) {
        let inert = instance(Authority::Inert)?;
        links.output_validator =
            entrance(Kind::OutputValidator, has, &inert, exports::output_validator::GuestIndices::new)?;
        links.media_policy = entrance(Kind::MediaPolicy, has, &inert, exports::media_policy::GuestIndices::new)?;
    }
    links.plain = link_plain(room, component, facts, imports)?;
    Ok(links)
}

fn link_with(
    room: &Room,
    component: &Component,
    authority: Authority,
    imports: Imports,
) -> Result<InstancePre<CallState>, LoadError> {
    let linked = room.linkers.link(component, authority, imports);
    linked.map_err(|error| LoadError::Link { reason: reason(&error) })
}

fn link_plain(
    room: &Room,
    component: &Component,
    facts: &Facts,
    imports: Imports,
) -> Result<Option<plain::PlainLinks>, LoadError> {
    if facts.plain.functions.is_empty() {
        return Ok(None);
    }
    let instance = link_with(room, component, Authority::Granted, imports)?;
    plain::link(&facts.plain, instance).map(Some)
}

fn reasons(left_out: &[LeftOut]) -> String {
    let some = left_out.iter().take(4).map(|function| format!("; {function}"));
    some.collect::<String>()
        + "; build it with the SDK, from the contract in wit/, or with exports that take and give data"
}

fn entrance<Indices>(
    kind: Kind,
    has: impl Fn(&Kind) -> bool,
    instance: &InstancePre<CallState>,
    indices: impl FnOnce(&InstancePre<CallState>) -> wasmtime::Result<Indices>,
) -> Result<Option<Entrance<Indices>>, LoadError> {
    if !has(&kind) {
        return Ok(None);
    }
    let indices = indices(instance).map_err(|error| LoadError::Export { kind, reason: reason(&error) })?;
    Ok(Some(Entrance { instance: instance.clone(), indices }))
}

fn load_ticket(new: &New, kind: Kind) -> Ticket {
    Ticket {
        plugin: Arc::clone(&new.identity),
        room: Arc::clone(&new.room),
        fuel: None,
        call: "load".to_owned(),
        agent: Arc::from(""),
        asked: 0,
        lane: LaneName::Loading,
        wall: DEFINITIONS_TIME,
        cpu: DEFINITIONS_TIME,
        memory: CallLimits::default().memory,
        lifted: LIFTED_BYTES_WITHOUT_MEDIA,
        reach: Reach::nothing(kind.authority()),
        unmet: Arc::default(),
        trial: None,
    }
}

fn identity(name: &str, digest: Digest, facts: &Facts) -> Arc<PluginIdentity> {
    let name = facts.manifest.as_ref().map_or(name, |manifest| &manifest.name).to_owned();
    Arc::new(PluginIdentity { name, digest })
}

fn loaded(
    identity: Arc<PluginIdentity>,
    mut facts: Facts,
    links: Links,
    (size, room): (u64, Arc<Room>),
) -> Arc<LoadedPlugin> {
    facts.plain.name_command(&identity.name, &mut facts.tools);
    Arc::new(LoadedPlugin { identity, facts, size, links, room, metered: OnceCell::new() })
}

fn read_component(path: &Path) -> Result<Vec<u8>, LoadError> {
    // Opening a named pipe waits for its writer, so this comes first; what was opened counts.
    check_regular(&path.metadata()?)?;
    let file = std::fs::File::open(path)?;
    let metadata = file.metadata()?;
    check_regular(&metadata)?;
    check_size(metadata.len())?;
    let mut bytes = Vec::with_capacity(metadata.len() as usize);
    file.take(COMPONENT_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn check_regular(metadata: &std::fs::Metadata) -> std::io::Result<()> {
    if metadata.is_file() { Ok(()) } else { Err(std::io::Error::other("it is not a regular file")) }
}

fn check_size(size: u64) -> Result<(), LoadError> {
    if size > COMPONENT_BYTES { Err(LoadError::TooLarge { size }) } else { Ok(()) }
}

fn reason(error: &wasmtime::Error) -> String {
    clean(&format!("{error:#}"), ERROR_TEXT_BYTES)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, LoadError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| LoadError::Stopped(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    // What is no regular file is refused before it is opened, since opening some of them waits for ever.
    #[cfg(unix)]
    #[test]
    fn only_regular_files_are_opened() {
        let directory = tempfile::tempdir().expect("a directory");
        let pipe = directory.path().join("x.wasm");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
        assert!(made.success());
        for path in [pipe.as_path(), directory.path()] {
            let error = read_component(path).expect_err("refused").to_string();
            assert!(error.contains("not a regular file"), "{error}");
        }
    }
}
