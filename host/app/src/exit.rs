//! Exit codes of the process, and the failures that determine the exit code.

use agent_config::ConfigError;
use std::fmt;
use std::process::ExitCode;

/// The documented exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The turn ended with an answer, or the command succeeded.
    Done,
    /// The turn, the build or the call ended with an error.
    Failed,
    /// Nothing was started: the usage, configuration, plugin or data is invalid.
    Refused,
    /// The turn waits for a decision or an answer.
    Suspended,
    /// A signal or the user stopped the work.
    Cancelled,
}

impl Exit {
    /// Returns the process's exit code.
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

/// Reason why a command stops, and the exit code that the process then returns.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The process's exit code.
    pub(crate) exit: Exit,
    /// Message for the user: what happened, where, and what to do. If the message is empty, nothing is printed.
    pub(crate) message: String,
}

impl Failure {
    /// Creates a failure that occurred before the command started its work.
    pub(crate) fn refused(message: impl fmt::Display) -> Self {
        Self { exit: Exit::Refused, message: message.to_string() }
    }

    /// Creates the failure for an error that occurred while writing to stdout. If stdout is a pipe whose reader has
    /// closed it, the reader needs no more output, so the command succeeds without a message.
    pub(crate) fn output(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self { exit: Exit::Done, message: String::new() };
        }
        Self::failed(format!("the output cannot be written: {error}"))
    }

    /// Creates a failure that occurred after the command had started its work.
    pub(crate) fn failed(message: impl fmt::Display) -> Self {
        Self { exit: Exit::Failed, message: message.to_string() }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        match error.root() {
            ConfigError::BuildFailed(_) => Self::failed(error),
            _ => Self::refused(error),
        }
    }
}
