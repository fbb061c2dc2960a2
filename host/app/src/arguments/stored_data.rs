//! Arguments of the commands `store` and `outbox`.

use super::session_id;
use clap::Subcommand;
use std::path::PathBuf;

/// Commands on the database.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum StoreCommand {
    /// Check, without changing anything, that the database is intact and its indexes match the stored data
    Check {
        /// Print one JSON line per comparison
        #[arg(long)]
        json: bool,
    },
    /// Rebuild the indexes for searching and listing from the stored messages, memories and states
    Rebuild,
    /// Copy all data from one database to another, such as from a data folder to PostgreSQL, and compare everything
    ///
    /// A repeated copy continues where an interrupted one stopped. Stop all processes that use the databases before.
    Copy {
        /// Data folder, database file, or postgres://USER@HOST/DATABASE; the password is in PGPASSWORD
        from: String,
        /// Data folder, database file or address to which the data is copied (default: --store or AGENT_HOST_STORE)
        to: Option<String>,
        /// Print one JSON line with the result
        #[arg(long)]
        json: bool,
    },
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
