//! Whether a reply without a tool call is an answer, or only looks like one (L23): pure, on English text, and rather
//! blind than too suspicious. The patterns are data, in `effort/patterns.rs`.

mod patterns;
mod words;

use patterns::{ABOUT_WHAT_IS_LEFT, ANNOUNCED, ASKING, COMPLETE, HANDED_BACK, Kind, LEFT, REFUSAL_WORDS, REFUSED};
use std::borrow::Cow;
use words::{Sentence, sentences};

/// Characters under which a refusal of any kind is a deflection, where the turn has called no tool.
const SHORT_REPLY: usize = 400;
/// Bytes of a longer reply that are looked at.
const BEGINNING: usize = 4_000;
const END: usize = 8_000;
/// Sentences at the beginning and at the end of a reply in which it refuses or asks.
const EDGE: usize = 2;

/// What a reply without a tool call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyKind {
    /// An answer, as far as can be told; also whatever is in another language, and data.
    Answer,
    /// It says that all is done.
    Completion,
    /// It says itself that something is left to do.
    Incomplete,
    /// It refuses or asks instead of doing.
    Deflection,
    /// It says nothing.
    Empty,
}

/// Whether the turn has called a tool before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolUse {
    /// None yet.
    None,
    /// At least one.
    Some,
}

/// What a reply to this question is.
pub fn kind_of(reply: &str, asked: &str, tools: ToolUse) -> ReplyKind {
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

/// The beginning and the end of what is too long to be looked at whole.
fn edges(reply: &str) -> Cow<'_, str> {
    if reply.len() <= BEGINNING + END {
        return reply.into();
    }
    let beginning = &reply[..reply.floor_char_boundary(BEGINNING)];
    let end = &reply[reply.ceil_char_boundary(reply.len() - END)..];
    format!("{beginning}\n{end}").into()
}

/// An object or a list is data for a program, whatever words are in it.
fn is_data(reply: &str) -> bool {
    let reply = reply.trim();
    reply.starts_with(['{', '[']) && serde_json::from_str::<serde::de::IgnoredAny>(reply).is_ok()
}

/// Whoever asks what is left gets an answer that says so.
fn asks_what_is_left(asked: &str) -> bool {
    let is_about = |sentence: &Sentence| {
        let asks = sentence.is_question || sentence.words.first().is_some_and(|word| ASKING.contains(&word.as_str()));
        asks && sentence.has_any(ABOUT_WHAT_IS_LEFT)
    };
    sentences(&edges(asked)).iter().any(is_about)
}

#[cfg(test)]
mod tests;
