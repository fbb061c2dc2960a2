//! Tool calls of models that can only write text (L20). To call a tool, a model writes
//! `<tool>{"server_name": …, "tool_name": …, "arguments": …}</tool>` into its reply. The host separates calls in this
//! form from the other text of the reply while the reply is streamed.

mod prompt;

pub use prompt::{ToolAddress, ToolMatch, calls_as_text, schema_sections, written_call};

use crate::model::Delta;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

const OPENING: &str = "<tool>";
const CLOSING: &str = "</tool>";
/// Maximum number of characters that an error quotes from a call.
const MAX_QUOTED: usize = 200;

/// How a model calls tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolDialect {
    /// The model uses the tool calls of its provider's API.
    #[default]
    Native,
    /// The model writes tool calls into the text of its reply.
    Text,
}

/// A tool call that a model wrote into its reply.
#[derive(Clone, Debug, PartialEq)]
pub struct TaggedCall {
    /// Where the host looks up the tool: `local`, `mcp`, the name of an MCP server, or `service`.
    pub server: String,
    /// Name of the tool, with or without the name of its server.
    pub tool: String,
    /// The arguments. If the model wrote no arguments, the value is an empty object.
    pub arguments: Value,
}

/// Why the text between `<tool>` and `</tool>` is not a valid call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum UnreadableCall {
    /// The text between the tags is not a JSON object, or its closing tag is missing.
    #[error("{problem}. The call was written as `{written}`")]
    ParseError {
        /// Description of the problem.
        problem: String,
        /// The beginning of the text between the tags.
        written: String,
    },
    /// The text is JSON but does not name the tool.
    #[error("`{field}` is missing or is not a string. The call was written as `{written}`")]
    MissingField {
        /// The missing field: `server_name` or `tool_name`.
        field: String,
        /// The beginning of the text between the tags.
        written: String,
    },
    /// The call is inside a code fence or inline code, so the host does not run it.
    #[error(
        "calls in backticks or code fences do not run; write the call outside of them. The call was written as `{written}`"
    )]
    Quoted {
        /// The beginning of the text between the tags of the call.
        written: String,
    },
}

impl UnreadableCall {
    /// Returns the machine-readable code of the error.
    pub fn code(&self) -> &'static str {
        match self {
            UnreadableCall::ParseError { .. } => "parse_error",
            UnreadableCall::MissingField { .. } => "missing_field",
            UnreadableCall::Quoted { .. } => "quoted_call",
        }
    }
}

