//! Decodes the replies of all wire formats (M1). The bytes of a stream, which may arrive in arbitrary chunks, are
//! decoded into deltas and one complete reply.
//!
//! [`Reply::replay`](agent_core::model::Reply::replay) contains what the provider needs back when the reply is sent
//! again. Chat Completions has its own form of this data, which the module `chat_completions` describes. All
//! other wire formats store this data as [`ReplayItems`].

mod anthropic;
mod chat_completions;
mod error_shapes;
mod gemini;
mod json;
mod lenient_fields;
mod replay_items;
mod reply_text;
mod responses;
mod stored_thinking;
#[cfg(test)]
mod test_support;

use crate::protocol::Protocol;
use crate::provider::RawReply;
use crate::sse::{Decoder, TooLarge};
use agent_core::model::{Delta, Reply};
use agent_core::visible::visible_line;
use serde_json::Value;
use std::fmt;

pub use replay_items::ReplayItems;
pub use stored_thinking::stored_thinking;

/// Maximum size of a reply in bytes. For a stream, this is the total size of the text, thinking, refusal and calls. For
/// a reply that is a single JSON document, this is the size of the document.
pub const REPLY_LIMIT: usize = 16 * 1024 * 1024;

/// Maximum number of characters of a reply that are quoted in an error.
const MAX_EXCERPT_CHARACTERS: usize = 200;

/// Decodes one streamed reply.
///
/// Every byte is read once, and at most one event is buffered in addition to the reply.
///
/// # Examples
///
/// ```
/// use agent_core::model::Delta;
/// use agent_models::{Protocol, decode::ReplyStream};
///
/// let mut stream = ReplyStream::new(Protocol::ChatCompletions, "openai", "openai/gpt-4o");
/// let mut deltas = Vec::new();
/// // Chunks may end anywhere, even inside a word.
/// stream.push(br#"data: {"choices":[{"delta":{"content":"Hel"#, &mut deltas)?;
/// stream.push(b"lo\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", &mut deltas)?;
/// let decoded = stream.finish(&mut deltas)?;
/// assert_eq!(decoded.reply.text, "Hello");
/// assert_eq!(deltas, [Delta::Text("Hello".to_owned())]);
/// # Ok::<(), agent_models::decode::StreamError>(())
/// ```
#[derive(Debug)]
pub struct ReplyStream {
    body: Body,
    decoder: Decoder,
    assembler: Box<dyn Assembler>,
    /// Whether `[DONE]` has arrived. Data after this marker is ignored.
    has_end_marker: bool,
    /// First bytes of the body after leading white space, which error messages quote.
    first_bytes: Vec<u8>,
    /// Number of events that have arrived.
    events: u64,
}

/// Assembles a reply of one wire format from its events or from one document.
trait Assembler: fmt::Debug + Send {
    /// Processes the JSON data of one event.
    fn add_event(&mut self, data: &str, deltas: &mut Vec<Delta>) -> Result<(), StreamError>;

    /// Processes a reply that is one JSON document. A JSON document needs no end marker.
    fn add_document(&mut self, text: &str, deltas: &mut Vec<Delta>) -> Result<(), StreamError>;

    /// Returns whether an event with this name must contain valid data. Other events are ignored if their data is
    /// invalid, because servers may add events that are not JSON.
    fn requires_data(&self, event: &str) -> bool;

    /// Processes the marker `[DONE]`. Only Chat Completions defines it.
    fn add_end_marker(&mut self) {}

    /// Returns whether the event that ends a reply has arrived although more data may follow. The default is `false`:
    /// the reply is complete when the body ends.
    fn is_complete(&self) -> bool {
        false
    }

    /// Returns whether the reply has ended, so that no later event belongs to it. The default is `false`, which suits a
    /// format without a last event.
    fn is_done(&self) -> bool {
        false
    }

    /// Returns the reply, or [`StreamError::Truncated`] if the event that ends a reply has not arrived.
    fn finish(self: Box<Self>, deltas: &mut Vec<Delta>) -> Result<DecodedReply, StreamError>;
}

/// Creates the assembler for replies in the given format.
fn assembler(protocol: Protocol, provider: &str, model: &str) -> Box<dyn Assembler> {
    match protocol {
        Protocol::ChatCompletions => Box::new(chat_completions::ReplyAssembler::new(provider, model)),
        Protocol::Responses => Box::new(responses::ReplyAssembler::new(provider, model)),
        Protocol::Anthropic => Box::new(anthropic::ReplyAssembler::new(provider, model)),
        Protocol::Gemini => Box::new(gemini::ReplyAssembler::new(provider, model)),
    }
}

/// Kind of the body, which is determined by the first character that is not white space. A body need not be a stream of
/// events, because some servers do not stream and some errors arrive as a JSON document.
#[derive(Debug)]
enum Body {
    /// Only white space has arrived, so the kind of the body is not known yet.
    Unknown,
    Events,
    Document(Vec<u8>),
}

