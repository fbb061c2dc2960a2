//! Tool calls of models that can only write text (L20): `<tool>{"server_name", "tool_name", "arguments"}</tool>` in a
//! reply, separated from the text while it is streamed.

mod prompt;

pub use prompt::{ToolAddress, ToolMatch, calls_as_text, schema_sections, written_call};

use crate::model::Delta;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

const OPENING: &str = "<tool>";
const CLOSING: &str = "</tool>";
/// Maximum number of characters of a call that an error quotes.
const QUOTED: usize = 200;

/// How a model calls tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolDialect {
    /// With its provider's own tool calls.
    #[default]
    Native,
    /// In the text of its reply.
    Text,
}

/// A call as a model wrote it.
#[derive(Clone, Debug, PartialEq)]
pub struct TaggedCall {
    /// Where to look up the tool: `local`, `mcp`, the name of an MCP server, or `service`.
    pub server: String,
    /// Name of the tool there.
    pub tool: String,
    /// The arguments. An empty object if the model wrote none.
    pub arguments: Value,
}

/// Text between the tags that cannot be read as a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum UnreadableCall {
    /// The text is not JSON, or its end is missing.
    #[error("{problem}. The call reads `{written}`")]
    ParseError {
        /// What is wrong.
        problem: String,
        /// The beginning of the text.
        written: String,
    },
    /// The text is JSON but does not name the tool.
    #[error("`{field}` is missing or is not a string. The call reads `{written}`")]
    MissingField {
        /// The missing field: `server_name` or `tool_name`.
        field: String,
        /// The beginning of the text.
        written: String,
    },
    /// The call is part of a code fence or of inline code, so it counts as text.
    #[error("calls in backticks or code fences do not run; write the call outside of them. The call reads `{written}`")]
    Quoted {
        /// The beginning of the text.
        written: String,
    },
}

impl UnreadableCall {
    /// Code of the error for programs. It equals `code` in the JSON form.
    pub fn code(&self) -> &'static str {
        match self {
            UnreadableCall::ParseError { .. } => "parse_error",
            UnreadableCall::MissingField { .. } => "missing_field",
            UnreadableCall::Quoted { .. } => "quoted_call",
        }
    }
}

