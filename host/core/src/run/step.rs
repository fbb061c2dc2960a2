//! The steps of a turn: a model call, what it asked for, and the way to the next one or to the end.

use super::batch::{Batch, BatchCall, Progress};
use super::budget::Fit;
use super::config::AtLimit;
use super::depth;
use super::effort::{MOST_EMPTY, Taken};
use super::end::{Output, TurnEnd, TurnError};
use super::eviction::AfterEviction;
use super::finishing::settle_rivals;
use super::input::{Approval, DispatchedCall, Disposition, RepliedStep, ResolvedCall};
use super::planning::{Asked, Offer};
use super::refusal::cut;
use super::repetition::{Guarded, Switch, fingerprint_of};
use super::state::{Mask, Run};
use super::turn::{Phase, Turn};
use crate::approval::Leave;
use crate::change::{Body, CallChange, CallRecord, CallResult, CallState, Change, ToolPresence};
use crate::event::{EndReason, EventKind};
use crate::loop_break::{Finish, LoopBreak};
use crate::message::{CallId, Content, Part, Replay, Role, ToolCall};
use crate::model::StopReason;
use crate::plugin::{Lifecycle, OutputData};
use crate::tool::{CallCost, ToolError};
use crate::{text_dialect, tokens, view};
use serde_json::Value;

const DEFERRED: &str = "deferred: a higher-priority call ran first; call it again if it is still needed";
const BESIDE_THE_STEP: &str = "deferred: a step of the plan makes one call, and another one of this reply was it";

/// A result of one text that no tool gave.
pub(super) fn text_result(text: &str, is_error: bool) -> CallResult {
    let content = vec![Content::Text(text.to_owned())];
    CallResult { content, is_error, ..Default::default() }
}

/// What a call of a reply begins with: it waits, or it has its result already.
enum Beginning {
    Waits { sequential: bool, repeatable: bool },
    Asks { sequential: bool, repeatable: bool },
    Breaks(LoopBreak),
    Deferred,
    Settled { result: Box<CallResult>, switch: Switch, event: fn(CallId, String, String) -> EventKind },
}

impl Run {
    /// Goes on with the next step, after an eviction where it is time for one, or ends the turn at its bound (L4, L27).
    pub(super) fn next_step(&mut self, change: &mut Change) {
        let Some(turn) = &self.turn else { return };
        let interactions = turn.interactions;
        if interactions >= turn.config.max_interactions && turn.config.at_limit == AtLimit::Error {
            let reason = "the bound is reached".to_owned();
            return self.fail(TurnError::InteractionsExhausted { interactions, reason, last_reply: None }, change);
        }
        if !self.evict(AfterEviction::NextStep) {
            self.begin_step(change);
        }
    }

    /// Begins the next step, the last one where interactions or tokens are spent (L4, L26).
    pub(super) fn begin_step(&mut self, change: &mut Change) {
        self.steer_plan(change);
        let (messages, budget) = (self.sent_tokens(), self.prompt_budget());
        let count = self.sent().count() as u32;
        let sections = self.system_sections().into_iter().map(|section| section.name).collect();
        let Some(turn) = &mut self.turn else { return };
        let interactions = turn.interactions;
        let spent = interactions >= turn.config.max_interactions;
        let last = spent || budget.is_full(messages, &turn.config);
        if last && budget.fits_without_tools(messages) == Fit::Not {
            return self.too_large(budget.system.saturating_add(messages), change);
        }
        turn.phase = Phase::Calling { last };
        turn.attempt = 1;
        let last = last || turn.effort.summary;
        let offered_tools = match turn.offer() {
            Offer::These(tools) if !last => Some(u32::try_from(tools.len()).unwrap_or(u32::MAX)),
            Offer::These(_) | Offer::All | Offer::Nothing => None,
        };
        self.emit(change, EventKind::LoopIteration { step: interactions + 1, last });
        self.emit_budget(change);
        self.emit(change, EventKind::ContextBuilt { step: interactions + 1, messages: count, sections, offered_tools });
    }

