//! Sharing of plugins: OCI registries, signatures, the lock file of a plugin folder, and a team's plugin index (P11).
//!
//! A [`Registry`] resolves, fetches and pushes plugins. [`Trust`] decides which signatures are accepted. A
//! [`PluginFolder`] contains the installed plugins and their lock file. Downloaded content is limited in size, verified
//! by its digest, and installed atomically.
//!
//! ```
//! use agent_registry::{LockFile, LockedPlugin, Reference};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let reference = Reference::parse("registry.example/team/calc:1.0.0")?;
//! assert_eq!(reference.repository().name(), "calc");
//! assert_eq!(reference.tag(), Some("1.0.0"));
//!
//! let component = b"the bytes of calc.wasm";
//! let folder = tempfile::tempdir()?;
//! let mut lock_file = LockFile::read(folder.path())?; // Empty, because there is no lock file yet.
//! lock_file.set(LockedPlugin {
//!     name: "calc".to_owned(),
//!     version: "1.0.0".to_owned(),
//!     reference: reference.to_string(),
//!     manifest: Some(agent_plugins::digest_of(b"the manifest")),
//!     component: agent_plugins::digest_of(component),
//!     signer: None,
//!     signature: None,
//! });
//! std::fs::write(LockFile::path(folder.path()), lock_file.to_text(folder.path()))?;
//!
//! let locked = LockFile::read(folder.path())?;
//! let plugin = locked.plugin("calc").expect("the plugin is locked");
//! assert_eq!(plugin.component, agent_plugins::digest_of(component));
//! # Ok(())
//! # }
//! ```

mod auth;
mod credentials;
mod download;
mod error;
mod fetch;
mod files;
mod folder;
mod folder_index;
#[cfg(fuzzing)]
pub mod fuzzing;
mod http;
mod index;
mod keys;
mod local_signature;
mod lock;
mod locked_components;
mod locked_paths;
mod network_scope;
mod oci;
mod origin;
mod push;
mod reference;
mod registry;
mod restoring;
mod retry;
mod signature;
mod signature_search;
mod signatures;
mod trust;
mod update_check;
mod version;
mod version_changes;

pub use credentials::Credentials;
pub use download::{Downloads, Progress};
pub use error::RegistryError;
pub use fetch::{ComponentCache, FetchedPlugin, ResolvedPlugin, SignatureRequest};
pub use folder::{LockFileVerifier, PluginFolder, PluginState, RemoveMode, ReplacePolicy};
pub use folder_index::{FolderEntry, FolderIndex, INDEX_FILE};
pub use http::PlainHttp;
pub use index::{IndexEntry, IndexedPlugin};
pub use keys::{KeyFile, Protection, PublicKey, SigningKey, create as create_key, public_path};
pub use local_signature::{local_claims, local_signatures, signature_path, write_local_signature};
pub use lock::{LOCK_FILE, LockFile, LockedPlugin, namespace_of};
pub use locked_components::{LockedComponents, LockedSources, SharedRecords};
pub use push::{NO_TIMESTAMP, Overwrite, PluginFacts, Pushed};
pub use reference::{Reference, Repository, Source};
pub use registry::Registry;
pub use retry::{RetryListener, RetryNotice};
pub use signature::{Claims, is_signature, sign};
pub use trust::{LOCAL_NAMESPACE, SignaturePolicy, Signer, Trust};
pub use update_check::{Downgrade, check_update};
pub use version::{VersionOrder, compare_versions};
pub use version_changes::{Difference, EVERYTHING, ListChange, SizeChange, ToolChange, VersionChanges, VersionFacts};
