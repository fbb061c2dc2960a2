//! The interface of component sources, which find components that the plugin store of this process does not contain.

use crate::identity::PluginIdentity;
use async_trait::async_trait;

/// A component that a source has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundComponent {
    /// Bytes of the component. The caller checks their digest.
    pub bytes: Vec<u8>,
    /// Statement that vouches for the component, which the verifier checks and which is stored with the component.
    pub statement: String,
}

/// Finds components by name and digest, for example in registries. A sandbox asks its source only for components that the
/// plugin store does not contain, and uses what it returns only if the digest is right and the verifier accepts the
/// component with its statement.
#[async_trait]
pub trait ComponentSource: Send + Sync {
    /// Finds a component. The error is the reason why there is none, for users: "`calc` cannot be fetched: …".
    async fn find(&self, plugin: &PluginIdentity) -> Result<FoundComponent, String>;
}
