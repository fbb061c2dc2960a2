//! Parser for script files. A script is a JSON object `{"replies": [...]}`, a JSON array of replies, or a sequence of
//! replies (JSON lines).

use super::expectation::Expectation;
use crate::delta_sender;
use crate::error::ModelError;
use agent_core::model::{StopReason, Usage};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Deserializer, Map, Value};
use std::path::Path;
use std::time::Duration;

/// Context window in tokens for scripts that do not set one.
const DEFAULT_WINDOW: u32 = 128_000;

/// Maximum value of `delay_ms` in a scripted reply: 10 minutes.
const MAX_DELAY_MS: u64 = 600_000;

/// The parsed contents of a script file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Script {
    /// Context window of the scripted model, in tokens.
    #[serde(default = "default_window")]
    pub(crate) window: u32,
    /// Replies to the requests that a session sends in its turns, in order. The list is never empty.
    pub(crate) replies: Vec<ScriptedReply>,
    /// Summaries of messages that are removed from the prompt, in order. A request for a summary fails if the session
    /// has already used all summaries.
    #[serde(default)]
    pub(crate) summaries: Vec<ScriptedReply>,
    /// Replies to requests that plugins send to the model, in order.
    #[serde(default)]
    pub(crate) answers: Vec<ScriptedReply>,
}

impl Script {
    pub(crate) fn from_replies(replies: Vec<ScriptedReply>) -> Self {
        Self { window: DEFAULT_WINDOW, replies, summaries: Vec::new(), answers: Vec::new() }
    }
}

fn default_window() -> u32 {
    DEFAULT_WINDOW
}

/// One reply, with the expectations that the request for this reply must meet.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedReply {
    /// Text of the reply. The default is the concatenated pieces if `chunks` is a list of pieces, and otherwise an
    /// empty text.
    pub(crate) text: Option<String>,
    /// Thinking that is streamed before the text.
    #[serde(default)]
    pub(crate) thinking: String,
    /// Parallel tool calls, in order.
    #[serde(default)]
    pub(crate) calls: Vec<ScriptedCall>,
    /// Reason why the model stopped. The default is `tool_calls` if there are calls, otherwise `stop`.
    pub(crate) stop: Option<StopReason>,
    /// Token usage that the reply reports. By default, the provider estimates the token usage.
    usage: Option<ScriptedUsage>,
    /// The pieces in which the text is streamed: either the number of pieces, or a list of the pieces. By default,
    /// the text is split at word boundaries.
    chunks: Option<Chunks>,
    /// Delay before each delta of the stream, in milliseconds.
    #[serde(default)]
    delay_ms: u64,
    /// Error with which the call fails after the text was streamed. By default, the call succeeds.
    pub(crate) error: Option<ScriptedError>,
    /// Expectations that the request for this reply must meet.
    #[serde(default)]
    pub(crate) expect: Expectation,
}

/// A tool call in a scripted reply.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptedCall {
    /// Name of the tool, as its author wrote it or as the request offers it.
    pub(crate) name: String,
    /// Id of the call, as a provider would send it. By default, the call has no id from the provider.
    pub(crate) id: Option<String>,
    arguments: Option<Arguments>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected an object, or a string with the raw text of the arguments")]
enum Arguments {
    Object(Map<String, Value>),
    Raw(String),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptedUsage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a number of pieces, or a list of pieces")]
enum Chunks {
    Number(usize),
    Pieces(Vec<String>),
}

/// The error of a model call that fails, in the form in which a provider would report it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptedError {
    /// HTTP status of the response. `None` means that the connection is lost before the reply is complete.
    pub(crate) status: Option<u16>,
    /// Error message, as a provider would send it.
    pub(crate) message: String,
    /// Id of the request, as a provider would send it with the error.
    pub(crate) request_id: Option<String>,
    /// Time for which the provider asks the host to wait before a retry, in milliseconds.
    pub(crate) retry_after_ms: Option<u64>,
    /// Number of attempts that fail before an attempt of this call succeeds. By default, all attempts fail.
    pub(crate) times: Option<u32>,
}

impl ScriptedReply {
    /// Returns the complete text of the reply.
    pub(crate) fn text(&self) -> String {
        match (&self.text, &self.chunks) {
            (Some(text), _) => text.clone(),
            (None, Some(Chunks::Pieces(pieces))) => pieces.concat(),
            (None, _) => String::new(),
        }
    }

    /// Returns the pieces in which the text of the reply is streamed.
    pub(crate) fn pieces(&self) -> Vec<String> {
        match &self.chunks {
            Some(Chunks::Pieces(pieces)) => pieces.clone(),
            Some(Chunks::Number(number)) => delta_sender::split_evenly(&self.text(), *number),
            None => delta_sender::split_at_words(&self.text()),
        }
    }

    /// Returns the delay before each delta of the stream.
    pub(crate) fn delay(&self) -> Duration {
        Duration::from_millis(self.delay_ms)
    }

