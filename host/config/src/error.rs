//! The error type of the functions in this crate.

use crate::agent_file::ConfigurationError;
use agent_plugins::{GenerationError, SandboxError};
use agent_runtime::swap::BeginError;
use agent_store::StoreError;
use std::fmt;

/// The reason why an agent cannot be built from its configuration. The message contains the problem, its location, and
/// advice on how to fix the problem.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A configuration file cannot be read, or its contents are invalid.
    #[error(transparent)]
    File(#[from] ConfigurationError),
    /// The settings cannot be used, because the options, the file, the environment or the loaded plugins do not fit
    /// together. The text contains one problem on each line. Most problems begin with the location of their cause.
    #[error("{0}")]
    Settings(String),
    /// The data folder cannot be used. The text contains the reason, and explains how to fix the problem.
    #[error("{0}")]
    DataDirectory(String),
    /// The address of a shared database is not valid. The text contains the reason and advice, but no part of the address.
    #[error("{0}")]
    Database(String),
    /// The address of NATS servers is not valid. The text contains the reason and advice, but no part of the address.
    #[error("{0}")]
    Nats(String),
    /// The object store for media cannot be selected. The text contains the reason and advice, but no part of the address or of a
    /// variable.
    #[error("{0}")]
    MediaStore(String),
    /// The database cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The sandbox for plugins cannot be started.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The plugin directory cannot be read.
    #[error(transparent)]
    PluginFolder(Box<GenerationError>),
    /// Files in the plugin directory cannot be loaded. Each line of the text describes one file and its problem. After
    /// these lines, the text explains how to fix the problems.
    #[error("{0}")]
    Plugins(String),
    /// The host cannot determine the versions of the plugins to use.
    #[error(transparent)]
    PluginVersions(Box<BeginError>),
    /// A delegate of the agent cannot be used.
    #[error("{location}: this key names an agent that cannot be used:\n{source}")]
    Delegate {
        /// File, line and key of the configuration entry for the delegate.
        location: String,
        /// The error in the delegate's configuration.
        source: Box<ConfigError>,
    },
    /// The plugins that a lock file names cannot be fetched.
    #[error("the plugins of `{}` cannot be fetched: {reason}", folder.display())]
    Fetch {
        /// The plugin folder with the lock file.
        folder: std::path::PathBuf,
        /// The reason, which names the plugin or the lock file.
        reason: String,
    },
    /// The caller of this crate could not start the build of the plugin projects.
    #[error("{0}")]
    BuildRefused(String),
    /// The caller of this crate started a build of the plugin projects, and the build failed.
    #[error("{0}")]
    BuildFailed(String),
}

impl ConfigError {
    /// Creates a [`ConfigError::Settings`] with one problem.
    pub fn settings(problem: impl fmt::Display) -> Self {
        Self::Settings(problem.to_string())
    }

    /// Returns the innermost error. The innermost error of a [`ConfigError::Delegate`] is the error in the delegate's
    /// file that caused the failure. Any other error is itself the innermost error.
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
