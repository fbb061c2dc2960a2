//! The end of a turn: an output, an error or a cancellation.

use super::input::Retryability;
use crate::budget::ExceededBudget;
use crate::event::EndReason;
use crate::message::Message;
use crate::model::Usage;
use crate::plugin::OutputData;
use crate::tool::Violation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnEnd {
    /// The turn ended with an output.
    Finished(Output),
    /// The turn ended with an error.
    Failed(TurnError),
    /// The turn was cancelled.
    Cancelled,
}

/// The output of a turn (L13).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// The accepted output as JSON. If the output is text, `data` is a JSON string.
    pub data: serde_json::Value,
    /// Why the turn ended.
    pub finish: EndReason,
    /// Whether the turn ended because it reached a limit.
    pub limit_reached: bool,
    /// Execution units of the whole turn (L5).
    pub execution_units: u64,
    /// Token usage of the whole turn.
    pub usage: Usage,
    /// Number of model calls, including a last call that the turn made because it had reached its limit (L4).
    pub interactions: u32,
    /// The model that answered last, as `provider/model`.
    pub model: String,
    /// The subject, a string that identifies the session.
    pub session: String,
    /// Number of the turn in its session, starting at 1.
    pub turn: u32,
    /// The session's messages except those that were undone. `None` means that the agent does not
    /// set `include_history`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<Message>>,
}

impl OutputData {
    /// Converts the output to JSON. An output that is text becomes a JSON string.
    pub fn into_value(self) -> serde_json::Value {
        match self {
            OutputData::Text(text) => serde_json::Value::String(text),
            OutputData::Json(json) => json,
        }
    }
}

/// Why a turn ended without an output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum TurnError {
    /// The turn reached its limit of model calls, and `at_limit` is `error` or the last reply was not a valid output
    /// (L4).
    #[error("interactions exhausted after {interactions} model calls: {reason}; raise `max_interactions`")]
    InteractionsExhausted {
        /// Number of model calls that were made.
        interactions: u32,
        /// Why the turn could not finish.
        reason: String,
        /// The text of the last reply. `None` means that the last reply had no text, or there was no last call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last_reply: Option<String>,
    },
    /// The output was rejected and no corrections are left (L12).
    #[error("the output was rejected by {by} at attempt {attempts}: {}", problems_for_people(problems))]
    OutputRejected {
        /// The plugin that rejected the output, or `output schema`.
        by: String,
        /// Number of outputs that were rejected.
        attempts: u32,
        /// The problems of the output that was rejected last.
        problems: Vec<Violation>,
        /// The output that was rejected last.
        last_reply: String,
    },
    /// Too many consecutive replies called no tool although only a tool may end the turn (L19).
    #[error(
        "no_tool_call: {replies} replies in a row called no tool, and only `task_completion`, `ask_question` or `converse` \
        ends a turn here; use a model that calls tools well, or set `finish = \"text\"`"
    )]
    NoToolCall {
        /// Number of consecutive replies without a tool call.
        replies: u32,
    },
    /// In too many consecutive replies, calls failed with the same error (L19).
    #[error(
        "same_error: calls in {replies} replies in a row failed with the same error, most recently `{tool}`: {message}; \
        fix the cause, or explain in the agent's instructions how to call the tool"
    )]
    SameError {
        /// Number of consecutive replies whose calls failed with the error.
        replies: u32,
        /// Name of the tool that failed last.
        tool: String,
        /// The beginning of the message of the error.
        message: String,
    },
    /// The model returned only empty replies, even when it was asked for a summary (L23).
    #[error(
        "empty_replies: the model replied with nothing {replies} times in a row, the last time when it was asked for a \
        summary without tools; try again, or use another model"
    )]
    EmptyReplies {
        /// Number of consecutive empty replies.
        replies: u32,
    },
    /// The prompt does not fit into the model's context window.
    #[error(
        "the prompt has about {tokens} tokens, which, together with the reply, do not fit into the model's context window \
        of {window} tokens; shorten the input, begin a new session, or use a model with a larger context window"
    )]
    PromptTooLarge {
        /// Estimated tokens of system text and messages.
        tokens: u32,
        /// Size of the model's context window, in tokens.
        window: u32,
    },
    /// The numbers of sent and answered calls differ (L11). The stored state is damaged, so no model is called.
    #[error(
        "outstanding_mismatch: the numbers of sent and answered calls differ; calls sent, by tool: {}; calls answered: {}",
        counts_for_people(handed_on),
        counts_for_people(answered)
    )]
    OutstandingMismatch {
        /// Number of calls that were sent to a service, an agent or the user, by tool.
        handed_on: BTreeMap<String, u32>,
        /// Number of calls that were answered, by tool.
        answered: BTreeMap<String, u32>,
    },
    /// A budget does not allow the next model call (O4).
    #[error("budget_exceeded: {0}")]
    BudgetExceeded(ExceededBudget),
    /// No model answered.
    #[error("the model did not answer: {message}")]
    ModelFailed {
        /// Description of the failure, and advice on how to fix it.
        message: String,
        /// Whether the same request may succeed later.
        #[serde(default, rename = "prospect", skip_serializing_if = "Retryability::is_retryable")]
        retryability: Retryability,
    },
    /// A context builder, validator or media policy failed. The host never ignores a failure of a plugin that has one
    /// of these kinds.
    #[error("plugin {plugin} failed: {message}")]
    PluginFailed {
        /// The plugin, as `name@digest`.
        plugin: String,
        /// Description of the failure.
        message: String,
    },
    /// The turn is pinned to a plugin that is no longer available (P10).
    #[error("plugin_changed: this turn cannot continue with the plugins that it began with: {reason}")]
    PluginChanged {
        /// Name of the plugin, and why it is no longer available.
        reason: String,
    },
    /// The host itself failed (L9).
    #[error("the host failed: {message}")]
    HostFailed {
        /// Description of the failure, and advice on how to fix it.
        message: String,
    },
}

