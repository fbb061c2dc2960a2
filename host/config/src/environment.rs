//! The process environment, as the caller passes it in. This crate does not read the environment itself.

use agent_plugins::CompilerCommand;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Name of the hidden command with which the host starts its own program to examine and compile one component. The program in
/// [`HostEnvironment::compiler`] must handle this command by calling `agent_plugins::serve_compiler`.
pub const COMPILE_COMMAND: &str = "compile-component";

type Variables = dyn Fn(&str) -> Option<String> + Send + Sync;

/// The environment in which agents run: variables, the user, and paths that depend on the process. It is cheap to clone.
///
/// The default environment is empty: no variable is set, and every path and name is unknown.
#[derive(Clone)]
pub struct HostEnvironment {
    variables: Arc<Variables>,
    /// Name of the user who is logged in. Sessions and memories belong to this user unless a request names another one.
    pub user: Option<String>,
    /// Command that examines and compiles one component in a separate process. Grants never cover the program's file. None: no
    /// sandbox can be opened.
    pub compiler: Option<CompilerCommand>,
    /// File in which `docker login` stores credentials. Grants never cover it.
    pub docker_configuration: Option<PathBuf>,
    /// Data folder that is used if the caller names none.
    pub data_directory: Option<PathBuf>,
}

impl HostEnvironment {
    /// Makes an environment with these variables and nothing else.
    pub fn new(variables: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self {
            variables: Arc::new(variables),
            user: None,
            compiler: None,
            docker_configuration: None,
            data_directory: None,
        }
    }

    /// The value of a variable. None if it is not set or is not valid Unicode.
    pub fn variable(&self, name: &str) -> Option<String> {
        (self.variables)(name)
    }

    /// The variables as a function from name to value.
    pub fn variables(&self) -> &(dyn Fn(&str) -> Option<String> + Send + Sync) {
        &*self.variables
    }

    /// The same environment with other variables.
    pub fn with_variables(self, variables: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { variables: Arc::new(variables), ..self }
    }
}

impl Default for HostEnvironment {
    fn default() -> Self {
        Self::new(|_| None)
    }
}

impl fmt::Debug for HostEnvironment {
    /// Omits the variables, because they can contain keys.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("HostEnvironment")
            .field("user", &self.user)
            .field("compiler", &self.compiler)
            .field("docker_configuration", &self.docker_configuration)
            .field("data_directory", &self.data_directory)
            .finish_non_exhaustive()
    }
}
