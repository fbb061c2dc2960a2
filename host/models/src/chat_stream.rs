//! Replies of Chat Completions and its dialects: from the bytes of a stream, cut anywhere, to deltas and one reply (M1).
//!
//! What the provider wants back with a reply that called tools is in [`Reply::replay`], as
//! `{"message": {…}, "tool_calls": [{"id"?, "extra_content"?}, …]}`. The fields of `message` (`reasoning_content`,
//! `reasoning_details`, `extra_content`) belong as they are into the assistant's message when it is sent again.
//! `tool_calls` has one item for each call, in order: its `extra_content`, such as Gemini's `thought_signature`, belongs as
//! it is into the call; its `id` is the provider's, to which items of `reasoning_details` may refer by their own `id`.

mod assembly;
mod calls;
mod chunk;
mod failure;
mod given_back;
mod lenient;

use crate::provider::RawReply;
use crate::sse::{Decoder, TooLarge};
use agent_core::model::{Delta, Reply};
use agent_core::visible::visible_line;
use assembly::Assembly;
use serde_json::Value;

/// Most bytes of what a reply says: text, thinking and calls; and of a reply that is one document.
pub const REPLY_LIMIT: usize = 16 * 1024 * 1024;

/// Most characters of what an error quotes.
const EXCERPT: usize = 200;

/// A reply that is being read. Every byte is looked at once, and at most one event is held besides the reply.
#[derive(Debug)]
pub struct ChatStream {
    body: Body,
    framing: Decoder,
    assembly: Assembly,
    /// The first bytes that mean anything: for an error, where nothing else does.
    opening: Vec<u8>,
}

/// What the body is, as its first character shows. Some servers don't stream, and some errors come as plain JSON.
#[derive(Debug)]
enum Body {
    /// Nothing but white space has come.
    Unknown,
    Events,
    Document(Vec<u8>),
}

/// A whole reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// In no provider's dialect. Its text is what the model answered: not what it thought, nor what it said in refusing.
    pub reply: Reply,
    /// What the model said in refusing, if it did: as text among the deltas, apart from the text in the reply, as in the
    /// provider's own library. As a [`RawReply`] it is the text.
    pub refusal: Option<String>,
    /// What else the provider said, for the step record (D1): `id`, `model`, `finish_reason`, `usage` as they were sent,
    /// `refusal`, and the first 64 KiB of `reasoning`.
    pub raw: Value,
}

/// Why there is no whole reply. Its deltas are void.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The provider said in the reply that it failed.
    #[error("{message}")]
    Provider {
        /// An HTTP status, where it gave one.
        status: Option<u16>,
        /// Its short name of the error, such as `rate_limit_exceeded`.
        code: Option<String>,
        /// Its own words.
        message: String,
    },
    /// It ended without an end mark: a `finish_reason`, or `[DONE]` after something was said.
    #[error("it ended before the model had finished")]
    Cut,
    /// A part of it, or all, is larger than anything that makes sense.
    #[error("{what} has more than {limit} bytes")]
    TooLarge {
        /// Which part.
        what: &'static str,
        /// Most bytes.
        limit: usize,
    },
    /// It has more of something than makes sense.
    #[error("it has more than {limit} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// Most of them.
        limit: usize,
    },
    /// It is something else than a Chat Completions reply.
    #[error("{problem}: `{excerpt}`")]
    Invalid {
        /// What is wrong.
        problem: String,
        /// The beginning of what was sent, on one line.
        excerpt: String,
    },
}

impl ChatStream {
    /// For a reply of the configured `provider`; `model` is `provider/name`, recorded as the one that answered.
    pub fn new(provider: &str, model: &str) -> Self {
        let assembly = Assembly::new(provider, model);
        Self { body: Body::Unknown, framing: Decoder::default(), assembly, opening: Vec::new() }
    }