/// Returns the message that tells a model which of its calls could not be parsed, and how to write a call.
pub fn feedback(calls: &[UnreadableCall]) -> String {
    let mut text = "A tool call of your reply could not be read, and did not run:".to_owned();
    for call in calls {
        text.push_str(&format!("\n- {}: {call}", call.code()));
    }
    text.push_str("\nWrite it again as one line of JSON: ");
    text.push_str(r#"<tool>{"server_name": "local", "tool_name": "NAME", "arguments": {}}</tool>"#);
    text
}

/// Parses a complete reply. Returns the text without the calls, and the calls in the order of the text.
pub fn read(reply: &str) -> (String, Vec<Result<TaggedCall, UnreadableCall>>) {
    let (mut reader, mut deltas) = (TaggedReader::default(), Vec::new());
    reader.text(reply, &mut deltas);
    let calls = reader.finish(&mut deltas);
    let texts = deltas.into_iter().filter_map(|delta| if let Delta::Text(text) = delta { Some(text) } else { None });
    (texts.collect(), calls)
}

/// Returns the calls inside Markdown code, each with the error that explains why the call did not run. `text` is the
/// text of a reply, from which the calls outside of code have been removed.
pub fn quoted_calls(text: &str) -> Vec<(TaggedCall, UnreadableCall)> {
    let bodies = text.split(OPENING).skip(1).filter_map(|rest| rest.split_once(CLOSING));
    let calls = bodies
        .filter_map(|(body, _)| Some((parse_call(body).ok()?, UnreadableCall::Quoted { written: excerpt(body) })));
    calls.collect()
}

/// Parses the streamed text of a reply. The parser emits the text without the calls as deltas, and returns the calls at
/// the end.
///
/// A tag in Markdown code is ordinary text. Two things count as code: everything between two lines of at least three
/// backticks or tildes, and a tag directly after a backtick. A `</tool>` inside a JSON string does not end its call.
/// The parser also removes the white space after a call.
#[derive(Debug, Default)]
pub struct TaggedReader {
    state: State,
    code: Code,
    /// White space that the parser has read but not emitted, because it is removed if a call follows.
    blank: String,
    /// Whether text other than white space has been emitted.
    has_emitted_text: bool,
    /// Number of calls that had been read when text other than white space was last emitted.
    calls_before_text: usize,
    calls: Vec<Result<TaggedCall, UnreadableCall>>,
}

#[derive(Debug)]
enum State {
    /// The parser is in ordinary text. The last `matched` bytes of the text match the beginning of an opening tag.
    Text { matched: usize },
    /// The parser is between the tags of a call.
    Call(CallBody),
}

impl Default for State {
    fn default() -> Self {
        Self::Text { matched: 0 }
    }
}

impl TaggedReader {
    /// Parses the next piece of the reply's text. A piece may end at any character.
    pub fn text(&mut self, piece: &str, deltas: &mut Vec<Delta>) {
        let mut shown = String::new();
        for character in piece.chars() {
            self.push(character, &mut shown);
        }
        if !shown.is_empty() {
            deltas.push(Delta::Text(shown));
        }
    }

    /// Ends the reply and returns all calls. A call without a closing tag becomes an error.
    pub fn finish(mut self, deltas: &mut Vec<Delta>) -> Vec<Result<TaggedCall, UnreadableCall>> {
        let mut shown = String::new();
        match std::mem::take(&mut self.state) {
            State::Text { matched: 0 } if self.calls.is_empty() => shown.push_str(&self.blank),
            State::Text { matched: 0 } => {}
            State::Text { matched } => self.show(&OPENING[..matched], &mut shown),
            State::Call(body) => self.calls.push(Err(body.unclosed())),
        }
        if !shown.is_empty() {
            deltas.push(Delta::Text(shown));
        }
        self.calls
    }

    fn push(&mut self, character: char, shown: &mut String) {
        match &mut self.state {
            State::Call(body) => {
                if let Some(call) = body.push(character) {
                    self.calls.push(call);
                    self.state = State::default();
                    // A code fence cannot begin on the same line after a call.
                    self.code.push('>');
                }
            }
            State::Text { matched } if *matched > 0 => {
                let matched = *matched;
                if OPENING[matched..].starts_with(character) {
                    self.state = match matched + 1 {
                        matched if matched == OPENING.len() => State::Call(CallBody::default()),
                        matched => State::Text { matched },
                    };
                } else {
                    self.state = State::default();
                    self.show(&OPENING[..matched], shown);
                    self.push(character, shown);
                }
            }
            State::Text { .. } if character == '<' && !self.code.is_inside() => {
                self.state = State::Text { matched: 1 };
            }
            State::Text { .. } => {
                self.code.push(character);
                if !character.is_whitespace() {
                    self.emit_blank(shown);
                    shown.push(character);
                } else if self.calls.is_empty() || self.has_text_since_call() {
                    self.blank.push(character);
                }
            }
        }
    }

    /// Emits text that could have been the beginning of a tag but turned out not to be part of a tag.
    fn show(&mut self, text: &str, shown: &mut String) {
        text.chars().for_each(|character| self.code.push(character));
        self.emit_blank(shown);
        shown.push_str(text);
    }

    /// Emits the pending white space. The caller then emits the text that follows the white space. If a call was
    /// removed before the first text, the white space is dropped. If a call was removed without white space around it,
    /// a line break is emitted, so that the texts before and after the call do not join into one word or tag.
    fn emit_blank(&mut self, shown: &mut String) {
        let blank = std::mem::take(&mut self.blank);
        if self.has_emitted_text && blank.is_empty() && !self.has_text_since_call() {
            shown.push('\n');
        } else if self.has_emitted_text || self.calls.is_empty() {
            shown.push_str(&blank);
        }
        self.has_emitted_text = true;
        self.calls_before_text = self.calls.len();
    }

    fn has_text_since_call(&self) -> bool {
        self.calls_before_text == self.calls.len()
    }
}

/// The text after an opening tag, up to the current position.
#[derive(Debug, Default)]
struct CallBody {
    text: String,
    in_string: bool,
    is_escaped: bool,
    /// Number of bytes of the closing tag that have matched.
    matched: usize,
}

impl CallBody {
    /// Appends a character. Returns the call when its closing tag is complete.
    fn push(&mut self, character: char) -> Option<Result<TaggedCall, UnreadableCall>> {
        self.text.push(character);
        if self.in_string {
            // A JSON string cannot contain a line break. An unclosed string therefore ends with its line, and the calls
            // after the unclosed string are still found.
            self.in_string = (character != '"' || self.is_escaped) && character != '\n';
            self.is_escaped = character == '\\' && !self.is_escaped;
            return None;
        }
        self.matched = match () {
            () if CLOSING[self.matched..].starts_with(character) => self.matched + 1,
            () => usize::from(character == '<'),
        };
        self.in_string = character == '"' && self.text.trim_start().starts_with('{');
        (self.matched == CLOSING.len()).then(|| parse_call(&self.text[..self.text.len() - CLOSING.len()]))
    }

    fn unclosed(&self) -> UnreadableCall {
        let problem = "the closing `</tool>` is missing, so the call may be incomplete".to_owned();
        UnreadableCall::ParseError { problem, written: excerpt(&self.text) }
    }
}

/// Tracks whether the current position is inside Markdown code.
#[derive(Debug, Default)]
struct Code {
    /// The fence that opened the current code block: its character and its length. `None` means that no code block
    /// is open.
    fence: Option<(char, usize)>,
    line: Line,
    last_character: Option<char>,
}

/// What the current line contains so far. Only the details that decide whether the line is a code fence are kept.
#[derive(Clone, Copy, Debug)]
enum Line {
    /// The line contains this number of spaces and nothing else.
    Indent(usize),
    /// The line begins with the fence character `mark`, repeated `length` times, and `suffix` follows.
    Fence { mark: char, length: usize, suffix: FenceSuffix },
    /// The line is not a fence.
    Other,
}

impl Default for Line {
    fn default() -> Self {
        Self::Indent(0)
    }
}

/// The text after the fence characters of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FenceSuffix {
    Empty,
    Blank,
    /// Words, such as the name of a language. An opening fence may have words after it, but a closing fence may not.
    Words,
    /// The text contains a further backtick. A line that starts like a fence but contains a further backtick is not
    /// a fence.
    Mark,
}

