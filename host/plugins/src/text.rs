//! Text that guests wrote, made fit to be shown: cut on a character boundary, control characters escaped.

use std::fmt::Write;

/// The longest start of `text` of at most `bytes` bytes that ends on a character boundary.
pub(crate) fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// Cut to `bytes`, with a note where something is missing, and with control characters escaped but for line ends and
/// tabs.
pub(crate) fn clean(text: &str, bytes: usize) -> String {
    let shown = cut(text, bytes);
    let mut clean = escape(shown, &['\n', '\t']);
    if shown.len() < text.len() {
        let _ = write!(clean, "… (cut, {} bytes in all)", text.len());
    }
    clean
}

/// One line of a log: every control character but the tab is escaped.
pub(crate) fn clean_line(text: &str) -> String {
    escape(text, &['\t'])
}

fn escape(text: &str, kept: &[char]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if is_unfit(character) && !kept.contains(&character) {
            escaped.extend(character.escape_unicode());
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Control characters, and those that reorder the text around them.
fn is_unfit(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
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