    /// Ends a turn whose prompt no model call can take. What the turn began with leaves the view, so that the next turn
    /// finds the session as it was.
    pub(super) fn too_large(&mut self, tokens: u32, change: &mut Change) {
        let Some(turn) = &self.turn else { return };
        let (number, window, first) = (turn.number, turn.budget.window, turn.interactions == 0);
        if first {
            let begun: Vec<_> = self.view.iter().filter(|entry| entry.turn == number).map(|entry| entry.id).collect();
            for id in begun {
                self.hide(id, change);
            }
        }
        self.fail(TurnError::PromptTooLarge { tokens, window }, change);
    }

    /// Takes a whole reply: counts it, and either begins its calls or has its text validated (L3, L5, L6).
    pub(super) fn reply(&mut self, mut reply: RepliedStep, change: &mut Change) {
        self.count_call();
        self.keep_masks(std::mem::take(&mut reply.masks));
        let next = self.next_message;
        let Some(turn) = &mut self.turn else { return };
        let Phase::Calling { last } = turn.phase else { return };
        let summary = std::mem::take(&mut turn.effort.summary);
        turn.interactions += 1;
        turn.spend(reply.usage, 1);
        turn.model = reply.model.clone();
        turn.latest_from = next;
        let interactions = turn.interactions;
        let asked = turn.asked();
        let answers = if last || summary { self.is_last_word(&reply) } else { self.is_answer(&reply) };
        if answers {
            self.emit_budget_with(&reply.text, change);
        }
        // A plan is no text for the user.
        let text = if asked == Asked::Planner { String::new() } else { reply.text.clone() };
        let complete = EventKind::StreamComplete { text, model: reply.model.clone(), usage: reply.usage };
        self.emit(change, complete);
        self.refuse_what_cannot_run(&mut reply);
        let Some(reply) = self.reply_to_plan(reply, last, change) else { return };
        if !last && !summary && reply.calls.is_empty() && !reply.unreadable.is_empty() {
            return self.ask_for_readable_calls(&reply.written, &reply.unreadable, change);
        }
        if !last && !summary && !reply.calls.is_empty() {
            return self.begin_batch(reply, change);
        }
        self.tell_unreadable(&reply.unreadable, change);
        if last && reply.text.trim().is_empty() {
            let reason = "the last call, made without tools, brought no text".to_owned();
            return self.fail(TurnError::InteractionsExhausted { interactions, reason, last_reply: None }, change);
        }
        if summary && reply.text.trim().is_empty() {
            return self.fail(TurnError::EmptyReplies { replies: MOST_EMPTY }, change);
        }
        // What a planner makes of its plan is the answer, unless that says itself that it is none.
        if asked == Asked::Synthesis && !last && self.leaves_work(&reply.text) {
            self.fall_back("the planner's answer leaves work undone, or refuses it", change);
        }
        let judged = self.turn.as_ref().is_some_and(|turn| turn.plan.is_none());
        if !last && !summary && judged && self.is_no_end((&reply.text, reply.stop), change) {
            return;
        }
        if let Some(turn) = &mut self.turn {
            turn.phase = Phase::Validating { text: reply.text, last };
        }
        if let Some(problem) = cut(reply.stop) {
            self.rejected("the host".to_owned(), vec![problem], change);
        }
    }

    /// Whether a reply is the turn's output should no validator be against it: then the window is reported with it, before
    /// the reply is said to be whole (L26, L30).
    fn is_answer(&self, reply: &RepliedStep) -> bool {
        let Some(turn) = &self.turn else { return false };
        let ends = match turn.asked() {
            Asked::Planner | Asked::Executor { .. } => false,
            Asked::Synthesis => !reply.text.trim().is_empty(),
            Asked::Model => turn.config.finish == Finish::Text && reply.calls.is_empty() && reply.unreadable.is_empty(),
        };
        ends && cut(reply.stop).is_none() && !self.leaves_work(&reply.text)
    }

    /// The same of a reply that no other can follow, the tools being withheld.
    fn is_last_word(&self, reply: &RepliedStep) -> bool {
        cut(reply.stop).is_none() && !reply.text.trim().is_empty()
    }

    /// Whether a reply without a tool call has been dealt with, since it cannot end the turn. What was cut is no reply to
    /// judge: the model is told that it was (L12).
    fn is_no_end(&mut self, (text, stop): (&str, StopReason), change: &mut Change) -> bool {
        let taken = match self.no_tool_call(text, change) {
            Taken::AsAnswer if cut(stop).is_none() => self.persist(text, change),
            taken => taken,
        };
        taken == Taken::AsNoEnd
    }

