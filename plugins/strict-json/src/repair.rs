//! Repairs JSON without changing the meaning: removes commas before a closing bracket, escapes line breaks inside
//! strings, and replaces single quotes if the text has no other possible meaning.

use std::iter::Peekable;
use std::str::Chars;

/// Returns the repaired text, or None if the meaning of the text is ambiguous. The repaired text may still contain
/// errors that cannot be repaired.
pub fn repair(text: &str) -> Option<String> {
    let mut repaired = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(letter) = characters.next() {
        match letter {
            '"' => double_quoted(&mut characters, &mut repaired)?,
            '\'' => single_quoted(&mut characters, &mut repaired)?,
            '}' | ']' => {
                drop_trailing_comma(&mut repaired);
                repaired.push(letter);
            }
            _ => repaired.push(letter),
        }
    }
    Some(repaired)
}

/// Copies a string in double quotes, and escapes the control characters in the string.
fn double_quoted(characters: &mut Peekable<Chars<'_>>, repaired: &mut String) -> Option<()> {
    repaired.push('"');
    loop {
        match characters.next()? {
            '"' => break,
            '\\' => {
                repaired.push('\\');
                repaired.push(characters.next()?);
            }
            '\n' => repaired.push_str("\\n"),
            '\r' => repaired.push_str("\\r"),
            '\t' => repaired.push_str("\\t"),
            other => repaired.push(other),
        }
    }
    repaired.push('"');
    Some(())
}

/// Replaces the single quotes around a string such as `'word'` by double quotes. Returns None if the string is at a
/// position where JSON does not allow a string, or if it contains quotes, escapes or line breaks.
fn single_quoted(characters: &mut Peekable<Chars<'_>>, repaired: &mut String) -> Option<()> {
    if !repaired.trim_end().ends_with(['{', '[', ',', ':']) {
        return None;
    }
    repaired.push('"');
    loop {
        match characters.next()? {
            '\'' => break,
            '"' | '\\' | '\n' | '\r' | '\t' => return None,
            other => repaired.push(other),
        }
    }
    repaired.push('"');
    // The closing quote is followed by `,`, `:`, `}` or `]`. If another character follows, the quote may be an
    // apostrophe inside a word, as in 'it's'.
    characters
        .clone()
        .find(|letter| !letter.is_whitespace())
        .filter(|next| matches!(next, ',' | ':' | '}' | ']'))
        .map(|_| ())
}

fn drop_trailing_comma(repaired: &mut String) {
    let Some(before) = repaired.trim_end().strip_suffix(',') else {
        return;
    };
    // In `[,]` and `{,}`, the comma is not removed, because a value is missing before the comma.
    if !before.trim_end().ends_with(['[', '{', ',', ':']) && !before.trim_end().is_empty() {
        let at = before.len();
        repaired.remove(at);
    }
}
