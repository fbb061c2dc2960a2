//! Assembles a reply from the events of a stream or from a complete response.

use super::super::json::{self, Failure};
use super::super::reply_text::{MAX_TOKENS, ReplyText, record_name, record_value};
use super::super::{Assembler, DecodedReply, StreamError, error_shapes, replay_items};
use super::event::{Event, ResponseFields, WireUsage};
use super::items::{Items, Missing, is_plain};
use crate::protocol::Protocol;
use agent_core::model::{Delta, Reply, StopReason, TokenDetails, Usage};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Name of the expected JSON, for error messages.
const EXPECTED: &str = "a reply of OpenAI Responses";

/// State of one reply while it arrives.
#[derive(Debug, Default)]
pub(in crate::decode) struct ReplyAssembler {
    /// Name of the configured provider.
    provider: String,
    /// Name of the requested model as `provider/model`, which becomes [`Reply::model`].
    answering_model: String,
    text: ReplyText,
    items: Items,
    /// Whether the text of a complete item differs from its pieces, so that all text must be sent again.
    has_contradiction: bool,
    id: String,
    /// Name of the model as the provider sent it.
    model: String,
    /// Status of the response, and the reason why it is incomplete.
    finish_reason: String,
    usage: Option<Value>,
    /// Why the model stopped. `None` until the response has ended.
    stop: Option<StopReason>,
}

impl ReplyAssembler {
    pub(in crate::decode) fn new(provider: &str, answering_model: &str) -> Self {
        Self { provider: provider.to_owned(), answering_model: answering_model.to_owned(), ..Self::default() }
    }

    fn process(&mut self, data: &str, event: &Event<'_>, deltas: &mut Vec<Delta>) -> Result<(), Failure> {
        let position = event.output_index.0.or_else(|| self.items.position_of(&event.item_id));
        let piece = &*event.delta;
        match &*event.r#type {
            "response.output_text.delta" => {
                self.items.get(position)?.add_text(piece);
                self.text.text(piece, deltas)?;
            }
            "response.refusal.delta" => {
                self.items.get(position)?.add_refusal(piece);
                self.text.text(piece, deltas)?;
            }
            "response.function_call_arguments.delta" => {
                self.items.get(position)?.add_arguments(piece);
                self.text.add_bytes(piece.len())?;
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.items.get(position)?.add_thinking();
                self.text.thinking(piece, deltas)?;
            }
            // The parts of a summary are paragraphs.
            "response.reasoning_summary_part.added" if self.text.is_thinking() => self.text.thinking("\n\n", deltas)?,
            "response.output_item.added" => {
                self.text.end_thinking(deltas);
                if let Some(item) = event.item {
                    self.text.add_bytes(item.get().len())?;
                    self.items.add(position, serde_json::from_str(item.get())?)?;
                }
            }
            "response.output_item.done" => {
                if let Some(item) = event.item {
                    self.complete(position, item, deltas)?;
                }
                self.text.end_thinking(deltas);
            }
            "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" => {
                let response = event.response.map_or("{}", RawValue::get);
                self.end(data, &serde_json::from_str(response)?, deltas)?;
            }
            "error" => return Err(error_shapes::from_text(data).into()),
            // This arm ignores events without content, events of the provider's own tools, and unknown events.
            _ => {}
        }
        Ok(())
    }

    /// Adds a complete item, and sends the part of its text that did not arrive in pieces.
    fn complete(&mut self, position: Option<u64>, item: &RawValue, deltas: &mut Vec<Delta>) -> Result<(), Failure> {
        let item: Map<String, Value> = serde_json::from_str(item.get())?;
        match self.items.complete(position, Value::Object(item))? {
            Missing::Nothing => {}
            Missing::Text(text) => self.text.text(&text, deltas)?,
            Missing::Thinking(thinking) => self.text.thinking(&thinking, deltas)?,
            Missing::Contradiction => self.has_contradiction = true,
        }
        Ok(())
    }

    /// Processes the complete response.
    fn end(&mut self, data: &str, response: &ResponseFields<'_>, deltas: &mut Vec<Delta>) -> Result<(), Failure> {
        self.id.push_str(&response.id);
        self.model.push_str(&response.model);
        let reason = response.incomplete_details.as_ref().map(|details| &*details.reason).unwrap_or_default();
        let stop = match (&*response.status, reason) {
            ("completed", _) => StopReason::Stop,
            ("incomplete", "content_filter") => StopReason::ContentFilter,
            ("incomplete", _) => StopReason::Length,
            ("in_progress" | "queued", _) => {
                return Err(StreamError::invalid("the response has not ended".to_owned(), data).into());
            }
            (status, _) => return Err(failed(status, response.error, data).into()),
        };
        let output = response.output.iter().flatten();
        // The list of items is empty or incomplete in the responses of some servers. In this case, the only complete
        // items are the items that arrived in earlier events.
        if output.clone().count() > self.items.count_complete() {
            for (position, item) in (0..).zip(output) {
                if !self.items.is_complete(position) {
                    self.complete(Some(position), item, deltas)?;
                    self.text.end_thinking(deltas);
                }
            }
        }
        let separator = if reason.is_empty() { "" } else { ": " };
        self.finish_reason = format!("{}{separator}{reason}", &*response.status);
        self.usage = response.usage.and_then(|usage| serde_json::from_str(usage.get()).ok());
        self.stop = Some(stop);
        Ok(())
    }

    /// Returns the token counts that the response reported.
    fn counts(&self) -> Usage {
        let usage = self.usage.clone().and_then(|usage| serde_json::from_value::<WireUsage>(usage).ok());
        let usage = usage.unwrap_or_default();
        let count = |count: Option<u64>| count.unwrap_or_default().min(MAX_TOKENS);
        let (prompt, completion) = (count(usage.input_tokens.0), count(usage.output_tokens.0));
        let input = usage.input_tokens_details.unwrap_or_default();
        let cache_read = count(input.cached_tokens.0).min(prompt);
        let cache_write = count(input.cache_write_tokens.0).min(prompt - cache_read);
        let thinking = count(usage.output_tokens_details.unwrap_or_default().reasoning_tokens.0).min(completion);
        let uncached_prompt = prompt - cache_read - cache_write;
        let details = TokenDetails { uncached_prompt, cache_read, cache_write, completion, thinking };
        let has_details = cache_read > 0 || cache_write > 0 || thinking > 0;
        Usage { details: has_details.then_some(details), ..Usage::new(prompt, completion) }
    }

    /// Returns the provider's data for the step record.
    fn raw(&self) -> Map<String, Value> {
        let mut raw = Map::new();
        for (key, name) in [("id", &self.id), ("model", &self.model), ("finish_reason", &self.finish_reason)] {
            record_name(&mut raw, key, name);
        }
        self.text.record(&mut raw);
        record_value(&mut raw, "usage", self.usage.as_ref());
        raw
    }
}

