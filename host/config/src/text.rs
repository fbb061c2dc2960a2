//! Makes untrusted text and paths safe for a line that a person reads or copies into a shell.

use agent_core::visible::visible;

/// The first line of a text that is not empty, shortened to `characters` characters. Control characters and invisible
/// characters are escaped. A `…` at the end marks that something was cut off.
pub fn one_line(text: &str, characters: usize) -> String {
    let text = text.trim();
    let line = text.lines().next().unwrap_or_default();
    let escaped = visible(line).replace('\t', " ");
    let mut shown: String = escaped.chars().take(characters).collect();
    if line.len() < text.len() || shown.len() < escaped.len() {
        shown.push('…');
    }
    shown
}

/// Quotes a word for a shell: unchanged if it needs no quotes, otherwise in single quotes.
pub fn shell_word(word: &str) -> String {
    let is_plain = |character: char| character.is_alphanumeric() || "-_./:@+=,%".contains(character);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", visible(word).replace('\'', r"'\''"))
}
