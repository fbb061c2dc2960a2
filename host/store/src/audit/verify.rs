//! Checks the audit log of a store, and exported logs (O3).

use super::chain::{AuditChain, ChainHead, ChainProblem, ExportedAuditEntry};
use crate::{MAX_PAGE, Store, StoreError};
use std::io::{self, BufRead, Read};

/// Maximum size of a line of an exported log, in bytes.
const MAX_LINE_BYTES: u64 = 16 << 20;

/// A hash of the audit log that was kept outside of the database. Because every hash covers all earlier entries, the log
/// contains this hash only if none of these entries was changed or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditAnchor {
    /// The hash of an entry whose number is not known.
    Hash(String),
    /// An entry with its number.
    Head(ChainHead),
}

/// An intact audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedAudit {
    /// Number of the entry before the first checked entry. Not 0 if only a part of a log was exported.
    pub after: u64,
    /// The last entry.
    pub head: ChainHead,
    /// Number of the entry with the hash of the anchor. `None` if there was no anchor.
    pub anchored: Option<u64>,
}

/// Why an audit log was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum AuditProblem {
    /// The chain is broken.
    #[error("{0}")]
    Broken(#[from] ChainProblem),
    /// Entries at the end are missing.
    #[error(
        "{} removed from the end of the log: the last entry is {last}, but the database has stored {assigned} entries",
        removed(.last, .assigned)
    )]
    Truncated {
        /// Number of the last entry.
        last: u64,
        /// Number of the last entry that was ever added.
        assigned: u64,
    },
    /// An entry has another hash than the anchor.
    #[error(
        "entry {number} has the hash {found}, but it had the hash {expected} when this hash was kept: the log was rewritten, \
         beginning at this entry or earlier"
    )]
    Rewritten {
        /// Number of the entry.
        number: u64,
        /// Its hash.
        found: String,
        /// The hash of the anchor.
        expected: String,
    },
    /// The log ends before the anchor.
    #[error("the log ends at entry {last}, but it had {expected} entries when the hash was kept: entries were removed")]
    EndsEarly {
        /// Number of the last entry.
        last: u64,
        /// Number of the anchor.
        expected: u64,
    },
    /// No entry has the hash of the anchor.
    #[error(
        "no entry has the hash {0}: entries at the end were removed, the log was rewritten, or the hash belongs to another log"
    )]
    NoSuchHash(String),
    /// A line of a file cannot be read.
    #[error("line {line} is not an exported entry of an audit log: {problem}")]
    Line {
        /// Number of the line, starting at 1.
        line: u64,
        /// Description of the problem.
        problem: String,
    },
    /// The file contains no entry.
    #[error("the file contains no entry")]
    Empty,
    /// The file cannot be read.
    #[error("the file cannot be read: {0}")]
    File(#[from] io::Error),
    /// The store cannot be read.
    #[error("{0}")]
    Store(#[from] StoreError),
}

/// Checks all entries of a store, page by page.
///
/// Without an anchor, changed entries, removed entries and an end that was cut off are found, unless whoever did it has
/// also computed new hashes and changed the counter of the database.
pub async fn verify_store(store: &dyn Store, anchor: Option<&AuditAnchor>) -> Result<VerifiedAudit, AuditProblem> {
    // Entries that are added during the check do not matter.
    let assigned = store.last_audit_number().await?;
    let (mut chain, mut anchoring) = (AuditChain::default(), Anchoring::new(anchor));
    loop {
        let entries = store.stored_audit_entries(chain.head().number, MAX_PAGE).await?;
        if entries.is_empty() {
            break;
        }
        for entry in &entries {
            chain.check(entry)?;
            anchoring.see(chain.head())?;
        }
    }
    let last = chain.head().number;
    if last < assigned {
        return Err(AuditProblem::Truncated { last, assigned });
    }
    let anchored = anchoring.end(last)?;
    Ok(VerifiedAudit { after: 0, head: chain.head().clone(), anchored })
}

/// Checks an exported log line by line. The log may begin after the first entry; then nothing is known about the entries
/// before its beginning.
pub fn verify_lines(lines: impl BufRead, anchor: Option<&AuditAnchor>) -> Result<VerifiedAudit, AuditProblem> {
    let mut lines = ExportedLines { lines, line: 0 };
    let first = lines.next()?.ok_or(AuditProblem::Empty)?;
    let after = first.number.saturating_sub(1);
    let mut chain = match after {
        0 => AuditChain::default(),
        after => AuditChain::after(ChainHead { number: after, hash: first.previous.clone() }),
    };
    let mut anchoring = Anchoring::new(anchor);
    anchoring.see(chain.head())?;
    let mut next = Some(first);
    while let Some(entry) = next {
        chain.check_exported(entry)?;
        anchoring.see(chain.head())?;
        next = lines.next()?;
    }
    let anchored = anchoring.end(chain.head().number)?;
    Ok(VerifiedAudit { after, head: chain.head().clone(), anchored })
}

/// Reads an exported log. Its memory is bounded by the size of a line.
struct ExportedLines<R> {
    lines: R,
    /// Number of lines that were read.
    line: u64,
}

impl<R: BufRead> ExportedLines<R> {
    fn next(&mut self) -> Result<Option<ExportedAuditEntry>, AuditProblem> {
        loop {
            let mut bytes = Vec::new();
            let read = (&mut self.lines).take(MAX_LINE_BYTES).read_until(b'\n', &mut bytes)?;
            if read == 0 {
                return Ok(None);
            }
            self.line += 1;
            if bytes.trim_ascii().is_empty() {
                continue;
            }
            let problem = |error: serde_json::Error| AuditProblem::Line { line: self.line, problem: error.to_string() };
            return serde_json::from_slice(&bytes).map(Some).map_err(problem);
        }
    }
}

/// Compares the entries of a log with an anchor.
struct Anchoring<'a> {
    anchor: Option<&'a AuditAnchor>,
    found: Option<u64>,
}

impl<'a> Anchoring<'a> {
    fn new(anchor: Option<&'a AuditAnchor>) -> Self {
        Self { anchor, found: None }
    }

    fn see(&mut self, head: &ChainHead) -> Result<(), AuditProblem> {
        match self.anchor {
            Some(AuditAnchor::Hash(hash)) if *hash == head.hash => self.found = Some(head.number),
            Some(AuditAnchor::Head(anchor)) if anchor.number == head.number => {
                if anchor.hash != head.hash {
                    let (found, expected) = (head.hash.clone(), anchor.hash.clone());
                    return Err(AuditProblem::Rewritten { number: head.number, found, expected });
                }
                self.found = Some(head.number);
            }
            _ => {}
        }
        Ok(())
    }

    fn end(self, last: u64) -> Result<Option<u64>, AuditProblem> {
        match (self.anchor, self.found) {
            (None, _) => Ok(None),
            (Some(_), Some(number)) => Ok(Some(number)),
            (Some(AuditAnchor::Hash(hash)), None) => Err(AuditProblem::NoSuchHash(hash.clone())),
            (Some(AuditAnchor::Head(anchor)), None) => Err(AuditProblem::EndsEarly { last, expected: anchor.number }),
        }
    }
}

fn removed(last: &u64, assigned: &u64) -> String {
    match assigned - last {
        1 => "1 entry was".to_owned(),
        count => format!("{count} entries were"),
    }
}
