//! The interface of verifiers, which decide whether components may be used. Before a component is compiled or run, an
//! implementation in another crate decides whether the component may be used, for example with the lock file of a
//! plugin folder.

use crate::identity::PluginIdentity;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A function that reads the bytes of the component. A verifier calls this function only if it needs the bytes, so that
/// a host with many plugins does not have to read all components when it starts.
pub type ReadComponent<'r> = dyn Fn() -> io::Result<Arc<Vec<u8>>> + 'r;

/// Decides whether a component may be used. The name in `plugin` is the component's own claim, which is not verified.
/// The host calls these methods before it runs any code of the component.
pub trait ComponentVerifier: Send + Sync + std::fmt::Debug {
    /// Checks a file of a plugin folder.
    ///
    /// Returns the statement that vouches for the component, or None for the user's own plugin. The statement is stored
    /// with the component in the plugin store. The error is the reason why the component may not be used. The caller
    /// shows the reason after the file name: "`file`: …".
    fn verify_file(
        &self,
        file: &Path,
        plugin: &PluginIdentity,
        component: &ReadComponent<'_>,
    ) -> Result<Option<String>, String>;

    /// Checks a component of the plugin store. `vouched` contains all statements that were stored with the component.
    /// `None` means that the component is the user's own plugin. The error is the reason why the component may not
    /// be used.
    fn verify_stored(
        &self,
        vouched: Option<&str>,
        plugin: &PluginIdentity,
        component: &ReadComponent<'_>,
    ) -> Result<(), String>;

    /// Returns the part of a component's statements that other machines may know and can use. `None` if there is none.
    fn shared_statements(&self, vouched: &str) -> Option<String>;

    /// Name of a file in the plugin folder whose content determines the verifier's decisions. When this file changes,
    /// components that were refused are checked again.
    fn lock_file(&self) -> &'static str;
}

/// A verifier that allows a component only if both of its inner verifiers allow it.
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

    fn shared_statements(&self, vouched: &str) -> Option<String> {
        self.first.shared_statements(vouched)
    }

    fn lock_file(&self) -> &'static str {
        self.first.lock_file()
    }
}
