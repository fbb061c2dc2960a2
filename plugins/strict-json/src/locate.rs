//! Converts byte offsets to lines and columns, and returns the text around a byte offset.

/// Maximum number of characters that an excerpt shows before and after a position.
const AROUND: usize = 20;

/// A position in a text, as line and column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Line number. The first line has number 1.
    pub line: usize,
    /// Number of the character in the line. The first character has number 1.
    pub column: usize,
}

impl Position {
    /// Returns the line and column of a byte offset.
    pub fn of(text: &str, offset: usize) -> Self {
        let before = &text[..floor(text, offset)];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Self { line: before.matches('\n').count() + 1, column: before[line_start..].chars().count() + 1 }
    }
}

/// Returns the byte offset of a parser error at this line and column. The first line is line 1. `column` is the number
/// of bytes that the parser has read of this line.
pub fn offset_of(text: &str, line: usize, column: usize) -> usize {
    let line_start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    floor(text, (line_start + column.saturating_sub(1)).min(text.len()))
}

/// Returns an excerpt of the line around a byte offset, with `▸` at the offset.
pub fn excerpt(text: &str, offset: usize) -> String {
    let offset = floor(text, offset);
    let before: Vec<char> = text[..offset].chars().rev().take(AROUND).take_while(|letter| *letter != '\n').collect();
    let after = text[offset..].chars().take(AROUND).take_while(|letter| *letter != '\n');
    before.into_iter().rev().chain(['▸']).chain(after).collect()
}

fn floor(text: &str, offset: usize) -> usize {
    text.floor_char_boundary(offset)
}
