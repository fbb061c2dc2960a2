//! The sandbox for plugins: loads, verifies, links and calls WebAssembly components. No other crate uses wasmtime, and
//! no wasmtime type appears in the public interface of this crate.
//!
//! A [`Sandbox`] contains the engine and its limits, and loads component files as [`LoadedPlugin`]s. A [`Generation`]
//! is an immutable set of plugins. A [`PluginSetup`] is a plugin with an agent's grants. Each call runs in a new
//! instance and returns a [`CallReport`].
//!
//! The modules form layers. Each module imports only from modules that come later in this list: `deployment`, `call`,
//! `component`, `execution`, `capabilities`, `contract`, `recording`, `file_trees`, `grants`, `ports`, `binary`, and
//! the small modules `limits`, `identity`, `text` and `sync`.

mod binary;
mod call;
mod capabilities;
mod component;
mod contract;
mod deployment;
mod execution;
mod file_trees;
#[cfg(fuzzing)]
pub mod fuzzing;
mod grants;
mod identity;
pub mod limits;
mod ports;
mod recording;
mod sync;
mod text;

pub use binary::development::{is_development_build, with_sources};
pub use binary::imports::InterfaceProblem;
pub use binary::metadata::ComponentMetadata;
pub use binary::scan::{Interfaces, ModuleTarget, NotAComponent};
pub use binary::sections::{MANIFEST_SECTION, interfaces};
pub use binary::structure::StructureProblem;
pub use call::kinds::{ToolCallContext, ToolCallRequest};
pub use call::plugin_setup::PluginSetup;
pub use capabilities::http::{NameResolver, SystemResolver};
pub use component::atomic_write::write_file_atomically;
pub use component::claims::{ComponentClaims, read_claims};
pub use component::compiler::{CodeTooLarge, CompileTimeout, CompilerCommand, serve_compiler};
pub use component::component_source::{ComponentSource, ComponentSources, FindError, FoundComponent};
pub use component::engine_context::SandboxError;
pub use component::generic::SkippedExport;
pub use component::load::stored::GenerationError;
pub use component::load::{CodeSource, InstallError, LoadEvent, Progress, read_component, read_component_alone};
pub use component::load_error::LoadError;
pub use component::manifest_file::{existing_manifest_file, manifest_file_of};
pub use component::plugin::{LoadedPlugin, ProgramTool};
pub use component::plugin_store::{PluginStore, PluginStoreError, StoredComponent, digest_of};
pub use component::quarantine::{Quarantine, QuarantineEntry};
pub use component::regular_file::{open_regular_file, read_regular_file};
pub use component::sandbox::{Sandbox, SandboxOptions};
pub use component::verifier::{ComponentVerifier, ReadComponent};
pub use deployment::generation::{Generation, LoadProblem};
pub use deployment::plugin_directory::{DirectoryContents, DirectoryScan, PluginDirectory};
pub use execution::admission::QueueFull;
pub use execution::call_spec::Ports;
pub use execution::failure::CallFailure;
pub use execution::observer::{CallEnding, CallObservation, CallObserver, SandboxLoad};
pub use execution::report::CallReport;
pub use execution::scheduler::worker_threads;
pub use execution::trial::{TRIAL_CALLS, TRIAL_TRAPS, Trial, TrialCounts};
pub use file_trees::{
    DRAFT_PREFIX, HostTree, HostTreeEntry, NO_EXTENSION, ProtectedKind, ProtectedPath, ScratchQuota, ScratchTrees,
    TreeError, TreeProblem, is_foreign_toml,
};
pub use grants::called_servers::{host_patterns, servers_in};
pub use grants::first_use::{CallEffect, CallNeeds, RefusedNeeds, to_ask};
pub use grants::http_pattern::within as intersect_http;
pub use grants::http_pattern::{HttpPattern, PatternError};
pub use grants::live_grants::CurrentGrants;
pub use grants::manifest::{Access, Asks, Canary, DescribedTool, Manifest, ManifestError, with_manifest};
pub use grants::pinned::PinnedGrants;
pub use grants::secret::{KnownSecrets, Secret, SecretError, SecretHolder, SecretTemplate};
pub use grants::{
    Denial, GrantAdvice, Grants, MEDIA_DESCRIPTION, Need, PartialGrant, TreeGrant, UnmetNeed, event_denied,
    intersect_trees,
};
pub use identity::{Authority, Kind, PluginIdentity};
pub use limits::{CallLimits, HostLimits, Limit};
pub use ports::PortError;
pub use ports::http::{BodyCompleteness, HttpPort, HttpPortRequest, HttpPortResponse, HttpRefusal};
pub use ports::key_value::{KeyValueBucket, KeyValuePort, SwapOutcome};
pub use ports::media::{MediaPort, MediaRange, NewMediaItem};
pub use ports::model::{ModelCaller, ModelPort, ModelPortRequest, ModelPortResponse, ModelRefusal};
pub use recording::bytes::{Extent, RecordedBytes};
pub use recording::file_records::{
    EntryKind, FileStat, FinalFileState, FoundContent, FoundNames, GrantedTree, InitialFileState,
};
pub use recording::files::{ReplayTreeError, ReplayTrees};
pub use recording::guest_log::LostLog;
pub use recording::host_calls::{FoundValue, HostCallLog, HostCallResult, RequestOutcome, digest_of_request};
pub use recording::replay_inputs::ReplayInputs;
pub use recording::stopped_calls::StoppedCalls;
pub use recording::timing::{Timing, TimingClock};
