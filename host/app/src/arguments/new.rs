//! Command-line arguments of `plugin new` and `dev`, the commands for plugin authors.

use super::{AgentArguments, RunArguments};
use agent_devkit::Language;
use agent_devkit::new::ProjectKind;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Arguments of `plugin new`.
#[derive(Debug, Args)]
pub(crate) struct NewArguments {
    /// Name of the plugin and its folder: lower-case letters, digits and hyphens
    pub(crate) name: String,
    /// Kind of the plugin
    #[arg(long, value_name = "KIND", value_enum, default_value_t = KindName::Tool)]
    pub(crate) kind: KindName,
    /// Programming language of the plugin
    #[arg(long, value_name = "LANG", value_enum, default_value_t = LanguageName::Rust)]
    pub(crate) lang: LanguageName,
    /// Create a tool that calls an API over HTTP, with a scenario that contains the answers of the API
    #[arg(long)]
    pub(crate) http: bool,
    /// Folder in which the project folder is created; it is created if it does not exist
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Rust only: use the SDK in this folder, instead of the copy that agent-host writes into the project
    #[arg(long, value_name = "DIR")]
    pub(crate) sdk: Option<PathBuf>,
}

/// A plugin kind, as the user writes it on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum KindName {
    Tool,
    ContextBuilder,
    OutputValidator,
    MediaPolicy,
}

impl From<KindName> for ProjectKind {
    fn from(name: KindName) -> Self {
        match name {
            KindName::Tool => ProjectKind::Tool,
            KindName::ContextBuilder => ProjectKind::ContextBuilder,
            KindName::OutputValidator => ProjectKind::OutputValidator,
            KindName::MediaPolicy => ProjectKind::MediaPolicy,
        }
    }
}

/// A programming language, as the user writes it on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LanguageName {
    Rust,
    Python,
    #[value(name = "js", alias = "javascript")]
    JavaScript,
    C,
}

impl From<LanguageName> for Language {
    fn from(name: LanguageName) -> Self {
        match name {
            LanguageName::Rust => Language::Rust,
            LanguageName::Python => Language::Python,
            LanguageName::JavaScript => Language::JavaScript,
            LanguageName::C => Language::C,
        }
    }
}

/// Arguments of `dev`.
#[derive(Debug, Args)]
pub(crate) struct DevArguments {
    /// Plugin project, or a folder of projects
    #[arg(value_name = "DIR", default_value = ".")]
    pub(crate) directory: PathBuf,
    /// Send this prompt in a new session after each successful build, instead of opening an interactive session
    #[arg(long, value_name = "PROMPT")]
    pub(crate) prompt: Option<String>,
    /// Options that configure the agent that this command runs. Without --agent and --plugins, the agent has only the
    /// plugins that this command builds.
    #[command(flatten)]
    pub(crate) agent: AgentArguments,
    /// Approve calls to tools with this name, each time for one call only; `*` matches any characters
    #[arg(long, value_name = "TOOL", help_heading = "Session", value_parser = super::tool_pattern)]
    pub(crate) yes: Vec<String>,
    /// User that the agent works for and whose memory it uses (default: the logged-in user)
    #[arg(long, value_name = "NAME", help_heading = "Session", value_parser = super::user_name)]
    pub(crate) user: Option<String>,
}

impl DevArguments {
    /// Converts the arguments to the options of a turn. The projects under development are always built, so `--build`
    /// only affects the plugin folder of `--plugins` or `--agent`.
    pub(crate) fn run(&self) -> RunArguments {
        let names_agent = self.agent.plugins.is_some() || self.agent.agent.is_some();
        let agent = AgentArguments { build: self.agent.build && names_agent, ..self.agent.clone() };
        RunArguments {
            agent,
            prompt: self.prompt.clone(),
            yes: self.yes.clone(),
            user: self.user.clone(),
            ..RunArguments::default()
        }
    }
}
