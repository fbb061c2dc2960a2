//! Whether a person is at the terminal and can be asked.

use crate::terminal::{Output, Terminal};
use std::io::IsTerminal;

/// Whether somebody can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Person {
    /// A person reads the terminal and can type an answer.
    AtTerminal,
    /// Nobody can answer. Calls that are not already allowed wait.
    Nobody,
}

impl Person {
    /// Returns [`Person::AtTerminal`] if both stdin and stderr are terminals.
    pub(crate) fn of(terminal: &Terminal) -> Self {
        match std::io::stdin().is_terminal() && terminal.is_terminal(Output::Stderr) {
            true => Person::AtTerminal,
            false => Person::Nobody,
        }
    }

    /// Who is asked about the first use of a plugin. With `--yes` nobody is, because such a run must not stop for
    /// questions.
    pub(crate) fn at_first_use(self, yes: &[String]) -> Self {
        if yes.is_empty() { self } else { Person::Nobody }
    }
}
