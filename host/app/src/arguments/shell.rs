//! The shells whose command lines the program completes.

use clap::ValueEnum;

/// A shell for which a script exists that completes commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    /// The Bourne Again Shell, 4.4 or newer
    Bash,
    /// The Z shell
    Zsh,
    /// The friendly interactive shell
    Fish,
}
