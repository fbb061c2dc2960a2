//! `audit export`: writes the audit log as JSON lines with hashes (O3).

use crate::commands::session::destination::{Destination, Existing, unwritable};
use crate::exit::{Exit, Failure};
use crate::terminal::Terminal;
use agent_store::{AuditChain, ChainHead, ChainProblem, MAX_PAGE, Store};
use std::path::Path;
use tokio::fs::File;
use tokio::io::{AsyncWriteExt, BufWriter};

/// File name that means stdout.
const PIPE: &str = "-";

/// Exports the entries after the entry with the number `after`, page by page. A damaged log is exported completely, but
/// then the command fails.
pub(super) async fn export(
    store: &dyn Store,
    after: u64,
    (output, existing): (&Path, Existing),
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let mut entries = Entries { chain: start(store, after).await?, problem: None, count: 0 };
    if output == Path::new(PIPE) {
        while let Some(lines) = entries.next_page(store).await? {
            terminal.print(lines.trim_end()).map_err(Failure::output)?;
        }
    } else {
        let (file, writing) = Destination::of(output, existing)?.open().await?;
        let mut file: BufWriter<File> = BufWriter::new(file);
        while let Some(lines) = entries.next_page(store).await? {
            file.write_all(lines.as_bytes()).await.map_err(|error| unwritable(output, &error))?;
        }
        file.flush().await.map_err(|error| unwritable(output, &error))?;
        writing.finish(file.into_inner()).await?;
    }
    let count = super::entries(entries.count);
    let head = entries.chain.head();
    match entries.problem {
        None => {
            terminal.note(format!("exported {count}; the last entry is {} with the hash {}", head.number, head.hash))
        }
        Some(problem) => {
            return Err(Failure::failed(format!("exported {count}, but the audit log is damaged: {problem}")));
        }
    }
    Ok(Exit::Done)
}

/// Returns the place after the entry with the number `after`.
async fn start(store: &dyn Store, after: u64) -> Result<AuditChain, Failure> {
    let Some(before) = after.checked_sub(1) else { return Ok(AuditChain::default()) };
    let found = store.stored_audit_entries(before, 1).await.map_err(Failure::failed)?.pop();
    match found.filter(|entry| entry.number == after) {
        Some(entry) => Ok(AuditChain::after(ChainHead { number: after, hash: entry.hash })),
        None => Err(Failure::refused(format!("the audit log has no entry {after}; export everything without --after"))),
    }
}

/// The entries that are exported.
struct Entries {
    chain: AuditChain,
    /// The first problem of the chain.
    problem: Option<ChainProblem>,
    count: u64,
}

impl Entries {
    /// Returns the lines of the next page. `None` after the last page.
    async fn next_page(&mut self, store: &dyn Store) -> Result<Option<String>, Failure> {
        let entries = store.stored_audit_entries(self.chain.head().number, MAX_PAGE).await.map_err(Failure::failed)?;
        if entries.is_empty() {
            return Ok(None);
        }
        let mut lines = String::new();
        for entry in entries {
            if self.problem.is_none() {
                self.problem = self.chain.clone().check(&entry).err();
            }
            lines += &serde_json::to_string(&self.chain.export(entry)).map_err(Failure::failed)?;
            lines.push('\n');
            self.count += 1;
        }
        Ok(Some(lines))
    }
}
