//! Enforces the limits on the memories and tables of a call. Each function implements a method
//! of `wasmtime::ResourceLimiter`.

use crate::limits::Limit;
use crate::recording::CallRecord;

/// The total size of the memories of one call.
#[derive(Debug, Default)]
pub(super) struct MemoryLimiter {
    /// Total size of all linear memories of the call's instance, in bytes.
    bytes: usize,
    /// Number of bytes by which a memory was last allowed to grow. The operating system may still refuse these bytes.
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
        // wasmtime never grows a memory beyond the maximum that the memory declares.
        if maximum.is_some_and(|maximum| desired > maximum) {
            return false;
        }
        self.growth = growth;
        self.bytes = total;
        record.record_growth();
        record.record_memory_use(total);
        true
    }

    pub(super) fn memory_grow_failed(&mut self, error: &wasmtime::Error) {
        // If the operating system refused to enlarge the memory, `memory_growing` has already counted the additional
        // bytes, so this function subtracts them. If the new size exceeds the maximum of the memory's type,
        // `memory_growing` was not called and has counted nothing.
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
