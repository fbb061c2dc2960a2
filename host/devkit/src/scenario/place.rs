//! Positions in files that people write, for error messages.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Maximum number of columns of a line that are shown.
const MAX_COLUMNS: usize = 160;

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Path of the file.
    pub file: PathBuf,
    /// Line number, from 1.
    pub line: usize,
    /// The key on that line, such as `turns[0].output`; empty for the whole file.
    pub key: String,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.file.display(), self.line)?;
        if self.key.is_empty() { Ok(()) } else { write!(formatter, ": {}", self.key) }
    }
}

/// The line and column of a byte offset, both from 1. Columns count characters.
pub(super) fn position(text: &str, byte: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(byte)];
    let begin = before.rfind('\n').map_or(0, |end| end + 1);
    (before.matches('\n').count() + 1, before[begin..].chars().count() + 1)
}

/// `FILE:LINE:COLUMN: message`, followed by the line with the position underlined.
pub(super) fn excerpt(path: &Path, text: &str, span: Range<usize>, message: &str) -> String {
    let (line, column) = position(text, span.start);
    let shown: String = text.lines().nth(line - 1).unwrap_or_default().chars().take(MAX_COLUMNS).collect();
    let shown = shown.replace('\t', " ");
    let spanned = text.get(span).unwrap_or_default();
    let length = spanned.lines().next().unwrap_or_default().chars().count().max(1);
    let rest = shown.chars().count().saturating_sub(column - 1).max(1);
    let margin = " ".repeat(line.to_string().len());
    format!(
        "{}:{line}:{column}: {message}\n  {line} | {shown}\n  {margin} | {}{}",
        path.display(),
        " ".repeat(column - 1),
        "^".repeat(length.min(rest))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpt_underlines_the_position() {
        let text = "a = 1\nbb = \"x\"\n";
        let shown = excerpt(Path::new("s.toml"), text, 11..14, "no");
        assert_eq!(shown, "s.toml:2:6: no\n  2 | bb = \"x\"\n    |      ^^^");
    }
}
