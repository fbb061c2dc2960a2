//! Components: load, check, link, grant, call. This crate alone knows wasmtime; its types stay inside.
//!
//! A [`Sandbox`] is the engine with its limits. It loads files into [`LoadedPlugin`]s, a [`Generation`] is an immutable
//! set of them, a [`PluginSetup`] is one with an agent's grants, and each call runs in a fresh instance and ends in a
//! [`CallReport`].

mod admission;
mod answers;
mod bindings;
mod cache;
mod call;
mod canary;
mod changing;
mod compiler;
mod convert;
mod directory;
mod emission;
mod engine;
mod failure;
mod files;
mod first_use;
#[cfg(fuzzing)]
pub mod fuzzing;
mod generation;
mod grants;
mod host_model;
mod http;
mod identity;
mod imports;
mod in_force;
mod introduction;
mod key_value;
mod leaving;
pub mod limits;
mod linkers;
mod listing;
mod load;
mod logging;
mod lookups;
mod manifest;
mod media;
mod opening;
mod pinned;
mod placing;
mod plain;
mod plugin;
mod quarantine;
mod record;
mod regular_file;
mod requests;
mod room;
mod run;
mod sandbox;
mod scan;
mod sections;
mod sockets;
mod state;
mod stopped;
mod store;
mod structure;
mod text;
mod tools;
mod trees;
mod trial;
mod turns;
mod vetting;
mod writing;

pub use admission::QueueFull;
pub use answers::{Bytes, FoundValue, HostAnswer, HostAnswers, Read, RequestAnswer, digest_of_request};
pub use call::{ToolCallContext, ToolCallRequest};
pub use compiler::{CodeTooLarge, CompileTime, CompilerCommand, serve_compiler};
pub use directory::{Look, PluginDirectory, Seen};
pub use failure::CallFailure;
pub use files::{
    FileStat, FoundContent, FoundFile, FoundNames, GivenTree, LeftFile, NamedKind, NotLaidOut, RecordedTrees,
};
pub use first_use::{Answers, CallReach, needed, to_ask};
pub use generation::{Generation, GenerationError, LoadProblem};
pub use grants::{
    Denial, GrantAdvice, Grants, MEDIA_THING, Need, Partly, TreeGrant, Unmet, event_denied, trees_within,
};
pub use host_model::{ModelAnswer, ModelAsker, ModelPort, ModelQuestion, ModelRefusal};
pub use http::within as http_within;
pub use http::{GivenTo, KnownSecrets, Secret, SecretError, SecretTemplate};
pub use http::{HttpAnswer, HttpEnding, HttpPort, HttpQuestion, HttpRefusal};
pub use http::{HttpPattern, NameResolver, PatternError, SystemResolver};
pub use identity::{Authority, Kind, PluginIdentity};
pub use imports::InterfaceProblem;
pub use in_force::CurrentGrants;
pub use introduction::{Introduction, introduction};
pub use key_value::{KeySpace, KeyValuePort, Swapped};
pub use limits::{CallLimits, HostLimits, Limit};
pub use load::{CodeSource, LoadError, LoadEvent, Progress, read_component};
pub use logging::LostLog;
pub use manifest::{Access, Asks, Canary, MANIFEST_SECTION, Manifest, ManifestError, with_manifest};
pub use media::{MediaPort, MediaRange, MediumToStore, PortError, Ports, Then};
pub use pinned::PinnedGrants;
pub use placing::place_file;
pub use plain::LeftOut;
pub use plugin::{LoadedPlugin, PluginSetup};
pub use quarantine::{Quarantine, Quarantined};
pub use regular_file::{open_regular_file, read_regular_file};
pub use run::CallReport;
pub use sandbox::{Sandbox, SandboxError, SandboxOptions};
pub use scan::{Interfaces, MadeFor, NotAComponent};
pub use sections::interfaces;
pub use state::TreeProblem;
pub use stopped::StoppedCalls;
pub use store::{PluginStore, PluginStoreError, StoredComponent, digest_of};
pub use structure::StructureProblem;
pub use trees::{HostObject, HostTree, ProtectedKind, ProtectedPath, TreeError, WITHOUT_ENDING, is_foreign_toml};
pub use trial::{TRIAL_CALLS, TRIAL_TRAPS, Trial, TrialCounts};
pub use turns::worker_threads;
pub use vetting::{ReadComponent, Vetting};
