//! Enforces the limits on the memories and tables of a call. The functions correspond to the methods of
//! `wasmtime::ResourceLimiter`.

use crate::limits::Limit;
use crate::recording::CallRecord;

/// The memory use of one call.
#[derive(Debug, Default)]
pub(super) struct MemoryLimiter {
    /// Total size of all memories in bytes.
    bytes: usize,
    /// The last growth that was allowed and may still fail, in bytes.
    growth: usize,
}

impl MemoryLimiter {
    pub(super) fn memory_growing(
        &mut self,
        record: &CallRecord,
        (current, desired): (usize, usize),
        maximum: Option<usize>,
    ) -> bool {
        let growth = desired.saturating_sub(current);
        let total = self.bytes.saturating_add(growth);
        let limit = record.limits.memory;
        if total > limit {
            record.record_refused_growth(Limit::Memory(limit));
            return false;
        }
        // The engine never grows a memory beyond the memory's own maximum.
        if maximum.is_some_and(|maximum| desired > maximum) {
            return false;
        }
        self.growth = growth;
        self.bytes = total;
        record.record_growth();
        record.use_memory(total);
        true
    }

    pub(super) fn memory_grow_failed(&mut self, error: &wasmtime::Error) {
        // Growth that the operating system refused was counted in `memory_growing`. Growth beyond the maximum of the
        // memory's type is not passed to `memory_growing`, so it was not counted.
        if error.is::<std::io::Error>() {
            self.bytes -= std::mem::take(&mut self.growth);
        }
    }
}

pub(super) fn table_growing(record: &CallRecord, desired: usize) -> bool {
    let limit = record.limits.table_elements;
    let fits = desired <= limit;
    match fits {
        true => record.record_growth(),
        false => record.record_refused_growth(Limit::TableElements(limit)),
    }
    fits
}
