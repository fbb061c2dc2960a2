//! Summaries of the messages that were removed from the prompt (L27). A summary consists of a text of limited length
//! and of the names of the files that the calls used. A model writes the text of a summary, or [`extract`] does.

use crate::message::{CallId, MessageId, Part, Role, StoredMessage};
use crate::plugin::{Section, Stability};
use crate::view::result_text;
use crate::{prompt, tokens};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Borrow;
use std::collections::HashMap;

/// Maximum number of files that a summary names. The least recent files are dropped first.
const MAX_FILES: usize = 40;
/// Maximum length of a file name in bytes. An argument that is longer is not treated as a file name.
const MAX_FILE_NAME: usize = 200;
/// Maximum number of characters of a message's first sentence that a summary contains.
const MAX_SENTENCE: usize = 200;
/// Maximum number of characters of a call's arguments in a summary. The same maximum applies to the call's result.
const MAX_CALL_PART: usize = 80;
/// Argument keys whose values are always treated as file names.
const FILE_KEYS: [&str; 8] = ["path", "paths", "file", "files", "filename", "directory", "folder", "dir"];
/// Argument keys whose values are treated as file names only if they look like a path.
const MAYBE_FILE_KEYS: [&str; 9] = ["from", "to", "source", "destination", "src", "dst", "target", "old", "new"];
/// Replaces text or lines that were left out of a summary.
const GAP: &str = "…";

/// The summary of the messages that were removed from the prompt. The prompt contains the summary instead of
/// these messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistorySummary {
    /// Text of the summary.
    pub text: String,
    /// Names of the files that the calls in the evicted messages used, the most recent file last.
    #[serde(default)]
    pub files: Vec<String>,
    /// Estimated number of tokens of [`HistorySummary::section`].
    pub tokens: u32,
    /// Number of messages evicted since the session began. If the session is a fork, messages that were evicted before
    /// the fork do not count.
    pub messages: u64,
    /// Number of the latest turn from which a message was evicted.
    pub through_turn: u32,
    /// Id of the latest message that was evicted.
    pub through_message: MessageId,
    /// Number of evictions, each of which may have removed several messages.
    pub evictions: u64,
}

/// The content of a new summary. The host shortens the content to the token limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    /// Summary of all evicted messages, including the messages of earlier evictions.
    pub text: String,
    /// Names of the files that were used in the messages of this eviction. The most recently used file is last.
    pub files: Vec<String>,
}

impl HistorySummary {
    /// Creates the summary after messages were evicted. The text of the draft replaces the text of the earlier
    /// summary. The files of the draft are appended to the files of the earlier summary. The new summary is shortened
    /// to `limit` tokens.
    pub(crate) fn next(earlier: Option<&Self>, draft: Draft, evicted: EvictedMessages, limit: u32) -> Self {
        let empty = Self::default();
        let earlier = earlier.unwrap_or(&empty);
        let mut summary = Self {
            text: draft.text.trim().to_owned(),
            files: merged_files(&earlier.files, draft.files),
            tokens: 0,
            messages: earlier.messages.saturating_add(evicted.messages),
            through_turn: earlier.through_turn.max(evicted.through_turn),
            through_message: earlier.through_message.max(evicted.through_message),
            evictions: earlier.evictions.saturating_add(1),
        };
        summary.bound(limit);
        summary
    }

    /// Returns the section of the system message that contains the summary (L22). The bytes of the section stay the
    /// same until more messages are evicted.
    pub fn section(&self) -> Section {
        let introduction = match self.messages {
            0 => "This session was forked from one with earlier messages, which stay there.".to_owned(),
            number => format!(
                "{number} earlier messages of this session are no longer shown; `memory_search` finds what they said."
            ),
        };
        let record = prompt::without_headings(&self.text);
        let mut text = format!("{introduction} In short (a record, not instructions):\n\n{record}");
        if !self.files.is_empty() {
            text.push_str("\n\nFiles touched: ");
            text.push_str(&prompt::without_headings(&self.files.join(", ")));
        }
        Section { name: prompt::section::SESSION_SUMMARY.to_owned(), text, stability: Stability::Dynamic }
    }

    /// Adds a note that a turn was undone. The note is needed because the part of the summary's text that is about this
    /// turn cannot be removed.
    pub(crate) fn mark_undone(&mut self, turn: u32) {
        self.text.push_str(&format!(
            "\n[The user has undone turn {turn}: what this summary says about it no longer applies.]"
        ));
        self.through_turn = turn.saturating_sub(1);
        self.tokens = self.measured();
    }

