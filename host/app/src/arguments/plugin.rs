//! Arguments of the command `plugin`.

use super::compile::CompileArguments;
use super::describe::DescribeArguments;
use super::new::NewArguments;
use super::sharing::{
    AddArguments, FolderArguments, IndexArguments, PushArguments, RemoveArguments, SearchArguments, SignArguments,
    UpdateArguments,
};
use super::versions::{HistoryArguments, QuarantineArguments, RollbackArguments};
use super::{AgentArguments, agent};
use agent_config::grants::Grant;
use clap::Subcommand;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::path::PathBuf;

/// Commands on plugins.
#[derive(Debug, Subcommand)]
pub(crate) enum PluginCommand {
    /// Create a plugin project in Rust, Python, JavaScript or C that builds and has a test
    New(NewArguments),
    /// Build a plugin project, or all projects in a folder, and write NAME.wasm there
    Build {
        /// Project folder with plugin.toml and a source (Cargo.toml, app.py, app.js or *.c), or a folder of projects
        #[arg(value_name = "DIR", default_value = ".")]
        directory: PathBuf,
    },
    /// Compile the standard plugins that were installed with this program, so that their first start is fast; for
    /// installers
    Compile(CompileArguments),
    /// Update the files of agent-host in a project: the Rust SDK or the WIT contract that `plugin new` wrote
    Renew {
        /// Plugin project, or a folder of projects
        #[arg(value_name = "DIR", default_value = ".")]
        directory: PathBuf,
    },
    /// Report a plugin's errors, warnings and possible improvements; the exit code is 1 if there are errors
    Check {
        /// Component (*.wasm), project (which is built first), or a folder of components or projects
        #[arg(value_name = "FILE|DIR", default_value = ".")]
        path: PathBuf,
        /// Print one JSON line per plugin
        #[arg(long)]
        json: bool,
    },
    /// List the plugins in a folder, and the grants that each plugin still needs
    List {
        /// Plugin folder, if --plugins and --agent don't name one (default: the folder `plugins`, or the user-wide plugins if there
        /// are neither `plugins` nor an agent.toml)
        #[arg(value_name = "DIR", conflicts_with = "plugins")]
        directory: Option<PathBuf>,
        /// Agent whose plugins are listed.
        #[command(flatten)]
        agent: AgentArguments,
    },
    /// Write a manifest (NAME.plugin.toml) beside a component that has none, such as a command-line program
    Describe(DescribeArguments),
    /// Show a plugin's kinds, tools, requested grants and imports
    Inspect {
        /// Component file of the plugin (*.wasm), or the name of a plugin in the plugin folder
        #[arg(value_name = "FILE|NAME")]
        file: PathBuf,
        /// Agent configuration whose limits apply: a file (agent.toml), or the name of an agent in this folder
        #[arg(long, value_name = "FILE|NAME", value_parser = OsStringValueParser::new().try_map(agent))]
        agent: Option<PathBuf>,
        /// Print one JSON document, including the tools' schemas
        #[arg(long)]
        json: bool,
    },
    /// Show what a plugin requests, what it gets and what is denied, with the configuration line to add
    Explain {
        /// Component file of the plugin (*.wasm), or the name of a plugin in the plugin folder
        #[arg(value_name = "FILE|NAME")]
        file: PathBuf,
        /// Agent whose grants apply.
        #[command(flatten)]
        agent: AgentArguments,
    },
    /// Call a tool once, outside of a session
    Call {
        /// Component file of the plugin (*.wasm), or the name of a plugin in the plugin folder
        #[arg(value_name = "FILE|NAME")]
        file: PathBuf,
        /// Name of the tool
        tool: String,
        /// Arguments of the call, a JSON object
        #[arg(value_name = "JSON", default_value = "{}")]
        arguments: String,
        /// Agent configuration whose grants and limits apply: a file (agent.toml), or the name of an agent in
        /// this folder
        #[arg(long, value_name = "FILE|NAME", value_parser = OsStringValueParser::new().try_map(agent))]
        agent: Option<PathBuf>,
        /// Grant something to the plugin: PLUGIN:read=DIR, write=DIR, env=NAME, config=KEY=VALUE,
        /// http='GET https://HOST', key_value_mib=N, model_tokens=N, events=TYPE or media=true
        #[arg(long, value_name = "PLUGIN:KIND=VALUE", value_parser = Grant::parse)]
        grant: Vec<Grant>,
        /// Print the complete outcome as one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Add a plugin from a registry, a URL or a file, and record it in plugins.lock; or fetch the plugins of
    /// plugins.lock whose files are missing
    Add(AddArguments),
    /// Update the plugins in plugins.lock to newer versions, and show what changes
    Update(UpdateArguments),
    /// Remove a plugin from plugins.lock and from the folder
    Remove(RemoveArguments),
    /// Check that the plugins in plugins.lock are unmodified, and signed as `[sharing]` requires; needs no network
    Verify(FolderArguments),
    /// Search a plugin index: the standard plugins, or your team's index
    Search(SearchArguments),
    /// Write an index of the plugins in a folder, which `setup` and `plugin search` show; for packages
    Index(IndexArguments),
    /// Publish a component to a registry
    Push(PushArguments),
    /// Sign a plugin in a registry, or a component file
    Sign(SignArguments),
    /// Show when each plugin version was in use, and why it was replaced
    History(HistoryArguments),
    /// Roll a plugin back to an earlier version until its file changes
    Rollback(RollbackArguments),
    /// Delete stored components that no open turn and no recent version needs
    Prune,
    /// List components that crashed the process that examines components, with the reasons, or release one of them
    Quarantine(QuarantineArguments),
}
