//! Converts byte offsets to line and column, and shows the text around them.

/// Number of characters that are shown before and after a position.
const AROUND: usize = 20;

/// A position in a text. Line and column count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Line number.
    pub line: usize,
    /// Character in the line.
    pub column: usize,
}

impl Place {
    /// The position of a byte offset.
    pub fn of(text: &str, offset: usize) -> Self {
        let before = &text[..floor(text, offset)];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Self { line: before.matches('\n').count() + 1, column: before[line_start..].chars().count() + 1 }
    }
}

/// The byte offset for a parser's line (from 1) and column (bytes read of that line).
pub fn offset_of(text: &str, line: usize, column: usize) -> usize {
    let line_start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    floor(text, (line_start + column.saturating_sub(1)).min(text.len()))
}

/// The text around a byte offset on its line, with `▸` before the position.
pub fn excerpt(text: &str, offset: usize) -> String {
    let offset = floor(text, offset);
    let before: Vec<char> = text[..offset].chars().rev().take(AROUND).take_while(|letter| *letter != '\n').collect();
    let after = text[offset..].chars().take(AROUND).take_while(|letter| *letter != '\n');
    before.into_iter().rev().chain(['▸']).chain(after).collect()
}

fn floor(text: &str, offset: usize) -> usize {
    text.floor_char_boundary(offset)
}
