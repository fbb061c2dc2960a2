//! Assembles a reply from the events of a stream or from a complete message.

use super::super::json::{self, Failure};
use super::super::reply_text::{MAX_RECORDED_USAGE, MAX_TOKENS, ReplyText, record_name, record_value};
use super::super::{Assembler, DecodedReply, StreamError, error_shapes, replay_items};
use super::blocks::{BlockKind, Blocks, is_plain};
use super::event::{Event, MessageFields, WireUsage};
use crate::protocol::Protocol;
use agent_core::model::{Delta, Reply, StopReason, TokenDetails, Usage};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Name of the expected JSON, for error messages.
const EXPECTED: &str = "a reply of Anthropic Messages";

/// Maximum number of fields of the usage that are kept.
const MAX_USAGE_FIELDS: usize = 100;

/// State of one reply while it arrives.
#[derive(Debug, Default)]
pub(in crate::decode) struct ReplyAssembler {
    /// Name of the configured provider.
    provider: String,
    /// Name of the requested model as `provider/model`, which becomes [`Reply::model`].
    answering_model: String,
    text: ReplyText,
    blocks: Blocks,
    id: String,
    /// Name of the model as the provider sent it.
    model: String,
    stop_reason: String,
    stop_details: Option<Value>,
    /// Changes that the provider made to the request, such as thinking that it did not show to the model.
    input_transformations: Option<Value>,
    /// Usage as the provider sent it. Later fields replace earlier ones, because they count the whole reply.
    usage: Map<String, Value>,
    /// Whether `message_stop` has arrived.
    is_complete: bool,
}

impl ReplyAssembler {
    pub(in crate::decode) fn new(provider: &str, answering_model: &str) -> Self {
        Self { provider: provider.to_owned(), answering_model: answering_model.to_owned(), ..Self::default() }
    }

    fn process(&mut self, data: &str, event: &Event<'_>, deltas: &mut Vec<Delta>) -> Result<(), Failure> {
        match &*event.r#type {
            "content_block_delta" => self.change_block(data, event, deltas)?,
            "content_block_start" => {
                if let Some(block) = event.content_block {
                    self.start_block(event.index.0, block, deltas)?;
                }
            }
            "content_block_stop" => self.text.end_thinking(deltas),
            "message_start" => {
                if let Some(message) = event.message {
                    self.add_message(&serde_json::from_str(message.get())?, deltas)?;
                }
            }
            "message_delta" => {
                if let Some(delta) = &event.delta {
                    self.set_stop_reason(&delta.stop_reason, delta.stop_details);
                }
                self.add_usage(event.usage);
                self.set_input_transformations(event.input_transformations);
            }
            "message_stop" => self.is_complete = true,
            "error" => return Err(error_shapes::from_text(data).into()),
            // `ping`, and events that were added to the format later.
            _ => {}
        }
        Ok(())
    }

    /// Adds the fields and the content of a message.
    fn add_message(&mut self, message: &MessageFields<'_>, deltas: &mut Vec<Delta>) -> Result<(), Failure> {
        if self.id.is_empty() {
            self.id.push_str(&message.id);
        }
        if self.model.is_empty() {
            self.model.push_str(&message.model);
        }
        for block in message.content.iter().flatten() {
            self.start_block(None, block, deltas)?;
        }
        self.set_stop_reason(&message.stop_reason, message.stop_details);
        self.add_usage(message.usage);
        self.set_input_transformations(message.input_transformations);
        Ok(())
    }

    fn start_block(&mut self, index: Option<u64>, json: &RawValue, deltas: &mut Vec<Delta>) -> Result<(), Failure> {
        let fields: Map<String, Value> = serde_json::from_str(json.get())?;
        let block = self.blocks.start(index, fields)?;
        match block.kind {
            BlockKind::Text => self.text.text(block.initial_text(), deltas)?,
            BlockKind::Thinking => self.text.thinking(block.initial_text(), deltas)?,
            BlockKind::ToolUse | BlockKind::Other => {}
        }
        Ok(self.text.add_bytes(json.get().len())?)
    }

    fn change_block(&mut self, data: &str, event: &Event<'_>, deltas: &mut Vec<Delta>) -> Result<(), Failure> {
        let Some(delta) = &event.delta else { return Ok(()) };
        let Some(block) = self.blocks.get(event.index.0) else {
            let problem = "the stream continues a content block that has not started".to_owned();
            return Err(StreamError::invalid(problem, data).into());
        };
        match &*delta.r#type {
            "text_delta" if block.add_text(&delta.text) => self.text.text(&delta.text, deltas)?,
            "thinking_delta" if block.add_thinking(&delta.thinking) => self.text.thinking(&delta.thinking, deltas)?,
            "text_delta" | "thinking_delta" => {}
            "input_json_delta" => {
                block.add_input(&delta.partial_json);
                self.text.add_bytes(delta.partial_json.len())?;
            }
            _ => {
                let mut event: Map<String, Value> = serde_json::from_str(data)?;
                if let Some(Value::Object(fields)) = event.remove("delta") {
                    block.add_fields(fields);
                }
                self.text.add_bytes(data.len())?;
            }
        }
        Ok(())
    }

    fn set_stop_reason(&mut self, reason: &str, details: Option<&RawValue>) {
        if !reason.is_empty() {
            self.stop_reason = reason.to_owned();
        }
        if let Some(details) = details.and_then(|details| serde_json::from_str(details.get()).ok()) {
            self.stop_details = Some(details);
        }
    }

    fn set_input_transformations(&mut self, changes: Option<&RawValue>) {
        let changes = changes.filter(|changes| changes.get().len() <= MAX_RECORDED_USAGE);
        let changes = changes.and_then(|changes| serde_json::from_str::<Vec<Value>>(changes.get()).ok());
        if let Some(changes) = changes.filter(|changes| !changes.is_empty()) {
            self.input_transformations = Some(Value::Array(changes));
        }
    }

    fn add_usage(&mut self, usage: Option<&RawValue>) {
        let usage =
            usage.filter(|usage| usage.get().len() <= MAX_RECORDED_USAGE && self.usage.len() < MAX_USAGE_FIELDS);
        let usage = usage.and_then(|usage| serde_json::from_str::<Map<String, Value>>(usage.get()).ok());
        self.usage.extend(usage.into_iter().flatten().filter(|(_, value)| !value.is_null()));
    }

    /// Returns the token counts that the provider reported.
    fn counts(&self) -> Usage {
        let usage: WireUsage = serde_json::from_value(Value::Object(self.usage.clone())).unwrap_or_default();
        let count = |count: Option<u64>| count.unwrap_or_default().min(MAX_TOKENS);
        let (prompt, completion) = (count(usage.input_tokens.0), count(usage.output_tokens.0));
        let thinking = usage.output_tokens_details.unwrap_or_default().thinking_tokens.0;
        let details = TokenDetails {
            uncached_prompt: prompt,
            cache_read: count(usage.cache_read_input_tokens.0),
            cache_write: count(usage.cache_creation_input_tokens.0),
            completion,
            thinking: count(thinking).min(completion),
        };
        let has_details = details.cache_read > 0 || details.cache_write > 0 || details.thinking > 0;
        Usage { details: has_details.then_some(details), ..Usage::new(prompt, completion) }
    }

    /// Returns the provider's data for the step record.
    fn raw(&self) -> Value {
        let mut raw = Map::new();
        for (key, name) in [("id", &self.id), ("model", &self.model), ("finish_reason", &self.stop_reason)] {
            record_name(&mut raw, key, name);
        }
        record_value(&mut raw, "stop_details", self.stop_details.as_ref());
        record_value(&mut raw, "input_transformations", self.input_transformations.as_ref());
        self.text.record(&mut raw);
        if !self.usage.is_empty() {
            record_value(&mut raw, "usage", Some(&Value::Object(self.usage.clone())));
        }
        Value::Object(raw)
    }
}

