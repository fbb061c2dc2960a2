//! Line-based differences between two texts, for error messages.

use similar::TextDiff;

/// Returns a unified diff from `expected` to `found`.
pub(crate) fn diff(expected: &str, found: &str) -> String {
    labelled(("expected", "found"), expected, found)
}

/// Returns a unified diff of two texts. The first parameter contains the names of the two texts for the header of
/// the diff.
pub(crate) fn labelled((old, new): (&str, &str), expected: &str, found: &str) -> String {
    let ends_with_newline = |text: &str| text.is_empty() || text.ends_with('\n');
    let terminated = |text: &str| if ends_with_newline(text) { text.to_owned() } else { format!("{text}\n") };
    let (expected, found) = (terminated(expected), terminated(found));
    let diff = TextDiff::from_lines(&expected, &found);
    diff.unified_diff().context_radius(3).header(old, new).to_string()
}
