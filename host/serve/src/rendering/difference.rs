//! The difference between two texts, line by line.

use agent_runtime::{LineKind, TextDifference};
use serde::Serialize;
use utoipa::ToSchema;

/// Number of equal lines that are shown around a change.
const CONTEXT: usize = 3;

/// A line of a difference.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct DifferenceLine {
    /// `same`, `removed`, `added`, or `gap` for equal lines that are left out.
    #[schema(example = "added")]
    pub(crate) kind: &'static str,
    /// Number of the line in the old text, starting at 1.
    pub(crate) old: Option<usize>,
    /// Number of the line in the new text, starting at 1.
    pub(crate) new: Option<usize>,
    /// The line, without its line break.
    pub(crate) text: String,
}

/// Returns the difference, with three equal lines around each change. Equal texts have no difference.
pub(crate) fn difference(old: &str, new: &str) -> Vec<DifferenceLine> {
    let mut lines = Vec::new();
    for (number, group) in TextDifference::of(old, new, CONTEXT).groups.iter().enumerate() {
        let begins_later = group.first().is_some_and(|first| first.old.max(first.new) > Some(1));
        if number > 0 || begins_later {
            lines.push(DifferenceLine { kind: "gap", old: None, new: None, text: String::new() });
        }
        for line in group {
            let kind = match line.kind {
                LineKind::Same => "same",
                LineKind::Removed => "removed",
                LineKind::Added => "added",
            };
            let text = line.text.strip_suffix('\n').unwrap_or(line.text);
            let text = text.strip_suffix('\r').unwrap_or(text).to_owned();
            lines.push(DifferenceLine { kind, old: line.old, new: line.new, text });
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I3: a difference shows changed lines with their numbers, and leaves out equal lines that are far away.
    #[test]
    fn i3_differences_show_changes_with_context() {
        let old: String = (1..=20).map(|line| format!("line {line}\n")).collect();
        let lines = difference(&old, &old.replace("line 10\n", "line ten\n"));
        let shown: Vec<_> = lines.iter().map(|line| (line.kind, line.old, line.new)).collect();
        assert_eq!(shown[0], ("gap", None, None));
        assert_eq!(shown[1], ("same", Some(7), Some(7)));
        assert_eq!(shown[4..6], [("removed", Some(10), None), ("added", None, Some(10))]);
        assert_eq!(shown.len(), 9);
        assert_eq!(difference(&old, &old), []);
        assert_eq!(difference("", "a").len(), 1);
    }
}
