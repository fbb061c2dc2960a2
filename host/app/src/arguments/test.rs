//! The command line of `agent-host test`.

use clap::Args;
use std::path::PathBuf;

/// Exit codes of `test`, below its help.
const CODES: &str = "\
A scenario is a file NAME.scenario.toml: host/docs/guide/scenarios.md explains every key.
Exit codes: 0 all passed, 1 some did not, 2 nothing could be played.";

/// Which scenarios are played, and what comes of that.
#[derive(Clone, Debug, Args)]
#[command(after_help = CODES)]
pub(crate) struct TestArguments {
    /// A folder with scenarios (*.scenario.toml) in it or below, or one scenario's file
    #[arg(value_name = "DIR", default_value = ".")]
    pub(crate) at: PathBuf,
    /// Only scenarios whose names contain this
    #[arg(value_name = "FILTER")]
    pub(crate) filter: Option<String>,
    /// Write golden transcripts that differ, and show what changes in them
    #[arg(long)]
    pub(crate) update: bool,
    /// Also write a report in JUnit's XML
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Print one JSON document instead
    #[arg(long)]
    pub(crate) json: bool,
    /// Don't build plugin projects first
    #[arg(long)]
    pub(crate) no_build: bool,
    /// Take the components from this folder (NAME.wasm), and build nothing
    #[arg(long, value_name = "DIR")]
    pub(crate) plugins: Option<PathBuf>,
}