    /// One more successful model call: what was sent has been seen once more, what was held back has not (L3).
    fn count_call(&mut self) {
        let sent: Vec<_> = self.sent().map(|entry| entry.id).collect();
        self.model_calls += 1;
        if sent.len() < self.view.len() {
            for entry in self.view.iter_mut().filter(|entry| sent.binary_search(&entry.id).is_err()) {
                entry.since += 1;
            }
        }
    }

    /// A medium that is masked once stays as it is masked, so that prompts keep their beginning (P4).
    fn keep_masks(&mut self, masks: Vec<Mask>) {
        let place = |mask: &Mask| (mask.message, mask.part, mask.item);
        for mask in masks {
            if self.masks.iter().all(|kept| place(kept) != place(&mask)) {
                self.masks.push(mask);
            }
        }
    }

    fn begin_batch(&mut self, reply: RepliedStep, change: &mut Change) {
        let RepliedStep { text, replay, mut calls, unreadable, .. } = reply;
        self.tell_unreadable(&unreadable, change);
        let feedback = (!unreadable.is_empty()).then(|| text_dialect::feedback(&unreadable));
        let Some(turn) = &mut self.turn else { return };
        let (turn_number, step) = (turn.number, turn.interactions);
        turn.effort.called();
        settle_rivals(&mut calls);
        let highest = calls.iter().filter_map(|call| match call.disposition {
            Disposition::Ready { priority, .. } => Some(priority),
            _ => None,
        });
        let highest = highest.max();
        let numbers = (1..=calls.len()).map(|n| format!("call_{turn_number}_{step}_{n}"));
        let calls: Vec<(CallId, ResolvedCall)> = numbers.map(|id| CallId(self.unique_id(&id))).zip(calls).collect();
        self.append_request((text, replay), &calls, change);
        let mut batch = Batch { feedback, ..Batch::new(step) };
        for (id, call) in calls {
            let entry = self.begin_call(id, call, (step, highest), change);
            batch.calls.push(entry);
        }
        if let Some(turn) = &mut self.turn {
            turn.phase = Phase::Working(batch);
        }
        self.refuse_what_is_off(change);
        self.complete_batch(change);
        self.announce_suspension(change);
    }

