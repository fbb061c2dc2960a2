//! Command-line arguments of `plugin compile`.

use clap::Args;
use std::path::PathBuf;

/// Arguments of `plugin compile`.
#[derive(Debug, Args)]
pub(crate) struct CompileArguments {
    /// Folder that contains the plugins (default: the installed plugins)
    #[arg(value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// Folder for the compiled code (default: the folder `compiled` beside the folder of the plugins, where the program
    /// finds the code)
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
}
