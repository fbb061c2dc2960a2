//! The error of this crate.

use crate::agent_file::ConfigurationError;
use agent_plugins::{GenerationError, SandboxError};
use agent_runtime::swap::BeginError;
use agent_store::StoreError;
use std::fmt;

/// Why an agent cannot be made from its configuration. The message says what happened, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A configuration file cannot be read, or its contents are invalid.
    #[error(transparent)]
    File(#[from] ConfigurationError),
    /// The settings cannot be used, because the options, the file, the environment and the loaded plugins do not fit together.
    /// Contains one problem on each line. Most of them begin with the place where the cause is written.
    #[error("{0}")]
    Settings(String),
    /// The data folder cannot be used. Contains the reason and what to do.
    #[error("{0}")]
    DataDirectory(String),
    /// The database cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The sandbox for plugins cannot be started.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The folder with the plugins cannot be read.
    #[error(transparent)]
    PluginFolder(Box<GenerationError>),
    /// Files in the folder with the plugins cannot be loaded. Contains one file on each line, and then what to do.
    #[error("{0}")]
    Plugins(String),
    /// The host cannot determine which versions of the plugins should serve.
    #[error(transparent)]
    PluginVersions(Box<BeginError>),
    /// A delegate cannot be used.
    #[error("{place}: the agent that this key names cannot be used:\n{source}")]
    Delegate {
        /// File, line and key that name the delegate.
        place: String,
        /// Why the delegate cannot be used.
        source: Box<ConfigError>,
    },
    /// The caller's build of plugin projects could not start.
    #[error("{0}")]
    BuildRefused(String),
    /// The caller's build of plugin projects failed.
    #[error("{0}")]
    BuildFailed(String),
}

impl ConfigError {
    /// Makes an error about settings.
    pub fn settings(problem: impl fmt::Display) -> Self {
        Self::Settings(problem.to_string())
    }

    /// The error itself, or for [`ConfigError::Delegate`] the error of the innermost delegate.
    pub fn root(&self) -> &Self {
        match self {
            Self::Delegate { source, .. } => source.root(),
            error => error,
        }
    }
}

impl From<GenerationError> for ConfigError {
    fn from(error: GenerationError) -> Self {
        Self::PluginFolder(Box::new(error))
    }
}

impl From<BeginError> for ConfigError {
    fn from(error: BeginError) -> Self {
        Self::PluginVersions(Box::new(error))
    }
}
