//! Reads the tables that set limits. The keys of these tables are defined by the crates that enforce the limits.

use super::document::Table;
use agent_core::limits::LimitRow;
use agent_plugins::limits::FUEL;
use std::collections::BTreeMap;

/// Values of the limits that the file sets, by the key of the limit. The unit of each value is part of the limit's key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitValues(BTreeMap<&'static str, u64>);

/// Reads the limits that `table` sets.
pub(super) fn read<L>(table: &Table<'_>, rows: &[LimitRow<L>]) -> LimitValues {
    let value = |row: &LimitRow<L>| {
        let value = table.get(row.key)?;
        let value = match value.flag() {
            Some(on) => Some(if on { FUEL } else { 0 }),
            None => value.number_u64(),
        };
        Some((row.key, value?))
    };
    LimitValues(rows.iter().filter_map(value).collect())
}

impl LimitValues {
    /// Writes the values from the file into `limits`. Limits that the file does not set keep their values.
    pub fn set<L>(&self, rows: &[LimitRow<L>], limits: &mut L) {
        for row in rows {
            if let Some(value) = self.0.get(row.key) {
                (row.set)(limits, *value);
            }
        }
    }
}