    /// The model's own message: what it wrote, then its calls.
    fn append_request(
        &mut self,
        (text, replay): (String, Option<Replay>),
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
        (step, highest): (u32, Option<i32>),
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
        let (asked_about, granted) = match &call.approval {
            Approval::NotNeeded => (None, None),
            Approval::Needed(digest) => (Some(digest.clone()), None),
            Approval::Remembered(grant) => (None, Some(Leave::Remembered(grant.clone()))),
        };
        let mut entry =
            BatchCall { asked_about, granted, ..BatchCall::new(id.clone(), name.clone(), Progress::Waiting) };
        entry.arguments = fingerprint_of(&record.arguments);
        let is_there = !matches!(call.disposition, Disposition::NotFound { .. });
        match beginning(call.disposition, &call.approval, highest) {
            Beginning::Waits { sequential, repeatable } => {
                (entry.sequential, entry.repeatable) = (sequential, repeatable);
            }
            Beginning::Asks { sequential, repeatable } => {
                record.state = CallState::Asking;
                (entry.sequential, entry.repeatable, entry.state) = (sequential, repeatable, Progress::Asking);
            }
            // Ending a turn is no deed that somebody must allow.
            Beginning::Breaks(breaks) => {
                (entry.breaks, entry.asked_about, entry.granted) = (Some(breaks), None, None);
            }
            Beginning::Deferred => {
                self.emit(change, EventKind::ToolDeferred { call: id, name });
                let goes_by_plan = self.turn.as_ref().is_some_and(|turn| turn.plan.is_some());
                let why = if goes_by_plan { BESIDE_THE_STEP } else { DEFERRED };
                entry.state = Progress::Done { tokens: tokens::of_text(why) };
                (record.state, record.result) = (CallState::Finished, Some(text_result(why, true)));
            }
            Beginning::Settled { result, switch, event } => {
                // A tool that is not there has an event of its own.
                if is_there {
                    let (call, name, arguments) = (id.clone(), name.clone(), record.arguments.clone());
                    self.emit(change, EventKind::ToolCall { call, name, arguments, attempt: 0 });
                }
                let (result, guarded) = self.guarded(&mut entry, *result, switch);
                let shown = self.shown(&id, &result);
                entry.state = Progress::Done { tokens: tokens::of_text(&shown) };
                for denial in result.denials.iter().cloned() {
                    self.emit(change, EventKind::Denied { call: Some(id.clone()), denial });
                }
                self.emit(change, event(id.clone(), name.clone(), shown));
                (record.state, record.result) = (CallState::Finished, Some(result));
                if guarded == Guarded::TurnedOff {
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
        self.append_text(change, Role::Assistant, &text);
        // A reply that is the output as it stands has been reported with its `stream_complete`.
        if !matches!(&self.turn, Some(Turn { phase: Phase::Validating { text: said, .. }, .. }) if *said == text) {
            self.emit_budget(change);
        }
        let session = self.session.clone();
        let Some(turn) = &self.turn else { return };
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
        self.emit(change, EventKind::LoopEnd { reason });
    }

    /// Estimated tokens of the messages that the next call sends.
    pub(super) fn sent_tokens(&self) -> u32 {
        self.sent().fold(0_u32, |sum, entry| sum.saturating_add(entry.tokens))
    }

    /// Reports the window (L26). Before the prompt is built there is nothing to report.
    pub(super) fn emit_budget(&mut self, change: &mut Change) {
        self.report_budget(self.sent_tokens(), change);
    }

    /// The same with an answer that is no message yet.
    pub(super) fn emit_budget_with(&mut self, answer: &str, change: &mut Change) {
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

    /// The intents of calls: from here on they may be running (D2).
    pub(super) fn dispatched(&mut self, calls: Vec<DispatchedCall>, change: &mut Change) {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &mut self.turn else {
            return;
        };
        let mut events = Vec::with_capacity(calls.len());
        let mut breaking = None;
        for DispatchedCall { call: id, arguments, awaits } in calls {
            let Some(call) = batch.call_mut(&id) else { continue };
            call.state = Progress::Running;
            // A call whose tool has run already is only handed on: that is no other attempt.
            let runs = call.request.is_none();
            call.attempt += u32::from(runs);
            let (name, attempt) = (call.name.clone(), call.attempt);
            if let Some(breaks) = call.breaks.filter(|_| awaits.is_none()) {
                breaking = Some(((id.clone(), breaks), arguments.clone()));
            }
            match awaits {
                Some(awaits) => batch.hand_on(&id, awaits, change),
                None => change.calls.push(call.moved()),
            }
            if runs {
                events.push(EventKind::ToolCall { call: id, name, arguments, attempt });
            }
        }
        for kind in events {
            self.emit(change, kind);
        }
        if let Some((call, arguments)) = breaking {
            self.break_loop(call, arguments, change);
        }
        self.announce_suspension(change);
    }

    /// A call has its result. When it was the last of its batch, the results go into the history in call order (L9).
    pub(super) fn settle(&mut self, id: &CallId, result: CallResult, change: &mut Change) {
        self.record(id, result, change);
        self.after_results(change);
    }

    /// What comes when calls have their results: the next step, the call that ends the turn, or a suspension.
    pub(super) fn after_results(&mut self, change: &mut Change) {
        self.complete_batch(change);
        // A call that ends the turn may have waited for this one.
        if matches!(&self.turn, Some(Turn { phase: Phase::Working(batch), .. }) if !batch.is_stuck()) {
            self.announce_resumption(change);
        }
        self.announce_suspension(change);
    }

    /// Stores and tells a call's result.
    pub(super) fn record(&mut self, id: &CallId, result: CallResult, change: &mut Change) {
        let Some(mut call) = self.batch_call(id).cloned() else { return };
        let (result, guarded) = self.guarded(&mut call, depth::shallow_result(result), Switch::There);
        let shown = self.shown(id, &result);
        let tokens = tokens::of_text(&shown).saturating_add(tokens::of_media(&result.content));
        call.state = Progress::Done { tokens };
        let (name, spent, attempt) = (call.name.clone(), call.spent, call.attempt);
        if let Some(entry) = self.batch_call(id) {
            *entry = call;
        }
        let cost = if result.cost == CallCost::default() { spent } else { result.cost };
        // The call never ran, so no event has named it yet (L30). The host adds the arguments from the call's record.
        if attempt == 0 {
            let arguments = Value::Null;
            self.emit(change, EventKind::ToolCall { call: id.clone(), name: name.clone(), arguments, attempt });
        }
        self.record_result((id, name.clone()), CallResult { cost, ..result }, shown, change);
        if guarded == Guarded::TurnedOff {
            self.emit(change, EventKind::ToolDisabled { call: id.clone(), name });
            self.refuse_what_is_off(change);
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
            if let Some(error) = self.error_that_ends_it() {
                return self.fail(error, change);
            }
            if let Some(turn) = &mut self.turn {
                turn.lifecycle = Lifecycle::ToolResult;
            }
            self.leave_step(change);
            self.next_step(change);
        }
    }

    pub(super) fn append_results(&mut self, change: &mut Change) {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &self.turn else {
            return;
        };
        let results: Vec<_> = batch.calls.iter().map(|call| (call.id.clone(), call.state)).collect();
        for (id, state) in results {
            let tokens = if let Progress::Done { tokens } = state { tokens } else { 0 };
            self.append(change, Role::Tool, Body::ResultOf(id), tokens.saturating_add(tokens::PER_MESSAGE));
        }
    }

    /// Gives every open call of the batch a result, so that pairs stay whole when the turn ends before them.
    pub(super) fn abandon_batch(&mut self, waiting: &str, running: &str, change: &mut Change) {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &mut self.turn else {
            return;
        };
        // A batch that is complete has its results in the history already.
        if batch.is_done() {
            return;
        }
        let mut abandoned = Vec::new();
        for call in &mut batch.calls {
            let text = match call.state {
                Progress::Waiting | Progress::Asking if call.attempt == 0 => waiting,
                Progress::Checking => waiting,
                Progress::Waiting
                | Progress::Asking
                | Progress::Running
                | Progress::Outstanding
                | Progress::Unknown => running,
                Progress::Done { .. } => continue,
            };
            call.state = Progress::Done { tokens: tokens::of_text(text) };
            abandoned.push(((call.id.clone(), call.name.clone()), text));
        }
        for ((id, name), text) in abandoned {
            self.record_result((&id, name), text_result(text, true), text.to_owned(), change);
        }
        self.append_results(change);
    }

    fn record_result(&mut self, (id, name): (&CallId, String), result: CallResult, shown: String, change: &mut Change) {
        for denial in result.denials.iter().cloned() {
            self.emit(change, EventKind::Denied { call: Some(id.clone()), denial });
        }
        if result.is_error {
            self.note_failure(&name, &shown);
        }
        if result.tool == ToolPresence::Gone {
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

fn beginning(disposition: Disposition, approval: &Approval, highest: Option<i32>) -> Beginning {
    match disposition {
        Disposition::Ready { priority, .. } if Some(priority) < highest => Beginning::Deferred,
        Disposition::Breaks(breaks) => Beginning::Breaks(breaks),
        Disposition::Ready { sequential, repeatable, .. } if matches!(approval, Approval::Needed(_)) => {
            Beginning::Asks { sequential, repeatable }
        }
        Disposition::Ready { sequential, repeatable, .. } => Beginning::Waits { sequential, repeatable },
        Disposition::NotFound { message } => Beginning::Settled {
            result: Box::new(text_result(&ToolError::NotFound { message }.for_model(), true)),
            switch: Switch::Missing,
            event: |call, name, _| EventKind::ToolNotFound { call, name },
        },
        Disposition::Refused(error) => Beginning::Settled {
            result: Box::new(text_result(&error.for_model(), true)),
            switch: Switch::There,
            event: |call, name, content| EventKind::ToolResultError { call, name, content, cost: Default::default() },
        },
        Disposition::Withheld { message, denial } => Beginning::Settled {
            result: Box::new(CallResult {
                denials: vec![denial],
                ..text_result(&ToolError::Denied { message }.for_model(), true)
            }),
            switch: Switch::There,
            event: |call, name, content| EventKind::ToolResultError { call, name, content, cost: Default::default() },
        },
    }
}
