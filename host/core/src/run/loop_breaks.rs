//! Handles calls to the loop-breaking tools (L18). Such a call runs after the other calls of its batch. If a reply
//! contains several such calls, only the first one is accepted. The result of `task_completion` is checked like a
//! reply (L12).

use super::batch::{Batch, BatchCall, CallProgress};
use super::input::{Disposition, ResolvedCall, ResolvedReply};
use super::state::{NO_OPEN_BATCH, NO_SUCH_CALL, NO_TURN, Run};
use super::step::text_result;
use super::transition::feedback;
use super::turn::{Phase, Turn};
use super::{TurnError, Validation};
use crate::change::{CallResult, Change};
use crate::event::{EndReason, EventKind};
use crate::loop_break::{LoopBreak, argument, name};
use crate::message::CallId;
use crate::plugin::{Lifecycle, OutputData};
use crate::tool::{ToolError, Violation};
use serde::{Deserialize, Serialize};
use serde_json::Value;

const ACCEPTED: &str = "accepted: the task is complete";
const SENT: &str = "sent to the user";

/// A result of `task_completion` that is being validated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Completion {
    /// Id of the `task_completion` call.
    call: CallId,
    /// The result as the model wrote it.
    result: Value,
}

impl Completion {
    fn text(&self) -> String {
        match &self.result {
            Value::String(text) => text.clone(),
            json => json.to_string(),
        }
    }
}

/// Makes the result of `task_completion` the text of a reply that cannot call a tool (L4). The model wrote the call
/// although the tool was not offered. The call is accepted, because its result is the answer.
pub(super) fn take_completion_as_text(reply: &mut ResolvedReply) {
    let mut completions = reply.calls.iter().filter(|call| call.name == name::TASK_COMPLETION);
    let Some(result) = completions.find_map(|call| call.arguments.get(argument::RESULT)) else { return };
    let text = match result {
        Value::String(text) => text.clone(),
        json => json.to_string(),
    };
    if !text.trim().is_empty() {
        reply.text = text;
        reply.calls.clear();
        reply.unreadable.clear();
        reply.replay = None;
    }
}

/// Refuses each loop-breaking call of a reply except the first one. But if the other calls of the reply have different
/// priorities, so that some of them are deferred, all loop-breaking calls are deferred.
pub(super) fn keep_first_loop_break(calls: &mut [ResolvedCall]) {
    let priorities = calls.iter().filter_map(|call| match call.disposition {
        Disposition::Ready { priority, .. } => Some(priority),
        _ => None,
    });
    let (lowest, highest) = (priorities.clone().min(), priorities.max());
    let mut first: Option<String> = None;
    for call in calls {
        if !matches!(call.disposition, Disposition::Breaks(_)) {
            continue;
        }
        if let Some(priority) = lowest.filter(|_| lowest < highest) {
            call.disposition = Disposition::Ready { priority, sequential: false, repeatable: false };
        } else if let Some(first) = &first {
            let message = format!("not taken: `{first}` was called first, and only one call can end a turn");
            call.disposition = Disposition::Refused(ToolError::Failed { message });
        } else {
            first = Some(call.name.clone());
        }
    }
}

impl Batch {
    /// Whether a call must wait until the other calls of the batch have their results.
    pub(super) fn waits_for_others(&self, id: &CallId) -> bool {
        let breaks = self.calls.iter().any(|call| call.id == *id && call.loop_break.is_some());
        breaks && self.calls.iter().any(|call| call.id != *id && !call.state.is_finished())
    }

    /// Whether the batch can continue without waiting for an external event, once the calls for which `settled` returns
    /// true have finished.
    pub(super) fn continues_after(&self, settled: impl Fn(&CallId) -> bool) -> bool {
        let is_finished = |call: &BatchCall| call.state.is_finished() || settled(&call.id);
        let ends = self.calls.iter().all(|call| is_finished(call) || call.loop_break.is_some());
        let mut waiting = self.calls.iter().filter(|call| call.state.is_waiting());
        ends || waiting.any(|call| call.loop_break.is_none())
    }
}