impl Assembler for ReplyAssembler {
    fn add_event(&mut self, data: &str, deltas: &mut Vec<Delta>) -> Result<(), StreamError> {
        json::with_object(data, EXPECTED, |text| self.process(text, &serde_json::from_str(text)?, deltas))
    }

    fn add_document(&mut self, text: &str, deltas: &mut Vec<Delta>) -> Result<(), StreamError> {
        json::with_object(text, EXPECTED, |text| {
            let response: ResponseFields<'_> = serde_json::from_str(text)?;
            if response.output.is_none() || response.status.is_empty() {
                let unknown = || StreamError::invalid("the JSON has no `output` or no `status`".to_owned(), text);
                return Err(error_shapes::from_document(text).unwrap_or_else(unknown).into());
            }
            self.end(text, &response, deltas)
        })
    }

    fn requires_data(&self, event: &str) -> bool {
        event.is_empty() || event.starts_with("response.")
    }

    fn is_done(&self) -> bool {
        self.stop.is_some()
    }

    fn finish(mut self: Box<Self>, deltas: &mut Vec<Delta>) -> Result<DecodedReply, StreamError> {
        self.text.end_thinking(deltas);
        let Some(stop) = self.stop else { return Err(StreamError::Truncated) };
        let (mut raw, usage) = (self.raw(), self.counts());
        let Self { provider, answering_model, items, has_contradiction, .. } = *self;
        let (text, refusal, calls, items) = items.finish();
        if has_contradiction {
            deltas.extend([Delta::Clear, Delta::Text(text.clone() + &refusal)]);
        }
        record_value(&mut raw, "refusal", Some(&Value::String(refusal.clone())).filter(|_| !refusal.is_empty()));
        let needs_replay = !items.iter().all(is_plain);
        let replay =
            needs_replay.then(|| replay_items::replay(Protocol::Responses, &provider, &answering_model, items));
        let stop = if stop == StopReason::Stop && !calls.is_empty() { StopReason::ToolCalls } else { stop };
        let reply = Reply { text, calls, stop, usage, model: answering_model, replay };
        Ok(DecodedReply { reply, refusal: Some(refusal).filter(|refusal| !refusal.is_empty()), raw: raw.into() })
    }
}

/// Returns the error of a response that failed. `data` is the event or document that contains the response.
fn failed(status: &str, error: Option<&RawValue>, data: &str) -> StreamError {
    match error_shapes::from_field(error) {
        Err(error) => error,
        Ok(()) if status.is_empty() => StreamError::invalid("the response has no status".to_owned(), data),
        Ok(()) => error_shapes::from_finish_reason(status),
    }
}
