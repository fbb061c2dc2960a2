//! Arguments of the commands `store` and `outbox`.

use super::session_id;
use clap::Subcommand;
use std::path::PathBuf;

/// Commands on the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum StoreCommand {
    /// Check, without changing anything, that the database file is intact and its indexes match the stored data
    Check {
        /// Print one JSON line per comparison
        #[arg(long)]
        json: bool,
    },
    /// Rebuild the indexes for searching and listing from the stored messages, memories and states
    Rebuild,
}

/// Commands on the outbox.
#[derive(Debug, Subcommand)]
pub(crate) enum OutboxCommand {
    /// List pending items, oldest first
    List {
        /// Select only the events of this session: its id, or an unambiguous part of the id
        #[arg(long, value_name = "ID", value_parser = session_id)]
        session: Option<String>,
        /// Include delivered items
        #[arg(long)]
        all: bool,
        /// Print one JSON line per item
        #[arg(long)]
        json: bool,
    },
    /// Write each pending event as a file into a folder, as `[outbox] directory` does after each commit
    Deliver {
        /// Folder for the files; it must exist
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// Select only the events of this session: its id, or an unambiguous part of the id
        #[arg(long, value_name = "ID", value_parser = session_id)]
        session: Option<String>,
    },
}
