//! Sharing plugins: registries of the OCI, signatures, the lock file of a folder of plugins, and a team's index (P11).
//!
//! A [`Registry`] finds, fetches and pushes; [`Trust`] says whose signatures count; a [`Folder`] holds what was taken, locked.
//! What comes from elsewhere is bounded, verified by its digest, and put in place whole or not at all.

mod again;
mod auth;
mod credentials;
mod download;
mod error;
mod fetch;
mod files;
mod folder;
#[cfg(fuzzing)]
pub mod fuzzing;
mod http;
mod index;
mod keys;
mod local;
mod lock;
mod oci;
mod origin;
mod push;
mod reach;
mod reference;
mod registry;
mod signature;
mod signature_search;
mod signatures;
mod succession;
mod trust;
mod version;

pub use again::{Again, AskedAgain};
pub use credentials::Credentials;
pub use download::{Downloads, Progress};
pub use error::ShareError;
pub use fetch::{Fetched, Found, Shelf, Signatures};
pub use folder::{Folder, Locked, Removed, Replace, State};
pub use http::PlainHttp;
pub use index::{IndexEntry, IndexedPlugin};
pub use keys::{KeyFile, Protection, PublicKey, SigningKey, create as create_key, public_path};
pub use local::{local_claims, local_signatures, place_local_signature, sidecar};
pub use lock::{LOCK_FILE, LockFile, LockedPlugin, place_of};
pub use push::{NO_MOMENT, Overwrite, PluginFacts, Pushed};
pub use reference::{Reference, Repository, Source};
pub use registry::Registry;
pub use signature::{Claims, is_signature, sign};
pub use succession::{Downgrade, check_succession};
pub use trust::{LOCAL, SignaturePolicy, Signer, Trust};
pub use version::{Age, age};
