//! Puts a reply together from its chunks.

use super::calls::Calls;
use super::chunk::{Choice, Chunk, Groq, Said, WireUsage, with_chunk};
use super::given_back::GivenBack;
use super::lenient::Content;
use super::{Decoded, REPLY_LIMIT, StreamError, failure};
use agent_core::model::{Delta, Reply, StopReason, Usage};
use agent_core::thinking::ThinkingSplitter;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Most bytes of thinking, and of a refusal, that the step record keeps.
const KEPT_WORDS: usize = 64 * 1024;

/// Most tokens that are taken for what a reply has cost.
const MOST_TOKENS: u64 = 1 << 32;

/// Most bytes of `usage` that the step record keeps.
const KEPT_USAGE: usize = 16 * 1024;

/// Most characters of a name that the step record keeps.
const KEPT_NAME: usize = 200;

/// One reply while it comes.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    /// The configured provider's name.
    provider: String,
    /// `provider/model`, to be recorded as the one that answered.
    answering: String,
    splitter: ThinkingSplitter,
    text: String,
    refusal: String,
    /// At most [`KEPT_WORDS`] of it.
    thinking: String,
    thinking_size: usize,
    calls: Calls,
    given_back: GivenBack,
    usage: Usage,
    /// As it was sent.
    raw_usage: String,
    id: String,
    model: String,
    finish_reason: String,
    stop: Option<StopReason>,
    is_done: bool,
    is_document: bool,
    /// Some `delta` came: what `message` says is known already.
    has_deltas: bool,
    /// Thinking came in a field of its own: `reasoning_details` repeat it.
    has_reasoning: bool,
    /// Bytes that were kept.
    size: usize,
}

/// A call goes on in the next piece, or comes whole.
#[derive(Clone, Copy)]
enum Form {
    Pieces,
    Whole,
}

impl Assembly {
    pub(super) fn new(provider: &str, answering: &str) -> Self {
        Self { provider: provider.to_owned(), answering: answering.to_owned(), ..Self::default() }
    }

    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Takes the data of one event.
    pub(super) fn event(&mut self, name: &str, data: &str, deltas: &mut Vec<Delta>) -> Result<(), StreamError> {
        let data = data.trim_ascii();
        if self.is_done || data.is_empty() {
            return Ok(());
        }
        if data == "[DONE]" {
            self.is_done = true;
            return Ok(());
        }
        if name == "error" {
            return Err(failure::of_text(data));
        }
        match with_chunk(data, |chunk| self.chunk(data, &chunk, deltas)) {
            // Some servers leave out the blank line between two events.
            Err(StreamError::Invalid { .. } | StreamError::Cut) if data.contains('\n') => {
                data.lines().try_for_each(|line| self.event(name, line, deltas))
            }
            Err(StreamError::Invalid { .. }) if !matches!(name, "" | "message") => Ok(()),
            Err(StreamError::Cut) => Err(StreamError::invalid("an event of it is no whole JSON".to_owned(), data)),
            taken => taken,
        }
    }

    /// Takes a reply that is one JSON document, which is its own end mark.
    pub(super) fn document(&mut self, text: &str, deltas: &mut Vec<Delta>) -> Result<(), StreamError> {
        self.is_document = true;
        with_chunk(text, |chunk| {
            self.chunk(text, &chunk, deltas)?;
            if chunk.choices.is_some_and(|choices| !choices.is_empty()) {
                return Ok(());
            }
            let unknown = || StreamError::invalid("it is JSON without `choices`".to_owned(), text);
            Err(failure::of_document(text).unwrap_or_else(unknown))
        })
    }

    /// The reply; an error where nothing said that it is whole.
    pub(super) fn finish(mut self, deltas: &mut Vec<Delta>) -> Result<Decoded, StreamError> {
        let new = deltas.len();
        std::mem::take(&mut self.splitter).finish(deltas);
        self.keep(&deltas[new..]);
        let is_empty = self.text.is_empty() && self.refusal.is_empty() && self.thinking_size == 0;
        let says_something = !is_empty || !self.calls.is_empty();
        if !(self.stop.is_some() || self.is_document || self.is_done && says_something) {
            return Err(StreamError::Cut);
        }
        let raw = self.raw();
        let (calls, extras): (Vec<_>, Vec<_>) = self.calls.finish().into_iter().unzip();
        let ids = calls.iter().map(|call| call.provider_id.as_deref()).zip(extras).collect();
        let replay = self.given_back.finish(&self.provider, ids);
        let stop = match (self.stop, calls.is_empty()) {
            (Some(StopReason::Length), _) => StopReason::Length,
            (Some(StopReason::ContentFilter), _) => StopReason::ContentFilter,
            (_, false) => StopReason::ToolCalls,
            (_, true) => StopReason::Stop,
        };
        let reply = Reply { text: self.text, calls, stop, usage: self.usage, model: self.answering, replay };
        let refusal = (!self.refusal.is_empty()).then_some(self.refusal);
        Ok(Decoded { reply, refusal, raw })
    }