    /// Takes bytes as they come, cut anywhere. Pieces of the reply are appended to `deltas`, thinking between its marks
    /// (L21).
    pub fn push(&mut self, bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<(), StreamError> {
        if let Body::Unknown = self.body {
            let Some(start) = bytes.iter().position(|byte| !is_blank(*byte)) else {
                return self.events(bytes, deltas);
            };
            self.body = match bytes[start] {
                b'{' | b'[' => Body::Document(Vec::new()),
                _ => Body::Events,
            };
        }
        if self.opening.len() < EXCERPT {
            let start = if self.opening.is_empty() { bytes.iter().position(|byte| !is_blank(*byte)) } else { Some(0) };
            self.opening.extend(bytes[start.unwrap_or(bytes.len())..].iter().take(EXCERPT - self.opening.len()));
        }
        match &mut self.body {
            Body::Document(document) if document.len() + bytes.len() > REPLY_LIMIT => {
                Err(StreamError::TooLarge { what: "it", limit: REPLY_LIMIT })
            }
            Body::Document(document) => {
                document.extend_from_slice(bytes);
                Ok(())
            }
            Body::Events | Body::Unknown => self.events(bytes, deltas),
        }
    }

    /// `[DONE]` has come: nothing more needs to be read.
    pub fn is_done(&self) -> bool {
        self.assembly.is_done()
    }

    /// The body has ended.
    pub fn finish(mut self, deltas: &mut Vec<Delta>) -> Result<Decoded, StreamError> {
        if let Body::Document(document) = &self.body {
            self.assembly.document(&document_text(document), deltas)?;
        } else if let Some(event) = self.framing.end() {
            match self.assembly.event(&event.name, &event.data, deltas) {
                // A part of an event: whether the reply is whole is for what came before to say.
                Err(StreamError::Invalid { .. }) => {}
                taken => taken?,
            }
        }
        match self.assembly.finish(deltas) {
            Err(StreamError::Cut) if !begins_like_events(&self.opening) => {
                let problem = "it is neither an event stream nor JSON".to_owned();
                Err(StreamError::invalid(problem, &String::from_utf8_lossy(&self.opening)))
            }
            finished => finished,
        }
    }

    fn events(&mut self, mut bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<(), StreamError> {
        while let Some(event) = self.framing.next(&mut bytes)? {
            self.assembly.event(&event.name, &event.data, deltas)?;
        }
        Ok(())
    }
}

/// Reads a reply that came as one JSON document, as servers send it that don't stream. White space may stand before it.
pub fn whole(provider: &str, model: &str, body: &[u8]) -> Result<Decoded, StreamError> {
    let (mut assembly, mut deltas) = (Assembly::new(provider, model), Vec::new());
    assembly.document(&document_text(body), &mut deltas)?;
    assembly.finish(&mut deltas)
}

impl From<Decoded> for RawReply {
    /// A refusal is what the model has to say: it becomes the text where there is no other. It ends as the model ended it,
    /// so that where an output schema asks for more, the validators say so.
    fn from(decoded: Decoded) -> Self {
        let Decoded { mut reply, refusal, raw } = decoded;
        if reply.text.is_empty() {
            reply.text = refusal.unwrap_or_default();
        }
        Self { reply, raw }
    }
}

impl From<TooLarge> for StreamError {
    fn from(_: TooLarge) -> Self {
        Self::TooLarge { what: "one event of it", limit: crate::sse::EVENT_LIMIT }
    }
}

impl StreamError {
    fn invalid(problem: String, text: &str) -> Self {
        Self::Invalid { problem, excerpt: excerpt(text) }
    }
}

/// The beginning of the text, on one line.
fn excerpt(text: &str) -> String {
    let line: String = text
        .trim()
        .chars()
        .take(EXCERPT)
        .map(|character| if character.is_control() { ' ' } else { character })
        .collect();
    visible_line(&line).into_owned()
}

fn document_text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    let start = bytes.iter().position(|byte| !is_blank(*byte)).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[start..])
}

/// White space, or of a byte-order mark.
fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || matches!(byte, 0xEF | 0xBB | 0xBF)
}

/// Whether this can be the beginning of an event stream, or of nothing.
fn begins_like_events(opening: &[u8]) -> bool {
    let fields: [&[u8]; 6] = [b"data", b"event", b"id", b"retry", b"error", b":"];
    fields.iter().any(|field| opening.starts_with(field) || field.starts_with(opening))
}

#[cfg(test)]
mod tests;
