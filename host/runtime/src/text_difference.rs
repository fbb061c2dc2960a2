//! Line-based differences between two texts, for people.

use imara_diff::{Algorithm, Diff, Hunk, InternedInput};
use std::fmt::Write;
use std::ops::Range;

/// Number of equal lines that are shown before and after each change of a unified diff.
const CONTEXT_LINES: usize = 3;

/// Maximum number of lines of a text that are compared one by one. The time can grow with the square of this number.
const COMPARED_LINES: usize = 20_000;

/// The difference between two texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextDifference<'t> {
    /// Number of lines that only the new text has.
    pub added: usize,
    /// Number of lines that only the old text has.
    pub removed: usize,
    /// The changed lines with equal lines around them. Changes that are close to each other are in one group.
    pub groups: Vec<Vec<DifferenceLine<'t>>>,
}

/// A line of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DifferenceLine<'t> {
    /// Whether the line was changed.
    pub kind: LineKind,
    /// Number of the line in the old text, counted from 1. `None` if the line was added.
    pub old: Option<usize>,
    /// Number of the line in the new text, counted from 1. `None` if the line was removed.
    pub new: Option<usize>,
    /// The line with its line break. The last line of a text may have none.
    pub text: &'t str,
}

/// Whether a line was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    /// Both texts have the line.
    Same,
    /// Only the old text has the line.
    Removed,
    /// Only the new text has the line.
    Added,
}

impl<'t> TextDifference<'t> {
    /// Compares two texts line by line. `context` is the maximum number of equal lines before and after each change. If
    /// more than 20,000 lines are between the equal beginning and the equal end of the texts, all of them count as changed.
    ///
    /// ```
    /// use agent_runtime::{LineKind, TextDifference};
    ///
    /// let difference = TextDifference::of("one\ntwo\nthree\n", "one\n2\nthree\n", 1);
    /// let kinds: Vec<_> = difference.groups[0].iter().map(|line| line.kind).collect();
    /// assert_eq!(kinds, [LineKind::Same, LineKind::Removed, LineKind::Added, LineKind::Same]);
    /// ```
    pub fn of(old: &'t str, new: &'t str, context: usize) -> Self {
        let input = InternedInput::new(old, new);
        let hunks = hunks(&input);
        let mut groups: Vec<Vec<DifferenceLine<'t>>> = Vec::new();
        // The equal lines that follow the change before.
        let mut follows: Range<usize> = 0..0;
        let mut offset = 0;
        for Hunk { before, after } in &hunks {
            let (before, after) = (usize_range(before), usize_range(after));
            // The number of a line in the new text is its number in the old text and this difference.
            offset = after.start as isize - before.start as isize;
            let precedes = before.start.saturating_sub(context).max(follows.start)..before.start;
            if groups.is_empty() || follows.end < precedes.start {
                if let Some(group) = groups.last_mut() {
                    group.extend(follows.clone().map(|index| line_of_both(&input, index, offset)));
                }
                groups.push(Vec::new());
                follows = precedes.clone();
            }
            let group = groups.last_mut().expect("a group was added");
            group.extend((follows.start..before.start).map(|index| line_of_both(&input, index, offset)));
            let line = |token| input.interner[token];
            group.extend(before.clone().map(|index| DifferenceLine {
                kind: LineKind::Removed,
                old: Some(index + 1),
                new: None,
                text: line(input.before[index]),
            }));
            group.extend(after.clone().map(|index| DifferenceLine {
                kind: LineKind::Added,
                old: None,
                new: Some(index + 1),
                text: line(input.after[index]),
            }));
            offset = after.end as isize - before.end as isize;
            follows = before.end..input.before.len().min(before.end + context);
        }
        if let Some(group) = groups.last_mut() {
            group.extend(follows.map(|index| line_of_both(&input, index, offset)));
        }
        let (added, removed) = (hunks.iter().map(|hunk| hunk.after.len()), hunks.iter().map(|hunk| hunk.before.len()));
        Self { added: added.sum(), removed: removed.sum(), groups }
    }
}

/// Returns the changes.
fn hunks(input: &InternedInput<&str>) -> Vec<Hunk> {
    let (old, new) = (&input.before, &input.after);
    let prefix = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let rest = old[prefix..].iter().rev().zip(new[prefix..].iter().rev());
    let suffix = rest.take_while(|(old, new)| old == new).count();
    let (old_end, new_end) = (old.len() - suffix, new.len() - suffix);
    if (old_end - prefix).max(new_end - prefix) > COMPARED_LINES {
        return vec![Hunk { before: prefix as u32..old_end as u32, after: prefix as u32..new_end as u32 }];
    }
    let mut diff = Diff::compute(Algorithm::Histogram, input);
    diff.postprocess_lines(input);
    diff.hunks().collect()
}

fn usize_range(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}

/// Returns the line with this index in the old text, which the new text has at the index plus `offset`.
fn line_of_both<'t>(input: &InternedInput<&'t str>, index: usize, offset: isize) -> DifferenceLine<'t> {
    let text = input.interner[input.before[index]];
    let new = index.saturating_add_signed(offset);
    DifferenceLine { kind: LineKind::Same, old: Some(index + 1), new: Some(new + 1), text }
}

