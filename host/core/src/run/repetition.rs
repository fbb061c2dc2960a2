//! Handles calls that repeatedly fail in the same way: the host disables the tool (L28) or ends the turn (L19).

use super::batch::{BatchCall, CallProgress};
use super::end::TurnError;
use super::state::{NO_TURN, Run};
use super::step::text_result;
use super::turn::{Phase, Turn};
use crate::change::{CallResult, Change};
use crate::loop_break::{Finish, LoopBreak};
use crate::message::Content;
use crate::tool::{ToolError, errors_as_sentences};
use crate::view::result_text;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// If the same call fails with the same error in this number of replies, the call's tool is disabled (L28).
const MAX_FAILURES: u32 = 3;
/// If the same call fails with the same error in this number of replies, the model is warned (L28).
const WARNING_AT: u32 = MAX_FAILURES - 1;
/// If this number of consecutive replies have the same error, and only a tool may end the turn, the turn ends (L19).
const MAX_SAME_ERRORS: u32 = 5;
/// Maximum number of characters that [`TurnError::SameError`] quotes from the repeated error.
const MAX_SHOWN_CHARACTERS: usize = 300;

/// How often each failure has occurred in a turn. Errors are identified by fingerprints, so that the state contains no
/// results of calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Repetition {
    /// For each failure, the number of replies in which it occurred. The key is a fingerprint of the call and
    /// its error.
    failures: BTreeMap<u64, u32>,
    /// For each failure, the number of the last reply in which it was counted. The keys are the same as in `failures`.
    counted_in: BTreeMap<u64, u32>,
    /// Names of the disabled tools, each with the fingerprint of the error that disabled the tool.
    #[serde(rename = "off")]
    disabled: BTreeMap<String, u64>,
    /// Fingerprint of the last error, and the number of consecutive replies in which a call ended with this error.
    #[serde(rename = "row")]
    streak: Option<(u64, u32)>,
    /// The beginning of the last error's text, which is shown to users.
    last: String,
}

/// Whether a call succeeded. This outcome is used to count consecutive errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CallEnd {
    /// The call succeeded.
    Succeeded,
    /// The call failed with an error that has this fingerprint.
    Failed(u64),
}

/// Whether a tool can be disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disabling {
    /// The tool can be disabled.
    Allowed,
    /// The tool does not exist, or no turn could end without the tool. If calls to the tool keep failing, the host
    /// warns the model but does not disable the tool.
    Impossible,
}

/// What happens to the tool after a call to it has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Consequence {
    None,
    Warning,
    Disable,
}

impl Repetition {
    /// Returns the error for a call to a disabled tool. `None` means that the tool is not disabled.
    pub(super) fn refusal(&self, tool: &str) -> Option<ToolError> {
        self.disabled.contains_key(tool).then(|| disabled_error(tool))
    }

    /// Ends the current sequence of equal errors, because a reply without a tool call has interrupted the sequence.
    pub(super) fn interrupt(&mut self) {
        self.streak = None;
    }

    /// Counts a failure, and returns the fingerprint of its error. The same failure counts only once per reply, because
    /// the model has not seen the first error yet when it makes the second call.
    fn failed(&mut self, call: &BatchCall, text: &str, reply: u32) -> (u64, Consequence) {
        if let Some(error) = self.disabled.get(&call.name).filter(|_| text == disabled_error(&call.name).for_model()) {
            // A call of a disabled tool is refused. Its failure counts as the error that disabled the tool.
            return (*error, Consequence::None);
        }
        self.last = errors_as_sentences(text).chars().take(MAX_SHOWN_CHARACTERS).collect();
        let error = fingerprint(&[text.as_bytes()]);
        let failure = fingerprint(&[call.name.as_bytes(), &call.arguments.to_le_bytes(), &error.to_le_bytes()]);
        if self.counted_in.insert(failure, reply) == Some(reply) {
            return (error, Consequence::None);
        }
        let count = self.failures.entry(failure).or_default();
        *count += 1;
        let consequence = match *count {
            WARNING_AT => Consequence::Warning,
            MAX_FAILURES => Consequence::Disable,
            _ => Consequence::None,
        };
        (error, consequence)
    }

    /// Counts the errors of a batch in the order of its calls. Each error counts only once per reply. Returns the
    /// length of the current sequence of replies with the same error if the sequence is long enough to end the turn.
    fn count_streak(&mut self, ends: impl Iterator<Item = CallEnd>) -> Option<u32> {
        let mut counted = None;
        for end in ends {
            self.streak = match (end, self.streak) {
                (CallEnd::Succeeded, _) => None,
                (CallEnd::Failed(error), Some((last, count))) if last == error && counted == Some(error) => {
                    Some((last, count))
                }
                (CallEnd::Failed(error), Some((last, count))) if last == error => Some((last, count + 1)),
                (CallEnd::Failed(error), _) => Some((error, 1)),
            };
            counted = self.streak.map(|(error, _)| error);
        }
        self.streak.map(|(_, count)| count).filter(|count| *count >= MAX_SAME_ERRORS)
    }
}

