//! Command-line arguments of `agent-host replay`.

use super::{agent, session_id};
use agent_config::grants::Grant;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::path::PathBuf;

/// Text that the help of `replay` shows below the options.
const AFTER_HELP: &str = "\
A replayed call gets its recorded arguments and the recorded answers of the host: web pages,
stored values, files, model replies, time and random numbers. Access to anything that was not
recorded, such as other files, variables and configuration values, is denied and reported
unless you grant it. A call writes to a temporary folder only, and its changes there are compared.
More in host/docs/guide/scenarios.md.
Exit codes: 0 no difference, 1 differences, 2 not everything could be replayed.";

/// Arguments of `replay`.
#[derive(Clone, Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ReplayArguments {
    /// Session id, an unambiguous part of it, or a file written by `session export`
    #[arg(value_name = "SESSION|FILE", value_parser = session_id)]
    pub(crate) session: String,
    /// Replay with this version of a plugin instead of the recorded version
    #[arg(long, value_name = "PLUGIN=FILE", value_parser = plugin_replacement)]
    pub(crate) with: Vec<(String, PathBuf)>,
    /// Agent configuration (a file, or a name in this folder) whose limits, variables and configuration values apply
    #[arg(long, value_name = "FILE|NAME", value_parser = OsStringValueParser::new().try_map(agent))]
    pub(crate) agent: Option<PathBuf>,
    /// User who owns the session (default: the logged-in user)
    #[arg(long, value_name = "NAME", value_parser = super::user_name)]
    pub(crate) user: Option<String>,
    /// Replay only this turn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) turn: Option<u32>,
    /// Show all differences, not only the first
    #[arg(long)]
    pub(crate) all: bool,
    /// Let a plugin read data that was not recorded: PLUGIN:read=DIR, env=NAME or config=KEY=VALUE
    #[arg(long, value_name = "PLUGIN:KIND=VALUE", value_parser = Grant::parse)]
    pub(crate) grant: Vec<Grant>,
    /// Print one JSON document instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

fn plugin_replacement(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => Ok((name.to_owned(), file.into())),
        _ => Err("write PLUGIN=FILE, such as text=plugins/text.wasm".to_owned()),
    }
}