/// The feedback for a model whose calls could not be read.
pub fn feedback(calls: &[UnreadableCall]) -> String {
    let mut text = "A tool call of your reply could not be read, and did not run:".to_owned();
    for call in calls {
        text.push_str(&format!("\n- {}: {call}", call.code()));
    }
    text.push_str("\nWrite it again as one line of JSON: ");
    text.push_str(r#"<tool>{"server_name": "local", "tool_name": "NAME", "arguments": {}}</tool>"#);
    text
}

/// Parses a complete reply into its text without the calls, and the calls in order.
pub fn read(reply: &str) -> (String, Vec<Result<TaggedCall, UnreadableCall>>) {
    let (mut reader, mut deltas) = (TaggedReader::default(), Vec::new());
    reader.text(reply, &mut deltas);
    let calls = reader.finish(&mut deltas);
    let texts = deltas.into_iter().filter_map(|delta| if let Delta::Text(text) = delta { Some(text) } else { None });
    (texts.collect(), calls)
}

/// Calls inside code in a text from which the other calls were removed, each with an excerpt.
pub fn quoted_calls(text: &str) -> Vec<(TaggedCall, UnreadableCall)> {
    let bodies = text.split(OPENING).skip(1).filter_map(|rest| rest.split_once(CLOSING));
    let calls =
        bodies.filter_map(|(body, _)| Some((call(body).ok()?, UnreadableCall::Quoted { written: excerpt(body) })));
    calls.collect()
}

/// Splits the streamed text of a reply into deltas without the calls, and returns the calls at the end.
///
/// A tag in code stays text. Code is everything between lines of three backticks or tildes, and directly after a
/// backtick. A `</tool>` inside a JSON string does not end its call. White space after a call is removed with it.
#[derive(Debug, Default)]
pub struct TaggedReader {
    state: State,
    code: Code,
    /// White space that is removed if a call follows.
    blank: String,
    /// Whether visible text has been emitted.
    has_spoken: bool,
    /// Number of calls at the time of the last visible text.
    calls_before: usize,
    calls: Vec<Result<TaggedCall, UnreadableCall>>,
}

#[derive(Debug)]
enum State {
    /// In the text, with the number of bytes of an opening tag that have matched.
    Text {
        matched: usize,
    },
    Call(Body),
}

impl Default for State {
    fn default() -> Self {
        Self::Text { matched: 0 }
    }
}

impl TaggedReader {
    /// Takes the next piece of the text. It may be cut anywhere.
    pub fn text(&mut self, piece: &str, deltas: &mut Vec<Delta>) {
        let mut shown = String::new();
        for character in piece.chars() {
            self.take(character, &mut shown);
        }
        if !shown.is_empty() {
            deltas.push(Delta::Text(shown));
        }
    }

    /// Ends the reply. A call that is still open is unreadable.
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

    fn take(&mut self, character: char, shown: &mut String) {
        match &mut self.state {
            State::Call(body) => {
                if let Some(call) = body.take(character) {
                    self.calls.push(call);
                    self.state = State::default();
                    // A fence does not begin after a call on the same line.
                    self.code.take('>');
                }
            }
            State::Text { matched } if *matched > 0 => {
                let matched = *matched;
                if OPENING[matched..].starts_with(character) {
                    self.state = match matched + 1 {
                        whole if whole == OPENING.len() => State::Call(Body::default()),
                        matched => State::Text { matched },
                    };
                } else {
                    self.state = State::default();
                    self.show(&OPENING[..matched], shown);
                    self.take(character, shown);
                }
            }
            State::Text { .. } if character == '<' && !self.code.quotes() => {
                self.state = State::Text { matched: 1 };
            }
            State::Text { .. } => {
                self.code.take(character);
                if !character.is_whitespace() {
                    self.speak(shown);
                    shown.push(character);
                } else if self.calls.is_empty() || self.has_spoken_since_call() {
                    self.blank.push(character);
                }
            }
        }
    }

    /// Emits text that looked like the beginning of a tag.
    fn show(&mut self, text: &str, shown: &mut String) {
        text.chars().for_each(|character| self.code.take(character));
        self.speak(shown);
        shown.push_str(text);
    }

    /// Emits pending white space before text. It is dropped before the first word and after a call. The texts before
    /// and after a call never join to a word or a tag.
    fn speak(&mut self, shown: &mut String) {
        let blank = std::mem::take(&mut self.blank);
        if self.has_spoken && blank.is_empty() && !self.has_spoken_since_call() {
            shown.push('\n');
        } else if self.has_spoken || self.calls.is_empty() {
            shown.push_str(&blank);
        }
        self.has_spoken = true;
        self.calls_before = self.calls.len();
    }

    fn has_spoken_since_call(&self) -> bool {
        self.calls_before == self.calls.len()
    }
}

/// The text between the tags so far.
#[derive(Debug, Default)]
struct Body {
    text: String,
    in_string: bool,
    is_escaped: bool,
    /// Number of bytes of the closing tag that have matched.
    matched: usize,
}

impl Body {
    /// Takes a character. Returns the call once its closing tag is complete.
    fn take(&mut self, character: char) -> Option<Result<TaggedCall, UnreadableCall>> {
        self.text.push(character);
        if self.in_string {
            // A JSON string cannot contain a line break, so an unclosed string does not swallow the calls after it.
            self.in_string = (character != '"' || self.is_escaped) && character != '\n';
            self.is_escaped = character == '\\' && !self.is_escaped;
            return None;
        }
        self.matched = match () {
            () if CLOSING[self.matched..].starts_with(character) => self.matched + 1,
            () => usize::from(character == '<'),
        };
        self.in_string = character == '"' && self.text.trim_start().starts_with('{');
        (self.matched == CLOSING.len()).then(|| call(&self.text[..self.text.len() - CLOSING.len()]))
    }

    fn unclosed(&self) -> UnreadableCall {
        let problem = "the closing `</tool>` is missing, so the call may be incomplete".to_owned();
        UnreadableCall::ParseError { problem, written: excerpt(&self.text) }
    }
}

/// Position of the text relative to code in Markdown.
#[derive(Debug, Default)]
struct Code {
    /// The open fence: its character and its length.
    fence: Option<(char, usize)>,
    line: Line,
    last: Option<char>,
}

/// What the current line looks like so far.
#[derive(Clone, Copy, Debug)]
enum Line {
    /// Only spaces, and how many.
    Indent(usize),
    /// A fence character, how often it occurs, and what follows.
    Fence {
        mark: char,
        length: usize,
        rest: FenceRest,
    },
    Other,
}

impl Default for Line {
    fn default() -> Self {
        Self::Indent(0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FenceRest {
    Nothing,
    Blank,
    /// A language, which may follow an opening fence.
    Words,
    /// Another fence character, so that this is not a fence.
    Mark,
}

impl Code {
    /// Whether a tag that begins here is inside code.
    fn quotes(&self) -> bool {
        let opens = matches!(self.line, Line::Fence { length: 3.., .. });
        self.fence.is_some() || opens || self.last == Some('`')
    }

    fn take(&mut self, character: char) {
        self.last = Some(character);
        self.line = match (self.line, character) {
            (line, '\n') => {
                self.end(line);
                Line::default()
            }
            (Line::Indent(spaces @ ..3), ' ') => Line::Indent(spaces + 1),
            (Line::Indent(_), '`' | '~') => Line::Fence { mark: character, length: 1, rest: FenceRest::Nothing },
            (Line::Fence { mark, length, rest: FenceRest::Nothing }, _) if mark == character => {
                Line::Fence { mark, length: length + 1, rest: FenceRest::Nothing }
            }
            (Line::Fence { mark, length, rest }, _) => {
                let rest = match rest {
                    FenceRest::Mark => FenceRest::Mark,
                    _ if mark == '`' && character == '`' => FenceRest::Mark,
                    FenceRest::Nothing | FenceRest::Blank if character.is_whitespace() => FenceRest::Blank,
                    _ => FenceRest::Words,
                };
                Line::Fence { mark, length, rest }
            }
            (Line::Indent(_) | Line::Other, _) => Line::Other,
        };
    }

    fn end(&mut self, line: Line) {
        let Line::Fence { mark, length: length @ 3.., rest } = line else { return };
        match self.fence {
            None if rest != FenceRest::Mark => self.fence = Some((mark, length)),
            Some((open, least))
                if open == mark && length >= least && matches!(rest, FenceRest::Nothing | FenceRest::Blank) =>
            {
                self.fence = None;
            }
            _ => {}
        }
    }
}

/// Parses the text between the tags as a call (L20).
fn call(body: &str) -> Result<TaggedCall, UnreadableCall> {
    let parse_error = |problem: String| UnreadableCall::ParseError { problem, written: excerpt(body) };
    let json: Value = serde_json::from_str(body).map_err(|error| parse_error(format!("it is not JSON: {error}")))?;
    let Value::Object(mut fields) = json else {
        return Err(parse_error("it is JSON, but not an object".to_owned()));
    };
    let mut text = |field: &str| match fields.remove(field) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text),
        _ => Err(UnreadableCall::MissingField { field: field.to_owned(), written: excerpt(body) }),
    };
    let (server, tool) = (text("server_name")?, text("tool_name")?);
    let arguments = fields.remove("arguments").unwrap_or_else(|| Value::Object(Map::new()));
    Ok(TaggedCall { server, tool, arguments })
}

fn excerpt(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
