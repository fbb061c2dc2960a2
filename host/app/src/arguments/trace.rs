//! Arguments of the command `trace`.

use super::session_id;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Commands on traces.
#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Export the trace of each turn of a stored session, and of the sessions to which it delegated work
    ///
    /// Spans have the same ids as those that are exported while turns run. If the collector has them already, it may show
    /// them twice.
    Export(TraceExportArguments),
}

/// Arguments of `trace export`.
#[derive(Debug, Args)]
pub(crate) struct TraceExportArguments {
    /// The session: its id, or an unambiguous part of the id
    #[arg(value_name = "SESSION", value_parser = session_id)]
    pub(crate) session: String,
    /// Send the spans to this collector, as OTLP over HTTP; default: the collector in the file of --agent
    #[arg(long, value_name = "URL", conflicts_with = "out")]
    pub(crate) to: Option<String>,
    /// Write the spans into this file, one line of OTLP in JSON per turn; `-` is stdout
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Use `[telemetry]` of this agent's file
    #[arg(long, value_name = "FILE")]
    pub(crate) agent: Option<PathBuf>,
    /// How much content is exported; default: `content` in the agent's file, or `shortened`
    #[arg(long, value_name = "LEVEL", value_enum)]
    pub(crate) content: Option<ContentArgument>,
}

/// How much content is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ContentArgument {
    /// Only names, times, tokens and costs
    Off,
    /// The beginning of each text
    Shortened,
    /// All texts
    Complete,
}
