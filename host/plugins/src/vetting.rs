//! Whether a component may serve: somebody outside of this room decides, such as by a folder's lock file, before anything of it
//! is compiled or run.

use crate::identity::PluginIdentity;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Reads the component that is asked about. A start with many plugins reads none of them whole, so this is for who needs it.
pub type ReadComponent<'r> = dyn Fn() -> io::Result<Arc<Vec<u8>>> + 'r;

/// Is asked about each component that shall serve. Its name is what its bytes say; no code of it has run.
pub trait Vetting: Send + Sync + std::fmt::Debug {
    /// About a file of a plugin folder: what vouches for it, to be kept beside it in the plugin store (nothing for what is
    /// somebody's own), or why it may not serve, completing "`file`: …".
    fn vet(
        &self,
        file: &Path,
        plugin: &PluginIdentity,
        component: &ReadComponent<'_>,
    ) -> Result<Option<String>, String>;

    /// About a component of the plugin store, by all that vouched for it when it came (none for what is somebody's own):
    /// nothing, or why it may not serve.
    fn vet_kept(
        &self,
        vouched: Option<&str>,
        plugin: &PluginIdentity,
        component: &ReadComponent<'_>,
    ) -> Result<(), String>;

    /// The file beside the plugins that the answer depends on: when it changes, what was refused is asked about again.
    fn lock_file(&self) -> &'static str;
}

/// What serves only where both agree.
#[derive(Debug)]
pub(crate) struct Both {
    pub(crate) first: Arc<dyn Vetting>,
    pub(crate) second: Arc<dyn Vetting>,
}

impl Vetting for Both {
    fn vet(
        &self,
        file: &Path,
        plugin: &PluginIdentity,
        component: &ReadComponent<'_>,
    ) -> Result<Option<String>, String> {
        let first = self.first.vet(file, plugin, component)?;
        let second = self.second.vet(file, plugin, component)?;
        Ok(first.or(second))
    }

    fn vet_kept(
        &self,
        vouched: Option<&str>,
        plugin: &PluginIdentity,
        component: &ReadComponent<'_>,
    ) -> Result<(), String> {
        self.first.vet_kept(vouched, plugin, component)?;
        self.second.vet_kept(vouched, plugin, component)
    }

    fn lock_file(&self) -> &'static str {
        self.first.lock_file()
    }
}
