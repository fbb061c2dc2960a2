//! Whether a file of a plugin folder may serve: somebody outside of this room decides, such as by the folder's lock file.

use crate::identity::PluginIdentity;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Reads the component that is asked about. A start with many plugins reads none of them whole, so this is for who needs it.
pub type ReadComponent<'r> = dyn Fn() -> io::Result<Arc<Vec<u8>>> + 'r;

/// Is asked about each plugin that is loaded from a folder, before it serves.
pub trait Vetting: Send + Sync + std::fmt::Debug {
    /// Nothing, or why it may not serve, completing "`file`: …".
    fn vet(&self, file: &Path, plugin: &PluginIdentity, component: &ReadComponent<'_>) -> Result<(), String>;

    /// The file beside the plugins that the answer depends on: when it changes, what was refused is asked about again.
    fn lock_file(&self) -> &'static str;
}
