//! Arguments of the commands `setup` and `doctor`.

use super::serve::NatsArguments;
use clap::Args;
use std::path::PathBuf;

/// Options of `setup`.
#[derive(Debug, Default, Args)]
pub(crate) struct SetupArguments {
    /// Default model: PROVIDER/MODEL, or `offline`
    #[arg(long, value_name = "MODEL", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) model: Option<String>,
    /// NAME of the environment variable that contains the key of the model's provider, never the key itself
    #[arg(long, value_name = "NAME")]
    pub(crate) key_env: Option<String>,
    /// Folder that contains the plugins (*.wasm)
    #[arg(long, value_name = "DIR")]
    pub(crate) plugins: Option<PathBuf>,
    /// Use only these standard plugins, separated by commas (default: all); `agent-host plugin search` lists them
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "plugins")]
    pub(crate) standard: Vec<String>,
    /// Don't let the plugins `text` and `files` read the folder in which agent-host is started
    #[arg(long)]
    pub(crate) no_read: bool,
    /// Ask nothing: use the options, then the present values, then what is found on this machine
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Only show the path and the values of the user-wide configuration
    #[arg(long, conflicts_with_all = ["model", "key_env", "plugins", "standard", "no_read", "yes"])]
    pub(crate) show: bool,
}

/// Options of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// NATS servers.
    #[command(flatten)]
    pub(crate) nats: NatsArguments,
}
