//! The steps of a turn. A step consists of a model call and of the tool calls in the model's reply. After the tool
//! calls have finished, the next step begins or the turn ends.

use super::batch::{Batch, BatchCall, CallProgress};
use super::budget::Fit;
use super::config::AtLimit;
use super::depth;
use super::end::{Output, TurnEnd, TurnError};
use super::eviction::AfterEviction;
use super::initial_state::{InitialState, initial_state};
use super::input::{Approval, DispatchedCall, Disposition, ResolvedCall, ResolvedReply};
use super::loop_breaks::{keep_first_loop_break, take_completion_as_text};
use super::persistence::{MAX_EMPTY_REPLIES, ReplyHandling};
use super::planning::{ModelRole, OfferedTools};
use super::refused_calls::cut;
use super::repetition::{CountedOutcome, Disabling, ToolEffect, fingerprint_of};
use super::state::{Mask, NO_MODEL_CALL, NO_OPEN_BATCH, NO_SUCH_CALL, NO_TURN, Run};
use super::turn::{Phase, Turn};
use crate::approval::Authorization;
use crate::change::{Body, CallChange, CallRecord, CallResult, CallState, Change, ToolAvailability};
use crate::event::{EndReason, EventKind, WaitCause};
use crate::loop_break::Finish;
use crate::message::{CallId, Content, Part, Replay, Role, ToolCall};
use crate::model::StopReason;
use crate::plugin::{Lifecycle, OutputData};
use crate::tool::CallCost;
use crate::{text_dialect, tokens, view};
use serde_json::Value;

const DEFERRED: &str = "deferred: a higher-priority call ran first; call it again if it is still needed";
const DEFERRED_BY_PLAN: &str = "deferred: a step of the plan makes one call, and another one of this reply was it";

/// Creates a result whose only content is a text that the host wrote.
pub(super) fn text_result(text: &str, is_error: bool) -> CallResult {
    let content = vec![Content::Text(text.to_owned())];
    CallResult { content, is_error, ..Default::default() }
}

impl Run {
    /// Does the same as [`Run::next_step`], but leaves the prompts that steer the turn in the queue.
    pub(super) fn step_without_steering(&mut self, change: &mut Change) {
        let Some(turn) = &self.turn else { return self.inconsistent(NO_TURN) };
        let interactions = turn.interactions;
        if interactions >= turn.config.max_interactions && turn.config.at_limit == AtLimit::Error {
            let reason = "the limit is reached".to_owned();
            return self.fail(TurnError::InteractionsExhausted { interactions, reason, last_reply: None }, change);
        }
        if !self.evict(AfterEviction::NextStep) {
            self.begin_step(change);
        }
    }

    /// Begins the next step. The step is the turn's last step if no interactions are left or if too few tokens are left
    /// (L4, L26).
    pub(super) fn begin_step(&mut self, change: &mut Change) {
        self.adjust_plan(change);
        let (messages, budget) = (self.sent_tokens(), self.prompt_budget());
        let count = self.sent().count() as u32;
        let sections = self.system_sections().into_iter().map(|section| section.name).collect();
        let Some(turn) = &mut self.turn else { return self.inconsistent(NO_TURN) };
        let interactions = turn.interactions;
        let spent = interactions >= turn.config.max_interactions;
        let last = spent || budget.is_full(messages, &turn.config);
        if last && budget.fits_without_tools(messages) == Fit::DoesNotFit {
            return self.too_large(budget.system.saturating_add(messages), change);
        }
        turn.phase = Phase::Calling { last };
        turn.attempt = 1;
        let last = last || turn.effort.summary;
        let offered_tools = match turn.offered_tools() {
            OfferedTools::Only(tools) if !last => Some(u32::try_from(tools.len()).unwrap_or(u32::MAX)),
            OfferedTools::Only(_) | OfferedTools::All | OfferedTools::None => None,
        };
        self.emit(change, EventKind::LoopIteration { step: interactions + 1, last });
        self.emit_budget(change);
        self.emit(change, EventKind::ContextBuilt { step: interactions + 1, messages: count, sections, offered_tools });
    }

    /// Ends a turn whose prompt is too large for the model. If the turn has made no model call, its messages are
    /// removed from the view, so that they do not make the next prompt too large as well.
    pub(super) fn too_large(&mut self, tokens: u32, change: &mut Change) {
        let Some(turn) = &self.turn else { return self.inconsistent(NO_TURN) };
        let (number, window, is_first_call) = (turn.number, turn.budget.window, turn.interactions == 0);
        if is_first_call {
            let own: Vec<_> = self.view.iter().filter(|entry| entry.turn == number).map(|entry| entry.id).collect();
            for id in own {
                self.hide(id, change);
            }
        }
        self.fail(TurnError::PromptTooLarge { tokens, window }, change);
    }