impl Turn {
    pub(super) fn completion(&self) -> Option<Validation> {
        let Phase::Working(Batch { completion: Some(completion), .. }) = &self.phase else { return None };
        Some(Validation {
            text: completion.text(),
            result: Some(completion.result.clone()),
            attempt: self.corrections + 1,
            corrections_left: self.corrections_left(),
        })
    }
}

impl Run {
    /// Performs a loop-breaking call. The other calls of its batch have already finished.
    pub(super) fn break_loop(&mut self, id: CallId, loop_break: LoopBreak, mut arguments: Value, change: &mut Change) {
        let mut take = |name: &str| arguments.get_mut(name).map(Value::take).unwrap_or_default();
        let Some(Turn { phase: Phase::Working(batch), .. }) = &mut self.turn else {
            return self.inconsistent(NO_OPEN_BATCH);
        };
        let (handed_on, answered) = (batch.outstanding.clone(), batch.answered());
        if handed_on != answered {
            return self.fail(TurnError::OutstandingMismatch { handed_on, answered }, change);
        }
        match loop_break {
            LoopBreak::Ask => {}
            LoopBreak::Complete => {
                let Some(call) = batch.call_mut(&id) else { return self.inconsistent(NO_SUCH_CALL) };
                call.state = CallProgress::Checking;
                batch.completion = Some(Completion { call: id, result: take(argument::RESULT) });
            }
            LoopBreak::Converse => {
                let message = take(argument::MESSAGE).as_str().unwrap_or_default().to_owned();
                self.close_batch(&id, text_result(SENT, false), change);
                self.finish(OutputData::Text(message), EndReason::Converse, change);
            }
        }
    }

    /// Ends the turn with the result of `task_completion`.
    pub(super) fn completed(&mut self, data: OutputData, change: &mut Change) {
        let Some(completion) = self.take_completion() else {
            return self.inconsistent("no completion is being checked");
        };
        self.close_batch(&completion.call, text_result(ACCEPTED, false), change);
        self.finish(data, EndReason::Completed, change);
    }

    /// Rejects the result of `task_completion`. The call gets an error result with the reason. The model is called
    /// again unless a limit of the turn has been reached (L12).
    pub(super) fn completion_rejected(&mut self, by: String, problems: Vec<Violation>, change: &mut Change) {
        let Some(completion) = self.take_completion() else {
            return self.inconsistent("no completion is being checked");
        };
        let Some(turn) = &mut self.turn else { return self.inconsistent(NO_TURN) };
        turn.corrections += 1;
        let attempt = turn.corrections;
        let spent = attempt > turn.config.max_corrections;
        turn.lifecycle = Lifecycle::OutputErrorFeedback;
        let Phase::Working(batch) = &mut turn.phase else { return self.inconsistent(NO_OPEN_BATCH) };
        let unreadable = batch.feedback.take();
        let is_only_call = batch.calls.len() == 1 && unreadable.is_none();
        self.leave_out_earlier_attempt(change);
        let how = format!("Call `{}` again", name::TASK_COMPLETION);
        self.close_batch(&completion.call, text_result(&feedback(&by, &problems, &how), true), change);
        self.append_feedback(unreadable, change);
        if let Some(turn) = &mut self.turn {
            // A message that contains only the rejected call is removed from the view when a later output is rejected.
            // A message that contains other calls stays in the view.
            match is_only_call {
                true => turn.rejected = Some([self.next_message - 2, self.next_message - 1]),
                false => turn.rejected_call = Some(completion.call.clone()),
            }
        }
        self.emit(change, EventKind::OutputRejected { by: by.clone(), attempt, problems: problems.clone() });
        self.emit(change, EventKind::StreamClear);
        if spent {
            let last_reply = completion.text();
            self.fail(TurnError::OutputRejected { by, attempts: attempt, problems, last_reply }, change);
        } else if let Some(error) = self.repeated_error() {
            self.fail(error, change);
        } else {
            self.finish_plan_step(change);
            self.next_step(change);
        }
    }

    fn take_completion(&mut self) -> Option<Completion> {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &mut self.turn else { return None };
        batch.completion.take()
    }

    /// Records the last result of the batch and appends all results to the history.
    fn close_batch(&mut self, id: &CallId, result: CallResult, change: &mut Change) {
        self.record(id, result, change);
        self.append_results(change);
    }
}
