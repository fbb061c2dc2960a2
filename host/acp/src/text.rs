//! Makes text from models, plugins and servers safe to show in an editor, which renders it as Markdown.

use agent_core::visible::is_invisible;

/// Maximum number of characters of a title.
const TITLE_CHARACTERS: usize = 120;
/// Maximum number of characters of a text that belongs to a tool call.
const TEXT_CHARACTERS: usize = 64 << 10;

/// Shortens a text for a title. Control and invisible characters are escaped, and characters with a meaning in Markdown are
/// replaced, so that the text is shown as it is.
pub(crate) fn plain(text: &str) -> String {
    let replaced = text.chars().take(TITLE_CHARACTERS).map(|character| match character {
        '`' => '\'',
        '[' | ']' | '<' | '>' | '!' | '*' | '#' | '|' | '\\' => ' ',
        other => other,
    });
    let mut shown = escaped(&replaced.collect::<String>());
    if text.chars().nth(TITLE_CHARACTERS).is_some() {
        shown.push('…');
    }
    shown
}

/// Returns a text as code in a line of Markdown.
pub(crate) fn code(text: &str) -> String {
    format!("`{}`", plain(text))
}

/// Escapes control and invisible characters, including line breaks, as numbers.
pub(crate) fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match is_invisible(character) {
            true => shown.push_str(&format!("\\u{{{:x}}}", u32::from(character))),
            false => shown.push(character),
        }
    }
    shown
}

/// Returns a text as a block of code. The fence is longer than every fence in the text, so that the text cannot end the
/// block. Invisible characters other than line breaks and tabs are escaped.
pub(crate) fn block(text: &str) -> String {
    let cut: String = text.chars().take(TEXT_CHARACTERS).collect();
    let is_cut = cut.len() < text.len();
    let shown: String = cut.split_inclusive(['\n', '\t']).map(escaped_line).collect();
    let fence = "`".repeat((longest_run(&shown) + 1).max(3));
    let note = if is_cut { "\n\n(only the beginning is shown)" } else { "" };
    format!("{fence}text\n{}\n{fence}{note}", shown.trim_end_matches('\n'))
}

/// Escapes a piece of text that may end with a line break or a tab.
fn escaped_line(piece: &str) -> String {
    match piece.strip_suffix(['\n', '\t']) {
        Some(line) => format!("{}{}", escaped(line), &piece[line.len()..]),
        None => escaped(piece),
    }
}

/// Returns the length of the longest sequence of backticks in a text.
fn longest_run(text: &str) -> usize {
    text.split(|character| character != '`').map(str::len).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I7: names and outputs of hostile tools can neither end a block of code nor hide text.
    #[test]
    fn i7_text_of_tools_cannot_control_the_editor() {
        assert_eq!(plain("a`b](x)\u{202e}\n!"), "a'b (x)\\u{202e}\\u{a} ");
        assert_eq!(block("````\n# x\u{1b}[2J"), "`````text\n````\n# x\\u{1b}[2J\n`````");
        assert_eq!(plain(&"x".repeat(500)).chars().count(), TITLE_CHARACTERS + 1);
        let long = block(&"é".repeat(TEXT_CHARACTERS + 1));
        assert!(long.ends_with("(only the beginning is shown)"));
    }
}