    /// Handles a complete reply (L3, L5, L6). The model call is added to the counts of the session and of the turn.
    /// Then the calls of the reply begin, the text of the reply is validated, or the model is told to continue.
    pub(super) fn reply(&mut self, mut reply: ResolvedReply, change: &mut Change) {
        self.count_call();
        self.keep_masks(std::mem::take(&mut reply.masks));
        let next = self.next_message;
        let Some(turn) = &mut self.turn else { return self.inconsistent(NO_TURN) };
        let Phase::Calling { last } = turn.phase else { return self.inconsistent(NO_MODEL_CALL) };
        let summary = std::mem::take(&mut turn.effort.summary);
        if last || summary {
            take_completion_as_text(&mut reply);
        }
        turn.interactions += 1;
        turn.spend(reply.usage, 1);
        turn.saved_tokens = turn.saved_tokens.saturating_add(reply.saved_tokens);
        turn.model = reply.model.clone();
        turn.latest_from = next;
        let interactions = turn.interactions;
        let role = turn.model_role();
        let is_answer = if last || summary { self.is_last_answer(&reply) } else { self.is_answer(&reply) };
        if is_answer {
            self.emit_budget_including(&reply.text, change);
        }
        // A plan is not shown to the user as a reply.
        let text = if role == ModelRole::Planner { String::new() } else { reply.text.clone() };
        let (model, usage, saved_tokens) = (reply.model.clone(), reply.usage, reply.saved_tokens);
        let complete = EventKind::StreamComplete { text, model, usage, saved_tokens };
        self.emit(change, complete);
        self.refuse_unrunnable_calls(&mut reply);
        let Some(mut reply) = self.reply_to_plan(reply, last, change) else { return };
        if !last && !summary && reply.calls.is_empty() && !reply.unreadable.is_empty() {
            return self.ask_for_readable_calls(&reply.written, &reply.unreadable, change);
        }
        if !last && !summary && !reply.calls.is_empty() {
            return self.begin_batch(reply, change);
        }
        if !last && !summary && reply.stop == StopReason::Paused && reply.unreadable.is_empty() {
            return self.continue_paused(reply, change);
        }
        if let Some(turn) = &mut self.turn {
            turn.replay = reply.replay.take();
        }
        self.report_unreadable(&reply.unreadable, change);
        if last && reply.text.trim().is_empty() {
            let reason = "the last model call offered no tools, but did not return a text".to_owned();
            return self.fail(TurnError::InteractionsExhausted { interactions, reason, last_reply: None }, change);
        }
        if summary && reply.text.trim().is_empty() {
            return self.fail(TurnError::EmptyReplies { replies: MAX_EMPTY_REPLIES }, change);
        }
        // The planner's last reply is the answer, unless the reply refuses the task or states that work remains.
        if role == ModelRole::Synthesizer && !last && self.would_be_nudged(&reply.text) {
            self.abandon_plan("the planner's answer leaves work undone or refuses the task", change);
        }
        let has_no_plan = self.turn.as_ref().is_some_and(|turn| turn.plan.is_none());
        if !last && !summary && has_no_plan && self.continues_without_call(&reply.text, reply.stop, change) {
            return;
        }
        if let Some(turn) = &mut self.turn {
            turn.phase = Phase::Validating { text: reply.text, last };
        }
        if let Some(problem) = cut(reply.stop) {
            self.rejected("the host".to_owned(), vec![problem], change);
        }
    }

    /// Whether a reply is validated as the turn's output. If a reply is validated, the token budget is reported before
    /// `stream_complete`, and the reply's tokens are included in it (L26, L30).
    fn is_answer(&self, reply: &ResolvedReply) -> bool {
        let Some(turn) = &self.turn else { return false };
        let ends_turn = match turn.model_role() {
            ModelRole::Planner | ModelRole::Executor { .. } => false,
            ModelRole::Synthesizer => !reply.text.trim().is_empty(),
            ModelRole::Agent => {
                turn.config.finish == Finish::Text && reply.calls.is_empty() && reply.unreadable.is_empty()
            }
        };
        let is_complete = cut(reply.stop).is_none() && reply.stop != StopReason::Paused;
        ends_turn && is_complete && !self.would_be_nudged(&reply.text)
    }

