//! Assembles a reply from the chunks of a stream or from a complete document.

use super::super::lenient_fields::Content;
use super::super::reply_text::{MAX_RECORDED_NAME, MAX_RECORDED_TEXT, MAX_RECORDED_USAGE, MAX_TOKENS};
use super::super::{Assembler, DecodedReply, REPLY_LIMIT, StreamError, error_shapes, json};
use super::chunk::{Choice, Chunk, GroqExtension, MessageFields, WireUsage};
use super::replay_data::ReplayCollector;
use super::tool_calls::ToolCallAssembler;
use agent_core::model::{Delta, Reply, StopReason, TokenDetails, Usage};
use agent_core::thinking::ThinkingSplitter;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Name of the expected JSON, for error messages.
const EXPECTED: &str = "a Chat Completions reply";

/// The parts of one reply that have arrived so far.
#[derive(Debug, Default)]
pub(in crate::decode) struct ReplyAssembler {
    /// Name of the configured provider.
    provider: String,
    /// Name of the requested model as `provider/model`, which becomes [`Reply::model`].
    answering_model: String,
    splitter: ThinkingSplitter,
    text: String,
    refusal: String,
    /// First part of the thinking, of at most [`MAX_RECORDED_TEXT`] bytes.
    thinking: String,
    /// Size of the complete thinking in bytes.
    thinking_size: usize,
    calls: ToolCallAssembler,
    replay_data: ReplayCollector,
    usage: Usage,
    /// JSON text of the usage that the provider sent.
    raw_usage: String,
    id: String,
    /// Name of the model, as the provider sent it in the reply.
    model: String,
    finish_reason: String,
    stop: Option<StopReason>,
    /// Whether `[DONE]` has arrived.
    has_end_marker: bool,
    is_document: bool,
    /// Whether a `delta` has arrived. After a `delta`, a `message` is ignored, because it only repeats earlier content.
    has_deltas: bool,
    /// Whether thinking has arrived in `reasoning_content` or `reasoning`. If it has, the text of `reasoning_details`
    /// is ignored, because this text only repeats the same thinking.
    has_reasoning: bool,
    /// Total size in bytes of the text, thinking, refusal and calls that have arrived so far.
    size: usize,
}

/// Form in which the tool calls of a reply arrive.
#[derive(Clone, Copy)]
enum CallForm {
    Pieces,
    Complete,
}

impl ReplyAssembler {
    pub(in crate::decode) fn new(provider: &str, answering_model: &str) -> Self {
        Self { provider: provider.to_owned(), answering_model: answering_model.to_owned(), ..Self::default() }
    }

    /// Returns the data of the provider that the step record contains in addition to the reply.
    fn raw(&self) -> Value {
        let mut raw = Map::new();
        let texts = [("id", &self.id), ("model", &self.model), ("finish_reason", &self.finish_reason)];
        let texts = texts.into_iter().chain([("refusal", &self.refusal), ("reasoning", &self.thinking)]);
        let truncated = |text: &str| json!(&text[..text.floor_char_boundary(MAX_RECORDED_TEXT)]);
        raw.extend(texts.filter(|(_, text)| !text.is_empty()).map(|(key, text)| (key.to_owned(), truncated(text))));
        if self.thinking_size > self.thinking.len() {
            raw.insert("reasoning_bytes".into(), json!(self.thinking_size));
        }
        if let Ok(usage) = serde_json::from_str(&self.raw_usage) {
            raw.insert("usage".into(), usage);
        }
        Value::Object(raw)
    }

