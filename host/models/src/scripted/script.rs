//! The file of replies: a JSON document `{"replies": [...]}`, a JSON array, or one reply after another (JSON lines).

use super::expectation::Expectation;
use crate::error::ModelError;
use crate::stream;
use agent_core::model::{StopReason, Usage};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Deserializer, Map, Value};
use std::path::Path;
use std::time::Duration;

/// Context window where the script names none, in tokens.
const WINDOW: u32 = 128_000;

/// Longest wait before a piece.
const LONGEST_DELAY: u64 = 600_000;

/// A whole script.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Script {
    /// Context window in tokens.
    #[serde(default = "default_window")]
    pub(crate) window: u32,
    /// In order; at least one.
    pub(crate) replies: Vec<ScriptedReply>,
    /// Summaries of what leaves the prompt, in order. Where they are spent, asking for one fails.
    #[serde(default)]
    pub(crate) summaries: Vec<ScriptedReply>,
    /// Answers to plugins' questions, in order.
    #[serde(default)]
    pub(crate) answers: Vec<ScriptedReply>,
}

impl Script {
    pub(crate) fn of_replies(replies: Vec<ScriptedReply>) -> Self {
        Self { window: WINDOW, replies, summaries: Vec::new(), answers: Vec::new() }
    }
}

fn default_window() -> u32 {
    WINDOW
}

/// One reply, with what it expects of its request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedReply {
    /// What the model says.
    pub(crate) text: Option<String>,
    /// What it thinks before.
    #[serde(default)]
    pub(crate) thinking: String,
    /// Parallel calls, in order.
    #[serde(default)]
    pub(crate) calls: Vec<ScriptedCall>,
    /// Default: `tool_calls` where there are calls, else `stop`.
    pub(crate) stop: Option<StopReason>,
    /// Default: estimated.
    usage: Option<ScriptedUsage>,
    /// How the text is cut. Default: after words.
    chunks: Option<Chunks>,
    /// Milliseconds before each piece.
    #[serde(default)]
    delay_ms: u64,
    /// After the text, instead of the reply.
    pub(crate) error: Option<ScriptedError>,
    /// What must hold for the request.
    #[serde(default)]
    pub(crate) expect: Expectation,
}

/// A call.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptedCall {
    /// As the tool's author wrote it, or as it is offered.
    pub(crate) name: String,
    /// The provider's id.
    pub(crate) id: Option<String>,
    arguments: Option<Arguments>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected an object, or a string with the arguments' raw text")]
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

/// A provider's error.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptedError {
    /// HTTP status. None: the reply breaks off.
    pub(crate) status: Option<u16>,
    /// The provider's message.
    pub(crate) message: String,
    /// The provider's id of the request.
    pub(crate) request_id: Option<String>,
    /// What it asks to wait, in milliseconds.
    pub(crate) retry_after_ms: Option<u64>,
    /// How many tries of this call fail. Default: all.
    pub(crate) times: Option<u32>,
}

impl ScriptedReply {
    /// The whole text.
    pub(crate) fn text(&self) -> String {
        match (&self.text, &self.chunks) {
            (Some(text), _) => text.clone(),
            (None, Some(Chunks::Pieces(pieces))) => pieces.concat(),
            (None, _) => String::new(),
        }
    }

    /// The text as it is streamed.
    pub(crate) fn pieces(&self) -> Vec<String> {
        match &self.chunks {
            Some(Chunks::Pieces(pieces)) => pieces.clone(),
            Some(Chunks::Number(number)) => stream::by_number(&self.text(), *number),
            None => stream::by_words(&self.text()),
        }
    }

    /// Before each piece.
    pub(crate) fn delay(&self) -> Duration {
        Duration::from_millis(self.delay_ms)
    }

    /// Where the script says it.
    pub(crate) fn usage(&self) -> Option<Usage> {
        let usage = self.usage?;
        Some(Usage { prompt_tokens: usage.prompt_tokens, completion_tokens: usage.completion_tokens })
    }

    /// What makes it no reply, as the end of a sentence.
    pub fn problem(&self) -> Option<String> {
        if self.text.is_none() && self.calls.is_empty() && self.error.is_none() && self.chunks.is_none() {
            return Some(
                "says nothing: give it `text`, `calls` or `error` (`\"text\": \"\"` is an empty reply)".into(),
            );
        }
        if let Some(Chunks::Pieces(pieces)) = &self.chunks
            && self.text.as_ref().is_some_and(|text| *text != pieces.concat())
        {
            return Some("`chunks` do not make `text`: leave one of them out".into());
        }
        if matches!(self.chunks, Some(Chunks::Number(0))) {
            return Some("`chunks` is 0: write a number from 1, or a list of pieces".into());
        }
        if self.delay_ms > LONGEST_DELAY {
            return Some(format!("`delay_ms` is {}: at most {LONGEST_DELAY}", self.delay_ms));
        }
        None
    }
}

impl ScriptedCall {
    /// JSON text as the model wrote it; empty where the script gives none.
    pub(crate) fn arguments(&self) -> String {
        match &self.arguments {
            None => String::new(),
            Some(Arguments::Raw(text)) => text.clone(),
            Some(Arguments::Object(object)) => Value::Object(object.clone()).to_string(),
        }
    }
}

