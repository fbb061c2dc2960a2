//! Values that TOML has and JSON has not: dates, and numbers that are none.

use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The table whose keys are read elsewhere.
const AGENT: &str = "agent";

/// Each such value of a scenario's file: where it stands, its key, and what it is.
pub(super) fn without_json(text: &str) -> Vec<(Range<usize>, String, String)> {
    let mut found = Vec::new();
    // A text that is no TOML is refused where it is read.
    if let Ok(root) = DeTable::parse(text) {
        for (key, value) in root.get_ref().iter().filter(|(key, _)| key.get_ref() != AGENT) {
            look(value, key.get_ref().to_string(), &mut found);
        }
    }
    found
}

fn look(value: &Spanned<DeValue<'_>>, key: String, found: &mut Vec<(Range<usize>, String, String)>) {
    match value.get_ref() {
        DeValue::Datetime(_) => found.push((value.span(), key, "a date or a time".to_owned())),
        DeValue::Float(number) if number.as_str().ends_with(|last: char| last.is_ascii_alphabetic()) => {
            found.push((value.span(), key, number.as_str().to_owned()));
        }
        DeValue::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| look(item, format!("{key}[{index}]"), found));
        }
        DeValue::Table(table) => {
            table.iter().for_each(|(name, value)| look(value, below(&key, name.get_ref()), found));
        }
        DeValue::String(_) | DeValue::Integer(_) | DeValue::Boolean(_) | DeValue::Float(_) => {}
    }
}

/// A key as TOML writes it.
fn below(key: &str, name: &str) -> String {
    let is_bare = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    match !name.is_empty() && name.chars().all(is_bare) {
        true => format!("{key}.{name}"),
        false => format!("{key}.{name:?}"),
    }
}