impl Assembler for ReplyAssembler {
    fn add_event(&mut self, data: &str, deltas: &mut Vec<Delta>) -> Result<(), StreamError> {
        json::with_object(data, EXPECTED, |text| self.process(text, &serde_json::from_str(text)?, deltas))
    }

    fn add_document(&mut self, text: &str, deltas: &mut Vec<Delta>) -> Result<(), StreamError> {
        json::with_object(text, EXPECTED, |text| {
            let message: MessageFields<'_> = serde_json::from_str(text)?;
            if message.content.is_none() {
                let unknown = || StreamError::invalid("the JSON has no `content`".to_owned(), text);
                return Err(error_shapes::from_document(text).unwrap_or_else(unknown).into());
            }
            self.add_message(&message, deltas)?;
            self.is_complete = true;
            Ok(())
        })
    }

    fn requires_data(&self, event: &str) -> bool {
        event.is_empty() || event.starts_with("message") || event.starts_with("content_block_")
    }

    fn is_complete(&self) -> bool {
        self.is_complete
    }

    fn finish(mut self: Box<Self>, deltas: &mut Vec<Delta>) -> Result<DecodedReply, StreamError> {
        self.text.end_thinking(deltas);
        if !self.is_complete {
            return Err(StreamError::Truncated);
        }
        let (raw, usage) = (self.raw(), self.counts());
        let Self { provider, answering_model, blocks, stop_reason, .. } = *self;
        let (text, calls, items) = blocks.finish();
        let needs_replay = !items.iter().all(is_plain);
        let replay =
            needs_replay.then(|| replay_items::replay(Protocol::Anthropic, &provider, &answering_model, items));
        let stop = stop(&stop_reason, !calls.is_empty());
        let reply = Reply { text, calls, stop, usage, model: answering_model, replay };
        Ok(DecodedReply { reply, refusal: None, raw })
    }
}

/// Converts a stop reason. Unknown reasons count as a normal stop, because new reasons are added over time.
///
/// The reasons are listed at <https://docs.anthropic.com/en/api/handling-stop-reasons>.
fn stop(reason: &str, has_calls: bool) -> StopReason {
    match reason {
        "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
        "refusal" => StopReason::ContentFilter,
        _ if has_calls => StopReason::ToolCalls,
        "pause_turn" | "compaction" => StopReason::Paused,
        _ => StopReason::Stop,
    }
}
