//! Repairs that cannot change the meaning: commas before a closing bracket, line breaks inside strings, and single
//! quotes if no other reading is possible.

use std::iter::Peekable;
use std::str::Chars;

/// The repaired text, or None if a repair would have to guess. The result may still contain other errors.
pub fn repair(text: &str) -> Option<String> {
    let mut repaired = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(letter) = rest.next() {
        match letter {
            '"' => double_quoted(&mut rest, &mut repaired)?,
            '\'' => single_quoted(&mut rest, &mut repaired)?,
            '}' | ']' => {
                drop_trailing_comma(&mut repaired);
                repaired.push(letter);
            }
            _ => repaired.push(letter),
        }
    }
    Some(repaired)
}

/// Copies a string and escapes control characters.
fn double_quoted(rest: &mut Peekable<Chars<'_>>, repaired: &mut String) -> Option<()> {
    repaired.push('"');
    loop {
        match rest.next()? {
            '"' => break,
            '\\' => {
                repaired.push('\\');
                repaired.push(rest.next()?);
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

/// Accepts `'word'` as a string only if it is at a position where a string may start and end, and contains no quotes,
/// escapes or line breaks. Then it cannot mean anything else.
fn single_quoted(rest: &mut Peekable<Chars<'_>>, repaired: &mut String) -> Option<()> {
    if !repaired.trim_end().ends_with(['{', '[', ',', ':']) {
        return None;
    }
    repaired.push('"');
    loop {
        match rest.next()? {
            '\'' => break,
            '"' | '\\' | '\n' | '\r' | '\t' => return None,
            other => repaired.push(other),
        }
    }
    repaired.push('"');
    // An apostrophe inside a word, as in 'it's', is followed by something else.
    rest.clone().find(|letter| !letter.is_whitespace()).filter(|next| matches!(next, ',' | ':' | '}' | ']')).map(|_| ())
}

fn drop_trailing_comma(repaired: &mut String) {
    let Some(before) = repaired.trim_end().strip_suffix(',') else {
        return;
    };
    // `[,]` and `{,}` have no value before the comma, so a value is missing.
    if !before.trim_end().ends_with(['[', '{', ',', ':']) && !before.trim_end().is_empty() {
        let at = before.len();
        repaired.remove(at);
    }
}
