//! Loads components as plugins that can be called. Loading reads and verifies a component, compiles it in a child
//! process, links it, gets its tool definitions once, and stores the component and its compiled code on disk.

pub(crate) mod atomic_write;
pub(crate) mod claims;
pub(crate) mod code_cache;
pub(crate) mod code_file;
pub(crate) mod compiler;
pub(crate) mod component_source;
pub(crate) mod engine_context;
pub(crate) mod generic;
pub(crate) mod installed_code;
pub(crate) mod load;
pub(crate) mod load_error;
pub(crate) mod manifest_file;
pub(crate) mod plugin;
pub(crate) mod plugin_store;
pub(crate) mod quarantine;
pub(crate) mod regular_file;
pub(crate) mod sandbox;
pub(crate) mod verifier;
