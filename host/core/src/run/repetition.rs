//! Calls that fail the same way again and again: the tool is turned off (L28), or the turn ends (L19).

use super::batch::{BatchCall, Progress};
use super::end::TurnError;
use super::state::Run;
use super::step::text_result;
use super::turn::{Phase, Turn};
use crate::change::{CallResult, Change};
use crate::loop_break::{Finish, LoopBreak};
use crate::message::Content;
use crate::tool::{ToolError, errors_in_words};
use crate::view::result_text;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// In so many replies the same call with the same error turns its tool off (L28).
const MOST_FAILURES: u32 = 3;
/// One reply earlier, the model is warned.
const WARNED: u32 = MOST_FAILURES - 1;
/// The same error so often in a row ends the turn, where only a tool may (L19).
const MOST_ERRORS: u32 = 5;
/// Characters of an error that the end of the turn names.
const NAMED: usize = 300;

/// How the calls of a turn have failed. Errors are known by their fingerprint, so that the state holds no content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Repetition {
    /// In how many replies the same call has failed with the same error.
    failures: BTreeMap<u64, u32>,
    /// The reply that was the last to be counted there, by its number in the turn.
    counted_in: BTreeMap<u64, u32>,
    /// Tools that are off, with the error that turned them off.
    off: BTreeMap<String, u64>,
    /// The last error, and in how many replies in a row a call ended with it.
    row: Option<(u64, u32)>,
    /// How the last error begins, for people.
    last: String,
}

/// How a call came out, as far as errors in a row go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CallEnd {
    Succeeded,
    /// With the error of this fingerprint.
    Failed(u64),
}

/// Whether a tool can be turned off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Switch {
    /// It can.
    There,
    /// There is no such tool, or no turn could end without it: the model is only warned.
    Missing,
}

/// What follows from a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Consequence {
    None,
    Warning,
    Off,
}

impl Repetition {
    /// Why a call of this tool does not run.
    pub(super) fn refusal(&self, tool: &str) -> Option<ToolError> {
        self.off.contains_key(tool).then(|| off(tool))
    }

    /// Another kind of reply came in between.
    pub(super) fn interrupted(&mut self) {
        self.row = None;
    }

    /// Counts a failure in a reply: once for each reply, since the model has seen nothing in between.
    fn failed(&mut self, call: &BatchCall, text: &str, reply: u32) -> (u64, Consequence) {
        if let Some(error) = self.off.get(&call.name).filter(|_| text == off(&call.name).for_model()) {
            // It stands for the error that turned the tool off.
            return (*error, Consequence::None);
        }
        self.last = errors_in_words(text).chars().take(NAMED).collect();
        let error = fingerprint(&[text.as_bytes()]);
        let failure = fingerprint(&[call.name.as_bytes(), &call.arguments.to_le_bytes(), &error.to_le_bytes()]);
        if self.counted_in.insert(failure, reply) == Some(reply) {
            return (error, Consequence::None);
        }
        let count = self.failures.entry(failure).or_default();
        *count += 1;
        let consequence = match *count {
            WARNED => Consequence::Warning,
            MOST_FAILURES => Consequence::Off,
            _ => Consequence::None,
        };
        (error, consequence)
    }

    /// Takes the ends of a batch's calls, in call order. What one reply brought many times counts once: the model has
    /// not seen it in between.
    fn count(&mut self, ends: impl Iterator<Item = CallEnd>) -> Option<u32> {
        let mut counted = None;
        for end in ends {
            self.row = match (end, self.row) {
                (CallEnd::Succeeded, _) => None,
                (CallEnd::Failed(error), Some((last, count))) if last == error && counted == Some(error) => {
                    Some((last, count))
                }
                (CallEnd::Failed(error), Some((last, count))) if last == error => Some((last, count + 1)),
                (CallEnd::Failed(error), _) => Some((error, 1)),
            };
            counted = self.row.map(|(error, _)| error);
        }
        self.row.map(|(_, count)| count).filter(|count| *count >= MOST_ERRORS)
    }
}

