//! Arguments of the command `config`.

use super::agent;
use agent_config::settings::AGENT_FILE;
use clap::Subcommand;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::path::PathBuf;

/// Commands on agent configurations.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Write a short agent.toml that runs, or, with --full, one that explains every key
    Init {
        /// Explain every key; all keys are commented out
        #[arg(long)]
        full: bool,
        /// Output file; `-` is stdout
        #[arg(short, long, value_name = "FILE", default_value = AGENT_FILE)]
        output: PathBuf,
        /// Overwrite an existing file
        #[arg(long)]
        force: bool,
    },
    /// Show which files describe the agent that `agent-host` starts in this folder, and what they allow
    Show {
        /// Configuration file, or the name of an agent in this folder (default: the file that `agent-host` would use)
        #[arg(value_name = "FILE|NAME")]
        agent: Option<PathBuf>,
        /// The same as FILE|NAME
        #[arg(long = "agent", id = "named_agent", value_name = "FILE|NAME", conflicts_with = "agent")]
        #[arg(value_parser = OsStringValueParser::new().try_map(agent))]
        named: Option<PathBuf>,
    },
    /// Print the JSON Schema of agent.toml for editors
    Schema {
        /// Output file; `-` is stdout
        #[arg(short, long, value_name = "FILE", default_value = "-")]
        output: PathBuf,
        /// Overwrite an existing file
        #[arg(long)]
        force: bool,
    },
    /// Check a configuration, and show its agent or all its errors
    Check {
        /// Configuration file, or the name of an agent in this folder (default: agent.toml, or the user-wide configuration if
        /// there is no agent.toml)
        #[arg(value_name = "FILE|NAME")]
        agent: Option<PathBuf>,
        /// The same as FILE|NAME
        #[arg(long = "agent", id = "named_agent", value_name = "FILE|NAME", conflicts_with = "agent")]
        #[arg(value_parser = OsStringValueParser::new().try_map(agent))]
        named: Option<PathBuf>,
    },
    /// List the agents in this folder
    List,
}