/// Reads a script; `path` is for messages.
pub(crate) fn parse(text: &str, path: &Path) -> Result<Script, ModelError> {
    let text = text.trim_start_matches('\u{feff}');
    let script = match first_key(text) {
        Start::Array => one(text, path, "replies").map(Script::of_replies)?,
        Start::Key("replies" | "summaries" | "answers" | "window") => one(text, path, "")?,
        _ => Script::of_replies(sequence(text, path)?),
    };
    let invalid = |place: String, problem: String| ModelError::InvalidScript { path: path.to_owned(), place, problem };
    if script.replies.is_empty() {
        return Err(invalid("line 1".into(), "has no reply: write for example `{\"text\": \"Hello.\"}`".into()));
    }
    let lists = [("reply", &script.replies), ("summary", &script.summaries), ("answer", &script.answers)];
    for (word, replies) in lists {
        for (place, reply) in replies.iter().enumerate() {
            if let Some(problem) = reply.problem() {
                return Err(invalid(format!("{word} {}", place + 1), problem));
            }
        }
    }
    Ok(script)
}

/// What a file begins with tells its form.
enum Start<'a> {
    Array,
    Key(&'a str),
    Other,
}

fn first_key(text: &str) -> Start<'_> {
    let text = text.trim_start();
    if text.starts_with('[') {
        return Start::Array;
    }
    let key = text.strip_prefix('{').and_then(|rest| rest.trim_start().strip_prefix('"'));
    key.and_then(|rest| rest.split_once('"')).map_or(Start::Other, |(key, _)| Start::Key(key))
}

fn one<T: DeserializeOwned>(text: &str, path: &Path, prefix: &str) -> Result<T, ModelError> {
    let mut deserializer = Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|error| located(path, prefix, &error.path().to_string(), error.inner()))?;
    deserializer.end().map_err(|error| located(path, prefix, "", &error))?;
    Ok(value)
}

fn sequence(text: &str, path: &Path) -> Result<Vec<ScriptedReply>, ModelError> {
    let mut deserializer = Deserializer::from_str(text);
    let mut replies = Vec::new();
    while deserializer.end().is_err() {
        let prefix = format!("replies[{}]", replies.len());
        let reply = serde_path_to_error::deserialize(&mut deserializer)
            .map_err(|error| located(path, &prefix, &error.path().to_string(), error.inner()))?;
        replies.push(reply);
    }
    Ok(replies)
}

/// Puts the place, which `serde_json` writes behind its message, before it.
fn located(path: &Path, prefix: &str, key: &str, error: &serde_json::Error) -> ModelError {
    let (line, column) = (error.line(), error.column());
    let message = error.to_string();
    let problem = message.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&message).to_owned();
    // The library writes `.` for the whole and `?` for a key that it did not get to read.
    let key = key.trim_end_matches('?').trim_end_matches('.');
    let separator = if prefix.is_empty() || key.is_empty() || key.starts_with('[') { "" } else { "." };
    let key = format!("{prefix}{separator}{key}");
    let place = match (line, key.is_empty()) {
        (0, _) => key,
        (_, true) => format!("line {line}, column {column}"),
        (_, false) => format!("line {line}, column {column}, {key}"),
    };
    ModelError::InvalidScript { path: path.to_owned(), place, problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Script, String> {
        parse(text, Path::new("s.json")).map_err(|error| error.to_string())
    }

    #[test]
    fn three_forms_are_the_same() {
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
    fn everything_a_reply_may_have() {
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
        assert_eq!(reply.usage(), Some(Usage { prompt_tokens: 7, completion_tokens: 0 }));
        let arguments: Vec<_> = reply.calls.iter().map(ScriptedCall::arguments).collect();
        assert_eq!(arguments, [r#"{"b":1,"a":[2]}"#, "{bad", ""]);
        assert_eq!(reply.delay(), Duration::from_millis(5));
    }

    /// The file, the place, the key and what is allowed.
    #[test]
    fn errors_name_the_place() {
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
            @"the script s.json, line 1, column 41, replies[0].calls[0].arguments: expected an object, or a string with the arguments' raw text"
        );
        insta::assert_snapshot!(error(r#"[{"text": "a"}] x"#), @"the script s.json, line 1, column 17, replies: trailing characters");
        insta::assert_snapshot!(error("{\"text\": \"a\""), @"the script s.json, line 1, column 12, replies[0]: EOF while parsing an object");
        insta::assert_snapshot!(error(""), @r#"the script s.json, line 1: has no reply: write for example `{"text": "Hello."}`"#);
        insta::assert_snapshot!(error("{}"), @r#"the script s.json, reply 1: says nothing: give it `text`, `calls` or `error` (`"text": ""` is an empty reply)"#);
        insta::assert_snapshot!(error(r#"{"text": "a", "chunks": ["b"]}"#), @"the script s.json, reply 1: `chunks` do not make `text`: leave one of them out");
        insta::assert_snapshot!(error(r#"{"text": "a", "chunks": 0}"#), @"the script s.json, reply 1: `chunks` is 0: write a number from 1, or a list of pieces");
        insta::assert_snapshot!(error(r#"{"text": "a", "delay_ms": 600001}"#), @"the script s.json, reply 1: `delay_ms` is 600001: at most 600000");
        insta::assert_snapshot!(error(r#"{"text": "a", "expect": {"rolls": ["user"]}}"#), @"the script s.json, line 1, column 32, replies[0].expect.rolls: unknown field `rolls`, expected one of `lifecycle`, `messages`, `roles`, `seen_counts`, `tools`, `offers`, `withholds`, `last_contains`, `contains`, `lacks`, `system_contains`, `output_schema`");
        insta::assert_snapshot!(error(r#"[{"text": "a", "expect": {"last_contains": 3}}]"#), @"the script s.json, line 1, column 45, replies[0].expect.last_contains: expected a string or a list of strings");
    }
}
