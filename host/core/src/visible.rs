//! Escapes invisible characters, including those that change the order of a text, in everything that a user or a model
//! reads. The characters are not escaped in stored texts (invariant 4).

use crate::message::{Content, Message, Part};
use crate::model::{ModelRequest, OfferedTool};
use serde_json::Value;
use std::borrow::Cow;

/// Escapes every invisible character in the form `\u{200b}`. Line breaks, tabs, and the joiners and variation
/// selectors that scripts and emoji need stay unchanged.
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, Lines::Kept)
}

/// Escapes a text that must stay on one line, such as a name or a title. Unlike [`visible`], this function also escapes
/// line breaks and tabs.
pub fn visible_line(text: &str) -> Cow<'_, str> {
    escaped(text, Lines::Escaped)
}

/// Escapes a text as [`visible_line`] does, and cuts the escaped text after `max_characters` characters. `…` marks
/// the cut. An escape counts as all of its characters, not as one.
pub fn visible_name(text: &str, max_characters: usize) -> String {
    let line = visible_line(text);
    match line.char_indices().nth(max_characters) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None => line.into_owned(),
    }
}

/// Applies [`visible`] to every text and [`visible_line`] to every key of a JSON value.
pub fn visible_json(value: &mut Value) {
    match value {
        Value::String(text) => replace(text),
        Value::Array(items) => items.iter_mut().for_each(visible_json),
        Value::Object(fields) => {
            fields.values_mut().for_each(visible_json);
            if fields.keys().any(|key| matches!(visible_line(key), Cow::Owned(_))) {
                let unescaped = std::mem::take(fields);
                fields.extend(unescaped.into_iter().map(|(key, value)| (visible_line(&key).into_owned(), value)));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Escapes the invisible characters in all texts of a request that a model will read. Does not change data that the
/// host must send back to the provider.
pub fn visible_request(request: &mut ModelRequest) {
    request.system.iter_mut().for_each(replace);
    request.messages.iter_mut().for_each(visible_message);
    request.tools.iter_mut().for_each(visible_tool);
    if let Some(schema) = &mut request.output_schema {
        visible_json(schema);
    }
}

fn visible_message(message: &mut Message) {
    for part in &mut message.parts {
        match part {
            Part::Text(text) | Part::Preface(text) => replace(text),
            Part::Json(json) => visible_json(json),
            Part::ToolCall(call) => visible_json(&mut call.arguments),
            Part::ToolResult(result) => result.content.iter_mut().for_each(|content| match content {
                Content::Text(text) => replace(text),
                Content::Json(json) => visible_json(json),
                Content::Media(_) => {}
            }),
            // The name of a media item is not sent to the model. The data of a provider must not change, because it may
            // be signed.
            Part::Media(_) | Part::Replay(_) => {}
        }
    }
}

/// Escapes the description and the schema of a tool, including property names and allowed values. If a property name or
/// an allowed value contains invisible characters, the model's arguments no longer match the tool's schema. Such a
/// mismatch is safer than a name that looks like another name.
fn visible_tool(tool: &mut OfferedTool) {
    replace(&mut tool.description);
    visible_json(&mut tool.input_schema);
}

fn replace(text: &mut String) {
    if let Cow::Owned(visible) = visible(text) {
        *text = visible;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lines {
    Kept,
    Escaped,
}

fn escaped(text: &str, lines: Lines) -> Cow<'_, str> {
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') || (lines == Lines::Kept && matches!(byte, b'\n' | b'\t'));
    if text.bytes().all(is_plain) {
        return text.into();
    }
    let mut shown = String::new();
    // The position up to which the text has been copied to `shown`. The position stays 0 if no character must
    // be escaped.
    let mut copied = 0;
    let mut preceding = Preceding::Nothing;
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let next = characters.peek().map(|(_, next)| *next);
        let is_kept = match character {
            '\n' | '\t' => lines == Lines::Kept,
            '\r' => lines == Lines::Kept && next == Some('\n'),
            character if !is_invisible(character) => true,
            character => preceding.allows(character, next),
        };
        preceding = preceding.followed_by(character);
        if !is_kept {
            shown.push_str(&text[copied..at]);
            shown.extend(character.escape_unicode());
            copied = at + character.len_utf8();
        }
    }
    if copied == 0 {
        return text.into();
    }
    shown.push_str(&text[copied..]);
    shown.into()
}

/// The text before a character. Only the facts that are needed to judge joiners and variation selectors are kept.
#[derive(Clone, Copy)]
enum Preceding {
    /// Nothing precedes the character, or the preceding character was escaped.
    Nothing,
    /// The preceding character is this visible character.
    Visible(char),
    /// The two preceding characters are this visible character and a variation selector.
    Selected(char),
}

impl Preceding {
    /// Whether an invisible character is needed to write the characters around it.
    fn allows(self, character: char, next: Option<char>) -> bool {
        let (before, is_selected) = match self {
            Preceding::Nothing => return false,
            Preceding::Visible(before) => (before, false),
            Preceding::Selected(before) => (before, true),
        };
        let joins = |is_of: fn(char) -> bool| is_of(before) && next.is_some_and(is_of);
        match character {
            '\u{200d}' => joins(is_emoji) || (!is_selected && joins(is_joining)),
            '\u{200c}' => !is_selected && joins(is_joining),
            '\u{fe0e}' | '\u{fe0f}' => {
                // After a digit, a selector is only allowed in a complete keycap sequence, such as `1`, U+FE0F, U+20E3.
                !is_selected && (is_emoji(before) || is_keycap(before) && next == Some('\u{20e3}'))
            }
            '\u{180b}'..='\u{180d}' | '\u{180f}' => !is_selected && matches!(before, '\u{1820}'..='\u{18aa}'),
            _ => false,
        }
    }

    /// Returns the new value after the given character was read.
    fn followed_by(self, character: char) -> Self {
        match (self, character) {
            (Preceding::Visible(before), '\u{fe0e}' | '\u{fe0f}' | '\u{180b}'..='\u{180d}' | '\u{180f}') => {
                Preceding::Selected(before)
            }
            (_, character) if is_invisible(character) || character.is_control() => Preceding::Nothing,
            (_, character) => Preceding::Visible(character),
        }
    }
}

/// Whether a character is invisible. Invisible characters are control characters, line and paragraph separators,
/// interlinear annotations, and the characters with Unicode's property `Default_Ignorable_Code_Point`.
pub fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Whether a character is a symbol or picture. Skin tones count as symbols, so that an emoji with a skin tone can
/// be joined.
fn is_emoji(character: char) -> bool {
    matches!(
        character,
        '©' | '®' | '\u{203c}' | '\u{2049}' | '\u{2122}' | '\u{2139}' | '\u{2190}'..='\u{27bf}' | '\u{2900}'..='\u{2bff}'
            | '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}' | '\u{1f000}'..='\u{1faff}'
    )
}

fn is_keycap(character: char) -> bool {
    matches!(character, '0'..='9' | '#' | '*')
}

/// Whether a character is a letter of a script that is written with joiners, such as Arabic, Syriac, N'Ko and South
/// Asian scripts.
fn is_joining(character: char) -> bool {
    matches!(character, '\u{620}'..='\u{64a}' | '\u{66e}'..='\u{6d5}' | '\u{6ee}'..='\u{7ff}' | '\u{8a0}'..='\u{dff}')
        || matches!(character, '\u{64b}'..='\u{652}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17b3}')
        || matches!(character, '\u{1820}'..='\u{18aa}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{CallId, Role, ToolResult};
    use proptest::prelude::*;
    use serde_json::json;

    // Row 49: invisible characters are shown as escapes.
    #[test]
    fn row_49_invisible_characters_become_visible() {
        for (text, expected) in [
            ("plain", "plain"),
            ("a\u{200b}b", r"a\u{200b}b"),
            ("a\u{e0041}\u{e007f}b", r"a\u{e0041}\u{e007f}b"),
            ("a\u{202e}b\u{2066}c\u{200f}", r"a\u{202e}b\u{2066}c\u{200f}"),
            ("a\u{200d}b\u{200c}c", r"a\u{200d}b\u{200c}c"),
            ("\u{feff}a\u{ad}b\u{2060}\u{3164}", r"\u{feff}a\u{ad}b\u{2060}\u{3164}"),
            ("a\u{1b}[2J\u{7f}\u{9b}\0", r"a\u{1b}[2J\u{7f}\u{9b}\u{0}"),
            ("one\r\ntwo\rthree\tfour\n", "one\r\ntwo\\u{d}three\tfour\n"),
            ("a\u{2028}b\u{85}c", r"a\u{2028}b\u{85}c"),
            ("1\u{fe0f}\u{20e3} 2\u{fe0f}3\u{fe0e}", "1\u{fe0f}\u{20e3} 2\\u{fe0f}3\\u{fe0e}"),
            ("a\u{fe0f}\u{e0100}", r"a\u{fe0f}\u{e0100}"),
            ("👍\u{fe0f}\u{fe0f}\u{fe0e}", "👍\u{fe0f}\\u{fe0f}\\u{fe0e}"),
            ("👩\u{200d}x \u{200d}💻", r"👩\u{200d}x \u{200d}💻"),
            ("🏴\u{e0067}\u{e0062}\u{e007f}", r"🏴\u{e0067}\u{e0062}\u{e007f}"),
            ("م\u{200c}\u{200c}خ", r"م\u{200c}\u{200c}خ"),
        ] {
            assert_eq!(visible(text), expected, "{}", text.escape_unicode());
        }
    }

    // Row 49: ordinary text in any script stays unchanged.
    #[test]
    fn row_49_scripts_and_emoji_stay_unchanged() {
        for text in [
            "Grüße, naïve café, 漢字, עברית, العربية",
            "👩\u{200d}💻 ❤\u{fe0f}\u{200d}🔥 👩🏽\u{200d}🚀 1\u{fe0f}\u{20e3} ☺\u{fe0e} 👨\u{200d}👩\u{200d}👧",
            "می\u{200c}خواهم",
            "क्\u{200d}ष क्\u{200c}ष",
            "ᠠ\u{180b}",
            "a line\nanother\twith a tab\r\n",
        ] {
            assert!(matches!(visible(text), Cow::Borrowed(_)), "{text}: {}", visible(text));
        }
    }

    #[test]
    fn names_are_limited_to_one_line_and_a_maximum_length() {
        assert_eq!(visible_line("a\r\nb\tc"), r"a\u{d}\u{a}b\u{9}c");
        assert_eq!(visible_name("äöü", 3), "äöü");
        assert_eq!(visible_name("äöüx", 3), "äöü…");
        assert_eq!(visible_name("a\u{200b}", 3), r"a\u…");
    }

    // Row 49, invariant 4: all text that a model reads is escaped. Data that a provider has signed stays unchanged.
    #[test]
    fn row_49_all_text_of_a_request_is_escaped() {
        const HIDDEN: &str = "\u{e0041}\u{202e}";
        let text = || format!("x{HIDDEN}");
        let result = ToolResult {
            call_id: CallId("call_1".into()),
            name: "read".into(),
            content: vec![Content::Text(text()), Content::Json(json!({ text(): [text()] }))],
            is_error: true,
        };
        let replay = crate::message::Replay { provider: "p".into(), data: json!(text()) };
        let call = crate::message::ToolCall {
            id: CallId("call_1".into()),
            name: "read".into(),
            arguments: json!({"a": text()}),
        };
        let parts = vec![
            Part::Text(text()),
            Part::Preface(text()),
            Part::Json(json!(text())),
            Part::ToolCall(call),
            Part::ToolResult(result),
        ];
        let signed = Message { role: Role::Assistant, parts: vec![Part::Replay(replay)], seen_count: 0 };
        let mut message = Message { role: Role::User, parts, seen_count: 0 };
        let mut tool = OfferedTool {
            name: "read".into(),
            author_name: "read".into(),
            description: text(),
            input_schema: json!({"properties": {text(): {"description": text(), "enum": [text()]}}}),
        };
        visible_message(&mut message);
        visible_tool(&mut tool);
        for shown in [
            format!("{:?}", message.parts),
            serde_json::to_string(&message).expect("JSON"),
            serde_json::to_string(&tool).expect("JSON"),
        ] {
            assert!(!shown.contains(HIDDEN) && shown.contains("e0041") && shown.contains("202e"), "{shown}");
        }
        let mut same = signed.clone();
        visible_message(&mut same);
        assert_eq!(same, signed);
    }

    proptest! {
        // Row 49: escaping an escaped text does not change it, and escaping a text without invisible characters does
        // not change it.
        #[test]
        fn row_49_escaping_is_idempotent(text in "[a-z👩💻❤🏽کخ \u{200b}-\u{200f}\u{202a}-\u{202e}\u{fe0f}\u{e0041}\u{1b}\r\n\t]{0,30}") {
            let once = visible(&text).into_owned();
            prop_assert_eq!(visible(&once), once.as_str());
            let line = visible_line(&text).into_owned();
            prop_assert_eq!(visible_line(&line), line.as_str());
            let is_hidden = |character: char| {
                character.is_control() || matches!(character, '\u{200b}' | '\u{200e}' | '\u{202a}'..='\u{202e}' | '\u{e0041}')
            };
            prop_assert!(!line.contains(is_hidden), "{}", line.escape_unicode());
            if !text.contains(is_invisible) {
                prop_assert_eq!(once, text);
            }
        }
    }
}
