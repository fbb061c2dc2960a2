//! The command line of `plugin new`.

use agent_kit::Language;
use agent_kit::new::ProjectKind;
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
