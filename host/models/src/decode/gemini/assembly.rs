//! Assembles a reply from the events of a stream or from a complete response.

use super::super::json::{self, Failure};
use super::super::reply_text::{MAX_TOKENS, ReplyText, record_name, record_value};
use super::super::{Assembler, DecodedReply, StreamError, error_shapes, replay_items};
use super::event::{Candidate, PartFields, Response, WireUsage};
use super::parts::{Parts, is_plain};
use crate::protocol::Protocol;
use agent_core::model::{Delta, Reply, StopReason, TokenDetails, Usage};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Name of the expected JSON, for error messages.
const EXPECTED: &str = "a reply of Gemini";

/// State of one reply while it arrives.
#[derive(Debug, Default)]
pub(in crate::decode) struct ReplyAssembler {
    /// Name of the configured provider.
    provider: String,
    /// Name of the requested model as `provider/model`, which becomes [`Reply::model`].
    answering_model: String,
    text: ReplyText,
    parts: Parts,
    id: String,
    /// Name of the model as the provider sent it.
    model: String,
    finish_reason: String,
    usage: Option<Value>,
    /// Why the model stopped. `None` until a finish reason has arrived.
    stop: Option<StopReason>,
}

impl ReplyAssembler {
    pub(in crate::decode) fn new(provider: &str, answering_model: &str) -> Self {
        Self { provider: provider.to_owned(), answering_model: answering_model.to_owned(), ..Self::default() }
    }

    fn process(&mut self, response: &Response<'_>, deltas: &mut Vec<Delta>) -> Result<(), Failure> {
        error_shapes::from_field(response.error)?;
        if self.id.is_empty() {
            self.id.push_str(&response.response_id);
        }
        if self.model.is_empty() {
            self.model.push_str(&response.model_version);
        }
        if let Some(usage) = response.usage_metadata.and_then(|usage| serde_json::from_str(usage.get()).ok()) {
            self.usage = Some(usage);
        }
        // Candidates with an index other than 0 are alternative replies, which the host never requests.
        let candidates = response.candidates.iter().flat_map(|list| list.iter());
        for candidate in candidates.filter(|candidate| candidate.index.0.is_none_or(|index| index == 0)) {
            self.add_candidate(candidate, deltas)?;
        }
        match &response.prompt_feedback {
            Some(feedback) if !feedback.block_reason.is_empty() && self.stop.is_none() => {
                let reason = &feedback.block_reason;
                Err(stopped("the provider blocked the prompt", reason, &feedback.block_reason_message).into())
            }
            _ => Ok(()),
        }
    }

    fn add_candidate(&mut self, candidate: &Candidate<'_>, deltas: &mut Vec<Delta>) -> Result<(), Failure> {
        let parts = candidate.content.as_ref().and_then(|content| content.parts.as_deref()).unwrap_or_default();
        for json in parts {
            self.add_part(json, deltas)?;
        }
        if !matches!(&*candidate.finish_reason, "" | "FINISH_REASON_UNSPECIFIED") {
            self.stop = Some(stop(&candidate.finish_reason, &candidate.finish_message)?);
            self.finish_reason = (*candidate.finish_reason).to_owned();
        }
        Ok(())
    }

    fn add_part(&mut self, json: &RawValue, deltas: &mut Vec<Delta>) -> Result<(), Failure> {
        let fields: PartFields<'_> = serde_json::from_str(json.get())?;
        let is_thinking = fields.thought == Some(true);
        if let Some(text) = &fields.text {
            if is_thinking {
                self.text.thinking(text, deltas)?
            } else {
                self.text.text(text, deltas)?
            }
            if is_only_text(json) {
                return Ok(self.parts.add_text(text, is_thinking)?);
            }
        } else {
            self.text.end_thinking(deltas);
        }
        self.text.add_bytes(json.get().len())?;
        let part: Map<String, Value> = serde_json::from_str(json.get())?;
        match fields.function_call {
            Some(_) => Ok(self.parts.add_call(part)?),
            None => Ok(self.parts.add(Value::Object(part))?),
        }
    }

    /// Returns the token counts from the usage that Gemini sent.
    fn counts(&self) -> Usage {
        let usage = self.usage.clone().and_then(|usage| serde_json::from_value::<WireUsage>(usage).ok());
        let usage = usage.unwrap_or_default();
        let count = |count: Option<u64>| count.unwrap_or_default().min(MAX_TOKENS);
        let (prompt, completion) = (count(usage.prompt_token_count.0), count(usage.candidates_token_count.0));
        let cache_read = count(usage.cached_content_token_count.0).min(prompt);
        let (of_tools, thinking) = (count(usage.tool_use_prompt_token_count.0), count(usage.thoughts_token_count.0));
        let details = TokenDetails {
            uncached_prompt: prompt - cache_read + of_tools,
            cache_read,
            cache_write: 0,
            completion: completion + thinking,
            thinking,
        };
        let has_details = cache_read > 0 || of_tools > 0 || thinking > 0;
        Usage { details: has_details.then_some(details), ..Usage::new(prompt, completion) }
    }