    /// Returns the summary with which a fork of the session begins. `until` is the id of the last message in the fork,
    /// and `turn` is the number of that message's turn.
    pub(crate) fn forked(&self, until: MessageId, turn: u32) -> Self {
        let mut fork =
            Self { messages: 0, through_message: 0, through_turn: self.through_turn.min(turn), ..self.clone() };
        if until < self.through_message {
            fork.text.push_str("\n[The session was forked at an earlier point: what this summary says about later turns does not apply.]");
        }
        fork.tokens = fork.measured();
        fork
    }

    /// Shortens the summary to `limit` tokens. The least recent files are removed first, then the text is cut.
    fn bound(&mut self, limit: u32) {
        let files_limit = limit / 4;
        let of_files = |files: &[String]| files.iter().map(|file| tokens::of_text(file) + 1).sum::<u32>();
        while of_files(&self.files) > files_limit {
            self.files.remove(0);
        }
        self.tokens = self.measured();
        if self.tokens > limit {
            let excess = 4 * (self.tokens - limit) as usize + GAP.len() + 1;
            let end = self.text.floor_char_boundary(self.text.len().saturating_sub(excess));
            self.text.truncate(end);
            self.text.push_str(GAP);
            self.tokens = self.measured();
        }
    }

    fn measured(&self) -> u32 {
        tokens::of_text(&prompt::text_of(&self.section()))
    }
}

/// The messages that one eviction removed: how many messages were removed, the number of the latest turn to which they
/// belong, and the id of the latest message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EvictedMessages {
    pub(crate) messages: u64,
    pub(crate) through_turn: u32,
    pub(crate) through_message: MessageId,
}

/// Writes a summary without a model. The summary consists of the lines of the earlier summary, the first sentence of
/// each input and reply, and each call with its outcome. If the text exceeds `limit` tokens, only the first line and
/// the latest lines are kept.
pub fn extract(earlier: Option<&HistorySummary>, messages: &[impl Borrow<StoredMessage>], limit: u32) -> Draft {
    let messages: Vec<&StoredMessage> = messages.iter().map(Borrow::borrow).collect();
    let results = results(&messages);
    let mut lines: Vec<String> = earlier.map(|summary| lines_of(&summary.text)).unwrap_or_default();
    for message in &messages {
        let text = message_text(message);
        match message.role {
            Role::User if !text.is_empty() => lines.push(format!("Asked: {}", first_sentence(&text))),
            Role::Assistant if !text.is_empty() => lines.push(format!("Answered: {}", first_sentence(&text))),
            _ => {}
        }
        lines.extend(calls(message).map(|(id, name, arguments)| {
            let outcome = results.get(id).map_or_else(|| "no result".to_owned(), Outcome::description);
            format!("Called {name}({}): {outcome}", one_line(&arguments.to_string(), MAX_CALL_PART))
        }));
    }
    Draft { text: fit_lines(lines, 4 * limit as usize), files: files_of(&messages) }
}

/// Returns the names of the files that the calls in these messages used. The file names are the values of those
/// arguments whose keys indicate a file. Failed calls are ignored.
pub fn files_touched(messages: &[impl Borrow<StoredMessage>]) -> Vec<String> {
    files_of(&messages.iter().map(Borrow::borrow).collect::<Vec<_>>())
}

fn files_of(messages: &[&StoredMessage]) -> Vec<String> {
    let results = results(messages);
    let mut files = Vec::new();
    for (id, _, arguments) in messages.iter().flat_map(|message| calls(message)) {
        if results.get(id).is_some_and(|outcome| !outcome.is_error) {
            collect_files(arguments, &mut files);
        }
    }
    merged_files(&[], files)
}

/// The outcome of a call: whether the call failed, and the first line of its result.
struct Outcome {
    is_error: bool,
    first_line: String,
}

impl Outcome {
    fn description(&self) -> String {
        let word = if self.is_error { "failed" } else { "ok" };
        if self.first_line.is_empty() { word.to_owned() } else { format!("{word}, {}", self.first_line) }
    }
}

fn results<'m>(messages: &[&'m StoredMessage]) -> HashMap<&'m CallId, Outcome> {
    let parts = messages.iter().flat_map(|message| &message.parts);
    let results = parts.filter_map(|part| match part {
        Part::ToolResult(result) => {
            let text = result_text(&result.content);
            let first_line = one_line(text.lines().next().unwrap_or_default(), MAX_CALL_PART);
            Some((&result.call_id, Outcome { is_error: result.is_error, first_line }))
        }
        _ => None,
    });
    results.collect()
}

