//! Tool calls of models that can only write (L20): `<tool>{"server_name", "tool_name", "arguments"}</tool>` in the text of a
//! reply, told from the text while it comes in pieces.

mod prompt;

pub use prompt::{Meant, ToolAddress, in_words, schema_sections, written};

use crate::model::Delta;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

const OPENING: &str = "<tool>";
const CLOSING: &str = "</tool>";
/// Characters of a call that an error quotes.
const QUOTED: usize = 200;

/// How a model calls tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolDialect {
    /// By its provider's own means.
    #[default]
    Native,
    /// In its text.
    Text,
}

/// A call as a model wrote it.
#[derive(Clone, Debug, PartialEq)]
pub struct TaggedCall {
    /// Where the tool is looked for: `local`, `mcp`, the name of an MCP server, or `service`.
    pub server: String,
    /// The tool's name there.
    pub tool: String,
    /// Empty where the model wrote none.
    pub arguments: Value,
}

/// A call that is none: what is between the tags cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum UnreadableCall {
    /// It is no JSON, or its end did not come.
    #[error("{problem}. It reads `{written}`")]
    ParseError {
        /// What is wrong.
        problem: String,
        /// Its beginning.
        written: String,
    },
    /// It is JSON, but does not say which tool.
    #[error("`{field}` is missing, or no text. It reads `{written}`")]
    MissingField {
        /// `server_name` or `tool_name`.
        field: String,
        /// Its beginning.
        written: String,
    },
    /// It could run, but it is part of a code fence or of inline code, so it counts as text.
    #[error("calls in backticks or code fences do not run: write it outside of them. It reads `{written}`")]
    Quoted {
        /// Its beginning.
        written: String,
    },
}

impl UnreadableCall {
    /// For programs: the same word as `code` in JSON.
    pub fn code(&self) -> &'static str {
        match self {
            UnreadableCall::ParseError { .. } => "parse_error",
            UnreadableCall::MissingField { .. } => "missing_field",
            UnreadableCall::Quoted { .. } => "quoted_call",
        }
    }
}

