//! The interface for verifying components. An implementation in another crate decides, for example with the lock file of a plugin
//! folder, whether a component may be used, before it is compiled or run.

use crate::identity::PluginIdentity;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Reads the bytes of the component. A start with many plugins does not read them all, so a verifier calls this only if it needs the
/// bytes.
pub type ReadComponent<'r> = dyn Fn() -> io::Result<Arc<Vec<u8>>> + 'r;

/// Decides whether a component may be used. The name in `plugin` is the component's own claim; none of its code has run.
pub trait ComponentVerifier: Send + Sync + std::fmt::Debug {
    /// Checks a file of a plugin folder.
    ///
    /// Returns the statement that vouches for the component, which is stored next to it in the plugin store, or None for the user's own
    /// plugin. The error is the reason why the component may not be used; the caller puts the file name before it: "`file`: …".
    fn verify_file(
        &self,
        file: &Path,
        plugin: &PluginIdentity,
        component: &ReadComponent<'_>,
    ) -> Result<Option<String>, String>;

    /// Checks a component of the plugin store. `vouched` contains all statements that were stored with it; None means that it is the
    /// user's own plugin. The error is the reason why the component may not be used.
    fn verify_stored(
        &self,
        vouched: Option<&str>,
        plugin: &PluginIdentity,
        component: &ReadComponent<'_>,
    ) -> Result<(), String>;

    /// Name of the file in the plugin folder that the decision depends on. When it changes, refused components are checked again.
    fn lock_file(&self) -> &'static str;
}

/// A verifier that allows a component only if both of its verifiers do.
#[derive(Debug)]
pub(crate) struct VerifierPair {
    pub(crate) first: Arc<dyn ComponentVerifier>,
    pub(crate) second: Arc<dyn ComponentVerifier>,
}

impl ComponentVerifier for VerifierPair {
    fn verify_file(
        &self,
        file: &Path,
        plugin: &PluginIdentity,
        component: &ReadComponent<'_>,
    ) -> Result<Option<String>, String> {
        let first = self.first.verify_file(file, plugin, component)?;
        let second = self.second.verify_file(file, plugin, component)?;
        Ok(first.or(second))
    }

    fn verify_stored(
        &self,
        vouched: Option<&str>,
        plugin: &PluginIdentity,
        component: &ReadComponent<'_>,
    ) -> Result<(), String> {
        self.first.verify_stored(vouched, plugin, component)?;
        self.second.verify_stored(vouched, plugin, component)
    }

    fn lock_file(&self) -> &'static str {
        self.first.lock_file()
    }
}