impl TurnError {
    /// Returns the error as JSON. The JSON contains the code, the message for users and, for a rejected output, the
    /// last reply and its problems (L12).
    pub fn details(&self) -> serde_json::Value {
        let mut details = serde_json::json!({"code": self.code(), "message": self.to_string()});
        match self {
            TurnError::OutputRejected { last_reply, problems, by, attempts } => {
                details["last_reply"] = serde_json::json!(last_reply);
                details["problems"] = serde_json::json!(problems);
                details["by"] = serde_json::json!(by);
                details["attempts"] = serde_json::json!(attempts);
            }
            TurnError::BudgetExceeded(budget) => details["budget"] = serde_json::json!(budget),
            TurnError::InteractionsExhausted { last_reply: Some(last_reply), .. } => {
                details["last_reply"] = serde_json::json!(last_reply);
            }
            _ => {}
        }
        details
    }

    /// Machine-readable code of the error. The code equals `code` in the JSON form.
    pub fn code(&self) -> &'static str {
        match self {
            TurnError::InteractionsExhausted { .. } => "interactions_exhausted",
            TurnError::OutputRejected { .. } => "output_rejected",
            TurnError::NoToolCall { .. } => "no_tool_call",
            TurnError::SameError { .. } => "same_error",
            TurnError::EmptyReplies { .. } => "empty_replies",
            TurnError::PromptTooLarge { .. } => "prompt_too_large",
            TurnError::OutstandingMismatch { .. } => "outstanding_mismatch",
            TurnError::BudgetExceeded(_) => "budget_exceeded",
            TurnError::ModelFailed { .. } => "model_failed",
            TurnError::PluginFailed { .. } => "plugin_failed",
            TurnError::PluginChanged { .. } => "plugin_changed",
            TurnError::HostFailed { .. } => "host_failed",
        }
    }
}

fn counts_for_people(counts: &BTreeMap<String, u32>) -> String {
    if counts.is_empty() {
        return "none".to_owned();
    }
    counts.iter().map(|(tool, count)| format!("{count} of `{tool}`")).collect::<Vec<_>>().join(", ")
}

fn problems_for_people(problems: &[Violation]) -> String {
    let lines = problems.iter().map(|problem| match problem.pointer.as_str() {
        "" => problem.message.clone(),
        pointer => format!("{pointer} {}", problem.message),
    });
    lines.collect::<Vec<_>>().join("; ")
}