/// What a model is told whose calls could not be read.
pub fn feedback(calls: &[UnreadableCall]) -> String {
    let mut text = "A tool call of your reply could not be read, and did not run:".to_owned();
    for call in calls {
        text.push_str(&format!("\n- {}: {call}", call.code()));
    }
    text.push_str("\nWrite it again as one line of JSON: ");
    text.push_str(r#"<tool>{"server_name": "local", "tool_name": "NAME", "arguments": {}}</tool>"#);
    text
}

/// A whole reply, read: its text without the calls, and the calls in order.
pub fn read(reply: &str) -> (String, Vec<Result<TaggedCall, UnreadableCall>>) {
    let (mut reader, mut deltas) = (TaggedReader::default(), Vec::new());
    reader.text(reply, &mut deltas);
    let calls = reader.finish(&mut deltas);
    let texts = deltas.into_iter().filter_map(|delta| if let Delta::Text(text) = delta { Some(text) } else { None });
    (texts.collect(), calls)
}

/// Calls that stand in the code of a text whose other calls were taken out, each with what the model wrote.
pub fn quoted(text: &str) -> Vec<(TaggedCall, UnreadableCall)> {
    let bodies = text.split(OPENING).skip(1).filter_map(|rest| rest.split_once(CLOSING));
    let calls =
        bodies.filter_map(|(body, _)| Some((call(body).ok()?, UnreadableCall::Quoted { written: excerpt(body) })));
    calls.collect()
}

/// Turns pieces of one reply's text into deltas without the calls, and gives the calls at the end.
///
/// In code, a tag is what the reply is about and stays text: between lines of three backticks or tildes, and directly
/// behind a backtick. A `</tool>` inside a JSON string does not end its call. White space behind a call goes with it.
#[derive(Debug, Default)]
pub struct TaggedReader {
    place: Place,
    code: Code,
    /// White space that goes with a call, should one follow.
    blank: String,
    /// Something visible has been said.
    has_spoken: bool,
    /// Calls that had come when something was last said.
    calls_before: usize,
    calls: Vec<Result<TaggedCall, UnreadableCall>>,
}

#[derive(Debug)]
enum Place {
    /// In the text, with so many bytes of an opening tag.
    Text {
        matched: usize,
    },
    Call(Body),
}

impl Default for Place {
    fn default() -> Self {
        Self::Text { matched: 0 }
    }
}

impl TaggedReader {
    /// Takes the next piece of the text, cut anywhere.
    pub fn text(&mut self, piece: &str, deltas: &mut Vec<Delta>) {
        let mut shown = String::new();
        for character in piece.chars() {
            self.take(character, &mut shown);
        }
        if !shown.is_empty() {
            deltas.push(Delta::Text(shown));
        }
    }

    /// The reply has ended: a call that is still open is unreadable.
    pub fn finish(mut self, deltas: &mut Vec<Delta>) -> Vec<Result<TaggedCall, UnreadableCall>> {
        let mut shown = String::new();
        match std::mem::take(&mut self.place) {
            Place::Text { matched: 0 } if self.calls.is_empty() => shown.push_str(&self.blank),
            Place::Text { matched: 0 } => {}
            Place::Text { matched } => self.show(&OPENING[..matched], &mut shown),
            Place::Call(body) => self.calls.push(Err(body.unclosed())),
        }
        if !shown.is_empty() {
            deltas.push(Delta::Text(shown));
        }
        self.calls
    }

    fn take(&mut self, character: char, shown: &mut String) {
        match &mut self.place {
            Place::Call(body) => {
                if let Some(call) = body.take(character) {
                    self.calls.push(call);
                    self.place = Place::default();
                    // Behind a call on its line no fence begins.
                    self.code.take('>');
                }
            }
            Place::Text { matched } if *matched > 0 => {
                let matched = *matched;
                if OPENING[matched..].starts_with(character) {
                    self.place = match matched + 1 {
                        whole if whole == OPENING.len() => Place::Call(Body::default()),
                        matched => Place::Text { matched },
                    };
                } else {
                    self.place = Place::default();
                    self.show(&OPENING[..matched], shown);
                    self.take(character, shown);
                }
            }
            Place::Text { .. } if character == '<' && !self.code.quotes() => {
                self.place = Place::Text { matched: 1 };
            }
            Place::Text { .. } => {
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

    /// Shows text that has looked like the beginning of a tag.
    fn show(&mut self, text: &str, shown: &mut String) {
        text.chars().for_each(|character| self.code.take(character));
        self.speak(shown);
        shown.push_str(text);
    }

    /// White space was part of the text after all; before the first word and behind a call it is not. What stood on both
    /// sides of a call never becomes one word, or a tag.
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

/// What stands between the tags, as far as it has come.
#[derive(Debug, Default)]
struct Body {
    text: String,
    in_string: bool,
    is_escaped: bool,
    /// Bytes of the closing tag.
    matched: usize,
}

impl Body {
    /// The call, once its closing tag is whole.
    fn take(&mut self, character: char) -> Option<Result<TaggedCall, UnreadableCall>> {
        self.text.push(character);
        if self.in_string {
            // No JSON string goes over a line's end, so that an unclosed one cannot swallow the calls behind it.
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
        let problem = "the call has no `</tool>` behind it, so that nothing says that it is whole".to_owned();
        UnreadableCall::ParseError { problem, written: excerpt(&self.text) }
    }
}

/// Where in Markdown's code the text is.
#[derive(Debug, Default)]
struct Code {
    /// The fence that is open: its character and its length.
    fence: Option<(char, usize)>,
    line: Line,
    last: Option<char>,
}

/// How the line looks that has not ended.
#[derive(Clone, Copy, Debug)]
enum Line {
    /// So many spaces.
    Indent(usize),
    /// A character that fences are made of, how often, and what is behind it.
    Fence {
        mark: char,
        length: usize,
        rest: Rest,
    },
    Other,
}

impl Default for Line {
    fn default() -> Self {
        Self::Indent(0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    Nothing,
    Blank,
    /// A language, as an opening fence may have.
    Words,
    /// No fence has its own character there.
    Mark,
}

impl Code {
    /// Whether a tag that begins here is quoted.
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
            (Line::Indent(_), '`' | '~') => Line::Fence { mark: character, length: 1, rest: Rest::Nothing },
            (Line::Fence { mark, length, rest: Rest::Nothing }, _) if mark == character => {
                Line::Fence { mark, length: length + 1, rest: Rest::Nothing }
            }
            (Line::Fence { mark, length, rest }, _) => {
                let rest = match rest {
                    Rest::Mark => Rest::Mark,
                    _ if mark == '`' && character == '`' => Rest::Mark,
                    Rest::Nothing | Rest::Blank if character.is_whitespace() => Rest::Blank,
                    _ => Rest::Words,
                };
                Line::Fence { mark, length, rest }
            }
            (Line::Indent(_) | Line::Other, _) => Line::Other,
        };
    }

    fn end(&mut self, line: Line) {
        let Line::Fence { mark, length: length @ 3.., rest } = line else { return };
        match self.fence {
            None if rest != Rest::Mark => self.fence = Some((mark, length)),
            Some((open, least)) if open == mark && length >= least && matches!(rest, Rest::Nothing | Rest::Blank) => {
                self.fence = None;
            }
            _ => {}
        }
    }
}

/// What stands between the tags, as a call (L20).
fn call(body: &str) -> Result<TaggedCall, UnreadableCall> {
    let parse_error = |problem: String| UnreadableCall::ParseError { problem, written: excerpt(body) };
    let json: Value = serde_json::from_str(body).map_err(|error| parse_error(format!("it is no JSON: {error}")))?;
    let Value::Object(mut fields) = json else {
        return Err(parse_error("it is JSON, but no object".to_owned()));
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
