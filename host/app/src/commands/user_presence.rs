//! Determines whether a user is at the terminal and can answer questions.

use crate::terminal::{Output, Terminal};
use std::io::IsTerminal;

/// Whether a user is at the terminal to answer questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UserPresence {
    /// A user reads the terminal and can type an answer.
    AtTerminal,
    /// No user can answer. Calls that need an approval wait.
    Absent,
}

impl UserPresence {
    /// Returns [`UserPresence::AtTerminal`] if both stdin and stderr are terminals.
    pub(crate) fn of(terminal: &Terminal) -> Self {
        match std::io::stdin().is_terminal() && terminal.is_terminal(Output::Stderr) {
            true => UserPresence::AtTerminal,
            false => UserPresence::Absent,
        }
    }

    /// Returns whether the user is asked about the first use of a plugin. With `--yes`, the user is not asked, because
    /// such a command must not stop for questions.
    pub(crate) fn at_first_use(self, yes: &[String]) -> Self {
        if yes.is_empty() { self } else { UserPresence::Absent }
    }
}
