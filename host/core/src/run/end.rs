//! How a turn ends.

use super::input::Prospect;
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
    /// With an output.
    Finished(Output),
    /// With a typed error.
    Failed(TurnError),
    /// Somebody stopped it.
    Cancelled,
}

/// The output of a turn (L13).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// The accepted data: a string without an output schema.
    pub data: serde_json::Value,
    /// Why the turn ended.
    pub finish: EndReason,
    /// Whether it ended at a bound.
    pub limit_reached: bool,
    /// Over the whole turn (L5).
    pub execution_units: u64,
    /// Over the whole turn.
    pub usage: Usage,
    /// Model calls, the last one at the bound included (L4).
    pub interactions: u32,
    /// `provider/model` that answered last.
    pub model: String,
    /// The session's subject.
    pub session: String,
    /// From 1.
    pub turn: u32,
    /// The session's messages, where the agent sets `include_history`: all but those that were taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<Message>>,
}

/// What a turn has cost so far, however it ended or for whomever it waits (L5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TurnCost {
    /// From 1.
    pub turn: u32,
    /// Over the whole turn.
    pub execution_units: u64,
    /// Over the whole turn.
    pub usage: Usage,
    /// Model calls.
    pub interactions: u32,
}

impl OutputData {
    /// As it stands in the output: a text is a JSON string.
    pub fn into_value(self) -> serde_json::Value {
        match self {
            OutputData::Text(text) => serde_json::Value::String(text),
            OutputData::Json(json) => json,
        }
    }
}

/// Why a turn could not end with an output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum TurnError {
    /// The bound was reached, and `at_limit` is `error` or the last reply was no output (L4).
    #[error("interactions exhausted after {interactions} model calls: {reason}; raise `max_interactions`")]
    InteractionsExhausted {
        /// Made.
        interactions: u32,
        /// What was the matter.
        reason: String,
        /// What the model wrote last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last_reply: Option<String>,
    },
    /// The corrections are spent (L12).
    #[error("the output was rejected by {by}, at attempt {attempts}: {}", problems_for_people(problems))]
    OutputRejected {
        /// A plugin, or `output schema`.
        by: String,
        /// Outputs that the model gave.
        attempts: u32,
        /// What is wrong with the last one.
        problems: Vec<Violation>,
        /// The last one.
        last_reply: String,
    },
    /// Reply after reply called no tool, though only a tool may end the turn (L19).
    #[error(
        "no_tool_call: {replies} replies in a row called no tool, and only `task_completion`, `ask_question` or `converse` \
        ends a turn here: take a model that calls tools well, or set `finish = \"text\"`"
    )]
    NoToolCall {
        /// In a row.
        replies: u32,
    },
    /// Reply after reply brought the same error (L19).
    #[error(
        "same_error: calls of {replies} replies in a row failed with the same error, the last one of `{tool}`: {message}; \
        put right what it names, or tell the agent in its instructions how to call the tool"
    )]
    SameError {
        /// In a row.
        replies: u32,
        /// The tool that was called last.
        tool: String,
        /// How the error begins.
        message: String,
    },
    /// Not even a summary could be had of the model (L23).
    #[error(
        "empty_replies: the model replied with nothing {replies} times in a row, the last time when it was asked for a \
        summary without tools: ask again, or take another model"
    )]
    EmptyReplies {
        /// In a row.
        replies: u32,
    },
    /// Nothing that could be sent fits into the model's window.
    #[error(
        "the prompt has about {tokens} tokens, and the model's window {window}, the reply included: shorten the input, \
        begin a new session, or take a model with a larger window"
    )]
    PromptTooLarge {
        /// System text and messages, estimated.
        tokens: u32,
        /// Of the model.
        window: u32,
    },
    /// Not every call that was handed on has been answered, or more were than had been (L11). The stored state is
    /// damaged: no model is asked.
    #[error(
        "outstanding_mismatch: answers are missing or too many, by tool: {} were handed on, {} were answered",
        counts_for_people(handed_on),
        counts_for_people(answered)
    )]
    OutstandingMismatch {
        /// Calls that were handed on, by tool.
        handed_on: BTreeMap<String, u32>,
        /// Calls that were answered, by tool.
        answered: BTreeMap<String, u32>,
    },
    /// No model answered.
    #[error("the model did not answer: {message}")]
    ModelFailed {
        /// What happened and what to do.
        message: String,
        /// Whether the same may be answered later.
        #[serde(default, skip_serializing_if = "Prospect::is_later")]
        prospect: Prospect,
    },
    /// A context builder, validator or media policy failed; the host never goes on as if it had not been asked.
    #[error("plugin {plugin} failed: {message}")]
    PluginFailed {
        /// `name@digest`.
        plugin: String,
        /// What happened.
        message: String,
    },
    /// The turn is pinned to a plugin that is gone (P10).
    #[error("plugin_changed: this turn cannot go on with the plugins that it began with: {reason}")]
    PluginChanged {
        /// Which, and what has become of it.
        reason: String,
    },
    /// The host itself failed (L9).
    #[error("the host failed: {message}")]
    HostFailed {
        /// What happened and what to do.
        message: String,
    },
}

impl TurnError {
    /// For programs: its code, what it says to people, and, of an output that was rejected, the last reply with what is wrong
    /// about it (L12).
    pub fn details(&self) -> serde_json::Value {
        let mut details = serde_json::json!({"code": self.code(), "message": self.to_string()});
        match self {
            TurnError::OutputRejected { last_reply, problems, by, attempts } => {
                details["last_reply"] = serde_json::json!(last_reply);
                details["problems"] = serde_json::json!(problems);
                details["by"] = serde_json::json!(by);
                details["attempts"] = serde_json::json!(attempts);
            }
            TurnError::InteractionsExhausted { last_reply: Some(last_reply), .. } => {
                details["last_reply"] = serde_json::json!(last_reply);
            }
            _ => {}
        }
        details
    }

    /// For programs: the same word as `code` in JSON.
    pub fn code(&self) -> &'static str {
        match self {
            TurnError::InteractionsExhausted { .. } => "interactions_exhausted",
            TurnError::OutputRejected { .. } => "output_rejected",
            TurnError::NoToolCall { .. } => "no_tool_call",
            TurnError::SameError { .. } => "same_error",
            TurnError::EmptyReplies { .. } => "empty_replies",
            TurnError::PromptTooLarge { .. } => "prompt_too_large",
            TurnError::OutstandingMismatch { .. } => "outstanding_mismatch",
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
