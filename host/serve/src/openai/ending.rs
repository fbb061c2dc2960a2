//! How a turn ended: its error and its token counts, in the forms of OpenAI's API.

use super::error::OpenAiError;
use agent_core::cost::Usage;
use agent_core::event::{EndReason, ErrorScope, Event, EventKind};
use axum::http::StatusCode;
use serde_json::{Value, json};

/// The end of a turn, collected from the events of one reply.
#[derive(Debug, Default)]
pub(super) struct Ending {
    reason: Option<EndReason>,
    error: Option<(String, String)>,
    usage: Usage,
}

impl Ending {
    pub(super) fn update(&mut self, event: &Event) {
        match &event.kind {
            EventKind::StreamComplete { usage, .. } => self.usage += *usage,
            EventKind::Error { code, message, scope: ErrorScope::Turn } => {
                self.error = Some((code.clone(), message.clone()));
            }
            EventKind::LoopEnd { reason, cost } => {
                self.reason = Some(*reason);
                self.usage = cost.map_or(self.usage, |cost| cost.usage);
            }
            _ => {}
        }
    }

    /// Returns why the turn ended. `None` if it has not ended.
    pub(super) fn reason(&self) -> Option<EndReason> {
        self.reason
    }

    /// Returns the usage of the whole turn if it has ended, and otherwise that of the model calls of this reply.
    pub(super) fn usage(&self) -> Usage {
        self.usage
    }

    /// Returns the error of a turn that ended without an output. The turn may have had effects, so clients must not repeat it
    /// by themselves.
    pub(super) fn failure(&self) -> Option<OpenAiError> {
        let error = match (self.reason?, &self.error) {
            (EndReason::Cancelled, _) => {
                OpenAiError::new(StatusCode::CONFLICT, "turn_cancelled", "the turn was cancelled")
            }
            (EndReason::Error, Some((code, message))) => match code.as_str() {
                "prompt_too_large" => {
                    OpenAiError::new(StatusCode::BAD_REQUEST, "context_length_exceeded", message).about("messages")
                }
                "budget_exceeded" => OpenAiError::new(StatusCode::TOO_MANY_REQUESTS, "insufficient_quota", message),
                "model_failed" => OpenAiError::new(StatusCode::BAD_GATEWAY, "model_failed", message),
                // The message may contain paths of the host's files, which a client must not see.
                "host_failed" => OpenAiError::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "host_failed",
                    "the host failed; its log contains the reason",
                ),
                _ => OpenAiError::new(StatusCode::INTERNAL_SERVER_ERROR, code.clone(), message),
            },
            (EndReason::Error, None) => {
                OpenAiError::new(StatusCode::INTERNAL_SERVER_ERROR, "turn_failed", "the turn failed")
            }
            _ => return None,
        };
        Some(error.never_repeated())
    }
}

/// Token counts whose prompt tokens include the tokens of the provider's cache, as OpenAI counts them.
struct Counts {
    prompt: u64,
    completion: u64,
    cached: u64,
    written_to_cache: u64,
    thinking: u64,
}

fn counts(usage: Usage) -> Counts {
    let details = usage.details();
    Counts {
        prompt: details.uncached_prompt.saturating_add(details.cache_read).saturating_add(details.cache_write),
        completion: details.completion,
        cached: details.cache_read,
        written_to_cache: details.cache_write,
        thinking: details.thinking,
    }
}

/// Returns the usage of a chat completion.
pub(super) fn chat_usage(usage: Usage) -> Value {
    let Counts { prompt, completion, cached, thinking, .. } = counts(usage);
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt.saturating_add(completion),
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": thinking},
    })
}

/// Returns the usage of a response.
pub(super) fn response_usage(usage: Usage) -> Value {
    let Counts { prompt, completion, cached, written_to_cache, thinking } = counts(usage);
    json!({
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written_to_cache},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": thinking},
        "total_tokens": prompt.saturating_add(completion),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::cost::TokenDetails;

    /// I3: the prompt tokens include cached tokens, whichever provider reported them.
    #[test]
    fn i3_cached_tokens_are_part_of_the_prompt_tokens() {
        let details = TokenDetails { uncached_prompt: 10, cache_read: 80, cache_write: 5, completion: 7, thinking: 3 };
        let usage = Usage { details: Some(details), ..Usage::new(10, 7) };
        let chat = chat_usage(usage);
        assert_eq!((&chat["prompt_tokens"], &chat["total_tokens"]), (&json!(95), &json!(102)));
        let response = response_usage(Usage::new(4, 2));
        assert_eq!((&response["input_tokens"], &response["total_tokens"]), (&json!(4), &json!(6)));
    }
}
