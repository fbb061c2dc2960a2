//! The process environment that the caller passes to this crate. This crate does not read the environment itself.

use crate::trust::TrustedStart;
use agent_plugins::{CompilerCommand, ComponentSources};
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
    /// Path of the user-wide configuration file, which `agent-host setup` writes. The file may be missing.
    pub user_file: Option<PathBuf>,
    /// Path of the project folder that sessions work in. Their memories are stored with it, and by default only sessions
    /// in the same project recall them. `None` if there is no such folder, for example in a server.
    pub project: Option<String>,
    /// Home folder of the user. Grants of the user-wide file for the current folder never cover it.
    pub home: Option<PathBuf>,
    /// File of the running program. The plugins that were installed together with the program are next to it.
    pub program: Option<PathBuf>,
    /// The trust under which agents' files are read. If it is `None`, the user has named the file, and every version of
    /// the file is used.
    pub trusted: Option<TrustedStart>,
    /// Finds the components of turns that began on other machines. `None` if no components are fetched.
    pub component_sources: Option<Arc<dyn ComponentSources>>,
}

/// Environment variable that names the folder with the installed plugins.
pub const INSTALLED_PLUGINS: &str = "AGENT_HOST_INSTALLED_PLUGINS";

impl HostEnvironment {
    /// Creates an environment with the given variables. The user and all paths of this environment are unknown.
    pub fn new(variables: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self {
            variables: Arc::new(variables),
            user: None,
            compiler: None,
            docker_configuration: None,
            data_directory: None,
            user_file: None,
            project: None,
            home: None,
            component_sources: None,
            program: None,
            trusted: None,
        }
    }

    /// Returns the folder of the compiled code of the installed plugins. The folder may be missing.
    pub fn installed_code(&self) -> Option<PathBuf> {
        self.installed_plugins().as_deref().map(installed_code_of)
    }

    /// Returns the value of a variable, or None if the variable is not set or is not valid Unicode.
    pub fn variable(&self, name: &str) -> Option<String> {
        (self.variables)(name)
    }

    /// Returns the function that returns the value of a variable, given the variable's name.
    pub fn variables(&self) -> &(dyn Fn(&str) -> Option<String> + Send + Sync) {
        &*self.variables
    }

    /// Returns the folder with the plugins that were installed together with this program: the folder that the variable
    /// [`INSTALLED_PLUGINS`] names, or `../lib/agent-host/plugins` next to the program. Returns None if there is no such
    /// folder, for example because the program was built from a checkout.
    pub fn installed_plugins(&self) -> Option<PathBuf> {
        let named = self.variable(INSTALLED_PLUGINS).filter(|path| !path.is_empty()).map(PathBuf::from);
        let folder = named.or_else(|| {
            // The link to a program, such as `~/.local/bin/agent-host`, is resolved, because the plugins are next to the
            // program itself.
            let program = self.program.as_deref()?.canonicalize().ok()?;
            Some(program.parent().and_then(Path::parent)?.join("lib/agent-host/plugins"))
        })?;
        folder.is_dir().then_some(folder)
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
            .field("user_file", &self.user_file)
            .field("project", &self.project)
            .field("home", &self.home)
            .field("program", &self.program)
            .field("trusted", &self.trusted)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The installed plugins are found next to the program, also through a link, and the variable takes precedence.
    #[test]
    fn finds_installed_plugins_next_to_the_program() {
        let prefix = tempfile::tempdir().expect("a temporary folder");
        let folder = prefix.path().canonicalize().expect("exists");
        let program = folder.join("bin/agent-host");
        let environment = || HostEnvironment { program: Some(program.clone()), ..HostEnvironment::default() };
        std::fs::create_dir_all(folder.join("bin")).expect("created");
        std::fs::write(&program, "").expect("written");
        assert_eq!(environment().installed_plugins(), None);
        let plugins = folder.join("lib/agent-host/plugins");
        std::fs::create_dir_all(&plugins).expect("created");
        assert_eq!(environment().installed_code(), Some(plugins.with_file_name("compiled")));
        assert_eq!(environment().installed_plugins(), Some(plugins));
        let elsewhere = folder.join("elsewhere");
        let named = elsewhere.display().to_string();
        let environment = environment().with_variables(move |name| (name == INSTALLED_PLUGINS).then(|| named.clone()));
        assert_eq!(environment.installed_plugins(), None, "the named folder does not exist");
        std::fs::create_dir(&elsewhere).expect("created");
        assert_eq!(environment.installed_plugins(), Some(elsewhere));
    }
}