impl Code {
    /// Whether a tag that begins at the current position is inside code.
    fn is_inside(&self) -> bool {
        let is_on_fence = matches!(self.line, Line::Fence { length: 3.., .. });
        self.fence.is_some() || is_on_fence || self.last_character == Some('`')
    }

    fn push(&mut self, character: char) {
        self.last_character = Some(character);
        self.line = match (self.line, character) {
            (line, '\n') => {
                self.end_line(line);
                Line::default()
            }
            (Line::Indent(spaces @ ..3), ' ') => Line::Indent(spaces + 1),
            (Line::Indent(_), '`' | '~') => Line::Fence { mark: character, length: 1, suffix: FenceSuffix::Empty },
            (Line::Fence { mark, length, suffix: FenceSuffix::Empty }, _) if mark == character => {
                Line::Fence { mark, length: length + 1, suffix: FenceSuffix::Empty }
            }
            (Line::Fence { mark, length, suffix }, _) => {
                let suffix = match suffix {
                    FenceSuffix::Mark => FenceSuffix::Mark,
                    _ if mark == '`' && character == '`' => FenceSuffix::Mark,
                    FenceSuffix::Empty | FenceSuffix::Blank if character.is_whitespace() => FenceSuffix::Blank,
                    _ => FenceSuffix::Words,
                };
                Line::Fence { mark, length, suffix }
            }
            (Line::Indent(_) | Line::Other, _) => Line::Other,
        };
    }

    fn end_line(&mut self, line: Line) {
        let Line::Fence { mark, length: length @ 3.., suffix } = line else { return };
        match self.fence {
            None if suffix != FenceSuffix::Mark => self.fence = Some((mark, length)),
            Some((open, min_length))
                if open == mark
                    && length >= min_length
                    && matches!(suffix, FenceSuffix::Empty | FenceSuffix::Blank) =>
            {
                self.fence = None;
            }
            _ => {}
        }
    }
}

/// Parses the text between the tags as a call (L20).
fn parse_call(body: &str) -> Result<TaggedCall, UnreadableCall> {
    let parse_error = |problem: String| UnreadableCall::ParseError { problem, written: excerpt(body) };
    let json: Value = serde_json::from_str(body).map_err(|error| parse_error(format!("it is not JSON: {error}")))?;
    let Value::Object(mut fields) = json else {
        return Err(parse_error("it is JSON, but not an object".to_owned()));
    };
    let mut string = |field: &str| match fields.remove(field) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text),
        _ => Err(UnreadableCall::MissingField { field: field.to_owned(), written: excerpt(body) }),
    };
    let (server, tool) = (string("server_name")?, string("tool_name")?);
    let arguments = fields.remove("arguments").unwrap_or_else(|| Value::Object(Map::new()));
    Ok(TaggedCall { server, tool, arguments })
}

fn excerpt(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(MAX_QUOTED) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
