//! Formats numbers, and makes untrusted text and paths safe for output that a user reads or copies into a shell.

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

/// Formats a number with thousands separators, for example as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let mut shown = digits[..first].to_owned();
    for group in digits.as_bytes()[first..].chunks(3) {
        if !shown.is_empty() {
            shown.push(',');
        }
        shown.extend(group.iter().map(|digit| char::from(*digit)));
    }
    shown
}

/// Formats a size in bytes with a suitable unit, for example as `917 bytes`, `1.2 KiB` or `3.4 MiB`.
pub fn size(bytes: u64) -> String {
    const UNIT: f64 = 1024.0;
    let exact = bytes as f64;
    match bytes {
        1 => "1 byte".to_owned(),
        0..=1023 => format!("{bytes} bytes"),
        1024..=1_048_575 => format!("{:.1} KiB", exact / UNIT),
        _ => format!("{:.1} MiB", exact / UNIT / UNIT),
    }
}