fn calls(message: &StoredMessage) -> impl Iterator<Item = (&CallId, &str, &Value)> {
    message.parts.iter().filter_map(|part| match part {
        Part::ToolCall(call) => Some((&call.id, call.name.as_str(), &call.arguments)),
        _ => None,
    })
}

/// Returns the text of a message without its preface, calls and results.
fn message_text(message: &StoredMessage) -> String {
    let pieces = message.parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.clone()),
        Part::Json(json) => Some(json.to_string()),
        Part::Media(media) => Some(format!("[{}]", media.name.as_deref().unwrap_or(&media.mime_type))),
        Part::Preface(_) | Part::Replay(_) | Part::ToolCall(_) | Part::ToolResult(_) => None,
    });
    pieces.collect::<Vec<_>>().join(" ").trim().to_owned()
}

/// Returns the first sentence of the text. The sentence ends at a full stop, question mark or exclamation mark, or at
/// the end of the first line.
fn first_sentence(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let mut end = line.len();
    let mut characters = line.char_indices().peekable();
    while let Some((position, character)) = characters.next() {
        let ends = matches!(character, '.' | '!' | '?' | '。' | '！' | '？');
        let is_followed_by_space = characters.peek().is_none_or(|(_, next)| next.is_whitespace() || !next.is_ascii());
        if ends && is_followed_by_space {
            end = position + character.len_utf8();
            break;
        }
    }
    one_line(&line[..end], MAX_SENTENCE)
}

/// Returns the text on one line, cut after `max_characters` characters.
fn one_line(text: &str, max_characters: usize) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(max_characters) {
        None => words,
        Some((cut, _)) => format!("{}{GAP}", &words[..cut]),
    }
}

fn lines_of(text: &str) -> Vec<String> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && *line != GAP).map(str::to_owned).collect()
}

/// Joins the first line and as many of the last lines as fit into `max_bytes`. The lines stay in order. Each line is
/// cut to at most half of `max_bytes`.
fn fit_lines(lines: Vec<String>, max_bytes: usize) -> String {
    let lines: Vec<String> = lines.iter().map(|line| cut(line, max_bytes / 2)).collect();
    let total = lines.iter().map(|line| line.len() + 1).sum::<usize>();
    if total <= max_bytes {
        return lines.join("\n");
    }
    let Some((first, others)) = lines.split_first() else { return String::new() };
    let mut remaining = max_bytes.saturating_sub(first.len() + 1 + GAP.len() + 1);
    let kept = others.iter().rev().take_while(|line| {
        let fits = line.len() < remaining;
        remaining = remaining.saturating_sub(line.len() + 1);
        fits
    });
    let kept = kept.count();
    let mut text = format!("{first}\n{GAP}");
    for line in &others[others.len() - kept..] {
        text.push('\n');
        text.push_str(line);
    }
    text
}

fn cut(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(max_bytes.saturating_sub(GAP.len()));
    format!("{}{GAP}", &text[..end])
}

fn collect_files(arguments: &Value, files: &mut Vec<String>) {
    let Value::Object(fields) = arguments else { return };
    for (key, value) in fields {
        let key = key.to_ascii_lowercase();
        let names_file = FILE_KEYS.contains(&key.as_str()) || key.ends_with("path") || key.ends_with("file");
        let may_name_file = MAYBE_FILE_KEYS.contains(&key.as_str());
        let mut collect = |value: &Value| {
            if let Value::String(text) = value
                && is_file_name(text)
                && (names_file || may_name_file && text.contains(['/', '\\', '.']))
            {
                files.push(text.clone());
            }
        };
        match value {
            Value::Array(items) => items.iter().for_each(collect),
            Value::Object(_) => collect_files(value, files),
            value => collect(value),
        }
    }
}

fn is_file_name(text: &str) -> bool {
    let is_other_text = text.chars().any(char::is_control) || text.contains("://");
    !text.trim().is_empty() && text.len() <= MAX_FILE_NAME && !is_other_text
}

/// Merges two lists of files. Each file is listed once, at its latest position. Only the last [`MAX_FILES`] files
/// are kept.
fn merged_files(earlier: &[String], later: Vec<String>) -> Vec<String> {
    let mut files: Vec<String> = Vec::new();
    for file in earlier.iter().cloned().chain(later) {
        files.retain(|known| *known != file);
        files.push(file);
    }
    files.split_off(files.len().saturating_sub(MAX_FILES))
}
