//! Makes untrusted text and paths safe for output that a user reads or copies into a shell.

use agent_core::visible::visible;

/// Returns the first line of the trimmed text, shortened to `characters` characters. Control characters and invisible
/// characters are escaped. If text was removed, the result ends with `…`.
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

/// Quotes a word for a shell. A word that needs no quotes is returned unchanged.
pub fn shell_word(word: &str) -> String {
    let needs_no_quotes = |character: char| character.is_alphanumeric() || "-_./:@+=,%".contains(character);
    if !word.is_empty() && word.chars().all(needs_no_quotes) {
        return word.to_owned();
    }
    format!("'{}'", visible(word).replace('\'', r"'\''"))
}
