//! Makes the ids of tool calls comparable between sessions.

use memchr::memmem::find_iter;

/// Beginning of every id that the host gives to a tool call.
const PREFIX: &[u8] = b"call_";

/// Number of hexadecimal digits in a session's suffix.
const SUFFIX_LENGTH: usize = 12;

/// Removes the session's suffix from the ids of tool calls: `call_1_2_3_0123456789ab` becomes `call_1_2_3`. The turn,
/// the step and the position that remain are the same whenever the conversation is repeated.
pub(super) fn without_session(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut cleaned = String::with_capacity(text.len());
    let mut copied = 0;
    for start in find_iter(bytes, PREFIX) {
        let numbers = start + PREFIX.len();
        let Some(suffix) = numbers_end(bytes, numbers) else { continue };
        let rest = &bytes[suffix..];
        let is_suffix = rest.len() > SUFFIX_LENGTH
            && rest[0] == b'_'
            && rest[1..=SUFFIX_LENGTH].iter().all(u8::is_ascii_hexdigit)
            && !rest.get(SUFFIX_LENGTH + 1).is_some_and(u8::is_ascii_alphanumeric);
        if is_suffix {
            cleaned.push_str(&text[copied..suffix]);
            copied = suffix + 1 + SUFFIX_LENGTH;
        }
    }
    cleaned.push_str(&text[copied..]);
    cleaned
}

/// Returns the position after three numbers with underscores between them, or `None` if there are no such numbers at
/// `position`.
fn numbers_end(bytes: &[u8], mut position: usize) -> Option<usize> {
    for number in 0..3 {
        if number > 0 && bytes.get(position) != Some(&b'_') {
            return None;
        }
        position += usize::from(number > 0);
        // A step count has at most ten digits. Without this limit, a long run of digits after many prefixes
        // would be read once for each prefix.
        let digits = bytes[position..].iter().take(10).take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        position += digits;
    }
    Some(position)
}

#[cfg(test)]
mod tests {
    use super::without_session;

    /// M4: The part of a tool call's id that differs between sessions is removed, and all other text stays the same.
    #[test]
    fn m4_call_ids_lose_the_session_suffix() {
        let cases = [
            ("{\"id\":\"call_1_2_3_0123456789ab\"}", "{\"id\":\"call_1_2_3\"}"),
            ("call_1_2_3_0123456789ab call_10_2_31_abcdefabcdef", "call_1_2_3 call_10_2_31"),
            ("call_1_2_3", "call_1_2_3"),
            ("call_1_2_3_0123456789abc", "call_1_2_3_0123456789abc"),
            ("call_1_2_3_0123456789", "call_1_2_3_0123456789"),
            ("call_1_2_0123456789ab", "call_1_2_0123456789ab"),
            ("call_eLx9U-gg3bAl7flm call_call_1_1_1_ffffffffffff", "call_eLx9U-gg3bAl7flm call_call_1_1_1"),
            ("call_", "call_"),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(without_session(text), expected);
        }
    }
}
