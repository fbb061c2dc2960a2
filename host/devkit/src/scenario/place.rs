//! Locations in scenario files, for error messages.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// An excerpt shows at most this number of characters of a line.
const MAX_COLUMNS: usize = 160;

/// The location of a key in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Path of the scenario file.
    pub file: PathBuf,
    /// Number of the line, counted from 1.
    pub line: usize,
    /// The key on the line, such as `turns[0].output`. Empty if the location is the whole file.
    pub key: String,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.file.display(), self.line)?;
        if self.key.is_empty() { Ok(()) } else { write!(formatter, ": {}", self.key) }
    }
}

/// Returns the line and the column of a byte offset. Lines and columns are counted from 1, and columns are counted
/// in characters.
pub(super) fn position(text: &str, byte: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(byte)];
    let begin = before.rfind('\n').map_or(0, |end| end + 1);
    (before.matches('\n').count() + 1, before[begin..].chars().count() + 1)
}

/// Returns `FILE:LINE:COLUMN: message`, followed by the line, in which the position is underlined.
pub(super) fn excerpt(path: &Path, text: &str, span: Range<usize>, message: &str) -> String {
    let (line, column) = position(text, span.start);
    let shown: String = text.lines().nth(line - 1).unwrap_or_default().chars().take(MAX_COLUMNS).collect();
    let shown = shown.replace('\t', " ");
    let spanned = text.get(span).unwrap_or_default();
    let length = spanned.lines().next().unwrap_or_default().chars().count().max(1);
    let available = shown.chars().count().saturating_sub(column - 1).max(1);
    let margin = " ".repeat(line.to_string().len());
    format!(
        "{}:{line}:{column}: {message}\n  {line} | {shown}\n  {margin} | {}{}",
        path.display(),
        " ".repeat(column - 1),
        "^".repeat(length.min(available))
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