impl Run {
    /// Counts the outcome of a call. After a second reply with the same failure, the result warns the model. After a
    /// third such reply, the tool is disabled for the rest of the turn, and calls to the tool that are still waiting do
    /// not run (L28). The warning precedes the error, so that a long error does not hide the warning.
    pub(super) fn note_outcome(
        &mut self,
        call: &BatchCall,
        mut result: CallResult,
        disabling: Disabling,
    ) -> CountedOutcome {
        let unchanged = |result, end| CountedOutcome { result, end, tool_effect: ToolEffect::Unchanged };
        let Some(turn) = &mut self.turn else {
            self.inconsistent(NO_TURN);
            return unchanged(result, CallEnd::Succeeded);
        };
        let needed = turn.config.finish == Finish::Tool && LoopBreak::of_tool(&call.name).is_some();
        let disabling = if needed { Disabling::Impossible } else { disabling };
        if !result.is_error {
            return unchanged(result, CallEnd::Succeeded);
        }
        let reply = turn.interactions;
        let (error, consequence) = turn.repetition.failed(call, &result_text(&result.content), reply);
        let end = CallEnd::Failed(error);
        if consequence == Consequence::None {
            return unchanged(result, end);
        }
        result.content.insert(0, Content::Text(warning(&call.name, consequence, disabling)));
        match (consequence, disabling) {
            (Consequence::None | Consequence::Warning, _) | (_, Disabling::Impossible) => unchanged(result, end),
            (Consequence::Disable, Disabling::Allowed) => {
                turn.repetition.disabled.insert(call.name.clone(), error);
                CountedOutcome { result, end, tool_effect: ToolEffect::Disabled }
            }
        }
    }

    /// Refuses the calls of the open batch that have not begun and whose tool is disabled. If a user was already asked
    /// about a call, the call is refused after the user's answer. Does nothing if no batch is open.
    pub(super) fn refuse_disabled(&mut self, change: &mut Change) {
        let Some(Turn { phase: Phase::Working(batch), repetition, .. }) = &self.turn else {
            return;
        };
        let has_not_begun = |call: &&BatchCall| match call.state {
            CallProgress::Waiting => call.attempt == 0,
            CallProgress::AwaitingApproval { .. } => call.attempt == 0 && !batch.approval_requested,
            CallProgress::Running
            | CallProgress::Outstanding { .. }
            | CallProgress::OutcomeUnknown
            | CallProgress::Checking
            | CallProgress::Finished { .. } => false,
        };
        let waiting = batch.calls.iter().filter(has_not_begun);
        let refused = waiting.filter_map(|call| Some((call.id.clone(), repetition.refusal(&call.name)?)));
        for (id, error) in refused.collect::<Vec<_>>() {
            self.record(&id, text_result(&error.for_model(), true), change);
        }
    }

    /// Returns the error that ends the turn because of repeated errors. `None` means that the number of consecutive
    /// replies with the same error is still below the maximum (L19).
    pub(super) fn repeated_error(&mut self) -> Option<TurnError> {
        let turn = self.turn.as_mut().filter(|turn| turn.config.finish == Finish::Tool)?;
        let Phase::Working(batch) = &turn.phase else { return None };
        let replies = turn.repetition.count_streak(batch.calls.iter().filter_map(|call| call.state.end()))?;
        let last = batch.calls.iter().rev().find(|call| matches!(call.state.end(), Some(CallEnd::Failed(_))))?;
        Some(TurnError::SameError { replies, tool: last.name.clone(), message: turn.repetition.last.clone() })
    }
}

/// The result of a call after the call was counted as a success or a failure.
pub(super) struct CountedOutcome {
    /// The result, with a warning for the model if the same failure has occurred before.
    pub(super) result: CallResult,
    pub(super) end: CallEnd,
    pub(super) tool_effect: ToolEffect,
}

/// Whether the result of a call disabled the tool of this call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToolEffect {
    Unchanged,
    Disabled,
}

/// Returns a fingerprint of a call's arguments. The fingerprint does not depend on the order of the arguments' keys.
pub(super) fn fingerprint_of(arguments: &Value) -> u64 {
    fingerprint(&[canonical(arguments).to_string().as_bytes()])
}

fn canonical(json: &Value) -> Value {
    match json {
        Value::Array(items) => items.iter().map(canonical).collect(),
        Value::Object(fields) => {
            let sorted: BTreeMap<&String, Value> = fields.iter().map(|(key, value)| (key, canonical(value))).collect();
            sorted.into_iter().map(|(key, value)| (key.clone(), value)).collect()
        }
        other => other.clone(),
    }
}

/// Hashes the parts and their lengths with FNV-1a. The hash is stored, so it must stay the same in every version.
fn fingerprint(parts: &[&[u8]]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for part in parts {
        let length = (part.len() as u64).to_le_bytes();
        for byte in length.iter().chain(part.iter()) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash
}

fn disabled_error(tool: &str) -> ToolError {
    let message = format!(
        "`{tool}` is off for the rest of this turn: the same call failed the same way in {MAX_FAILURES} replies. Use another \
         tool or another way, or say what could not be done."
    );
    ToolError::Denied { message }
}

fn warning(tool: &str, consequence: Consequence, disabling: Disabling) -> String {
    let consequence_text = match (consequence, disabling) {
        (_, Disabling::Impossible) => "it will fail again".to_owned(),
        (Consequence::Disable, Disabling::Allowed) => format!("`{tool}` is off for the rest of this turn"),
        (_, Disabling::Allowed) => format!("after one more such reply, `{tool}` is off for the rest of this turn"),
    };
    let replies = if consequence == Consequence::Disable { MAX_FAILURES } else { WARNING_AT };
    format!(
        "[the same call with the same arguments has failed the same way in {replies} replies: {consequence_text}; find another way]"
    )
}
