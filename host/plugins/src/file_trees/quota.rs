//! The quota of a turn in a writable tree: the maximum number of bytes and of entries that the calls of a turn may add
//! in total (row 44). When files are removed, their bytes and entries are returned to the quota.

use super::{FileId, TreeRefusal};
use crate::limits::Limit;
use crate::sync::lock;
use std::collections::HashMap;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// If [`Quotas`] contains this many entries, the entries that no running call needs are dropped.
const MAX_TURNS: usize = 1024;

/// Identifies a turn in a session of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct TurnKey {
    pub(crate) agent: String,
    pub(crate) session: String,
    pub(crate) turn: u32,
}

/// A session of an agent, and one of the trees that are granted to the agent's plugins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct TreeOfSession {
    agent: String,
    session: String,
    tree: FileId,
}

/// The turn number and the usage of the latest turn, for each session and tree.
#[derive(Debug, Default)]
pub(crate) struct Quotas(Mutex<HashMap<TreeOfSession, (u32, Arc<TreeUsage>)>>);

impl Quotas {
    /// Returns how much this turn has added to the tree so far. The usage of a new turn starts at zero.
    pub(super) fn usage_of(&self, turn: &TurnKey, tree: FileId) -> Arc<TreeUsage> {
        let mut usages = lock(&self.0);
        if usages.len() >= MAX_TURNS {
            usages.retain(|_, (_, usage)| Arc::strong_count(usage) > 1);
        }
        let key = TreeOfSession { agent: turn.agent.clone(), session: turn.session.clone(), tree };
        let (number, usage) = usages.entry(key).or_insert_with(|| (turn.turn, Arc::default()));
        if *number != turn.turn {
            (*number, *usage) = (turn.turn, Arc::default());
        }
        Arc::clone(usage)
    }
}

/// The maximum number of bytes and entries that a turn may add to a tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct TreeLimits {
    pub(super) bytes: u64,
    pub(super) entries: u64,
}

/// The number of bytes and entries that a turn has added to a tree. The numbers are negative if the turn has removed
/// more than it has added.
#[derive(Debug, Default)]
pub(super) struct TreeUsage(Mutex<Counted>);

#[derive(Debug, Default)]
pub(super) struct Counted {
    bytes: i64,
    entries: i64,
    /// The files that guests have opened. A removed file uses disk space until the last guest closes it.
    open: HashMap<FileId, Vec<Weak<File>>>,
    /// Bytes of removed files that are still open.
    removed: Vec<(Vec<Weak<File>>, i64)>,
}

impl TreeUsage {
    /// Locks the counters of bytes and entries. Callers keep the lock while they change the size of a file, so that two
    /// calls do not both count the growth of the file.
    pub(super) fn lock(&self) -> MutexGuard<'_, Counted> {
        lock(&self.0)
    }
}

impl Counted {
    /// Reserves `bytes` further bytes of the quota, or fails if the quota does not allow them.
    pub(super) fn grow(&mut self, bytes: u64, limits: TreeLimits) -> Result<(), TreeRefusal> {
        let fits = |counted: &Self| counted.bytes.saturating_add(signed(bytes)) <= signed(limits.bytes);
        if bytes > 0 && !fits(self) {
            self.release_closed();
            if !fits(self) {
                return Err(TreeRefusal::Quota(Limit::TreeBytes(limits.bytes)));
            }
        }
        self.bytes = self.bytes.saturating_add(signed(bytes));
        Ok(())
    }

    /// Gives `bytes` bytes back to the quota.
    pub(super) fn shrink(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(signed(bytes));
    }

    /// Reserves one further entry of the quota, or fails if the quota does not allow it.
    pub(super) fn add_entry(&mut self, limits: TreeLimits) -> Result<(), TreeRefusal> {
        if self.entries >= signed(limits.entries) {
            return Err(TreeRefusal::Quota(Limit::TreeEntries(limits.entries)));
        }
        self.entries += 1;
        Ok(())
    }

    /// Returns one entry to the quota.
    pub(super) fn remove_entry(&mut self) {
        self.entries = self.entries.saturating_sub(1);
    }

    /// Records that a guest has opened a file.
    pub(super) fn opened(&mut self, id: FileId, file: &Arc<File>) {
        if self.open.len() > 4096 {
            self.open.retain(|_, handles| handles.iter().any(is_open));
        }
        let handles = self.open.entry(id).or_default();
        handles.retain(is_open);
        handles.push(Arc::downgrade(file));
    }

    /// Records that the last name (hard link) of a file was removed. The file's bytes are given back to the quota when
    /// no guest has the file open any more.
    pub(super) fn removed(&mut self, id: FileId, bytes: u64) {
        let handles = self.open.remove(&id).unwrap_or_default();
        if handles.iter().any(is_open) {
            self.removed.push((handles, signed(bytes)));
        } else {
            self.shrink(bytes);
        }
    }

    /// For each removed file that is now closed, subtracts the bytes of the file from the usage.
    fn release_closed(&mut self) {
        let removed = std::mem::take(&mut self.removed);
        for (handles, bytes) in removed {
            if handles.iter().any(is_open) {
                self.removed.push((handles, bytes));
            } else {
                self.bytes = self.bytes.saturating_sub(bytes);
            }
        }
    }
}

fn is_open(handle: &Weak<File>) -> bool {
    handle.strong_count() > 0
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: TreeLimits = TreeLimits { bytes: 100, entries: 2 };

    fn id(inode: u64) -> FileId {
        FileId { device: 1, inode }
    }

    // Row 44: all calls of a turn share one quota.
    #[test]
    fn row_44_additions_use_quota_and_removals_return_it() {
        let quotas = Quotas::default();
        let turn = |turn| TurnKey { agent: "a".into(), session: "s".into(), turn };
        quotas.usage_of(&turn(1), id(1)).lock().grow(60, LIMITS).expect("the addition is within the quota");
        let usage = quotas.usage_of(&turn(1), id(1));
        assert!(matches!(usage.lock().grow(41, LIMITS), Err(TreeRefusal::Quota(Limit::TreeBytes(100)))));
        usage.lock().shrink(1);
        usage.lock().grow(41, LIMITS).expect("a removal has freed quota");
        usage.lock().grow(u64::MAX, LIMITS).expect_err("no number is too large to be refused");
        quotas.usage_of(&turn(1), id(2)).lock().grow(100, LIMITS).expect("another tree has its own quota");
        quotas.usage_of(&turn(2), id(1)).lock().grow(100, LIMITS).expect("another turn has its own quota");
        for _ in 0..2 {
            usage.lock().add_entry(LIMITS).expect("the addition is within the quota");
        }
        usage.lock().add_entry(LIMITS).expect_err("all entries are used");
        usage.lock().remove_entry();
        usage.lock().add_entry(LIMITS).expect("a removal has freed quota");
    }

    // Row 44: a file that is removed while a guest has it open counts towards the quota until the guest closes it.
    #[test]
    fn row_44_removed_open_file_counts_until_closed() {
        let usage = TreeUsage::default();
        let file = Arc::new(tempfile::tempfile().expect("a file"));
        usage.lock().grow(100, LIMITS).expect("the addition is within the quota");
        usage.lock().opened(id(7), &file);
        usage.lock().removed(id(7), 100);
        usage.lock().grow(1, LIMITS).expect_err("the removed file is still open");
        drop(file);
        usage.lock().grow(100, LIMITS).expect("the removed file is closed");
    }
}