    /// Returns the provider's data for the step record.
    fn raw(&self) -> Value {
        let mut raw = Map::new();
        for (key, name) in [("id", &self.id), ("model", &self.model), ("finish_reason", &self.finish_reason)] {
            record_name(&mut raw, key, name);
        }
        self.text.record(&mut raw);
        record_value(&mut raw, "usage", self.usage.as_ref());
        Value::Object(raw)
    }
}

impl Assembler for ReplyAssembler {
    fn add_event(&mut self, data: &str, deltas: &mut Vec<Delta>) -> Result<(), StreamError> {
        json::with_object(data, EXPECTED, |text| self.process(&serde_json::from_str(text)?, deltas))
    }

    fn add_document(&mut self, text: &str, deltas: &mut Vec<Delta>) -> Result<(), StreamError> {
        // Without the parameter `alt=sse`, a streamed reply is an array of responses.
        if let Ok(responses) = serde_json::from_str::<Vec<&RawValue>>(text) {
            return responses.iter().try_for_each(|response| self.add_event(response.get(), deltas));
        }
        json::with_object(text, EXPECTED, |text| {
            let response: Response<'_> = serde_json::from_str(text)?;
            self.process(&response, deltas)?;
            if response.candidates.is_some() {
                return Ok(());
            }
            let unknown = || StreamError::invalid("the JSON has no `candidates`".to_owned(), text);
            Err(error_shapes::from_document(text).unwrap_or_else(unknown).into())
        })
    }

    fn requires_data(&self, event: &str) -> bool {
        matches!(event, "" | "message")
    }

    fn finish(mut self: Box<Self>, deltas: &mut Vec<Delta>) -> Result<DecodedReply, StreamError> {
        self.text.end_thinking(deltas);
        let Some(stop) = self.stop else { return Err(StreamError::Truncated) };
        // The call would run with a part of its arguments. The loop refuses all calls of replies that were cut.
        if stop == StopReason::Stop && self.parts.has_open_call() {
            return Err(StreamError::Truncated);
        }
        let (raw, usage) = (self.raw(), self.counts());
        let Self { provider, answering_model, parts, .. } = *self;
        let (text, calls, items) = parts.finish();
        let needs_replay = !items.iter().all(is_plain);
        let replay = needs_replay.then(|| replay_items::replay(Protocol::Gemini, &provider, &answering_model, items));
        let stop = if stop == StopReason::Stop && !calls.is_empty() { StopReason::ToolCalls } else { stop };
        let reply = Reply { text, calls, stop, usage, model: answering_model, replay };
        Ok(DecodedReply { reply, refusal: None, raw })
    }
}

/// Returns whether the part has no fields except `text` and `thought`.
fn is_only_text(json: &RawValue) -> bool {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only the names of the fields matter")]
    struct OnlyText {
        text: serde::de::IgnoredAny,
        #[serde(default)]
        thought: Option<serde::de::IgnoredAny>,
    }
    serde_json::from_str::<OnlyText>(json.get()).is_ok()
}

/// Converts a finish reason. Unknown reasons count as a normal stop, because new reasons are added over time.
///
/// The reasons are listed at <https://ai.google.dev/api/generate-content#FinishReason>.
///
/// # Errors
///
/// Returns an error for reasons that mean that the model failed to write a valid reply. The request can be retried.
fn stop(reason: &str, message: &str) -> Result<StopReason, StreamError> {
    match reason {
        "MAX_TOKENS" => Ok(StopReason::Length),
        "SAFETY"
        | "RECITATION"
        | "LANGUAGE"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION" => Ok(StopReason::ContentFilter),
        "MALFORMED_FUNCTION_CALL"
        | "UNEXPECTED_TOOL_CALL"
        | "TOO_MANY_TOOL_CALLS"
        | "MALFORMED_RESPONSE"
        | "MISSING_THOUGHT_SIGNATURE" => Err(stopped("the model did not write a valid reply", reason, message)),
        "OTHER" => Err(stopped("the provider ended the reply for an unknown reason", reason, message)),
        _ => Ok(StopReason::Stop),
    }
}

/// Returns the error for a reply that was stopped for the given reason.
fn stopped(what: &str, reason: &str, message: &str) -> StreamError {
    let details = if message.is_empty() { String::new() } else { format!(": {message}") };
    error_shapes::with_code(reason, &format!("{what} ({reason}){details}"))
}
