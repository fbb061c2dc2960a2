//! How the process ends: its exit codes, and failures that carry one.

use std::fmt;
use std::process::ExitCode;

/// The documented exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The turn ended with an answer, or the command did what it says.
    Done,
    /// The turn, the build or the call ended with an error.
    Failed,
    /// Nothing was begun.
    Refused,
    /// The turn waits for somebody: a decision, an answer.
    Suspended,
    /// Somebody stopped it.
    Cancelled,
}

impl Exit {
    /// The number.
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Refused => 2,
            Exit::Suspended => 3,
            Exit::Cancelled => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

/// Why a command stops, for people, and with which code.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The code.
    pub(crate) exit: Exit,
    /// What happened, where, what to do; empty where there is nobody to tell.
    pub(crate) message: String,
}

impl Failure {
    /// Nothing was begun.
    pub(crate) fn refused(message: impl fmt::Display) -> Self {
        Self { exit: Exit::Refused, message: message.to_string() }
    }

    /// Stdout cannot be written. That its reader has read enough and is gone is no failure, and there is nobody to
    /// tell.
    pub(crate) fn output(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self { exit: Exit::Done, message: String::new() };
        }
        Self::failed(format!("the output cannot be written: {error}"))
    }

    /// The work was begun and failed.
    pub(crate) fn failed(message: impl fmt::Display) -> Self {
        Self { exit: Exit::Failed, message: message.to_string() }
    }
}