    fn add_chunk(&mut self, data: &str, chunk: &Chunk<'_>, deltas: &mut Vec<Delta>) -> Result<(), StreamError> {
        error_shapes::from_field(chunk.error)?;
        if &*chunk.object == "error" || &*chunk.r#type == "error" {
            return Err(error_shapes::from_text(data));
        }
        if self.id.is_empty() {
            self.id.extend(chunk.id.chars().take(MAX_RECORDED_NAME));
        }
        if self.model.is_empty() {
            self.model.extend(chunk.model.chars().take(MAX_RECORDED_NAME));
        }
        self.add_usage(chunk.usage);
        if let Some(groq) = chunk.x_groq {
            let groq: GroqExtension<'_> = serde_json::from_str(groq.get()).unwrap_or_default();
            error_shapes::from_field(groq.error)?;
            self.add_usage(groq.usage);
        }
        // Choices with an index other than 0 are alternative replies, which the host never requests.
        let choices = chunk
            .choices
            .iter()
            .flat_map(|list| list.iter())
            .filter(|choice| choice.index.0.is_none_or(|index| index == 0));
        for choice in choices {
            self.add_choice(choice, deltas)?;
        }
        if self.size > REPLY_LIMIT {
            Err(StreamError::TooLarge { what: "the reply", limit: REPLY_LIMIT })
        } else {
            Ok(())
        }
    }

    fn add_choice(&mut self, choice: &Choice<'_>, deltas: &mut Vec<Delta>) -> Result<(), StreamError> {
        error_shapes::from_field(choice.error)?;
        self.add_usage(choice.usage);
        match (&choice.delta, &choice.message) {
            (Some(fields), _) => {
                self.has_deltas = true;
                self.add_message(fields, CallForm::Pieces, deltas)?;
            }
            (None, Some(fields)) if !self.has_deltas => self.add_message(fields, CallForm::Complete, deltas)?,
            _ => {}
        }
        self.set_finish_reason(&choice.finish_reason)
    }

    fn add_message(
        &mut self,
        fields: &MessageFields<'_>,
        form: CallForm,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), StreamError> {
        self.add_reasoning(fields, deltas);
        self.add_content(&fields.content, deltas);
        self.add_refusal(&fields.refusal, deltas);
        self.replay_data.add(fields);
        for piece in fields.tool_calls.iter().flat_map(|list| list.iter()).flatten() {
            self.splitter.end_thinking(deltas);
            self.size += match form {
                CallForm::Pieces => self.calls.add_piece(piece)?,
                CallForm::Complete => self.calls.add_complete(piece)?,
            };
        }
        Ok(())
    }

    /// Adds the thinking that a chunk contains. If several fields repeat the same thinking, only the first of these
    /// fields is used.
    fn add_reasoning(&mut self, fields: &MessageFields<'_>, deltas: &mut Vec<Delta>) {
        let mut piece = String::new();
        fields.reasoning_content.plain_text(&mut piece);
        self.replay_data.reasoning_content(&piece);
        if piece.is_empty() {
            fields.reasoning.plain_text(&mut piece);
        }
        self.has_reasoning |= !piece.is_empty();
        if let (false, Some(details)) = (self.has_reasoning, fields.reasoning_details) {
            let details: Content<'_> = serde_json::from_str(details.get()).unwrap_or_default();
            details.plain_text(&mut piece);
        }
        self.add_thinking(&piece, deltas);
    }

    fn add_content(&mut self, content: &Content<'_>, deltas: &mut Vec<Delta>) {
        match content {
            Content::Nothing => {}
            Content::Text(text) => self.add_text(text, deltas),
            Content::Several(parts) => parts.iter().for_each(|part| self.add_content(part, deltas)),
            Content::Thinking(thinking) => {
                let mut piece = String::new();
                thinking.plain_text(&mut piece);
                self.add_thinking(&piece, deltas);
            }
            Content::Refusal(refusal) => self.add_refusal(refusal, deltas),
        }
    }

    fn add_text(&mut self, piece: &str, deltas: &mut Vec<Delta>) {
        let start = deltas.len();
        self.splitter.text(piece, deltas);
        self.record(&deltas[start..]);
    }

    fn add_thinking(&mut self, piece: &str, deltas: &mut Vec<Delta>) {
        let start = deltas.len();
        self.splitter.thinking(piece, deltas);
        self.record(&deltas[start..]);
    }

    /// Adds a piece of a refusal to the reply. The refusal is streamed as text, but the text of the reply does not
    /// contain it.
    fn add_refusal(&mut self, refusal: &str, deltas: &mut Vec<Delta>) {
        if !refusal.is_empty() {
            self.splitter.end_thinking(deltas);
            self.refusal.push_str(refusal);
            self.size += refusal.len();
            deltas.push(Delta::Text(refusal.to_owned()));
        }
    }

    /// Records a finish reason. If an earlier reason reported that the reply was cut short, the earlier reason is kept.
    fn set_finish_reason(&mut self, reason: &str) -> Result<(), StreamError> {
        let Some(stop) = stop_reason(reason)? else { return Ok(()) };
        if !matches!(self.stop, Some(StopReason::Length | StopReason::ContentFilter)) {
            self.stop = Some(stop);
            self.finish_reason = reason.chars().take(MAX_RECORDED_NAME).collect();
        }
        Ok(())
    }

    /// Records token usage. Later usage replaces earlier usage, because the last usage that a provider sends counts the
    /// tokens of the complete reply.
    fn add_usage(&mut self, usage: Option<&RawValue>) {
        let Some(raw) = usage else { return };
        let usage: WireUsage = serde_json::from_str(raw.get()).unwrap_or_default();
        let prompt = usage.prompt_tokens.0.or(usage.input_tokens.0);
        let completion = usage.completion_tokens.0.or(usage.output_tokens.0);
        if prompt.is_none() && completion.is_none() {
            return;
        }
        // Reduce counts above [`MAX_TOKENS`]: such counts cannot be correct, and sums of counts must fit into the
        // integers of the database.
        let [prompt_tokens, completion_tokens] =
            [prompt, completion].map(|count| count.unwrap_or_default().min(MAX_TOKENS));
        let prompt_details = usage.prompt_tokens_details.unwrap_or_default();
        let cached = prompt_details.cached_tokens.0.or(usage.prompt_cache_hit_tokens.0).unwrap_or_default();
        let cache_read = cached.min(prompt_tokens);
        let cache_write = prompt_details.cache_write_tokens.0.unwrap_or_default().min(prompt_tokens - cache_read);
        let thinking = usage.completion_tokens_details.unwrap_or_default().reasoning_tokens.0.unwrap_or_default();
        let details = TokenDetails {
            uncached_prompt: prompt_tokens - cache_read - cache_write,
            cache_read,
            cache_write,
            completion: completion_tokens,
            thinking: thinking.min(completion_tokens),
        };
        let has_details = cache_read > 0 || cache_write > 0 || details.thinking > 0;
        self.usage = Usage { details: has_details.then_some(details), ..Usage::new(prompt_tokens, completion_tokens) };
        self.raw_usage.clear();
        if raw.get().len() <= MAX_RECORDED_USAGE {
            self.raw_usage.push_str(raw.get());
        }
    }

    /// Adds the text and the thinking in the deltas to the reply.
    fn record(&mut self, deltas: &[Delta]) {
        for delta in deltas {
            match delta {
                Delta::Text(text) => {
                    self.size += text.len();
                    self.text.push_str(text);
                }
                Delta::Thinking(thinking) => {
                    self.size += thinking.len();
                    self.thinking_size += thinking.len();
                    let remaining = MAX_RECORDED_TEXT - self.thinking.len();
                    self.thinking.push_str(&thinking[..thinking.floor_char_boundary(remaining)]);
                }
                Delta::ThinkingStart | Delta::ThinkingEnd | Delta::Clear => {}
            }
        }
    }
}