    /// Whether the reply is validated as the turn's output. The reply belongs to the last model call of a turn, which
    /// offered no tools.
    fn is_last_answer(&self, reply: &ResolvedReply) -> bool {
        cut(reply.stop).is_none() && !reply.text.trim().is_empty()
    }

    /// Reminds or nudges the model if a reply without a tool call must not end the turn. Returns false if the reply
    /// may be the output of the turn. A reply that was cut is not classified, because the feedback about the cut
    /// follows (L12).
    fn continues_without_call(&mut self, text: &str, stop: StopReason, change: &mut Change) -> bool {
        let handling = match self.no_tool_call(text, change) {
            ReplyHandling::MayBeAnswer if cut(stop).is_none() => self.nudge_unless_answer(text, change),
            handling => handling,
        };
        handling == ReplyHandling::TurnContinues
    }

    /// Counts a successful model call. The seen count of each message that was sent increases by one (L3).
    fn count_call(&mut self) {
        let sent: Vec<_> = self.sent().map(|entry| entry.id).collect();
        self.model_calls += 1;
        if sent.len() < self.view.len() {
            for entry in self.view.iter_mut().filter(|entry| sent.binary_search(&entry.id).is_err()) {
                entry.since += 1;
            }
        }
    }

    /// Adds masks for media items. A media item keeps its first mask, so that the beginning of the prompt stays the
    /// same (P4).
    fn keep_masks(&mut self, masks: Vec<Mask>) {
        let position = |mask: &Mask| (mask.message, mask.part, mask.item);
        for mask in masks {
            if self.masks.iter().all(|existing| position(existing) != position(&mask)) {
                self.masks.push(mask);
            }
        }
    }

    fn begin_batch(&mut self, reply: ResolvedReply, change: &mut Change) {
        let ResolvedReply { text, replay, mut calls, unreadable, .. } = reply;
        self.report_unreadable(&unreadable, change);
        let feedback = (!unreadable.is_empty()).then(|| text_dialect::feedback(&unreadable));
        let Some(turn) = &mut self.turn else { return self.inconsistent(NO_TURN) };
        let (turn_number, step) = (turn.number, turn.interactions);
        turn.effort.note_tool_call();
        keep_first_loop_break(&mut calls);
        let highest = calls.iter().filter_map(|call| match call.disposition {
            Disposition::Ready { priority, .. } => Some(priority),
            _ => None,
        });
        let highest = highest.max();
        let numbers = (1..=calls.len()).map(|n| format!("call_{turn_number}_{step}_{n}"));
        let calls: Vec<(CallId, ResolvedCall)> = numbers.map(|id| CallId(self.unique_id(&id))).zip(calls).collect();
        self.append_request(text, replay, &calls, change);
        let mut batch = Batch { feedback, ..Batch::new(step) };
        for (id, call) in calls {
            let entry = self.begin_call(id, call, step, highest, change);
            batch.calls.push(entry);
        }
        if let Some(turn) = &mut self.turn {
            turn.phase = Phase::Working(batch);
        }
        self.refuse_disabled(change);
        self.complete_batch(change);
        self.announce_suspension(change);
    }

    /// Appends the model's message, which consists of its text, its calls and the provider's data.
    pub(super) fn append_request(
        &mut self,
        text: String,
        replay: Option<Replay>,
        calls: &[(CallId, ResolvedCall)],
        change: &mut Change,
    ) {
        let mut parts = Vec::with_capacity(calls.len() + 2);
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        parts.extend(calls.iter().map(|(id, call)| {
            let (name, arguments) = (call.name.clone(), call.arguments.clone());
            Part::ToolCall(ToolCall { id: id.clone(), name, arguments })
        }));
        parts.extend(replay.map(Part::Replay));
        let parts = depth::shallow_parts(parts);
        let tokens = tokens::of_parts(&parts);
        self.append(change, Role::Assistant, Body::Parts(parts), tokens);
    }

