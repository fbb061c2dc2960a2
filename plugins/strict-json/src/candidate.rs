//! Finds the JSON in a reply: the reply may be only JSON, or contain JSON in a code fence or between prose.

use crate::duplicates::duplicate_keys;

/// A part of the reply that is probably JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// Byte offset of the start of this part in the reply.
    pub start: usize,
    /// Text of this part, without white space around it.
    pub text: &'a str,
}

/// The result of searching a reply for JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchResult<'a> {
    /// The reply contains one part that is probably JSON. This part may be invalid JSON.
    One(Candidate<'a>),
    /// The reply contains nothing that looks like JSON.
    None,
    /// The reply contains several parts that are probably JSON. The parts start at these byte offsets. The validator
    /// uses none of the parts, because the choice of one part could change the meaning of the reply.
    Several(Vec<usize>),
}

/// Finds the JSON of a reply. A byte-order mark and white space around the reply are ignored.
pub fn find(reply: &str) -> SearchResult<'_> {
    let start = reply.len() - reply.trim_start_matches(is_blank).len();
    let whole = Candidate { start, text: reply[start..].trim_end_matches(is_blank) };
    if is_json(whole.text) || end_of_value(whole.text) == Some(whole.text.len()) {
        return SearchResult::One(whole);
    }
    if let Some(found) = in_fences(reply) {
        return found;
    }
    between_prose(whole)
}

fn is_blank(letter: char) -> bool {
    letter.is_whitespace() || letter == '\u{feff}'
}

fn is_json(text: &str) -> bool {
    duplicate_keys(text).is_ok()
}

/// Finds code blocks between lines of three or more backticks or tildes. A block without a closing fence extends to the
/// end of the reply.
fn in_fences(reply: &str) -> Option<SearchResult<'_>> {
    let mut blocks: Vec<Candidate<'_>> = Vec::new();
    let mut open: Option<(&str, bool, usize)> = None;
    let mut offset = 0;
    for line in reply.split_inclusive('\n') {
        let next = offset + line.len();
        let trimmed = line.trim_matches(is_blank);
        match open {
            None => {
                if let Some(fence) = fence_of(trimmed) {
                    let label = trimmed[fence.len()..].trim().to_ascii_lowercase();
                    open = Some((fence, matches!(label.as_str(), "" | "json" | "jsonc" | "json5"), next));
                }
            }
            Some((fence, is_json, start)) => {
                if trimmed.starts_with(fence) && trimmed.trim_start_matches(&fence[..1]).is_empty() {
                    blocks.extend(block(reply, start, offset).filter(|_| is_json));
                    open = None;
                }
            }
        }
        offset = next;
    }
    if let Some((_, true, start)) = open {
        blocks.extend(block(reply, start, reply.len()));
    }
    match blocks.as_slice() {
        [] => None,
        [only] => Some(SearchResult::One(*only)),
        several => Some(SearchResult::Several(several.iter().map(|block| block.start).collect())),
    }
}

fn fence_of(line: &str) -> Option<&str> {
    let mark = line.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let length = line.len() - line.trim_start_matches(mark).len();
    // If a line starts like a fence but contains further backticks, it is inline code and not a fence.
    (length >= 3 && !line[length..].contains('`')).then(|| &line[..length])
}

fn block(reply: &str, start: usize, end: usize) -> Option<Candidate<'_>> {
    let inside = &reply[start..end];
    let skipped = inside.len() - inside.trim_start_matches(is_blank).len();
    let text = inside.trim_matches(is_blank);
    (text.starts_with(['{', '[']) || is_json(text)).then_some(Candidate { start: start + skipped, text })
}

/// Finds objects and arrays that start after a line break or a colon and end at the end of a line. An object or array
/// inside a sentence may be an example or a reference, as in `see [1]`, and is ignored.
fn between_prose(whole: Candidate<'_>) -> SearchResult<'_> {
    let mut found: Vec<Candidate<'_>> = Vec::new();
    let mut offset = 0;
    while let Some(at) = whole.text[offset..].find(['{', '[']) {
        let start = offset + at;
        let remaining = &whole.text[start..];
        offset = start + 1;
        if looks_like_json(remaining) {
            let end = end_of_value(remaining).unwrap_or(remaining.len());
            offset = start + end;
            if is_separate(&whole.text[..start], &remaining[end..]) {
                found.push(Candidate { start: whole.start + start, text: &remaining[..end] });
            }
        }
    }
    match found.as_slice() {
        [] if looks_like_json(whole.text) => SearchResult::One(whole),
        [] => SearchResult::None,
        [only] => SearchResult::One(*only),
        several => SearchResult::Several(several.iter().map(|candidate| candidate.start).collect()),
    }
}

fn is_separate(before: &str, after: &str) -> bool {
    let line_start = before.trim_end_matches([' ', '\t']);
    let line_end = after.trim_start_matches([' ', '\t', '\r']);
    (line_start.is_empty() || line_start.ends_with(['\n', ':'])) && (line_end.is_empty() || line_end.starts_with('\n'))
}

/// Returns the position after the bracket that closes the first bracket. Returns None if the text does not start with a
/// bracket, or if the bracket is never closed. Brackets in double-quoted strings are ignored.
fn end_of_value(text: &str) -> Option<usize> {
    if !text.starts_with(['{', '[']) {
        return None;
    }
    let mut depth = 0usize;
    let mut in_string = false;
    let mut escaped = false;
    for (offset, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            '{' | '[' if !in_string => depth += 1,
            '}' | ']' if !in_string => {
                depth -= 1;
                if depth == 0 {
                    return Some(offset + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// Whether the text starts like an object with keys, or like an array of strings, arrays or objects. An array of
/// numbers is not recognised, because `[1]` may be a reference.
fn looks_like_json(text: &str) -> bool {
    let mut letters = text.chars().filter(|letter| !letter.is_whitespace());
    match (letters.next(), letters.next()) {
        (Some('{'), Some(next)) => matches!(next, '"' | '\''),
        (Some('['), Some(next)) => matches!(next, '"' | '\'' | '[' | '{'),
        _ => false,
    }
}
