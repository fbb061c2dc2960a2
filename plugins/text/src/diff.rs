//! Differences of two texts, line by line, as a unified diff.

use schemars::JsonSchema;
use serde::Serialize;
use similar::{ChangeTag, TextDiff};

/// Most lines of either text: with more, comparing could take longer than a call may.
pub const MAX_LINES: usize = 20_000;

/// Longest diff that is returned, in bytes; it is cut at a line.
const MAX_DIFF: usize = 256 * 1024;

/// How two texts differ.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Difference {
    /// Lines that only the second text has.
    pub added: usize,
    /// Lines that only the first text has.
    pub removed: usize,
    /// Unified diff; empty for equal texts.
    pub diff: String,
    /// Bytes of the diff that are left out at its end.
    pub left_out: usize,
}

/// A text that is too long to compare.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} has {lines} lines; at most {MAX_LINES} can be compared")]
pub struct TooLong {
    /// Of the text.
    pub name: String,
    /// Its number of lines.
    pub lines: usize,
}

/// A text and what it is called in the diff's header.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// For example a path.
    pub name: &'a str,
    /// The whole text.
    pub text: &'a str,
}

/// Compares two texts; `context` lines are shown around each change.
pub fn diff(old: Named<'_>, new: Named<'_>, context: usize) -> Result<Difference, TooLong> {
    for Named { name, text } in [old, new] {
        let lines = text.lines().count();
        if lines > MAX_LINES {
            return Err(TooLong { name: name.to_owned(), lines });
        }
    }
    let comparison = TextDiff::from_lines(old.text, new.text);
    let (mut added, mut removed) = (0, 0);
    for change in comparison.iter_all_changes() {
        match change.tag() {
            ChangeTag::Insert => added += 1,
            ChangeTag::Delete => removed += 1,
            ChangeTag::Equal => {}
        }
    }
    let mut diff = comparison.unified_diff().context_radius(context).header(old.name, new.name).to_string();
    if added + removed == 0 {
        diff.clear();
    }
    let whole = diff.len();
    if whole > MAX_DIFF {
        let end = diff.as_bytes()[..MAX_DIFF].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        diff.truncate(end);
    }
    Ok(Difference { added, removed, left_out: whole - diff.len(), diff })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(old: &str, new: &str) -> Difference {
        diff(Named { name: "old", text: old }, Named { name: "new", text: new }, 1).expect("the texts are short")
    }

    #[test]
    fn writes_a_unified_diff() {
        let difference = compare("a\nb\nc\nd\n", "a\nB\nc\nd\n");
        assert_eq!((difference.added, difference.removed, difference.left_out), (1, 1, 0));
        assert_eq!(difference.diff, "--- old\n+++ new\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n");
    }

    #[test]
    fn equal_texts_have_no_diff() {
        assert_eq!(compare("a\nb", "a\nb").diff, "");
        assert_eq!(compare("", "").diff, "");
    }

    #[test]
    fn a_missing_line_break_at_the_end_is_a_difference() {
        let difference = compare("a\n", "a");
        assert_eq!((difference.added, difference.removed), (1, 1));
        assert!(difference.diff.contains("No newline at end of file"), "{}", difference.diff);
    }

    #[test]
    fn long_texts_are_refused_and_long_diffs_cut_at_a_line() {
        let long = "x\n".repeat(MAX_LINES + 1);
        let error = diff(Named { name: "big.txt", text: &long }, Named { name: "new", text: "" }, 3);
        assert_eq!(error, Err(TooLong { name: "big.txt".into(), lines: MAX_LINES + 1 }));
        let difference = compare("", &format!("{}\n", "x".repeat(99)).repeat(4_000));
        assert!(difference.diff.len() <= MAX_DIFF && difference.diff.ends_with("x\n"));
        assert_eq!(difference.diff.len() + difference.left_out, 35 + 4_000 * 101);
    }
}