    fn begin_call(
        &mut self,
        id: CallId,
        call: ResolvedCall,
        step: u32,
        highest: Option<i32>,
        change: &mut Change,
    ) -> BatchCall {
        let mut record = CallRecord {
            id: id.clone(),
            turn: self.turns,
            step,
            name: call.name.clone(),
            source: call.source,
            arguments: call.arguments,
            edited: None,
            state: CallState::Waiting,
            attempt: 0,
            result: None,
        };
        let name = call.name.clone();
        let mut entry = BatchCall::new(id.clone(), name.clone(), CallProgress::Waiting);
        if let Approval::Remembered(grant) = &call.approval {
            entry.authorization = Some(Authorization::Remembered(grant.clone()));
        }
        entry.arguments = fingerprint_of(&record.arguments);
        let tool_exists = !matches!(call.disposition, Disposition::NotFound { .. });
        match initial_state(call.disposition, &call.approval, highest) {
            InitialState::Waits { sequential, repeatable } => {
                (entry.sequential, entry.repeatable) = (sequential, repeatable);
            }
            InitialState::NeedsApproval { sequential, repeatable, identity } => {
                record.state = CallState::AwaitingApproval;
                let state = CallProgress::AwaitingApproval { identity: Some(identity) };
                (entry.sequential, entry.repeatable, entry.state) = (sequential, repeatable, state);
            }
            // Calls that end a turn need no approval.
            InitialState::LoopBreak(loop_break) => {
                (entry.loop_break, entry.authorization) = (Some(loop_break), None);
            }
            InitialState::Deferred => {
                self.emit(change, EventKind::ToolDeferred { call: id, name });
                let has_plan = self.turn.as_ref().is_some_and(|turn| turn.plan.is_some());
                let why = if has_plan { DEFERRED_BY_PLAN } else { DEFERRED };
                entry.state = CallProgress::abandoned(tokens::of_text(why));
                (record.state, record.result) = (CallState::Finished, Some(text_result(why, true)));
            }
            InitialState::Settled { result, disabling, event } => {
                // A call to a tool that does not exist is reported by `tool_not_found` instead of `tool_call`.
                if tool_exists {
                    let (call, name, arguments) = (id.clone(), name.clone(), record.arguments.clone());
                    self.emit(change, EventKind::ToolCall { call, name, arguments, attempt: 0, by_client: false });
                }
                let CountedOutcome { result, end, tool_effect } = self.note_outcome(&entry, *result, disabling);
                let shown = self.shown(&id, &result);
                let tokens = tokens::of_text(&shown);
                entry.state = CallProgress::Finished { tokens, end: Some(end), answered: false };
                for denial in result.denials.iter().cloned() {
                    self.emit(change, EventKind::Denied { call: Some(id.clone()), denial });
                }
                self.emit(change, event(id.clone(), name.clone(), shown));
                (record.state, record.result) = (CallState::Finished, Some(result));
                if tool_effect == ToolEffect::Disabled {
                    self.emit(change, EventKind::ToolDisabled { call: id, name });
                }
            }
        }
        change.calls.push(CallChange::Requested(record));
        entry
    }

    /// Ends the turn with an accepted output (L13).
    pub(super) fn finish(&mut self, data: OutputData, finish: EndReason, change: &mut Change) {
        let text = data.for_history();
        // If the output is a reply, the budget was already reported before `stream_complete`.
        if matches!(&self.turn, Some(Turn { phase: Phase::Validating { text: reply, .. }, .. }) if *reply == text) {
            self.append_reply(change, &text);
        } else {
            self.append_text(change, Role::Assistant, &text);
            self.emit_budget(change);
        }
        let session = self.session.clone();
        let Some(turn) = &self.turn else { return self.inconsistent(NO_TURN) };
        let output = Output {
            data: data.into_value(),
            finish,
            limit_reached: finish == EndReason::Limit,
            execution_units: turn.units(),
            usage: turn.usage,
            interactions: turn.interactions,
            model: turn.model.clone(),
            session,
            turn: turn.number,
            messages: None,
        };
        self.end_turn(TurnEnd::Finished(output), change);
    }

    pub(super) fn end_turn(&mut self, end: TurnEnd, change: &mut Change) {
        let reason = match &end {
            TurnEnd::Finished(output) => output.finish,
            TurnEnd::Failed(_) => EndReason::Error,
            TurnEnd::Cancelled => EndReason::Cancelled,
        };
        if let Some(turn) = &mut self.turn {
            turn.phase = Phase::Ended(end);
            turn.repetition = Default::default();
        }
        if self.delegated_by.is_some() {
            // A delegated session runs no further turn for a prompt that arrived too late to steer its turn.
            self.queued_prompts.retain(|prompt| !prompt.steers);
        }
        let cost = self.turn.as_ref().map(Turn::cost);
        self.emit(change, EventKind::LoopEnd { reason, cost });
    }

    /// Returns the estimated tokens of the messages that the next model call sends.
    pub(super) fn sent_tokens(&self) -> u32 {
        self.sent().fold(0_u32, |sum, entry| sum.saturating_add(entry.tokens))
    }

