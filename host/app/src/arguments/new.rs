//! The command line of those who write plugins: `plugin new`, `dev`.

use super::{AgentArguments, RunArguments};
use agent_devkit::Language;
use agent_devkit::new::ProjectKind;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// What a new project is to be.
#[derive(Debug, Args)]
pub(crate) struct NewArguments {
    /// The plugin's name: lower-case letters, digits and hyphens. Its folder is named so, too
    pub(crate) name: String,
    /// What it does
    #[arg(long, value_name = "KIND", value_enum, default_value_t = KindName::Tool)]
    pub(crate) kind: KindName,
    /// What it is written in
    #[arg(long, value_name = "LANG", value_enum, default_value_t = LanguageName::Rust)]
    pub(crate) lang: LanguageName,
    /// The folder in which its folder is made
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Rust: build on the SDK in this folder, instead of the one that this agent-host writes into the project
    #[arg(long, value_name = "DIR")]
    pub(crate) sdk: Option<PathBuf>,
}

/// A kind as it is written.
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

/// A language as it is written.
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

/// What is worked on, and with which agent.
#[derive(Debug, Args)]
pub(crate) struct DevArguments {
    /// A plugin project, or a folder of projects
    #[arg(value_name = "DIR", default_value = ".")]
    pub(crate) directory: PathBuf,
    /// Ask this after the first build and after each change, each time in a new session, instead of a session in which you type
    #[arg(long, value_name = "PROMPT")]
    pub(crate) prompt: Option<String>,
    /// Which agent; without --agent and --plugins one that has what is built here, and nothing else.
    #[command(flatten)]
    pub(crate) agent: AgentArguments,
    /// Say yes to calls of this tool that must be allowed, once to each; `*` stands for any characters
    #[arg(long, value_name = "TOOL", help_heading = "Session", value_parser = super::tool_pattern)]
    pub(crate) yes: Vec<String>,
    /// For whom the agent works: whose memory is recalled and added to (default: who is logged in)
    #[arg(long, value_name = "NAME", help_heading = "Session", value_parser = super::user_name)]
    pub(crate) user: Option<String>,
}

impl DevArguments {
    /// As for a turn. What is worked on is built in any case; other projects are where their folder was named.
    pub(crate) fn run(&self) -> RunArguments {
        let is_named = self.agent.plugins.is_some() || self.agent.agent.is_some();
        let agent = AgentArguments { build: self.agent.build && is_named, ..self.agent.clone() };
        RunArguments {
            agent,
            prompt: self.prompt.clone(),
            yes: self.yes.clone(),
            user: self.user.clone(),
            ..RunArguments::default()
        }
    }
}