/// Returns a unified diff of two texts. `labels` contains the names of the old and the new text, for the header of the
/// diff. The result is empty if the texts are equal, apart from a missing line break at the end.
///
/// ```
/// let diff = agent_runtime::unified_diff(("then", "now"), "one\ntwo\n", "one\nthree");
/// assert_eq!(diff, "--- then\n+++ now\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n");
/// ```
pub fn unified_diff(labels: (&str, &str), old: &str, new: &str) -> String {
    let ends_with_newline = |text: &str| text.is_empty() || text.ends_with('\n');
    let terminated = |text: &str| if ends_with_newline(text) { text.to_owned() } else { format!("{text}\n") };
    let (old, new) = (terminated(old), terminated(new));
    let difference = TextDifference::of(&old, &new, CONTEXT_LINES);
    let mut diff = String::new();
    if !difference.groups.is_empty() {
        let _ = writeln!(diff, "--- {}\n+++ {}", labels.0, labels.1);
    }
    for group in &difference.groups {
        let old = group_range(group, |line| line.old);
        let new = group_range(group, |line| line.new);
        let _ = writeln!(diff, "@@ -{old} +{new} @@");
        for line in group {
            let mark = match line.kind {
                LineKind::Same => ' ',
                LineKind::Removed => '-',
                LineKind::Added => '+',
            };
            diff.push(mark);
            diff.push_str(line.text);
        }
    }
    diff
}

/// Formats which lines of a text a group contains, as GNU diff does: the first line and the number of lines.
fn group_range(group: &[DifferenceLine<'_>], number: impl Fn(&DifferenceLine<'_>) -> Option<usize>) -> String {
    let numbers: Vec<usize> = group.iter().filter_map(number).collect();
    match numbers[..] {
        // Only a text without lines has no line in a group with context.
        [] => "0,0".to_owned(),
        [only] => only.to_string(),
        [first, ..] => format!("{first},{}", numbers.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numbered(lines: Range<usize>) -> String {
        lines.map(|line| format!("line {line}\n")).collect()
    }

    #[test]
    fn distant_changes_are_in_groups_of_their_own() {
        let old = numbered(1..21);
        let new =
            old.replace("line 3\n", "line three\n").replace("line 9\n", "").replace("line 18\n", "line 18\nnew\n");
        let diff = unified_diff(("a", "b"), &old, &new);
        let expected = "--- a\n\
             +++ b\n\
             @@ -1,12 +1,11 @@\n\
             \x20line 1\n\
             \x20line 2\n\
             -line 3\n\
             +line three\n\
             \x20line 4\n\
             \x20line 5\n\
             \x20line 6\n\
             \x20line 7\n\
             \x20line 8\n\
             -line 9\n\
             \x20line 10\n\
             \x20line 11\n\
             \x20line 12\n\
             @@ -16,5 +15,6 @@\n\
             \x20line 16\n\
             \x20line 17\n\
             \x20line 18\n\
             +new\n\
             \x20line 19\n\
             \x20line 20\n";
        assert_eq!(diff, expected);
        assert_eq!(unified_diff(("a", "b"), "", "one"), "--- a\n+++ b\n@@ -0,0 +1 @@\n+one\n");
        assert_eq!(unified_diff(("a", "b"), &old, &old), "");
    }

    /// The time for texts with many lines is bounded, whatever they contain.
    #[test]
    fn too_many_changed_lines_are_not_compared_one_by_one() {
        let lines = |step: usize| (0..50_000).map(|line| format!("{}\n", line * step % 7)).collect::<String>();
        let (old, new) = (format!("same\n{}end\n", lines(3)), format!("same\n{}end\n", lines(5)));
        let difference = TextDifference::of(&old, &new, 1);
        assert_eq!(difference.groups.len(), 1);
        assert!(difference.added > 49_000 && difference.added == difference.removed, "{}", difference.added);
    }

    proptest! {
        /// The lines of a difference with enough context are both texts, and each line has its number.
        #[test]
        fn a_difference_contains_both_texts(old in "([ab]\n?){0,12}", new in "([ab]\n?){0,12}", context in 0_usize..4) {
            let whole = TextDifference::of(&old, &new, 100);
            let text = |other: LineKind| -> String {
                whole.groups.iter().flatten().filter(|line| line.kind != other).map(|line| line.text).collect()
            };
            if old != new {
                prop_assert_eq!(text(LineKind::Added), old.clone());
                prop_assert_eq!(text(LineKind::Removed), new.clone());
            }
            let (old_lines, new_lines): (Vec<_>, Vec<_>) =
                (old.split_inclusive('\n').collect(), new.split_inclusive('\n').collect());
            let part = TextDifference::of(&old, &new, context);
            let mut last = (0, 0);
            for line in part.groups.iter().flatten() {
                if let Some(number) = line.old {
                    prop_assert!(number > last.0 && old_lines[number - 1] == line.text);
                    last.0 = number;
                }
                if let Some(number) = line.new {
                    prop_assert!(number > last.1 && new_lines[number - 1] == line.text);
                    last.1 = number;
                }
            }
            prop_assert_eq!((part.added, part.removed), (whole.added, whole.removed));
        }
    }
}
