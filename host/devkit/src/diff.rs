//! Two texts beside each other.

use similar::TextDiff;

/// What has to be changed in `expected` to become `found`, line by line.
pub(crate) fn diff(expected: &str, found: &str) -> String {
    named(("expected", "found"), expected, found)
}

/// The same of two texts that are called otherwise.
pub(crate) fn named((old, new): (&str, &str), expected: &str, found: &str) -> String {
    let is_whole = |text: &str| text.is_empty() || text.ends_with('\n');
    let ended = |text: &str| if is_whole(text) { text.to_owned() } else { format!("{text}\n") };
    let (expected, found) = (ended(expected), ended(found));
    let diff = TextDiff::from_lines(&expected, &found);
    diff.unified_diff().context_radius(3).header(old, new).to_string()
}
