//! Makes text from guests safe to show: cuts the text at a character boundary and escapes invisible characters.

use agent_core::visible::visible;
use std::fmt::Write;

/// The longest prefix of `text` that has at most `bytes` bytes and ends on a character boundary.
pub(crate) fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// Cuts the text to at most `bytes` bytes, appends a note about the cut, and escapes invisible characters.
pub(crate) fn clean(text: &str, bytes: usize) -> String {
    let shown = cut(text, bytes);
    let mut clean = visible(shown).into_owned();
    if shown.len() < text.len() {
        let _ = write!(clean, "… (cut, {} bytes in all)", text.len());
    }
    clean
}

/// Converts the text to a single log line: escapes line ends and all invisible characters except tabs.
pub(crate) fn clean_line(text: &str) -> String {
    text.split('\n').map(visible).collect::<Vec<_>>().join("\\u{a}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_text_is_cut_on_a_boundary_and_escaped() {
        assert_eq!(clean("aä", 2), "a… (cut, 3 bytes in all)");
        assert_eq!(clean("a\u{1b}[31m\nb", 100), "a\\u{1b}[31m\nb");
        assert_eq!(clean_line("\u{61c}\u{200e}\u{200f}"), "\\u{61c}\\u{200e}\\u{200f}");
        assert_eq!(clean_line("a\nb\u{202e}c\td"), "a\\u{a}b\\u{202e}c\td");
    }
}
