//! Builds plugin projects for several commands, and shows the progress on the terminal.

use crate::environment;
use crate::exit::Failure;
use crate::terminal::{Terminal, show_build};
use agent_devkit::build::{BuildError, BuildEvent, BuiltPlugin, build_directory};
use std::path::Path;

/// Builds the projects in a folder and writes the components into that folder. A compile error
/// makes the command end with [`Exit::Failed`](crate::exit::Exit::Failed), and every other error
/// with [`Exit::Refused`](crate::exit::Exit::Refused).
pub(crate) async fn build(directory: &Path, terminal: &Terminal) -> Result<Vec<BuiltPlugin>, Failure> {
    let toolchain = environment::toolchain();
    let progress = |event: BuildEvent<'_>| show_build(terminal, &event);
    let built = build_directory(&toolchain, directory, directory, &progress).await;
    terminal.idle();
    built.map_err(|error| match error {
        BuildError::Compile { tool, plugins, .. } if !terminal.is_interactive() => {
            Failure::failed(format!("{tool} could not build {}: see its messages above", plugins.join(", ")))
        }
        BuildError::Compile { .. } | BuildError::NotAComponent { .. } | BuildError::Wit { .. } => {
            Failure::failed(error)
        }
        _ => Failure::refused(error),
    })
}
