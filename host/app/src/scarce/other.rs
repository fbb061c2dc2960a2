//! On systems without Unix's limits of a process nothing is watched.

use crate::exit::Failure;
use std::process::ExitCode;

/// Runs the program.
pub(crate) fn on_large_stack(program: fn() -> ExitCode) -> ExitCode {
    program()
}

/// There is nothing to watch.
pub(crate) fn watch() {}

/// The failure as it is.
pub(crate) fn named(failure: Failure) -> Failure {
    failure
}