    /// Returns the token usage, if the script contains it.
    pub(crate) fn usage(&self) -> Option<Usage> {
        let usage = self.usage?;
        Some(Usage::new(usage.prompt_tokens, usage.completion_tokens))
    }

    /// Returns the reason why this reply is invalid, or `None` if it is valid. The reason is a sentence without a
    /// subject, for example "is empty: …". The caller adds the subject.
    pub fn problem(&self) -> Option<String> {
        if self.text.is_none() && self.calls.is_empty() && self.error.is_none() && self.chunks.is_none() {
            return Some("is empty: add `text`, `calls` or `error` (`\"text\": \"\"` is an empty reply)".into());
        }
        if let Some(Chunks::Pieces(pieces)) = &self.chunks
            && self.text.as_ref().is_some_and(|text| *text != pieces.concat())
        {
            return Some("`chunks` do not add up to `text`: remove `chunks` or `text`".into());
        }
        if matches!(self.chunks, Some(Chunks::Number(0))) {
            return Some("`chunks` is 0: use a number of at least 1, or a list of pieces".into());
        }
        if self.delay_ms > MAX_DELAY_MS {
            return Some(format!("`delay_ms` is {}, but the maximum is {MAX_DELAY_MS}", self.delay_ms));
        }
        None
    }
}

impl ScriptedCall {
    /// Returns the arguments as JSON text, or an empty string if the script contains none.
    pub(crate) fn arguments(&self) -> String {
        match &self.arguments {
            None => String::new(),
            Some(Arguments::Raw(text)) => text.clone(),
            Some(Arguments::Object(object)) => Value::Object(object.clone()).to_string(),
        }
    }
}

/// Parses a script. `path` is used only in error messages.
pub(crate) fn parse(text: &str, path: &Path) -> Result<Script, ModelError> {
    let text = text.trim_start_matches('\u{feff}');
    let script = match detect_form(text) {
        ScriptForm::Array => parse_document(text, path, "replies").map(Script::from_replies)?,
        ScriptForm::Key("replies" | "summaries" | "answers" | "window") => parse_document(text, path, "")?,
        _ => Script::from_replies(parse_sequence(text, path)?),
    };
    let invalid =
        |position: String, problem: String| ModelError::InvalidScript { path: path.to_owned(), position, problem };
    if script.replies.is_empty() {
        return Err(invalid(
            "line 1".into(),
            "there is no reply: add one, for example `{\"text\": \"Hello.\"}`".into(),
        ));
    }
    let lists = [("reply", &script.replies), ("summary", &script.summaries), ("answer", &script.answers)];
    for (word, replies) in lists {
        for (position, reply) in replies.iter().enumerate() {
            if let Some(problem) = reply.problem() {
                return Err(invalid(format!("{word} {}", position + 1), problem));
            }
        }
    }
    Ok(script)
}

/// Form of a script. The beginning of the file shows the form.
enum ScriptForm<'a> {
    Array,
    Key(&'a str),
    Other,
}

fn detect_form(text: &str) -> ScriptForm<'_> {
    let text = text.trim_start();
    if text.starts_with('[') {
        return ScriptForm::Array;
    }
    let key = text.strip_prefix('{').and_then(|rest| rest.trim_start().strip_prefix('"'));
    key.and_then(|rest| rest.split_once('"')).map_or(ScriptForm::Other, |(key, _)| ScriptForm::Key(key))
}

fn parse_document<T: DeserializeOwned>(text: &str, path: &Path, prefix: &str) -> Result<T, ModelError> {
    let mut deserializer = Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|error| error_at(path, prefix, &error.path().to_string(), error.inner()))?;
    deserializer.end().map_err(|error| error_at(path, prefix, "", &error))?;
    Ok(value)
}

fn parse_sequence(text: &str, path: &Path) -> Result<Vec<ScriptedReply>, ModelError> {
    let mut deserializer = Deserializer::from_str(text);
    let mut replies = Vec::new();
    while deserializer.end().is_err() {
        let prefix = format!("replies[{}]", replies.len());
        let reply = serde_path_to_error::deserialize(&mut deserializer)
            .map_err(|error| error_at(path, &prefix, &error.path().to_string(), error.inner()))?;
        replies.push(reply);
    }
    Ok(replies)
}