    /// Reports the token budget (L26). Does nothing if the prompt has not been built yet.
    pub(super) fn emit_budget(&mut self, change: &mut Change) {
        self.report_budget(self.sent_tokens(), change);
    }

    /// Reports the token budget. The reported budget includes the tokens of `answer`, which has not been appended as a
    /// message yet.
    pub(super) fn emit_budget_including(&mut self, answer: &str, change: &mut Change) {
        let answer = tokens::of_parts(&[Part::Text(answer.to_owned())]);
        self.report_budget(self.sent_tokens().saturating_add(answer), change);
    }

    fn report_budget(&mut self, messages: u32, change: &mut Change) {
        let budget = self.prompt_budget();
        if budget.window == 0 {
            return;
        }
        let kind = EventKind::ContextBudget {
            total: budget.window,
            system: budget.system,
            tools: budget.tools,
            reserved: budget.reserved,
            messages,
            remaining: budget.remaining(messages),
        };
        self.emit(change, kind);
    }

    /// Marks calls as dispatched. From now on, the calls may be running (D2).
    pub(super) fn dispatched(&mut self, calls: Vec<DispatchedCall>, change: &mut Change) {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &mut self.turn else {
            return self.inconsistent(NO_OPEN_BATCH);
        };
        let mut events = Vec::with_capacity(calls.len());
        let mut loop_breaking = None;
        for DispatchedCall { call: id, arguments, awaits } in calls {
            let Some(call) = batch.call_mut(&id) else { return self.inconsistent(NO_SUCH_CALL) };
            call.state = CallProgress::Running;
            // If the tool has already run and requested a service, only the request to the service is sent, and this
            // does not count as a further attempt of the call.
            let runs = call.request.is_none();
            call.attempt += u32::from(runs);
            let (name, attempt) = (call.name.clone(), call.attempt);
            let by_client = awaits.as_ref().is_some_and(|awaits| awaits.cause == WaitCause::Client);
            if let Some(loop_break) = call.loop_break.filter(|_| awaits.is_none()) {
                loop_breaking = Some((id.clone(), loop_break, arguments.clone()));
            }
            match awaits {
                Some(awaits) => {
                    if let Err(contradiction) = batch.mark_outstanding(&id, awaits, change) {
                        return self.inconsistent(contradiction);
                    }
                }
                None => change.calls.push(call.state_change()),
            }
            if runs {
                events.push(EventKind::ToolCall { call: id, name, arguments, attempt, by_client });
            }
        }
        for kind in events {
            self.emit(change, kind);
        }
        if let Some((call, loop_break, arguments)) = loop_breaking {
            self.break_loop(call, loop_break, arguments, change);
        }
        self.announce_suspension(change);
    }

    /// Records the result of a call. After the last result of a batch, all results are appended to the history in the
    /// order of the calls (L9).
    pub(super) fn settle(&mut self, id: &CallId, result: CallResult, change: &mut Change) {
        self.record(id, result, change);
        self.after_results(change);
    }

    /// Continues the turn after calls have finished: begins the next step, performs a call that ends the turn, or
    /// suspends the turn.
    pub(super) fn after_results(&mut self, change: &mut Change) {
        self.complete_batch(change);
        // A call that ends the turn may have waited for the calls that have now finished.
        if matches!(&self.turn, Some(Turn { phase: Phase::Working(batch), .. }) if !batch.is_blocked()) {
            self.announce_resumption(change);
        }
        self.announce_suspension(change);
    }

    /// Records the result of a call and emits the event for this result.
    pub(super) fn record(&mut self, id: &CallId, result: CallResult, change: &mut Change) {
        let Some(call) = self.batch_call(id).cloned() else { return self.inconsistent(NO_SUCH_CALL) };
        let CountedOutcome { result, end, tool_effect } =
            self.note_outcome(&call, depth::shallow_result(result), Disabling::Allowed);
        let shown = self.shown(id, &result);
        let tokens = tokens::of_text(&shown).saturating_add(tokens::of_media(&result.content));
        // An outstanding call counts as answered only if its result is recorded here. If the turn ends before the
        // response arrives, the call is abandoned and does not count as answered.
        let answered = call.state.is_outstanding();
        let Some(entry) = self.batch_call(id) else { return self.inconsistent(NO_SUCH_CALL) };
        entry.state = CallProgress::Finished { tokens, end: Some(end), answered };
        let BatchCall { name, spent_cost: spent, attempt, .. } = call;
        let cost = if result.cost == CallCost::default() { spent } else { result.cost };
        // If the call never ran, its `tool_call` event has not been emitted yet (L30). The host adds the arguments from
        // the call's record later.
        if attempt == 0 {
            let (arguments, by_client) = (Value::Null, false);
            let (call, name) = (id.clone(), name.clone());
            self.emit(change, EventKind::ToolCall { call, name, arguments, attempt, by_client });
        }
        self.record_result(id, name.clone(), CallResult { cost, ..result }, shown, change);
        if tool_effect == ToolEffect::Disabled {
            self.emit(change, EventKind::ToolDisabled { call: id.clone(), name });
            self.refuse_disabled(change);
        }
    }

