//! The services that plugins need from the runtime. Each service is a port: a trait that the embedder of this
//! crate implements.

pub(crate) mod http;
pub(crate) mod key_value;
pub(crate) mod media;
pub(crate) mod model;

/// The error that is returned if an operation of a port fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// The guest's arguments are invalid. The text is written for the author of the plugin.
    #[error("{0}")]
    Refused(String),
    /// The host failed to perform the operation.
    #[error("{0}")]
    Failed(String),
}
