//! The text and the thinking of a reply while it arrives, and the limits of recorded data.

use super::{REPLY_LIMIT, StreamError};
use agent_core::model::Delta;
use serde_json::{Map, Value, json};

/// Maximum size in bytes of each of two texts in the step record: the thinking and the refusal.
pub(super) const MAX_RECORDED_TEXT: usize = 64 * 1024;

/// Maximum token count in the usage of a reply. Larger counts are reduced to this maximum, because they cannot be
/// correct and the sums of counts must fit into the integers of the database.
pub(super) const MAX_TOKENS: u64 = 1 << 32;

/// Maximum size of `usage` in the step record, in bytes.
pub(super) const MAX_RECORDED_USAGE: usize = 16 * 1024;

/// Maximum length of the provider's id, model name and finish reason in the step record, in characters.
pub(super) const MAX_RECORDED_NAME: usize = 200;

/// Sends the text and thinking of a reply as deltas, and limits the size of the reply.
#[derive(Debug, Default)]
pub(super) struct ReplyText {
    /// First [`MAX_RECORDED_TEXT`] bytes of the thinking.
    thinking: String,
    /// Size of the complete thinking in bytes.
    thinking_bytes: usize,
    /// Whether [`Delta::ThinkingStart`] was sent and the matching [`Delta::ThinkingEnd`] was not sent yet.
    is_thinking: bool,
    /// Total size in bytes of all parts of the reply that have arrived so far.
    bytes: usize,
}

impl ReplyText {
    /// Sends a piece of the text.
    pub(super) fn text(&mut self, piece: &str, deltas: &mut Vec<Delta>) -> Result<(), StreamError> {
        if piece.is_empty() {
            return Ok(());
        }
        self.end_thinking(deltas);
        deltas.push(Delta::Text(piece.to_owned()));
        self.add_bytes(piece.len())
    }

    /// Sends a piece of the thinking.
    pub(super) fn thinking(&mut self, piece: &str, deltas: &mut Vec<Delta>) -> Result<(), StreamError> {
        if piece.is_empty() {
            return Ok(());
        }
        if !std::mem::replace(&mut self.is_thinking, true) {
            deltas.push(Delta::ThinkingStart);
        }
        deltas.push(Delta::Thinking(piece.to_owned()));
        self.thinking_bytes += piece.len();
        let remaining = MAX_RECORDED_TEXT - self.thinking.len();
        self.thinking.push_str(&piece[..piece.floor_char_boundary(remaining)]);
        self.add_bytes(piece.len())
    }

    /// Ends the thinking, because another part of the reply begins or the reply ends.
    pub(super) fn end_thinking(&mut self, deltas: &mut Vec<Delta>) {
        if std::mem::take(&mut self.is_thinking) {
            deltas.push(Delta::ThinkingEnd);
        }
    }

    /// Counts bytes of the reply.
    ///
    /// # Errors
    ///
    /// Returns an error if the reply has more than [`REPLY_LIMIT`] bytes.
    pub(super) fn add_bytes(&mut self, bytes: usize) -> Result<(), StreamError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > REPLY_LIMIT {
            return Err(StreamError::TooLarge { what: "the reply", limit: REPLY_LIMIT });
        }
        Ok(())
    }

    /// Returns whether the last piece was thinking.
    pub(super) fn is_thinking(&self) -> bool {
        self.is_thinking
    }

    /// Adds the thinking to the provider's data for the step record (D1).
    pub(super) fn record(&self, raw: &mut Map<String, Value>) {
        if self.thinking_bytes > 0 {
            raw.insert("reasoning".into(), json!(self.thinking));
        }
        if self.thinking_bytes > self.thinking.len() {
            raw.insert("reasoning_bytes".into(), json!(self.thinking_bytes));
        }
    }
}

/// Adds a name to the provider's data for the step record, unless the name is empty. A long name is truncated.
pub(super) fn record_name(raw: &mut Map<String, Value>, key: &str, name: &str) {
    if !name.is_empty() {
        raw.insert(key.to_owned(), name.chars().take(MAX_RECORDED_NAME).collect::<String>().into());
    }
}

/// Adds a value to the provider's data for the step record, unless it is null or large.
pub(super) fn record_value(raw: &mut Map<String, Value>, key: &str, value: Option<&Value>) {
    if let Some(value) = value.filter(|value| !value.is_null() && value.to_string().len() <= MAX_RECORDED_USAGE) {
        raw.insert(key.to_owned(), value.clone());
    }
}
