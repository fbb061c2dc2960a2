//! Arguments of the command `acp`.

use agent_config::grants::Grant;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::path::PathBuf;

/// Options of `acp`.
#[derive(Debug, Args)]
pub(crate) struct AcpArguments {
    /// Agent for the editor: a file (agent.toml), or the name of an agent in this folder
    #[arg(long, value_name = "FILE|NAME", value_parser = OsStringValueParser::new().try_map(super::agent))]
    pub(crate) agent: Option<PathBuf>,
    /// Folder that contains the plugins (*.wasm), instead of the folder in the agent's file
    #[arg(long, value_name = "DIR")]
    pub(crate) plugins: Option<PathBuf>,
    /// PROVIDER/MODEL, `offline` or `scripted:FILE`, instead of the models in the agent's file
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Grant something to a plugin, as for a session
    #[arg(long, value_name = "PLUGIN:KIND=VALUE", value_parser = Grant::parse)]
    pub(crate) grant: Vec<Grant>,
}