/// A complete reply of a provider in decoded form.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodedReply {
    /// The reply in the host's format. The text of this reply contains only the answer, without thinking and refusals.
    pub reply: Reply,
    /// Text of the refusal if the model refused to answer. The refusal is streamed as text deltas, but `reply.text`
    /// does not contain it. If `reply.text` is empty, the conversion to a [`RawReply`] uses the refusal as the text.
    pub refusal: Option<String>,
    /// Data of the provider that the step record contains in addition to the reply (D1): `id`, `model`,
    /// `finish_reason`, `usage`, `refusal` and `reasoning`. Long values are truncated or left out.
    pub raw: Value,
}

/// Reason why a stream did not produce a complete reply. The caller must discard the deltas that were decoded before
/// the error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The provider reported an error inside the reply instead of completing it.
    #[error("{message}")]
    Provider {
        /// HTTP status, if the provider sent one inside the reply.
        status: Option<u16>,
        /// Error code of the provider, such as `rate_limit_exceeded`.
        code: Option<String>,
        /// Error message of the provider.
        message: String,
    },
    /// The stream ended before the event with which its format ends a reply.
    #[error("the stream ended before the model had finished")]
    Truncated,
    /// The reply or one of its parts is too large.
    #[error("{what} has more than {limit} bytes")]
    TooLarge {
        /// Name of the part that is too large. The error message contains this name.
        what: &'static str,
        /// Maximum size in bytes.
        limit: usize,
    },
    /// The reply has too many items of one kind.
    #[error("the reply has more than {limit} {what}")]
    TooMany {
        /// Name of the items in the plural, as a part of the error message.
        what: &'static str,
        /// Maximum number of items of this kind.
        limit: usize,
    },
    /// The body is not a reply in the expected format.
    #[error("{problem}: `{excerpt}`")]
    Invalid {
        /// Description of what is wrong with the body.
        problem: String,
        /// Beginning of the body, on one line.
        excerpt: String,
    },
}

impl ReplyStream {
    /// Creates a decoder for a reply of the configured `provider`. `model` has the form `provider/name` and becomes
    /// [`Reply::model`].
    pub fn new(protocol: Protocol, provider: &str, model: &str) -> Self {
        Self {
            body: Body::Unknown,
            decoder: Decoder::default(),
            assembler: assembler(protocol, provider, model),
            has_end_marker: false,
            first_bytes: Vec::new(),
            events: 0,
        }
    }

