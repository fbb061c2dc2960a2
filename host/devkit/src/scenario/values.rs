//! Finds values in TOML that JSON cannot express: dates, infinities and NaN.

use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The name of the table that is skipped when a scenario is searched for values that JSON cannot express. The code that
/// reads the agent's configuration checks the values of this table.
const AGENT: &str = "agent";

/// Returns all values of a scenario file that JSON cannot express, each with its byte range, key and description.
pub(super) fn values_outside_json(text: &str) -> Vec<(Range<usize>, String, String)> {
    let mut found = Vec::new();
    // Invalid TOML is ignored here, because the code that parses the scenario file reports the error.
    if let Ok(root) = DeTable::parse(text) {
        for (key, value) in root.get_ref().iter().filter(|(key, _)| key.get_ref() != AGENT) {
            search(value, key.get_ref().to_string(), &mut found);
        }
    }
    found
}

fn search(value: &Spanned<DeValue<'_>>, key: String, found: &mut Vec<(Range<usize>, String, String)>) {
    match value.get_ref() {
        DeValue::Datetime(_) => found.push((value.span(), key, "a date or a time".to_owned())),
        DeValue::Float(number) if number.as_str().ends_with(|last: char| last.is_ascii_alphabetic()) => {
            found.push((value.span(), key, number.as_str().to_owned()));
        }
        DeValue::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| search(item, format!("{key}[{index}]"), found));
        }
        DeValue::Table(table) => {
            table.iter().for_each(|(name, value)| search(value, joined_key(&key, name.get_ref()), found));
        }
        DeValue::String(_) | DeValue::Integer(_) | DeValue::Boolean(_) | DeValue::Float(_) => {}
    }
}

/// Appends `name` to a dotted key, in quotes if TOML requires them.
fn joined_key(key: &str, name: &str) -> String {
    let is_bare = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    match !name.is_empty() && name.chars().all(is_bare) {
        true => format!("{key}.{name}"),
        false => format!("{key}.{name:?}"),
    }
}
