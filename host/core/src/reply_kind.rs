//! Classifies replies without a tool call (L23): a reply may be an answer, or it may be incomplete or refuse the task.
//! The patterns in `reply_kind/patterns.rs` only recognize English text. A reply that matches no pattern is an answer.

mod patterns;
mod words;

use patterns::{
    ANNOUNCED, COMPLETE, HANDED_BACK, QUESTION_STARTS, REFUSAL_WORDS, REFUSED, SentenceKind, WORDS_FOR_REMAINING_WORK,
    WORK_LEFT,
};
use std::borrow::Cow;
use words::{Sentence, sentences};

/// A reply with fewer characters than this number is short. In a turn without tool calls, a refusal anywhere in a short
/// reply is a deflection.
const SHORT_REPLY: usize = 400;
/// Number of bytes that are examined at the beginning of a long reply.
const BEGINNING_BYTES: usize = 4_000;
/// Number of bytes that are examined at the end of a long reply.
const END_BYTES: usize = 8_000;
/// Number of sentences that are checked for a refusal at the beginning of a reply, and for a question to the user at
/// its end.
const EDGE_SENTENCES: usize = 2;

/// The kind of a reply without a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyKind {
    /// The reply is an answer. Replies in languages other than English and replies that are data are always answers.
    Answer,
    /// The reply states that everything is done.
    Completion,
    /// The reply states that work is left to do.
    Incomplete,
    /// The reply refuses or asks a question instead of acting.
    Deflection,
    /// The reply is empty.
    Empty,
}

/// Whether the turn has called a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolUse {
    /// The turn has not called a tool.
    None,
    /// The turn has called at least one tool.
    Some,
}

/// Classifies a reply. `input` is the input of the turn.
pub fn classify(reply: &str, input: &str, tools: ToolUse) -> ReplyKind {
    if reply.trim().is_empty() {
        return ReplyKind::Empty;
    }
    if is_data(reply) {
        return ReplyKind::Answer;
    }
    let sentences = sentences(&examined_text(reply));
    let any = |kind: &SentenceKind| sentences.iter().any(|sentence| sentence.is_of(kind));
    if any(&COMPLETE) {
        return ReplyKind::Completion;
    }
    if any(&ANNOUNCED) || (any(&WORK_LEFT) && !asks_what_is_left(input)) {
        return ReplyKind::Incomplete;
    }
    let is_short = reply.chars().count() < SHORT_REPLY;
    let begins_with_refusal = sentences.iter().take(EDGE_SENTENCES).any(|sentence| sentence.is_of(&REFUSED));
    let ends_with_question = sentences.iter().rev().take(EDGE_SENTENCES).any(|sentence| sentence.is_of(&HANDED_BACK));
    let has_refusal = is_short && tools == ToolUse::None && any(&REFUSAL_WORDS);
    if begins_with_refusal || ends_with_question || has_refusal {
        return ReplyKind::Deflection;
    }
    ReplyKind::Answer
}

/// Returns the part of a text that is examined: the whole text or, if the text is long, its beginning and its end.
fn examined_text(text: &str) -> Cow<'_, str> {
    if text.len() <= BEGINNING_BYTES + END_BYTES {
        return text.into();
    }
    let beginning = &text[..text.floor_char_boundary(BEGINNING_BYTES)];
    let end = &text[text.ceil_char_boundary(text.len() - END_BYTES)..];
    format!("{beginning}\n{end}").into()
}

/// Whether a reply is a JSON object or array. A reply that is data is not classified by its words.
fn is_data(reply: &str) -> bool {
    let reply = reply.trim();
    reply.starts_with(['{', '[']) && serde_json::from_str::<serde::de::IgnoredAny>(reply).is_ok()
}

/// Whether the input asks what is left to do. An answer to such a question may state that work is left.
fn asks_what_is_left(input: &str) -> bool {
    let asks_about_work = |sentence: &Sentence| {
        let first_word = sentence.words.first();
        let is_question =
            sentence.is_question || first_word.is_some_and(|word| QUESTION_STARTS.contains(&word.as_str()));
        is_question && sentence.has_any(WORDS_FOR_REMAINING_WORK)
    };
    sentences(&examined_text(input)).iter().any(asks_about_work)
}

#[cfg(test)]
mod tests;
