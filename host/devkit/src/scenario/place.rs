//! Places in a file that a person wrote: for messages, with the line that is meant.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Most columns of a line that are shown.
const SHOWN_COLUMNS: usize = 160;

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which file.
    pub file: PathBuf,
    /// From 1.
    pub line: usize,
    /// The key that stands there, such as `turns[0].output`; empty for the whole file.
    pub key: String,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.file.display(), self.line)?;
        if self.key.is_empty() { Ok(()) } else { write!(formatter, ": {}", self.key) }
    }
}

/// Line and column of a byte, both from 1; columns count characters.
pub(super) fn position(text: &str, byte: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(byte)];
    let begin = before.rfind('\n').map_or(0, |end| end + 1);
    (before.matches('\n').count() + 1, before[begin..].chars().count() + 1)
}

/// `FILE:LINE:COLUMN: message`, with the line below and a mark under what is meant.
pub(super) fn excerpt(path: &Path, text: &str, span: Range<usize>, message: &str) -> String {
    let (line, column) = position(text, span.start);
    let written: String = text.lines().nth(line - 1).unwrap_or_default().chars().take(SHOWN_COLUMNS).collect();
    let written = written.replace('\t', " ");
    let spanned = text.get(span).unwrap_or_default();
    let wanted = spanned.lines().next().unwrap_or_default().chars().count().max(1);
    let room = written.chars().count().saturating_sub(column - 1).max(1);
    let margin = " ".repeat(line.to_string().len());
    format!(
        "{}:{line}:{column}: {message}\n  {line} | {written}\n  {margin} | {}{}",
        path.display(),
        " ".repeat(column - 1),
        "^".repeat(wanted.min(room))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_and_what_is_meant() {
        let text = "a = 1\nbb = \"x\"\n";
        let shown = excerpt(Path::new("s.toml"), text, 11..14, "no");
        assert_eq!(shown, "s.toml:2:6: no\n  2 | bb = \"x\"\n    |      ^^^");
    }
}