    fn batch_call(&mut self, id: &CallId) -> Option<&mut BatchCall> {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &mut self.turn else { return None };
        batch.call_mut(id)
    }

    fn complete_batch(&mut self, change: &mut Change) {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &self.turn else {
            return;
        };
        if batch.is_done() {
            let (handed_on, answered) = (batch.outstanding.clone(), batch.answered());
            let feedback = batch.feedback.clone();
            self.announce_resumption(change);
            self.append_results(change);
            self.append_feedback(feedback, change);
            if handed_on != answered {
                return self.fail(TurnError::OutstandingMismatch { handed_on, answered }, change);
            }
            if let Some(error) = self.repeated_error() {
                return self.fail(error, change);
            }
            if let Some(turn) = &mut self.turn {
                turn.lifecycle = Lifecycle::ToolResult;
            }
            self.finish_plan_step(change);
            self.next_step(change);
        }
    }

    pub(super) fn append_results(&mut self, change: &mut Change) {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &self.turn else {
            return;
        };
        let tokens_of = |state: &CallProgress| match state {
            CallProgress::Finished { tokens, .. } => *tokens,
            _ => 0,
        };
        let results: Vec<_> = batch.calls.iter().map(|call| (call.id.clone(), tokens_of(&call.state))).collect();
        for (id, tokens) in results {
            self.append(change, Role::Tool, Body::ResultOf(id), tokens.saturating_add(tokens::PER_MESSAGE));
        }
    }

    /// Records a result for every open call of the batch, because each call must have a result even if the turn ends
    /// early. `waiting` is the result of calls that never ran, and `running` is the result of the other calls. Does
    /// nothing if no batch is open.
    pub(super) fn abandon_batch(&mut self, waiting: &str, running: &str, change: &mut Change) {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &mut self.turn else {
            return;
        };
        // The results of a complete batch are already in the history.
        if batch.is_done() {
            return;
        }
        let mut abandoned = Vec::new();
        for call in &mut batch.calls {
            let text = match call.state {
                CallProgress::Waiting | CallProgress::AwaitingApproval { .. } if call.attempt == 0 => waiting,
                CallProgress::Checking => waiting,
                CallProgress::Waiting
                | CallProgress::AwaitingApproval { .. }
                | CallProgress::Running
                | CallProgress::Outstanding { .. }
                | CallProgress::OutcomeUnknown => running,
                CallProgress::Finished { .. } => continue,
            };
            call.state = CallProgress::abandoned(tokens::of_text(text));
            abandoned.push((call.id.clone(), call.name.clone(), text));
        }
        for (id, name, text) in abandoned {
            self.record_result(&id, name, text_result(text, true), text.to_owned(), change);
        }
        self.append_results(change);
    }

    fn record_result(&mut self, id: &CallId, name: String, result: CallResult, shown: String, change: &mut Change) {
        for denial in result.denials.iter().cloned() {
            self.emit(change, EventKind::Denied { call: Some(id.clone()), denial });
        }
        if result.is_error {
            self.note_failure(&name, &shown);
        }
        if result.tool == ToolAvailability::Removed {
            self.emit(change, EventKind::ToolNotFound { call: id.clone(), name: name.clone() });
        }
        let (call, cost) = (id.clone(), result.cost);
        let kind = match result.is_error {
            true => EventKind::ToolResultError { call, name, content: shown, cost },
            false => EventKind::ToolResult { call, name, content: shown, cost },
        };
        change.calls.push(CallChange::Finished { id: id.clone(), result });
        self.emit(change, kind);
    }

    fn shown(&self, id: &CallId, result: &CallResult) -> String {
        let limit = self.turn.as_ref().map_or(usize::MAX, |turn| turn.config.result_characters as usize);
        view::shown_text(id, &result.content, limit)
    }
}
