//! The tables of limits: whatever their lists have.

use super::document::Table;
use agent_core::limits::LimitRow;
use agent_plugins::limits::FUEL;
use std::collections::BTreeMap;

/// Limits that the file sets, each in its key's unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimitValues(BTreeMap<&'static str, u64>);

/// Reads what of these limits stands in the table.
pub(super) fn read<L>(table: &Table<'_>, rows: &[LimitRow<L>]) -> LimitValues {
    let value = |row: &LimitRow<L>| {
        let found = table.get(row.key)?;
        let value = match found.flag() {
            Some(on) => Some(if on { FUEL } else { 0 }),
            None => found.large(),
        };
        Some((row.key, value?))
    };
    LimitValues(rows.iter().filter_map(value).collect())
}

impl LimitValues {
    /// Puts them into a set.
    pub(crate) fn set<L>(&self, rows: &[LimitRow<L>], limits: &mut L) {
        for row in rows {
            if let Some(value) = self.0.get(row.key) {
                (row.set)(limits, *value);
            }
        }
    }
}
