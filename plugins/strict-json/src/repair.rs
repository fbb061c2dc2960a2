//! Repairs that cannot change what was meant: commas before a closing bracket, line breaks inside strings, and single
//! quotes where no other reading is possible.

use std::iter::Peekable;
use std::str::Chars;

/// The repaired text, or none where a repair would have to guess. The result need not be JSON: other faults stay.
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

/// Copies a string; the control characters that JSON wants escaped are escaped.
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

/// Takes `'word'` for a string only if it stands where a string may begin and end, and holds no quote, no escape and no
/// line break: then nothing else can be meant.
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
    // An apostrophe inside a word, as in 'it's', would be followed by something else.
    rest.clone().find(|letter| !letter.is_whitespace()).filter(|next| matches!(next, ',' | ':' | '}' | ']')).map(|_| ())
}

fn drop_trailing_comma(repaired: &mut String) {
    let Some(before) = repaired.trim_end().strip_suffix(',') else {
        return;
    };
    // `[,]` and `{,}` have no value before the comma: something is missing, not too much.
    if !before.trim_end().ends_with(['[', '{', ',', ':']) && !before.trim_end().is_empty() {
        let at = before.len();
        repaired.remove(at);
    }
}
