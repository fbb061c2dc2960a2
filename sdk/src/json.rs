//! Converts positions in JSON texts to JSON pointers (RFC 6901). An error that is sent to a model contains the JSON
//! pointer to the invalid value.

/// Returns the JSON pointer to the value or key that a parser has reached after the first `consumed` bytes of `text`.
/// The pointer to the top-level value is empty. The text need not be valid JSON.
///
/// ```
/// use agent_host_sdk::json::pointer_at;
///
/// let text = r#"{"rows": [{"price": 1}, {"price": "#;
/// assert_eq!(pointer_at(text, text.len()), "/rows/1/price");
/// ```
pub fn pointer_at(text: &str, consumed: usize) -> String {
    let text = &text[..text.floor_char_boundary(consumed)];
    let mut open_levels: Vec<Level> = Vec::new();
    let mut position = 0;
    while let Some(byte) = text.as_bytes().get(position) {
        let start = position;
        position += 1;
        match byte {
            b'"' => {
                position = end_of_string(text, start);
                if let Some(Level::Object { key, part: Part::Key }) = open_levels.last_mut() {
                    *key = text.get(start..position).map(decode);
                }
            }
            b'{' => open_levels.push(Level::Object { key: None, part: Part::Key }),
            b'[' => open_levels.push(Level::Array(0)),
            b'}' | b']' => {
                open_levels.pop();
            }
            b':' => {
                if let Some(Level::Object { part, .. }) = open_levels.last_mut() {
                    *part = Part::Value;
                }
            }
            b',' => match open_levels.last_mut() {
                Some(level @ Level::Object { .. }) => *level = Level::Object { key: None, part: Part::Key },
                Some(Level::Array(index)) => *index += 1,
                None => {}
            },
            _ => {}
        }
    }
    open_levels.iter().filter_map(Level::token).fold(String::new(), |pointer, token| pointer + "/" + &token)
}

/// Converts a key to a token of a JSON pointer, with `~` and `/` escaped.
pub fn pointer_token(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// An object or array that the parser has begun to read, but has not read completely.
enum Level {
    Object { key: Option<String>, part: Part },
    Array(usize),
}

/// The part of an object member that the parser is reading.
enum Part {
    Key,
    Value,
}

impl Level {
    fn token(&self) -> Option<String> {
        match self {
            Level::Object { key, .. } => key.as_deref().map(pointer_token),
            Level::Array(index) => Some(index.to_string()),
        }
    }
}

/// Returns the position after the closing quote of a string, or the end of the text if the closing quote is missing.
fn end_of_string(text: &str, quote: usize) -> usize {
    let mut escaped = false;
    for (position, byte) in text.bytes().enumerate().skip(quote + 1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return position + 1,
            _ => {}
        }
    }
    text.len()
}

/// Decodes a JSON string literal. This function exists to keep components small: `serde_json` would add more code.
fn decode(literal: &str) -> String {
    let mut units: Vec<u16> = Vec::with_capacity(literal.len());
    let mut characters = literal.strip_prefix('"').unwrap_or(literal).chars();
    while let Some(character) = characters.next() {
        let character = match character {
            '\\' => match characters.next() {
                Some('u') => {
                    let digits: String = characters.by_ref().take(4).collect();
                    units.extend(u16::from_str_radix(&digits, 16));
                    continue;
                }
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some('b') => '\u{8}',
                Some('f') => '\u{c}',
                Some(other) => other,
                None => continue,
            },
            '"' => break,
            character => character,
        };
        units.extend_from_slice(character.encode_utf16(&mut [0; 2]));
    }
    // A character above U+FFFF may be written as two escapes.
    String::from_utf16_lossy(&units)
}

#[cfg(test)]
mod tests {
    use super::pointer_at;

    #[test]
    fn pointer_at_finds_the_value_or_key_at_a_position() {
        let cases = [
            ("", ""),
            ("{", ""),
            (r#"{"a""#, "/a"),
            (r#"{"a": {"b": 1}"#, "/a"),
            (r#"{"a": {"b": 1}}"#, ""),
            (r#"{"a": 1, "#, ""),
            (r#"{"a": "x", "b": ["#, "/b/0"),
            (r#"{"a": [1, "]", {"c": 2"#, "/a/2/c"),
            (r#"{"\"a\u0062/~": "\\", "c""#, "/c"),
            (r#"{"\"a\u0062/~": 1"#, "/\"ab~1~0"),
            (r#"{"\ud83d\ude00\n": 1"#, "/\u{1f600}\n"),
            ("]}:,\"", ""),
        ];
        for (text, pointer) in cases {
            assert_eq!(pointer_at(text, text.len()), pointer, "{text}");
        }
        assert_eq!(pointer_at("{\"ab\": 1}", 3), "/a", "an incomplete key is part of the pointer");
        assert_eq!(pointer_at("{\"ä\": 1}", 3), "/", "a position within a character moves to its start");
    }
}
