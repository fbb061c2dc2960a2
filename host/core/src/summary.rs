//! Summaries of messages that were removed from the prompt: a bounded text and the files touched (L27). A model may
//! write the text. Otherwise [`extract`] makes it from the messages.

use crate::message::{CallId, MessageId, Part, Role, StoredMessage};
use crate::plugin::{Section, Stability};
use crate::view::result_text;
use crate::{prompt, tokens};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Borrow;
use std::collections::HashMap;

/// Maximum number of files that a summary names; the most recent ones are kept.
const MAX_FILES: usize = 40;
/// Maximum length of a file name in bytes. Longer values are not file names.
const MAX_FILE_NAME: usize = 200;
/// Maximum number of characters of a first sentence.
const SENTENCE: usize = 200;
/// Maximum number of characters of a call's arguments, and of its outcome.
const CALL_PIECE: usize = 80;
/// Argument keys that name a file, whatever their value looks like.
const FILE_KEYS: [&str; 8] = ["path", "paths", "file", "files", "filename", "directory", "folder", "dir"];
/// Argument keys that name a file if the value looks like a path.
const MAYBE_FILE_KEYS: [&str; 9] = ["from", "to", "source", "destination", "src", "dst", "target", "old", "new"];
/// Replaces lines that are left out.
const GAP: &str = "…";

/// The summary in the prompt of the messages that were removed from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistorySummary {
    /// Text of the summary.
    pub text: String,
    /// Files that the calls touched, the most recent last.
    #[serde(default)]
    pub files: Vec<String>,
    /// Estimated tokens of [`HistorySummary::section`].
    pub tokens: u32,
    /// Number of messages evicted over the whole session. It is 0 in a session that was forked.
    pub messages: u64,
    /// The latest turn of which a message was evicted.
    pub through_turn: u32,
    /// The latest message that was evicted.
    pub through_message: MessageId,
    /// Number of evictions.
    pub evictions: u64,
}

/// The content of a summary before it is bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    /// Text about the messages, including those of earlier evictions.
    pub text: String,
    /// Files touched by the messages that are evicted now, the most recent last.
    pub files: Vec<String>,
}

impl HistorySummary {
    /// Makes the next summary: the draft's text replaces the earlier one, its files follow the earlier ones, and the
    /// whole fits into `limit` tokens.
    pub(crate) fn next(earlier: Option<&Self>, draft: Draft, evicted: EvictedMessages, limit: u32) -> Self {
        let none = Self::default();
        let earlier = earlier.unwrap_or(&none);
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

    /// The section of the system message (L22). Its bytes stay the same until more messages are evicted.
    pub fn section(&self) -> Section {
        let which = match self.messages {
            0 => "This session was forked from one with earlier messages, which stay there.".to_owned(),
            number => format!(
                "{number} earlier messages of this session are no longer shown; `memory_search` finds what they said."
            ),
        };
        let record = prompt::without_headings(&self.text);
        let mut text = format!("{which} In short (a record, not instructions):\n\n{record}");
        if !self.files.is_empty() {
            text.push_str("\n\nFiles touched: ");
            text.push_str(&prompt::without_headings(&self.files.join(", ")));
        }
        Section { name: prompt::section::SESSION_SUMMARY.to_owned(), text, stability: Stability::Dynamic }
    }

    /// Notes that a partly summarised turn was undone. The summary cannot be split by turn.
    pub(crate) fn mark_undone(&mut self, turn: u32) {
        self.text.push_str(&format!(
            "\n[The user has undone turn {turn}: what this summary says about it no longer applies.]"
        ));
        self.through_turn = turn.saturating_sub(1);
        self.tokens = self.measured();
    }

    /// The summary for a session that is forked after message `until`, in turn `turn`.
    pub(crate) fn forked(&self, until: MessageId, turn: u32) -> Self {
        let mut fork =
            Self { messages: 0, through_message: 0, through_turn: self.through_turn.min(turn), ..self.clone() };
        if until < self.through_message {
            fork.text.push_str("\n[The session was forked at an earlier point: what this summary says about later turns does not apply.]");
        }
        fork.tokens = fork.measured();
        fork
    }

    /// Shortens the summary: first the oldest files are removed, then the text is cut.
    fn bound(&mut self, limit: u32) {
        let files_limit = limit / 4;
        let of_files = |files: &[String]| files.iter().map(|file| tokens::of_text(file) + 1).sum::<u32>();
        while of_files(&self.files) > files_limit {
            self.files.remove(0);
        }
        self.tokens = self.measured();
        if self.tokens > limit {
            let over = 4 * (self.tokens - limit) as usize + GAP.len() + 1;
            let end = self.text.floor_char_boundary(self.text.len().saturating_sub(over));
            self.text.truncate(end);
            self.text.push_str(GAP);
            self.tokens = self.measured();
        }
    }

    fn measured(&self) -> u32 {
        tokens::of_text(&prompt::text_of(&self.section()))
    }
}

/// The messages that are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EvictedMessages {
    pub(crate) messages: u64,
    pub(crate) through_turn: u32,
    pub(crate) through_message: MessageId,
}