/// Builds an error with the position before the message. `serde_json` writes the position after the message.
fn error_at(path: &Path, prefix: &str, key: &str, error: &serde_json::Error) -> ModelError {
    let (line, column) = (error.line(), error.column());
    let message = error.to_string();
    let problem = message.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&message).to_owned();
    // `serde_path_to_error` writes `.` for the whole document and `?` for an unknown key.
    let key = key.trim_end_matches('?').trim_end_matches('.');
    let separator = if prefix.is_empty() || key.is_empty() || key.starts_with('[') { "" } else { "." };
    let key = format!("{prefix}{separator}{key}");
    let position = match (line, key.is_empty()) {
        (0, _) => key,
        (_, true) => format!("line {line}, column {column}"),
        (_, false) => format!("line {line}, column {column}, {key}"),
    };
    ModelError::InvalidScript { path: path.to_owned(), position, problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Script, String> {
        parse(text, Path::new("s.json")).map_err(|error| error.to_string())
    }

    #[test]
    fn all_forms_of_a_script_produce_the_same_replies() {
        let forms = [
            r#"{"replies": [{"text": "a"}, {"text": "b"}]}"#,
            r#"[{"text": "a"}, {"text": "b"}]"#,
            "{\"text\": \"a\"}\n{\"text\": \"b\"}\n",
            "\u{feff}\n{\n  \"text\": \"a\"\n}\n\n{\"text\": \"b\"}",
        ];
        for form in forms {
            let script = read(form).unwrap();
            assert_eq!(script.replies.iter().map(ScriptedReply::text).collect::<Vec<_>>(), ["a", "b"], "{form}");
            assert_eq!(script.window, 128_000);
        }
        assert_eq!(read(r#"{"window": 4000, "replies": [{"text": ""}]}"#).unwrap().window, 4000);
    }

    #[test]
    fn all_fields_of_a_reply_are_parsed() {
        let script = read(
            r#"{"chunks": ["a ", "b"], "thinking": "hm", "stop": "length", "usage": {"prompt_tokens": 7}, "delay_ms": 5,
               "calls": [{"name": "t", "arguments": {"b": 1, "a": [2]}}, {"name": "u", "id": "x", "arguments": "{bad"},
                         {"name": "v"}],
               "error": {"status": 429, "message": "m", "request_id": "r", "retry_after_ms": 9, "times": 1},
               "expect": {"messages": 1}}"#,
        )
        .unwrap();
        let reply = &script.replies[0];
        assert_eq!(reply.text(), "a b");
        assert_eq!(reply.pieces(), ["a ", "b"]);
        assert_eq!(reply.usage(), Some(Usage::new(7, 0)));
        let arguments: Vec<_> = reply.calls.iter().map(ScriptedCall::arguments).collect();
        assert_eq!(arguments, [r#"{"b":1,"a":[2]}"#, "{bad", ""]);
        assert_eq!(reply.delay(), Duration::from_millis(5));
    }

    /// Errors contain the file, the position, the key and the allowed values.
    #[test]
    fn errors_contain_the_position() {
        let error = |text| read(text).unwrap_err();
        insta::assert_snapshot!(
            error("{\"text\": \"a\"}\n{\"txt\": \"b\"}"),
            @"the script s.json, line 2, column 6, replies[1].txt: unknown field `txt`, expected one of `text`, `thinking`, `calls`, `stop`, `usage`, `chunks`, `delay_ms`, `error`, `expect`"
        );
        insta::assert_snapshot!(
            error(r#"{"replies": [{"text": "a", "usage": {"prompt_tokens": "x"}}]}"#),
            @r#"the script s.json, line 1, column 57, replies[0].usage.prompt_tokens: invalid type: string "x", expected u64"#
        );
        insta::assert_snapshot!(
            error(r#"[{"calls": [{"name": "t", "arguments": 3}]}]"#),
            @"the script s.json, line 1, column 41, replies[0].calls[0].arguments: expected an object, or a string with the raw text of the arguments"
        );
        insta::assert_snapshot!(error(r#"[{"text": "a"}] x"#), @"the script s.json, line 1, column 17, replies: trailing characters");
        insta::assert_snapshot!(error("{\"text\": \"a\""), @"the script s.json, line 1, column 12, replies[0]: EOF while parsing an object");
        insta::assert_snapshot!(error(""), @r#"the script s.json, line 1: there is no reply: add one, for example `{"text": "Hello."}`"#);
        insta::assert_snapshot!(error("{}"), @r#"the script s.json, reply 1: is empty: add `text`, `calls` or `error` (`"text": ""` is an empty reply)"#);
        insta::assert_snapshot!(error(r#"{"text": "a", "chunks": ["b"]}"#), @"the script s.json, reply 1: `chunks` do not add up to `text`: remove `chunks` or `text`");
        insta::assert_snapshot!(error(r#"{"text": "a", "chunks": 0}"#), @"the script s.json, reply 1: `chunks` is 0: use a number of at least 1, or a list of pieces");
        insta::assert_snapshot!(error(r#"{"text": "a", "delay_ms": 600001}"#), @"the script s.json, reply 1: `delay_ms` is 600001, but the maximum is 600000");
        insta::assert_snapshot!(error(r#"{"text": "a", "expect": {"rolls": ["user"]}}"#), @"the script s.json, line 1, column 32, replies[0].expect.rolls: unknown field `rolls`, expected one of `lifecycle`, `messages`, `roles`, `seen_counts`, `tools`, `offers`, `withholds`, `last_contains`, `contains`, `lacks`, `system_contains`, `output_schema`");
        insta::assert_snapshot!(error(r#"[{"text": "a", "expect": {"last_contains": 3}}]"#), @"the script s.json, line 1, column 45, replies[0].expect.last_contains: expected a string or a list of strings");
    }
}
