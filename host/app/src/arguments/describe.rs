//! Command-line arguments of `plugin describe`.

use clap::Args;
use std::path::PathBuf;

/// Arguments of `plugin describe`.
#[derive(Debug, Args)]
pub(crate) struct DescribeArguments {
    /// Component file without a manifest (*.wasm)
    pub(crate) file: PathBuf,
    /// Write the manifest to this file instead of NAME.plugin.toml beside the component
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Replace an existing manifest file
    #[arg(long)]
    pub(crate) replace: bool,
}