    fn raw(&self) -> Value {
        let mut raw = Map::new();
        let texts = [("id", &self.id), ("model", &self.model), ("finish_reason", &self.finish_reason)];
        let texts = texts.into_iter().chain([("refusal", &self.refusal), ("reasoning", &self.thinking)]);
        let kept = |text: &str| json!(&text[..text.floor_char_boundary(KEPT_WORDS)]);
        raw.extend(texts.filter(|(_, text)| !text.is_empty()).map(|(key, text)| (key.to_owned(), kept(text))));
        if self.thinking_size > self.thinking.len() {
            raw.insert("reasoning_bytes".into(), json!(self.thinking_size));
        }
        if let Ok(usage) = serde_json::from_str(&self.raw_usage) {
            raw.insert("usage".into(), usage);
        }
        Value::Object(raw)
    }

    fn chunk(&mut self, data: &str, chunk: &Chunk<'_>, deltas: &mut Vec<Delta>) -> Result<(), StreamError> {
        failure::of_field(chunk.error)?;
        if &*chunk.object == "error" || &*chunk.r#type == "error" {
            return Err(failure::of_text(data));
        }
        if self.id.is_empty() {
            self.id.extend(chunk.id.chars().take(KEPT_NAME));
        }
        if self.model.is_empty() {
            self.model.extend(chunk.model.chars().take(KEPT_NAME));
        }
        self.count(chunk.usage);
        if let Some(groq) = chunk.x_groq {
            let groq: Groq<'_> = serde_json::from_str(groq.get()).unwrap_or_default();
            failure::of_field(groq.error)?;
            self.count(groq.usage);
        }
        // A second candidate, which nobody asked for, is another reply.
        let choices = chunk.choices.iter().flatten().filter(|choice| choice.index.0.is_none_or(|index| index == 0));
        for choice in choices {
            self.choice(choice, deltas)?;
        }
        if self.size > REPLY_LIMIT { Err(StreamError::TooLarge { what: "it", limit: REPLY_LIMIT }) } else { Ok(()) }
    }

    fn choice(&mut self, choice: &Choice<'_>, deltas: &mut Vec<Delta>) -> Result<(), StreamError> {
        failure::of_field(choice.error)?;
        self.count(choice.usage);
        match (&choice.delta, &choice.message) {
            (Some(said), _) => {
                self.has_deltas = true;
                self.said(said, Form::Pieces, deltas)?;
            }
            (None, Some(said)) if !self.has_deltas => self.said(said, Form::Whole, deltas)?,
            _ => {}
        }
        self.finished(&choice.finish_reason)
    }

    fn said(&mut self, said: &Said<'_>, form: Form, deltas: &mut Vec<Delta>) -> Result<(), StreamError> {
        self.reasoning(said, deltas);
        self.content(&said.content, deltas);
        self.refuse(&said.refusal, deltas);
        self.given_back.take(said);
        for piece in said.tool_calls.iter().flatten().flatten() {
            self.splitter.end_thinking(deltas);
            self.size += match form {
                Form::Pieces => self.calls.take_piece(piece)?,
                Form::Whole => self.calls.take_whole(piece)?,
            };
        }
        Ok(())
    }

    /// The same thinking may stand in several fields of one chunk: the first counts.
    fn reasoning(&mut self, said: &Said<'_>, deltas: &mut Vec<Delta>) {
        let mut piece = String::new();
        said.reasoning_content.plain_text(&mut piece);
        self.given_back.reasoning_content(&piece);
        if piece.is_empty() {
            said.reasoning.plain_text(&mut piece);
        }
        self.has_reasoning |= !piece.is_empty();
        if let (false, Some(details)) = (self.has_reasoning, said.reasoning_details) {
            let details: Content<'_> = serde_json::from_str(details.get()).unwrap_or_default();
            details.plain_text(&mut piece);
        }
        self.thinking(&piece, deltas);
    }

    fn content(&mut self, content: &Content<'_>, deltas: &mut Vec<Delta>) {
        match content {
            Content::Nothing => {}
            Content::Text(text) => self.text(text, deltas),
            Content::Several(parts) => parts.iter().for_each(|part| self.content(part, deltas)),
            Content::Thinking(thinking) => {
                let mut piece = String::new();
                thinking.plain_text(&mut piece);
                self.thinking(&piece, deltas);
            }
            Content::Refusal(refusal) => self.refuse(refusal, deltas),
        }
    }

    fn text(&mut self, piece: &str, deltas: &mut Vec<Delta>) {
        let new = deltas.len();
        self.splitter.text(piece, deltas);
        self.keep(&deltas[new..]);
    }

    fn thinking(&mut self, piece: &str, deltas: &mut Vec<Delta>) {
        let new = deltas.len();
        self.splitter.thinking(piece, deltas);
        self.keep(&deltas[new..]);
    }

    /// People see a refusal as they see text; in the reply it stands by itself.
    fn refuse(&mut self, refusal: &str, deltas: &mut Vec<Delta>) {
        if !refusal.is_empty() {
            self.splitter.end_thinking(deltas);
            self.refusal.push_str(refusal);
            self.size += refusal.len();
            deltas.push(Delta::Text(refusal.to_owned()));
        }
    }

    /// What cut the reply stays, whatever the server says afterwards.
    fn finished(&mut self, reason: &str) -> Result<(), StreamError> {
        let Some(stop) = stop_reason(reason)? else { return Ok(()) };
        if !matches!(self.stop, Some(StopReason::Length | StopReason::ContentFilter)) {
            self.stop = Some(stop);
            self.finish_reason = reason.chars().take(KEPT_NAME).collect();
        }
        Ok(())
    }

    /// The last count is the one of the whole reply.
    fn count(&mut self, usage: Option<&RawValue>) {
        let Some(raw) = usage else { return };
        let usage: WireUsage = serde_json::from_str(raw.get()).unwrap_or_default();
        let prompt = usage.prompt_tokens.0.or(usage.input_tokens.0);
        let completion = usage.completion_tokens.0.or(usage.output_tokens.0);
        if prompt.is_none() && completion.is_none() {
            return;
        }
        // Nobody has counted so many: sums of them must stay numbers that can be stored.
        let [prompt_tokens, completion_tokens] =
            [prompt, completion].map(|count| count.unwrap_or_default().min(MOST_TOKENS));
        self.usage = Usage { prompt_tokens, completion_tokens };
        self.raw_usage.clear();
        if raw.get().len() <= KEPT_USAGE {
            self.raw_usage.push_str(raw.get());
        }
    }

    fn keep(&mut self, deltas: &[Delta]) {
        for delta in deltas {
            match delta {
                Delta::Text(text) => {
                    self.size += text.len();
                    self.text.push_str(text);
                }
                Delta::Thinking(thinking) => {
                    self.size += thinking.len();
                    self.thinking_size += thinking.len();
                    let room = KEPT_WORDS - self.thinking.len();
                    self.thinking.push_str(&thinking[..thinking.floor_char_boundary(room)]);
                }
                Delta::ThinkingStart | Delta::ThinkingEnd | Delta::Clear => {}
            }
        }
    }
}

