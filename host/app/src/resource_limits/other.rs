//! Replaces the handling of resource limits on systems other than Unix, where no limit is watched.

use crate::exit::Failure;
use std::process::ExitCode;

/// Does nothing: only glibc's allocator has arenas.
pub(crate) fn use_few_arenas() {}

/// Runs the program on the current thread.
pub(crate) fn on_large_stack(program: fn() -> ExitCode) -> ExitCode {
    program()
}

/// Does nothing, because no limit is watched.
pub(crate) fn watch() {}

/// Returns the failure unchanged.
pub(crate) fn explain(failure: Failure) -> Failure {
    failure
}
