//! The command line of `agent-host replay`.

use super::{agent, session_id};
use crate::grants::Grant;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::path::PathBuf;

/// Below its help.
const CODES: &str = "\
A call runs again with its recorded arguments and the recorded answers of the host: pages, kept
values, files, the model's words, time and random numbers. What is not recorded, such as other
files, variables and configuration values, is granted, or denied and reported.
Nothing is written: what a call changes it changes in a temporary folder, and that is compared.
More in host/docs/guide/scenarios.md.
Exit codes: 0 nothing differs, 1 something does, 2 nothing could be done again, or not all.";

/// Which session is done again, and with what.
#[derive(Clone, Debug, Args)]
#[command(after_help = CODES)]
pub(crate) struct ReplayArguments {
    /// The session's id, or a beginning of it that no other has; or a file that `session export` wrote
    #[arg(value_name = "SESSION|FILE", value_parser = session_id)]
    pub(crate) session: String,
    /// Another version of a plugin, instead of the recorded one; without it, every plugin as it was recorded
    #[arg(long, value_name = "PLUGIN=FILE", value_parser = with)]
    pub(crate) with: Vec<(String, PathBuf)>,
    /// An agent's file, or its name in this folder: its limits, variables and configuration values hold
    #[arg(long, value_name = "FILE|NAME", value_parser = OsStringValueParser::new().try_map(agent))]
    pub(crate) agent: Option<PathBuf>,
    /// Whose session (default: who is logged in)
    #[arg(long, value_name = "NAME", value_parser = super::user_name)]
    pub(crate) user: Option<String>,
    /// Only this turn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) turn: Option<u32>,
    /// Show every difference, not only the first
    #[arg(long)]
    pub(crate) all: bool,
    /// Let a plugin read what was not recorded: PLUGIN:read=DIR, env=NAME or config=KEY=VALUE
    #[arg(long, value_name = "PLUGIN:KIND=VALUE", value_parser = Grant::parse)]
    pub(crate) grant: Vec<Grant>,
    /// Print one JSON document instead
    #[arg(long)]
    pub(crate) json: bool,
}

fn with(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => Ok((name.to_owned(), file.into())),
        _ => Err("write PLUGIN=FILE, such as text=plugins/text.wasm".to_owned()),
    }
}