impl Content<'_> {
    /// Its texts, whatever their kind.
    fn plain_text(&self, text: &mut String) {
        match self {
            Content::Nothing => {}
            Content::Text(piece) | Content::Refusal(piece) => text.push_str(piece),
            Content::Several(parts) => parts.iter().for_each(|part| part.plain_text(text)),
            Content::Thinking(thinking) => thinking.plain_text(text),
        }
    }
}

/// What servers call the reasons for which a reply ends; none for none yet. A word that nobody knows is an end like
/// others, since servers make up new ones.
fn stop_reason(reason: &str) -> Result<Option<StopReason>, StreamError> {
    match reason.to_ascii_lowercase().as_str() {
        "" => Ok(None),
        "length" | "max_tokens" | "max_output_tokens" | "model_length" | "model_context_window_exceeded" => {
            Ok(Some(StopReason::Length))
        }
        "content_filter"
        | "content_filtered"
        | "safety"
        | "recitation"
        | "blocklist"
        | "prohibited_content"
        | "spii"
        | "sensitive"
        | "refusal"
        | "guardrail_intervened" => Ok(Some(StopReason::ContentFilter)),
        "tool_calls" | "tool_call" | "function_call" | "tool_use" => Ok(Some(StopReason::ToolCalls)),
        "error"
        | "model_error"
        | "network_error"
        | "insufficient_system_resource"
        | "malformed_function_call"
        | "abort"
        | "aborted"
        | "cancelled"
        | "timeout" => Err(failure::of_finish_reason(reason)),
        _ => Ok(Some(StopReason::Stop)),
    }
}
