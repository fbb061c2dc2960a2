//! Whether a file of a plugin folder may serve: somebody outside of this room decides, such as by the folder's lock file.

use crate::identity::PluginIdentity;
use std::path::Path;

/// Is asked about each plugin that is loaded from a folder, with its bytes, before it serves.
pub trait Vetting: Send + Sync + std::fmt::Debug {
    /// Nothing, or why it may not serve, completing "`file`: …".
    fn vet(&self, file: &Path, plugin: &PluginIdentity, component: &[u8]) -> Result<(), String>;

    /// The file beside the plugins that the answer depends on: when it changes, what was refused is asked about again.
    fn lock_file(&self) -> &'static str;
}