impl Assembler for ReplyAssembler {
    fn add_event(&mut self, data: &str, deltas: &mut Vec<Delta>) -> Result<(), StreamError> {
        json::with_object(data, EXPECTED, |text| {
            let chunk = serde_json::from_str(text)?;
            Ok(self.add_chunk(text, &chunk, deltas)?)
        })
    }

    fn add_document(&mut self, text: &str, deltas: &mut Vec<Delta>) -> Result<(), StreamError> {
        self.is_document = true;
        json::with_object(text, EXPECTED, |text| {
            let chunk: Chunk<'_> = serde_json::from_str(text)?;
            self.add_chunk(text, &chunk, deltas)?;
            if chunk.choices.is_some_and(|choices| !choices.is_empty()) {
                return Ok(());
            }
            let unknown = || StreamError::invalid("the JSON has no `choices`".to_owned(), text);
            Err(error_shapes::from_document(text).unwrap_or_else(unknown).into())
        })
    }

    fn requires_data(&self, event: &str) -> bool {
        matches!(event, "" | "message")
    }

    fn add_end_marker(&mut self) {
        self.has_end_marker = true;
    }

    fn is_done(&self) -> bool {
        self.has_end_marker
    }

    fn finish(mut self: Box<Self>, deltas: &mut Vec<Delta>) -> Result<DecodedReply, StreamError> {
        let start = deltas.len();
        std::mem::take(&mut self.splitter).finish(deltas);
        self.record(&deltas[start..]);
        let is_empty = self.text.is_empty() && self.refusal.is_empty() && self.thinking_size == 0;
        let has_content = !is_empty || !self.calls.is_empty();
        if !(self.stop.is_some() || self.is_document || self.has_end_marker && has_content) {
            return Err(StreamError::Truncated);
        }
        let raw = self.raw();
        let (calls, extras): (Vec<_>, Vec<_>) = self.calls.finish().into_iter().unzip();
        let ids = calls.iter().map(|call| call.provider_id.as_deref()).zip(extras).collect();
        let replay = self.replay_data.finish(&self.provider, &self.answering_model, ids);
        let stop = match (self.stop, calls.is_empty()) {
            (Some(StopReason::Length), _) => StopReason::Length,
            (Some(StopReason::ContentFilter), _) => StopReason::ContentFilter,
            (_, false) => StopReason::ToolCalls,
            (_, true) => StopReason::Stop,
        };
        let reply = Reply { text: self.text, calls, stop, usage: self.usage, model: self.answering_model, replay };
        let refusal = (!self.refusal.is_empty()).then_some(self.refusal);
        Ok(DecodedReply { reply, refusal, raw })
    }
}

impl Content<'_> {
    /// Appends the text of this content to `text`, including thinking and refusals.
    fn plain_text(&self, text: &mut String) {
        match self {
            Content::Nothing => {}
            Content::Text(piece) | Content::Refusal(piece) => text.push_str(piece),
            Content::Several(parts) => parts.iter().for_each(|part| part.plain_text(text)),
            Content::Thinking(thinking) => thinking.plain_text(text),
        }
    }
}

/// Converts a server's finish reason to the host's stop reason. Returns `None` for an empty reason. Unknown reasons
/// count as a normal stop, because servers add new reasons over time.
fn stop_reason(reason: &str) -> Result<Option<StopReason>, StreamError> {
    match reason.to_ascii_lowercase().as_str() {
        "" | "null" | "none" => Ok(None),
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
        | "timeout" => Err(error_shapes::from_finish_reason(reason)),
        _ => Ok(Some(StopReason::Stop)),
    }
}
