//! Compares two texts line by line and writes a unified diff.

use schemars::JsonSchema;
use serde::Serialize;
use similar::algorithms::{Capture, Replace, myers};
use similar::{DiffOp, DiffTag, group_diff_ops};
use std::collections::HashMap;
use std::ops::Range;

/// Maximum number of lines of each text, because comparing longer texts could take longer than a call may run.
pub const MAX_LINES: usize = 20_000;

/// Maximum number of bytes of a returned diff. A longer diff is truncated at the end of a line.
const MAX_DIFF: usize = 256 * 1024;

/// How two texts differ.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Difference {
    /// Number of lines that only the second text has.
    pub added: usize,
    /// Number of lines that only the first text has.
    pub removed: usize,
    /// Unified diff; empty for equal texts.
    pub diff: String,
    /// Number of bytes at the end of the diff that were left out.
    pub left_out: usize,
}

/// The error for a text that is too long to compare.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} has {lines} lines; at most {MAX_LINES} can be compared")]
pub struct TooLong {
    /// Name of the text that is too long.
    pub name: String,
    /// Number of lines of this text.
    pub lines: usize,
}

/// A text, with the name that is shown in the header of the diff.
#[derive(Clone, Copy, Debug)]
pub struct NamedText<'a> {
    /// Name of the text, for example the path of its file.
    pub name: &'a str,
    /// The whole text.
    pub text: &'a str,
}

/// Compares two texts. `context` is the number of lines to show around each change.
pub fn diff(old: NamedText<'_>, new: NamedText<'_>, context: usize) -> Result<Difference, TooLong> {
    for NamedText { name, text } in [old, new] {
        let lines = text.lines().count();
        if lines > MAX_LINES {
            return Err(TooLong { name: name.to_owned(), lines });
        }
    }
    let (old_lines, new_lines) = (lines_of(old.text), lines_of(new.text));
    let operations = compare(&old_lines, &new_lines);
    let changed = operations.iter().filter(|operation| operation.tag() != DiffTag::Equal);
    let (removed, added) = changed.fold((0, 0), |(removed, added), operation| {
        (removed + operation.old_range().len(), added + operation.new_range().len())
    });
    let mut diff = String::new();
    if added + removed > 0 {
        diff = format!("--- {}\n+++ {}\n", old.name, new.name);
        for hunk in group_diff_ops(operations, context) {
            write_hunk(&mut diff, &hunk, &old_lines, &new_lines);
        }
    }
    let full_length = diff.len();
    if full_length > MAX_DIFF {
        let end = diff.as_bytes()[..MAX_DIFF].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        diff.truncate(end);
    }
    Ok(Difference { added, removed, left_out: full_length - diff.len(), diff })
}

fn lines_of(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// Compares the lines of two texts. The function first replaces each line with a number, which is the same for equal
/// lines. The diff algorithm is therefore compiled only for numbers, which keeps the component small.
fn compare(old: &[&str], new: &[&str]) -> Vec<DiffOp> {
    let mut numbers = HashMap::new();
    let mut number = |lines: &[&str]| -> Vec<usize> {
        let next = |line: &&str| {
            let count = numbers.len();
            *numbers.entry((*line).to_owned()).or_insert(count)
        };
        lines.iter().map(next).collect()
    };
    let (old, new) = (number(old), number(new));
    let mut capture = Replace::new(Capture::new());
    // The comparison cannot fail, because the error type has no values.
    let Ok(()) = myers::diff(&mut capture, &old[..], 0..old.len(), &new[..], 0..new.len());
    capture.into_inner().into_ops()
}

fn write_hunk(diff: &mut String, hunk: &[DiffOp], old_lines: &[&str], new_lines: &[&str]) {
    let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else {
        return;
    };
    let old = first.old_range().start..last.old_range().end;
    let new = first.new_range().start..last.new_range().end;
    diff.push_str(&format!("@@ -{} +{} @@\n", position(&old), position(&new)));
    for operation in hunk {
        let (old, new) = (&old_lines[operation.old_range()], &new_lines[operation.new_range()]);
        if operation.tag() == DiffTag::Equal {
            write_lines(diff, ' ', old);
        } else {
            write_lines(diff, '-', old);
            write_lines(diff, '+', new);
        }
    }
}

fn write_lines(diff: &mut String, sign: char, lines: &[&str]) {
    for line in lines {
        diff.push(sign);
        diff.push_str(line);
        if !line.ends_with('\n') {
            diff.push_str("\n\\ No newline at end of file\n");
        }
    }
}

/// Formats a range of lines like `diff -u`: a length of 1 is omitted, and for an empty range, the number of the
/// preceding line is given.
fn position(range: &Range<usize>) -> String {
    match range.len() {
        0 => format!("{},0", range.start),
        1 => (range.start + 1).to_string(),
        length => format!("{},{length}", range.start + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differ(old: &str, new: &str) -> Difference {
        diff(NamedText { name: "old", text: old }, NamedText { name: "new", text: new }, 1)
            .expect("the texts are short")
    }

    #[test]
    fn writes_a_unified_diff() {
        let difference = differ("a\nb\nc\nd\n", "a\nB\nc\nd\n");
        assert_eq!((difference.added, difference.removed, difference.left_out), (1, 1, 0));
        assert_eq!(difference.diff, "--- old\n+++ new\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n");
    }

    #[test]
    fn hunk_headers_have_the_format_of_the_program_diff() {
        assert_eq!(differ("", "a\nb\n").diff, "--- old\n+++ new\n@@ -0,0 +1,2 @@\n+a\n+b\n");
        assert_eq!(differ("a\n", "").diff, "--- old\n+++ new\n@@ -1 +0,0 @@\n-a\n");
        let two = differ("1\n2\n3\n4\n5\n6\n", "x\n2\n3\n4\n5\ny\n").diff;
        assert_eq!(two, "--- old\n+++ new\n@@ -1,2 +1,2 @@\n-1\n+x\n 2\n@@ -5,2 +5,2 @@\n 5\n-6\n+y\n");
    }

    #[test]
    fn equal_texts_have_no_diff() {
        assert_eq!(differ("a\nb", "a\nb").diff, "");
        assert_eq!(differ("", "").diff, "");
    }

    #[test]
    fn a_missing_line_break_at_the_end_is_a_difference() {
        let difference = differ("a\n", "a");
        assert_eq!((difference.added, difference.removed), (1, 1));
        assert!(difference.diff.contains("No newline at end of file"), "{}", difference.diff);
    }

    #[test]
    fn rejects_long_texts_and_cuts_long_diffs() {
        let long = "x\n".repeat(MAX_LINES + 1);
        let error = diff(NamedText { name: "big.txt", text: &long }, NamedText { name: "new", text: "" }, 3);
        assert_eq!(error, Err(TooLong { name: "big.txt".into(), lines: MAX_LINES + 1 }));
        let difference = differ("", &format!("{}\n", "x".repeat(99)).repeat(4_000));
        assert!(difference.diff.len() <= MAX_DIFF && difference.diff.ends_with("x\n"));
        assert_eq!(difference.diff.len() + difference.left_out, 35 + 4_000 * 101);
    }
}