    /// Decodes the next bytes, which may end anywhere, even inside a character. Appends the decoded parts of the reply
    /// to `deltas`, including [`Delta::ThinkingStart`] before thinking and [`Delta::ThinkingEnd`] after it (L21).
    ///
    /// # Errors
    ///
    /// Returns an error if the reply contains an error of the provider, or if the body is invalid or too large.
    pub fn push(&mut self, bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<(), StreamError> {
        if let Body::Unknown = self.body {
            let Some(start) = bytes.iter().position(|byte| !is_blank(*byte)) else {
                return self.decode_events(bytes, deltas);
            };
            self.body = match bytes[start] {
                b'{' | b'[' => Body::Document(Vec::new()),
                _ => Body::Events,
            };
        }
        if self.first_bytes.len() < MAX_EXCERPT_CHARACTERS {
            let start =
                if self.first_bytes.is_empty() { bytes.iter().position(|byte| !is_blank(*byte)) } else { Some(0) };
            self.first_bytes.extend(
                bytes[start.unwrap_or(bytes.len())..].iter().take(MAX_EXCERPT_CHARACTERS - self.first_bytes.len()),
            );
        }
        match &mut self.body {
            Body::Document(document) if document.len() + bytes.len() > REPLY_LIMIT => {
                Err(StreamError::TooLarge { what: "the reply", limit: REPLY_LIMIT })
            }
            Body::Document(document) => {
                document.extend_from_slice(bytes);
                Ok(())
            }
            Body::Events | Body::Unknown => self.decode_events(bytes, deltas),
        }
    }

    /// Returns the number of events that have arrived. Providers send about one event for each token of a reply.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Returns whether the reply has ended. After the end of the reply, the caller does not need to read further bytes.
    pub fn is_done(&self) -> bool {
        self.has_end_marker || self.assembler.is_done()
    }

    /// Returns whether the event that ends a reply has arrived although more data may follow. If the connection breaks
    /// after this point, nothing is lost.
    pub fn is_complete(&self) -> bool {
        self.is_done() || self.assembler.is_complete()
    }

    /// Processes the end of the body and returns the complete reply.
    ///
    /// # Errors
    ///
    /// Returns an error if the reply is incomplete or invalid.
    pub fn finish(mut self, deltas: &mut Vec<Delta>) -> Result<DecodedReply, StreamError> {
        if let Body::Document(document) = &self.body {
            self.assembler.add_document(&document_text(document), deltas)?;
        } else if let Some(event) = self.decoder.end() {
            let (assembler, has_end_marker) = (&mut *self.assembler, &mut self.has_end_marker);
            match add_event(assembler, has_end_marker, &event.name, &event.data, deltas) {
                // If the last event is cut off, ignore this event, so that the earlier events determine whether the
                // reply is complete.
                Err(StreamError::Invalid { .. }) => {}
                result => result?,
            }
        }
        match self.assembler.finish(deltas) {
            Err(StreamError::Truncated) if !begins_like_events(&self.first_bytes) => {
                let problem = "it is neither an event stream nor JSON".to_owned();
                Err(StreamError::invalid(problem, &String::from_utf8_lossy(&self.first_bytes)))
            }
            result => result,
        }
    }

    fn decode_events(&mut self, mut bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<(), StreamError> {
        while let Some(event) = self.decoder.next(&mut bytes)? {
            self.events += 1;
            let (assembler, has_end_marker) = (&mut *self.assembler, &mut self.has_end_marker);
            add_event(assembler, has_end_marker, &event.name, &event.data, deltas)?;
        }
        Ok(())
    }
}

/// Passes one event to the assembler.
fn add_event(
    assembler: &mut dyn Assembler,
    has_end_marker: &mut bool,
    name: &str,
    data: &str,
    deltas: &mut Vec<Delta>,
) -> Result<(), StreamError> {
    let data = data.trim_ascii();
    if *has_end_marker || assembler.is_done() || data.is_empty() {
        return Ok(());
    }
    if data == "[DONE]" {
        *has_end_marker = true;
        assembler.add_end_marker();
        return Ok(());
    }
    if name == "error" {
        return Err(error_shapes::from_text(data));
    }
    match assembler.add_event(data, deltas) {
        // Read each line of the data as a separate event, because some servers omit the blank line between two events.
        Err(StreamError::Invalid { .. } | StreamError::Truncated) if data.contains('\n') => {
            data.lines().try_for_each(|line| add_event(assembler, has_end_marker, name, line, deltas))
        }
        Err(StreamError::Invalid { .. }) if !assembler.requires_data(name) => Ok(()),
        Err(StreamError::Truncated) => Err(StreamError::invalid("one event is incomplete JSON".to_owned(), data)),
        result => result,
    }
}

/// Decodes a reply that is one JSON document, which servers that do not stream send. The document may begin with
/// white space.
///
/// # Errors
///
/// Returns an error if the document is not a complete reply.
pub fn decode_document(
    protocol: Protocol,
    provider: &str,
    model: &str,
    body: &[u8],
) -> Result<DecodedReply, StreamError> {
    let (mut assembler, mut deltas) = (assembler(protocol, provider, model), Vec::new());
    assembler.add_document(&document_text(body), &mut deltas)?;
    assembler.finish(&mut deltas)
}

impl From<DecodedReply> for RawReply {
    /// Uses the refusal as the text of the reply if the reply has no other text. The stop reason does not change. If
    /// the agent requires output in a certain form, validators will report that the refusal does not have this form.
    fn from(decoded: DecodedReply) -> Self {
        let DecodedReply { mut reply, refusal, raw } = decoded;
        if reply.text.is_empty() {
            reply.text = refusal.unwrap_or_default();
        }
        Self { reply, raw }
    }
}

impl From<TooLarge> for StreamError {
    fn from(_: TooLarge) -> Self {
        Self::TooLarge { what: "one event of the reply", limit: crate::sse::EVENT_LIMIT }
    }
}

impl StreamError {
    fn invalid(problem: String, text: &str) -> Self {
        Self::Invalid { problem, excerpt: excerpt(text) }
    }
}

/// Returns the beginning of `text` on one line, with control characters replaced by spaces.
fn excerpt(text: &str) -> String {
    let line: String = text
        .trim()
        .chars()
        .take(MAX_EXCERPT_CHARACTERS)
        .map(|character| if character.is_control() { ' ' } else { character })
        .collect();
    visible_line(&line).into_owned()
}

fn document_text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    let start = bytes.iter().position(|byte| !is_blank(*byte)).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[start..])
}

/// Returns whether the byte is white space or part of a byte-order mark.
fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || matches!(byte, 0xEF | 0xBB | 0xBF)
}

/// Returns whether these bytes can be the beginning of an event stream. Returns true if there are no bytes.
fn begins_like_events(first_bytes: &[u8]) -> bool {
    let fields: [&[u8]; 6] = [b"data", b"event", b"id", b"retry", b"error", b":"];
    fields.iter().any(|field| first_bytes.starts_with(field) || field.starts_with(first_bytes))
}
