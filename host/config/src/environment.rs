//! The process environment that the caller passes to this crate. This crate does not read the environment itself.

use agent_plugins::CompilerCommand;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of a hidden command of the host's program, which examines and compiles a component in a separate process. The
/// program in [`HostEnvironment::compiler`] must handle this command by calling `agent_plugins::serve_compiler`.
pub const COMPILE_COMMAND: &str = "compile-component";

type Variables = dyn Fn(&str) -> Option<String> + Send + Sync;

/// The environment in which agents run: variables, the user, and paths that depend on the process. Cloning an
/// environment is cheap.
///
/// The default environment is empty: no variable is set, and every path and name is unknown.
#[derive(Clone)]
pub struct HostEnvironment {
    variables: Arc<Variables>,
    /// Name of the user who is logged in. Sessions and memories belong to this user unless a request names another
    /// user.
    pub user: Option<String>,
    /// Command that examines and compiles one component in a separate process. Grants never cover the file of the
    /// program that the command starts. If the command is `None`, no sandbox can be opened.
    pub compiler: Option<CompilerCommand>,
    /// File in which `docker login` stores credentials. No grant for a plugin covers the file.
    pub docker_configuration: Option<PathBuf>,
    /// Default data folder, which is used if the caller does not choose another folder.
    pub data_directory: Option<PathBuf>,
    /// Folder of the standard plugins that were installed together with the program. Their compiled code may be in the
    /// folder `compiled` beside it.
    pub installed_plugins: Option<PathBuf>,
}

impl HostEnvironment {
    /// Creates an environment with the given variables. The user and all paths of this environment are unknown.
    pub fn new(variables: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self {
            variables: Arc::new(variables),
            user: None,
            compiler: None,
            docker_configuration: None,
            data_directory: None,
            installed_plugins: None,
        }
    }

    /// Returns the folder of the compiled code of the installed plugins. The folder may be missing.
    pub fn installed_code(&self) -> Option<PathBuf> {
        self.installed_plugins.as_deref().map(installed_code_of)
    }

    /// Returns the value of a variable, or None if the variable is not set or is not valid Unicode.
    pub fn variable(&self, name: &str) -> Option<String> {
        (self.variables)(name)
    }

    /// Returns the function that returns the value of a variable, given the variable's name.
    pub fn variables(&self) -> &(dyn Fn(&str) -> Option<String> + Send + Sync) {
        &*self.variables
    }

    /// Returns this environment with its variables replaced by the given variables.
    pub fn with_variables(self, variables: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { variables: Arc::new(variables), ..self }
    }
}

/// Returns the folder in which the host looks for the compiled code of the installed plugins in `plugins`.
pub fn installed_code_of(plugins: &Path) -> PathBuf {
    plugins.with_file_name("compiled")
}

impl Default for HostEnvironment {
    fn default() -> Self {
        Self::new(|_| None)
    }
}

impl fmt::Debug for HostEnvironment {
    /// Formats the environment without its variables, because variables can contain secrets.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("HostEnvironment")
            .field("user", &self.user)
            .field("compiler", &self.compiler)
            .field("docker_configuration", &self.docker_configuration)
            .field("data_directory", &self.data_directory)
            .field("installed_plugins", &self.installed_plugins)
            .finish_non_exhaustive()
    }
}
