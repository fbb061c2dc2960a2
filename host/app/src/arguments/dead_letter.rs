//! Arguments of the command `dead-letter`.

use super::serve::NatsArguments;
use clap::{Args, Subcommand};

/// Commands on the messages that no process could handle.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum DeadLetterCommand {
    /// List the messages, oldest first, with the reason
    List {
        /// Print one JSON line per message
        #[arg(long)]
        json: bool,
        /// NATS servers.
        #[command(flatten)]
        nats: NatsArguments,
    },
    /// Hand messages to the processes once more
    Retry {
        /// The messages.
        #[command(flatten)]
        selected: SelectedLetters,
        /// NATS servers.
        #[command(flatten)]
        nats: NatsArguments,
    },
    /// Remove messages; the sessions and events that they are about stay as they are
    Drop {
        /// The messages.
        #[command(flatten)]
        selected: SelectedLetters,
        /// NATS servers.
        #[command(flatten)]
        nats: NatsArguments,
    },
}

/// Options that select messages.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct SelectedLetters {
    /// Numbers of the messages, from `dead-letter list`
    #[arg(value_name = "NUMBER", required_unless_present = "all", conflicts_with = "all")]
    pub(crate) numbers: Vec<u64>,
    /// Select all messages
    #[arg(long)]
    pub(crate) all: bool,
    /// Print one JSON line per message
    #[arg(long)]
    pub(crate) json: bool,
}