impl Run {
    /// Notes how a call came out. In the second reply with a failure of its kind the model is warned, in the third the tool is
    /// turned off for the turn, and its calls that still wait don't run (L28). The model is told before the error itself, so
    /// that it is seen however long that is.
    pub(super) fn guarded(
        &mut self,
        call: &mut BatchCall,
        result: CallResult,
        switch: Switch,
    ) -> (CallResult, Guarded) {
        let Some(turn) = &mut self.turn else { return (result, Guarded::Noted) };
        let needed = turn.config.finish == Finish::Tool && LoopBreak::of_tool(&call.name).is_some();
        let switch = if needed { Switch::Missing } else { switch };
        if !result.is_error {
            call.end = Some(CallEnd::Succeeded);
            return (result, Guarded::Noted);
        }
        let reply = turn.interactions;
        let (error, consequence) = turn.repetition.failed(call, &result_text(&result.content), reply);
        call.end = Some(CallEnd::Failed(error));
        if consequence == Consequence::None {
            return (result, Guarded::Noted);
        }
        let mut result = result;
        result.content.insert(0, Content::Text(warning(&call.name, consequence, switch)));
        match (consequence, switch) {
            (Consequence::None | Consequence::Warning, _) | (_, Switch::Missing) => (result, Guarded::Noted),
            (Consequence::Off, Switch::There) => {
                turn.repetition.off.insert(call.name.clone(), error);
                (result, Guarded::TurnedOff)
            }
        }
    }

    /// The calls of the open batch that have not begun and whose tool has been turned off get that error instead. One that
    /// somebody has been asked about has it when they answer: nobody is told that what they were asked is no question.
    pub(super) fn refuse_what_is_off(&mut self, change: &mut Change) {
        let Some(Turn { phase: Phase::Working(batch), repetition, .. }) = &self.turn else {
            return;
        };
        let has_not_begun = |call: &&BatchCall| match call.state {
            Progress::Waiting => call.attempt == 0,
            Progress::Asking => call.attempt == 0 && !batch.asked,
            Progress::Running
            | Progress::Outstanding
            | Progress::Unknown
            | Progress::Checking
            | Progress::Done { .. } => false,
        };
        let waiting = batch.calls.iter().filter(has_not_begun);
        let refused = waiting.filter_map(|call| Some((call.id.clone(), repetition.refusal(&call.name)?)));
        for (id, error) in refused.collect::<Vec<_>>() {
            self.record(&id, text_result(&error.for_model(), true), change);
        }
    }

    /// The error that ends the turn when the same error has come in too many replies in a row (L19).
    pub(super) fn error_that_ends_it(&mut self) -> Option<TurnError> {
        let turn = self.turn.as_mut().filter(|turn| turn.config.finish == Finish::Tool)?;
        let Phase::Working(batch) = &turn.phase else { return None };
        let replies = turn.repetition.count(batch.calls.iter().filter_map(|call| call.end))?;
        let last = batch.calls.iter().rev().find(|call| matches!(call.end, Some(CallEnd::Failed(_))))?;
        Some(TurnError::SameError { replies, tool: last.name.clone(), message: turn.repetition.last.clone() })
    }
}

/// Whether a tool was turned off by what a call brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guarded {
    Noted,
    TurnedOff,
}

/// What a call means, whatever the order of its arguments' keys.
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

/// FNV-1a over the parts with their lengths: the same in every version, since it is stored.
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

fn off(tool: &str) -> ToolError {
    let message = format!(
        "`{tool}` is off for the rest of this turn: the same call failed the same way in {MOST_FAILURES} replies. Use another \
         tool or another way, or say what could not be done."
    );
    ToolError::Denied { message }
}

fn warning(tool: &str, consequence: Consequence, switch: Switch) -> String {
    let so = match (consequence, switch) {
        (_, Switch::Missing) => "it will fail again".to_owned(),
        (Consequence::Off, Switch::There) => format!("`{tool}` is off for the rest of this turn"),
        (_, Switch::There) => format!("after one more such reply, `{tool}` is off for the rest of this turn"),
    };
    let replies = if consequence == Consequence::Off { MOST_FAILURES } else { WARNED };
    format!(
        "[the same call with the same arguments has failed the same way in {replies} replies: {so}; find another way]"
    )
}
