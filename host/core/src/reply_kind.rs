//! Decides whether a reply without a tool call is an answer or only looks like one (L23). It recognizes English texts
//! and, in doubt, treats a reply as an answer. The patterns are in `reply_kind/patterns.rs`.

mod patterns;
mod words;

use patterns::{ABOUT_WHAT_IS_LEFT, ANNOUNCED, ASKING, COMPLETE, HANDED_BACK, Kind, LEFT, REFUSAL_WORDS, REFUSED};
use std::borrow::Cow;
use words::{Sentence, sentences};

/// In a turn without tool calls, any refusal in a reply with fewer characters is a deflection.
const SHORT_REPLY: usize = 400;
/// Number of bytes at the beginning of a longer reply that are examined.
const BEGINNING: usize = 4_000;
const END: usize = 8_000;
/// Number of sentences at the beginning and at the end of a reply in which refusals and questions count.
const EDGE: usize = 2;

/// The kind of a reply without a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyKind {
    /// An answer. Replies in other languages and replies that are data are always answers.
    Answer,
    /// The reply says that everything is done.
    Completion,
    /// The reply says that something is left to do.
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

/// Classifies a reply to the input `asked`.
pub fn classify(reply: &str, asked: &str, tools: ToolUse) -> ReplyKind {
    if reply.trim().is_empty() {
        return ReplyKind::Empty;
    }
    if is_data(reply) {
        return ReplyKind::Answer;
    }
    let sentences = sentences(&edges(reply));
    let any = |kind: &Kind| sentences.iter().any(|sentence| sentence.is_of(kind));
    if any(&COMPLETE) {
        return ReplyKind::Completion;
    }
    if any(&ANNOUNCED) || (any(&LEFT) && !asks_what_is_left(asked)) {
        return ReplyKind::Incomplete;
    }
    let short = reply.chars().count() < SHORT_REPLY;
    let first = sentences.iter().take(EDGE).any(|sentence| sentence.is_of(&REFUSED));
    let last = sentences.iter().rev().take(EDGE).any(|sentence| sentence.is_of(&HANDED_BACK));
    if first || last || (short && tools == ToolUse::None && any(&REFUSAL_WORDS)) {
        return ReplyKind::Deflection;
    }
    ReplyKind::Answer
}

/// The beginning and the end of a text that is too long to examine as a whole.
fn edges(reply: &str) -> Cow<'_, str> {
    if reply.len() <= BEGINNING + END {
        return reply.into();
    }
    let beginning = &reply[..reply.floor_char_boundary(BEGINNING)];
    let end = &reply[reply.ceil_char_boundary(reply.len() - END)..];
    format!("{beginning}\n{end}").into()
}

/// Whether a reply is a JSON object or array, which is data whatever words it contains.
fn is_data(reply: &str) -> bool {
    let reply = reply.trim();
    reply.starts_with(['{', '[']) && serde_json::from_str::<serde::de::IgnoredAny>(reply).is_ok()
}

/// Whether the input itself asks what is left to do, so that an answer naturally says so.
fn asks_what_is_left(asked: &str) -> bool {
    let is_about = |sentence: &Sentence| {
        let asks = sentence.is_question || sentence.words.first().is_some_and(|word| ASKING.contains(&word.as_str()));
        asks && sentence.has_any(ABOUT_WHAT_IS_LEFT)
    };
    sentences(&edges(asked)).iter().any(is_about)
}

#[cfg(test)]
mod tests;