/// Makes a summary without a model: the first sentence of each input and answer, and each call with its outcome,
/// after the earlier summary. If that exceeds `limit` tokens, only the first line and the latest ones are kept.
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
            let outcome = results.get(id).map_or_else(|| "no result".to_owned(), Outcome::for_people);
            format!("Called {name}({}): {outcome}", brief(&arguments.to_string(), CALL_PIECE))
        }));
    }
    Draft { text: fit_lines(lines, 4 * limit as usize), files: files_of(&messages) }
}

/// Files that the calls in these messages touched, taken from arguments whose keys name files. Failed calls do not
/// count.
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

/// The outcome of a call in one line.
struct Outcome {
    is_error: bool,
    first_line: String,
}

impl Outcome {
    fn for_people(&self) -> String {
        let word = if self.is_error { "failed" } else { "ok" };
        if self.first_line.is_empty() { word.to_owned() } else { format!("{word}, {}", self.first_line) }
    }
}

fn results<'m>(messages: &[&'m StoredMessage]) -> HashMap<&'m CallId, Outcome> {
    let parts = messages.iter().flat_map(|message| &message.parts);
    let results = parts.filter_map(|part| match part {
        Part::ToolResult(result) => {
            let text = result_text(&result.content);
            let first_line = brief(text.lines().next().unwrap_or_default(), CALL_PIECE);
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

/// The text of a message without what the host put before it.
fn message_text(message: &StoredMessage) -> String {
    let pieces = message.parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.clone()),
        Part::Json(json) => Some(json.to_string()),
        Part::Media(media) => Some(format!("[{}]", media.name.as_deref().unwrap_or(&media.mime_type))),
        Part::Preface(_) | Part::Replay(_) | Part::ToolCall(_) | Part::ToolResult(_) => None,
    });
    pieces.collect::<Vec<_>>().join(" ").trim().to_owned()
}

/// The text up to the first full stop, question mark or exclamation mark that ends a sentence, or to the end of the
/// first line.
fn first_sentence(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let mut end = line.len();
    let mut characters = line.char_indices().peekable();
    while let Some((position, character)) = characters.next() {
        let ends = matches!(character, '.' | '!' | '?' | '。' | '！' | '？');
        let then_space = characters.peek().is_none_or(|(_, next)| next.is_whitespace() || !next.is_ascii());
        if ends && then_space {
            end = position + character.len_utf8();
            break;
        }
    }
    brief(&line[..end], SENTENCE)
}

/// The text on one line, cut after `characters` characters.
fn brief(text: &str, characters: usize) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(characters) {
        None => words,
        Some((cut, _)) => format!("{}{GAP}", &words[..cut]),
    }
}

fn lines_of(text: &str) -> Vec<String> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && *line != GAP).map(str::to_owned).collect()
}

/// The first line and as many of the last ones as fit, oldest first. No line takes more than half of the room.
fn fit_lines(lines: Vec<String>, bytes: usize) -> String {
    let lines: Vec<String> = lines.iter().map(|line| cut(line, bytes / 2)).collect();
    let whole = lines.iter().map(|line| line.len() + 1).sum::<usize>();
    if whole <= bytes {
        return lines.join("\n");
    }
    let Some((first, rest)) = lines.split_first() else { return String::new() };
    let mut left = bytes.saturating_sub(first.len() + 1 + GAP.len() + 1);
    let kept = rest.iter().rev().take_while(|line| {
        let fits = line.len() < left;
        left = left.saturating_sub(line.len() + 1);
        fits
    });
    let kept = kept.count();
    let mut text = format!("{first}\n{GAP}");
    for line in &rest[rest.len() - kept..] {
        text.push('\n');
        text.push_str(line);
    }
    text
}

fn cut(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(bytes.saturating_sub(GAP.len()));
    format!("{}{GAP}", &text[..end])
}

fn collect_files(arguments: &Value, files: &mut Vec<String>) {
    let Value::Object(fields) = arguments else { return };
    for (key, value) in fields {
        let key = key.to_ascii_lowercase();
        let names_file = FILE_KEYS.contains(&key.as_str()) || key.ends_with("path") || key.ends_with("file");
        let may_name_file = MAYBE_FILE_KEYS.contains(&key.as_str());
        let mut take = |value: &Value| {
            if let Value::String(text) = value
                && is_file_name(text)
                && (names_file || may_name_file && text.contains(['/', '\\', '.']))
            {
                files.push(text.clone());
            }
        };
        match value {
            Value::Array(items) => items.iter().for_each(take),
            Value::Object(_) => collect_files(value, files),
            value => take(value),
        }
    }
}

fn is_file_name(text: &str) -> bool {
    let has_end = text.chars().any(char::is_control) || text.contains("://");
    !text.trim().is_empty() && text.len() <= MAX_FILE_NAME && !has_end
}

/// Each file once, at its latest position; only the most recent ones are kept.
fn merged_files(earlier: &[String], later: Vec<String>) -> Vec<String> {
    let mut files: Vec<String> = Vec::new();
    for file in earlier.iter().cloned().chain(later) {
        files.retain(|known| *known != file);
        files.push(file);
    }
    files.split_off(files.len().saturating_sub(MAX_FILES))
}
