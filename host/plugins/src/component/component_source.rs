//! The interface of component sources, which find components that the plugin store of this process does not contain.

use crate::identity::PluginIdentity;
use async_trait::async_trait;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A component that a source has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundComponent {
    /// Bytes of the component. The caller checks their digest.
    pub bytes: Vec<u8>,
    /// Statement that vouches for the component, which the verifier checks and which is stored with the component.
    pub statement: String,
}

/// The reason why a source does not find a component, for users. `Display` writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FindError {
    /// The source does not know where the component could be.
    Unknown(String),
    /// The component could not be fetched. A later attempt may succeed.
    Failed(String),
}

/// Finds components by name and digest, for example in registries. A sandbox uses what a source returns only if the digest
/// is right and the verifier accepts the component with its statement.
#[async_trait]
pub trait ComponentSource: Send + Sync + fmt::Debug {
    /// Finds a component.
    async fn find(&self, plugin: &PluginIdentity) -> Result<FoundComponent, FindError>;
}

/// The sources of the plugin folders of a process.
pub trait ComponentSources: Send + Sync {
    /// Returns the source for the agents that load their plugins from this folder. It never depends on other folders.
    fn of_folder(&self, folder: &Path) -> Arc<dyn ComponentSource>;
}

impl fmt::Display for FindError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (FindError::Unknown(reason) | FindError::Failed(reason)) = self;
        formatter.write_str(reason)
    }
}
