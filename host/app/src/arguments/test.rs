//! Command-line arguments of `agent-host test`.

use clap::Args;
use std::path::PathBuf;

/// Text that the help of `test` shows below the options.
const AFTER_HELP: &str = "\
A scenario is a file NAME.scenario.toml; host/docs/guide/scenarios.md explains every key.
Exit codes: 0 all passed, 1 some failed, 2 no scenario could be run.";

/// Arguments of `test`.
#[derive(Clone, Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct TestArguments {
    /// Scenario file, or a folder that contains scenarios (*.scenario.toml) at any depth
    #[arg(value_name = "DIR", default_value = ".")]
    pub(crate) path: PathBuf,
    /// Run only scenarios whose names contain this text
    #[arg(value_name = "FILTER")]
    pub(crate) filter: Option<String>,
    /// Update golden transcripts that differ, and show the changes
    #[arg(long)]
    pub(crate) update: bool,
    /// Write a JUnit XML report to FILE, in addition to the normal output
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Print one JSON document instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Don't build plugin projects before the scenarios run
    #[arg(long)]
    pub(crate) no_build: bool,
    /// Use the components in this folder (NAME.wasm), and build nothing
    #[arg(long, value_name = "DIR")]
    pub(crate) plugins: Option<PathBuf>,
}
