//! Arguments of the command `model`.

use clap::Subcommand;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::path::PathBuf;

/// Commands on models.
#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// List the models of all providers that can be reached, or of one provider
    List {
        /// Provider whose models are listed (default: all providers)
        #[arg(value_name = "PROVIDER")]
        provider: Option<String>,
        /// Agent configuration whose providers are used: a file, or the name of an agent in this folder
        #[arg(long, value_name = "FILE|NAME", value_parser = OsStringValueParser::new().try_map(super::agent))]
        agent: Option<PathBuf>,
    },
    /// Send one small request with a tool and an image, and explain what the model can do
    Test {
        /// PROVIDER/MODEL
        #[arg(value_name = "MODEL")]
        model: String,
        /// Agent configuration whose providers are used: a file, or the name of an agent in this folder
        #[arg(long, value_name = "FILE|NAME", value_parser = OsStringValueParser::new().try_map(super::agent))]
        agent: Option<PathBuf>,
        /// URL of the model provider, such as http://127.0.0.1:8000/v1
        #[arg(long, value_name = "URL", value_parser = super::base_url)]
        base_url: Option<String>,
    },
}
