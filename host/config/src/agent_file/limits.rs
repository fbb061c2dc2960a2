//! Reads tables of limits. The crates that enforce the limits define their keys.

use super::document::Table;
use agent_core::limits::LimitRow;
use agent_plugins::limits::FUEL;
use std::collections::BTreeMap;

/// Limits that the file sets, each in the unit of its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitValues(BTreeMap<&'static str, u64>);

/// Reads the limits that the table sets.
pub(super) fn read<L>(table: &Table<'_>, rows: &[LimitRow<L>]) -> LimitValues {
    let value = |row: &LimitRow<L>| {
        let value = table.get(row.key)?;
        let value = match value.flag() {
            Some(on) => Some(if on { FUEL } else { 0 }),
            None => value.large(),
        };
        Some((row.key, value?))
    };
    LimitValues(rows.iter().filter_map(value).collect())
}

impl LimitValues {
    /// Overwrites the limits that the file sets; the others keep their values.
    pub fn set<L>(&self, rows: &[LimitRow<L>], limits: &mut L) {
        for row in rows {
            if let Some(value) = self.0.get(row.key) {
                (row.set)(limits, *value);
            }
        }
    }
}
