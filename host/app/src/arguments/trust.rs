//! Arguments of the command `trust`.

use agent_config::settings::AGENT_FILE;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Arguments of `trust`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct TrustArguments {
    /// Subcommand of `trust`. Without a subcommand, a file is added.
    #[command(subcommand)]
    pub(crate) command: Option<TrustCommand>,
    /// File to trust, if there is no subcommand.
    #[command(flatten)]
    pub(crate) add: AddTrustArguments,
}

/// Arguments of `trust add`.
#[derive(Debug, Args)]
pub(crate) struct AddTrustArguments {
    /// Agent configuration: a file, or the name of an agent in this folder
    #[arg(value_name = "FILE|NAME", default_value = AGENT_FILE)]
    pub(crate) file: PathBuf,
    /// Don't ask for confirmation on a terminal
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Commands on trusted agents' files.
#[derive(Debug, Subcommand)]
pub(crate) enum TrustCommand {
    /// List the trusted files, and whether they have changed since
    List {
        /// Print one JSON line per file
        #[arg(long)]
        json: bool,
    },
    /// Show what an agent's file allows, and trust it in its present version
    Add(AddTrustArguments),
    /// Withdraw the trust in an agent's file
    Remove {
        /// Path of the agent's file
        #[arg(value_name = "FILE", default_value = AGENT_FILE)]
        file: PathBuf,
    },
}
