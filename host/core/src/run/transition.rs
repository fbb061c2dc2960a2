//! The transitions of a run. Each transition applies a valid input to the state and collects the changes that must
//! be stored.

use super::batch::CallProgress;
use super::budget::PromptBudget;
use super::config::LoopConfig;
use super::depth;
use super::end::{TurnEnd, TurnError};
use super::external_waits::ServiceApproval;
use super::input::{Decision, Input, OutputVerdict, TurnContext};
use super::plugin_changes;
use super::state::{NO_OPEN_BATCH, NO_SUCH_CALL, NO_TURN, QueuedPrompt, Run, ViewEntry};
use super::step::text_result;
use super::turn::{Phase, PinnedAgent, PinnedPlugin, Turn, counted_calls};
use crate::change::{Body, Change, HiddenMessage, HideReason, NewMessage, OutboxEffect, OutboxItem};
use crate::event::{EndReason, ErrorScope, EventKind, plugin_at_digest};
use crate::message::{MessageId, Part, Role, TurnInput};
use crate::model::Usage;
use crate::plugin::{History, Lifecycle, OutputData, TraceContext};
use crate::tool::{ModelUse, Violation};
use crate::{prompt, tokens};

// Result texts that the host gives to calls that are unfinished when the turn ends.
const CANCELLED_WAITING: &str = "cancelled before it ran";
const CANCELLED_RUNNING: &str = "cancelled; outcome unknown";
const FAILED_WAITING: &str = "not run: the turn ended with an error first";
const FAILED_RUNNING: &str = "the turn ended with an error while this ran; outcome unknown";

/// The contents of [`Input::Start`].
struct TurnStart {
    input: TurnInput,
    config: LoopConfig,
    plugins: Vec<PinnedPlugin>,
    pinned: Option<PinnedAgent>,
    trace: TraceContext,
}

impl Run {
    /// Applies an input that [`Run::check`] has accepted.
    pub(super) fn transition(&mut self, input: Input, change: &mut Change) {
        match input {
            Input::Start { input, config, plugins, pinned, trace } => {
                self.start(TurnStart { input, config, plugins, pinned, trace }, change);
            }
            Input::Context { context } => self.context(context, change),
            Input::Summarised(summarised) => self.summarised(summarised, change),
            Input::Reply(reply) => self.reply(reply, change),
            Input::ModelFailed(failure) => self.model_failed(failure, change),
            Input::Dispatched { calls } => self.dispatched(calls, change),
            Input::Outcome { call, result } => self.settle(&call, result, change),
            Input::Verdict(OutputVerdict::Accepted(data)) => self.accepted(data, change),
            Input::Verdict(OutputVerdict::Rejected { by, problems }) => self.rejected(by, problems, change),
            Input::Failed(error) => {
                self.leave_phase(change);
                self.fail(error, change);
            }
            Input::Cancel => self.cancel(change),
            Input::Recover => self.recover(change),
            Input::Pending { call, awaits, cost } => self.service_requested(&call, awaits, cost, change),
            Input::ServiceNeedsApproval { call, request, digest, cost } => {
                self.service_needs_approval(&call, request, ServiceApproval { digest, cost }, change)
            }
            Input::Respond { call, result, .. } => self.respond(&call, result, change),
            Input::Expire { call } => self.expire(&call, change),
            Input::Approval { answers } => self.approval(answers, change),
            Input::RequestReapproval { calls } => self.request_reapproval(calls, change),
            Input::Forbidden { call, error } => self.settle(&call, text_result(&error.for_model(), true), change),
            Input::Resolve { call, decision } => self.resolve(&call, decision, change),
            Input::Denied { denials } => {
                for (call, denial) in denials {
                    self.emit(change, EventKind::Denied { call, denial });
                }
            }
            Input::QueuePrompt { prompt } => {
                let input = depth::shallow_input(prompt.input);
                self.queued_prompts.push(QueuedPrompt { input, ..prompt });
            }
            Input::Undo => self.undo(change),
            Input::PluginUsedModel { plugin, used } => self.count_plugin_model_use(plugin, used),
            Input::ModelSpent { usage } => match &mut self.turn {
                Some(turn) => turn.spend(usage, counted_calls(usage)),
                None => self.inconsistent(NO_TURN),
            },
        }
    }

    /// Adds a plugin's use of the host's model to the cost of the turn (L5).
    fn count_plugin_model_use(&mut self, plugin: String, used: ModelUse) {
        self.asks = self.asks.saturating_add(used.asks);
        let Some(turn) = &mut self.turn else { return self.inconsistent(NO_TURN) };
        turn.spend(used.usage, counted_calls(used.usage));
        *turn.plugin_model_use.entry(plugin).or_default() += used;
    }

    fn start(&mut self, TurnStart { input, config, plugins, pinned, trace }: TurnStart, change: &mut Change) {
        self.turns += 1;
        // If this turn begins with the first queued prompt, the prompt is removed from the queue in the same change.
        // The prompt is therefore neither lost nor used twice.
        if self.queued_prompts.first().is_some_and(|queued| queued.input == input) {
            self.queued_prompts.remove(0);
        }
        let plugin_events =
            self.turn.as_ref().map(|turn| plugin_changes::between(&turn.plugins, &plugins)).unwrap_or_default();
        let names = plugins.iter().map(|plugin| plugin_at_digest(&plugin.name, &plugin.digest)).collect();
        self.turn = Some(Turn {
            number: self.turns,
            input: depth::shallow_input(input),
            config,
            plugins,
            pinned,
            trace,
            lifecycle: Lifecycle::Init,
            interactions: 0,
            corrections: 0,
            execution_units: 0,
            unit_millionths: 0,
            saved_tokens: 0,
            usage: Usage::default(),
            plugin_model_use: Default::default(),
            model: String::new(),
            model_index: 0,
            attempt: 1,
            sections: Vec::new(),
            history: History::Keep,
            state: None,
            budget: PromptBudget::default(),
            begun_until: 0,
            latest_from: self.next_message,
            rejected: None,
            effort: Default::default(),
            repetition: Default::default(),
            told_about_quoted_calls: false,
            rejected_call: None,
            offered: None,
            plan: None,
            replay: None,
            phase: Phase::Building,
        });
        self.emit(change, EventKind::LoopStart { agent: self.agent.clone(), plugins: names });
        for event in plugin_events {
            self.emit(change, event);
        }
    }

    fn context(&mut self, context: TurnContext, change: &mut Change) {
        let next = self.next_message;
        let Some(turn) = &mut self.turn else { return self.inconsistent(NO_TURN) };
        turn.sections = context.sections;
        turn.history = context.history;
        turn.state = context.state;
        turn.budget = context.budget;
        turn.offered = context.offered;
        let mut messages = context.messages;
        if messages.is_empty() {
            let mut message = turn.input.message();
            message.parts.splice(0..0, context.preface.iter().map(|section| Part::Preface(prompt::text_of(section))));
            messages.push(message);
        }
        turn.latest_from = next + messages.len() as u64;
        turn.begun_until = turn.latest_from;
        for message in messages {
            let parts = depth::shallow_parts(message.parts);
            let tokens = tokens::of_parts(&parts);
            self.append(change, message.role, Body::Parts(parts), tokens);
            if let Some(entry) = self.view.last_mut() {
                entry.first = message.seen_count;
            }
        }
        if !context.recalled.is_empty() {
            self.emit(change, EventKind::MemoriesRecalled { memories: context.recalled });
        }
        if let Some(budgets) = context.plan {
            self.begin_plan(budgets);
        }
        self.next_step(change);
    }

    /// Appends the rejected output and the feedback. The model is called again unless a limit of the turn has been
    /// reached (L12).
    pub(super) fn rejected(&mut self, by: String, problems: Vec<Violation>, change: &mut Change) {
        let Some(turn) = &mut self.turn else { return self.inconsistent(NO_TURN) };
        let Phase::Validating { text, last } = &turn.phase else {
            return self.completion_rejected(by, problems, change);
        };
        let (text, last) = (text.clone(), *last);
        turn.corrections += 1;
        let attempt = turn.corrections;
        let spent = attempt > turn.config.max_corrections;
        let interactions = turn.interactions;
        turn.lifecycle = Lifecycle::OutputErrorFeedback;
        self.leave_out_earlier_attempt(change);
        let feedback = feedback(&by, &problems, "Answer again");
        let reply = self.append_reply(change, &text);
        let feedback = self.append_text(change, Role::User, &feedback);
        if let Some(turn) = &mut self.turn {
            turn.rejected = Some([reply, feedback]);
        }
        self.emit(change, EventKind::OutputRejected { by: by.clone(), attempt, problems: problems.clone() });
        self.emit(change, EventKind::StreamClear);
        if last {
            let reason = format!("the last answer was rejected by {by}");
            self.fail(TurnError::InteractionsExhausted { interactions, reason, last_reply: Some(text) }, change);
        } else if spent {
            self.fail(TurnError::OutputRejected { by, attempts: attempt, problems, last_reply: text }, change);
        } else {
            self.next_step(change);
        }
    }

    /// Removes the previous rejected output from the view, because only the latest rejected output is sent again (L12).
    pub(super) fn leave_out_earlier_attempt(&mut self, change: &mut Change) {
        let Some(turn) = &mut self.turn else { return self.inconsistent(NO_TURN) };
        let (messages, call) = (turn.rejected.take(), turn.rejected_call.take());
        self.left_out.extend(call);
        for id in messages.into_iter().flatten() {
            self.hide(id, change);
        }
    }

    fn accepted(&mut self, data: OutputData, change: &mut Change) {
        match &data {
            OutputData::Json(json) if depth::is_too_deep(json) => {
                let message = format!("it has more than {} levels", depth::MAX_JSON_DEPTH);
                let problem = Violation { pointer: String::new(), rule: Some("depth".to_owned()), message };
                self.rejected("the host".to_owned(), vec![problem], change);
            }
            _ if matches!(&self.turn, Some(Turn { phase: Phase::Working(_), .. })) => self.completed(data, change),
            _ => {
                let last = matches!(&self.turn, Some(Turn { phase: Phase::Validating { last: true, .. }, .. }));
                self.finish(data, if last { EndReason::Limit } else { EndReason::Answered }, change);
            }
        }
    }

    /// Prepares the end of a turn that is cancelled or fails. If the input is not in the history yet, it is appended
    /// (D2). If an output was streamed, it is discarded (L30).
    fn leave_phase(&mut self, change: &mut Change) {
        match self.turn.as_ref().map(|turn| (&turn.phase, &turn.input)) {
            Some((Phase::Building, input)) => {
                let message = input.message();
                let tokens = tokens::of_parts(&message.parts);
                self.append(change, message.role, Body::Parts(message.parts), tokens);
            }
            Some((Phase::Validating { .. }, _)) => self.emit(change, EventKind::StreamClear),
            _ => {}
        }
    }

    fn cancel(&mut self, change: &mut Change) {
        self.leave_phase(change);
        self.clear_stream(change);
        self.abandon_batch(CANCELLED_WAITING, CANCELLED_RUNNING, change);
        self.emit_budget(change);
        // A user who cancels a turn does not expect that a queued prompt begins a new turn, so the queue is emptied.
        self.queued_prompts.clear();
        self.end_turn(TurnEnd::Cancelled, change);
    }

    /// Ends the turn with an error. Before the turn ends, every open call gets a result.
    pub(super) fn fail(&mut self, error: TurnError, change: &mut Change) {
        self.clear_stream(change);
        self.abandon_batch(FAILED_WAITING, FAILED_RUNNING, change);
        if let TurnError::BudgetExceeded(budget) = &error {
            self.emit(change, EventKind::BudgetExceeded { budget: budget.clone() });
        }
        let (code, message) = (error.code().to_owned(), error.to_string());
        self.emit(change, EventKind::Error { code, message, scope: ErrorScope::Turn });
        self.emit_budget(change);
        self.end_turn(TurnEnd::Failed(error), change);
    }

    /// Continues the open turn after the host has stopped and started again. If a call was running at
    /// that time and is repeatable, the host runs it again. Otherwise, a user must decide about the call (D3).
    fn recover(&mut self, change: &mut Change) {
        self.clear_stream(change);
        let Some(Turn { phase: Phase::Working(batch), .. }) = &mut self.turn else {
            return;
        };
        let mut unknown = Vec::new();
        for call in batch.calls.iter_mut().filter(|call| call.state.is_running()) {
            call.state = if call.repeatable { CallProgress::Waiting } else { CallProgress::OutcomeUnknown };
            change.calls.push(call.state_change());
            if !call.repeatable {
                unknown.push(EventKind::OutcomeUnknown { call: call.id.clone(), name: call.name.clone() });
            }
        }
        for kind in unknown {
            self.emit(change, kind);
        }
        self.announce_suspension(change);
    }

    fn resolve(&mut self, id: &crate::message::CallId, decision: Decision, change: &mut Change) {
        match decision {
            Decision::Retry => {
                let Some(Turn { phase: Phase::Working(batch), .. }) = &mut self.turn else {
                    return self.inconsistent(NO_OPEN_BATCH);
                };
                let Some(call) = batch.call_mut(id) else { return self.inconsistent(NO_SUCH_CALL) };
                call.state = CallProgress::Waiting;
                change.calls.push(call.state_change());
                self.announce_resumption(change);
            }
            Decision::Failed(message) => self.settle_waiting(id, text_result(&message, true), change),
            Decision::Result(text) => self.settle_waiting(id, text_result(&text, false), change),
        }
    }

    /// Emits the event that the turn continues after a suspension. Does nothing if no suspension was announced.
    pub(super) fn announce_resumption(&mut self, change: &mut Change) {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &mut self.turn else {
            return;
        };
        if std::mem::take(&mut batch.suspended) {
            self.emit(change, EventKind::Resumed);
        }
    }

    /// Appends a message to the session and to the view.
    pub(super) fn append(&mut self, change: &mut Change, role: Role, body: Body, tokens: u32) -> MessageId {
        let id = self.next_message;
        self.next_message += 1;
        let first = u32::from(role == Role::Assistant);
        self.view.push(ViewEntry { id, turn: self.turns, first, since: self.model_calls, tokens, role: Some(role) });
        change.messages.push(NewMessage { id, turn: self.turns, role, body, tokens });
        id
    }

    pub(super) fn append_text(&mut self, change: &mut Change, role: Role, text: &str) -> MessageId {
        let parts = vec![Part::Text(text.to_owned())];
        let tokens = tokens::of_parts(&parts);
        self.append(change, role, Body::Parts(parts), tokens)
    }

    /// Appends the text of the current reply, with the provider's data of the reply.
    pub(super) fn append_reply(&mut self, change: &mut Change, text: &str) -> MessageId {
        let replay = self.turn.as_mut().and_then(|turn| turn.replay.take());
        let parts = vec![Part::Text(text.to_owned())].into_iter().chain(replay.map(Part::Replay)).collect();
        let parts = depth::shallow_parts(parts);
        let tokens = tokens::of_parts(&parts);
        self.append(change, Role::Assistant, Body::Parts(parts), tokens)
    }

    /// Removes the last turn from the view (D5).
    fn undo(&mut self, change: &mut Change) {
        let last = self.view.iter().map(|entry| entry.turn).max();
        let undone: Vec<_> = self.view.iter().filter(|entry| Some(entry.turn) == last).map(|entry| entry.id).collect();
        for id in undone {
            self.hide_because(id, HideReason::Undone, change);
        }
        if let Some(turn) = last {
            change.outbox.push(OutboxItem { id: format!("forget_{turn}"), effect: OutboxEffect::Forget { turn } });
        }
        // The part of the summary about the turn cannot be removed, so a note in the summary tells the model that the
        // turn was undone.
        if let (Some(turn), Some(summary)) = (last, &mut self.summary)
            && summary.through_turn >= turn
        {
            summary.mark_undone(turn);
        }
    }

    /// Removes an obsolete message from the view. The message stays stored.
    pub(super) fn hide(&mut self, id: MessageId, change: &mut Change) {
        self.hide_because(id, HideReason::Superseded, change);
    }

    /// Removes a message from the view, with the given reason. The message stays stored.
    pub(super) fn hide_because(&mut self, id: MessageId, why: HideReason, change: &mut Change) {
        if let Some(index) = self.view.iter().position(|entry| entry.id == id) {
            let seen_count = self.seen_count(&self.view[index]);
            self.view.remove(index);
            self.masks.retain(|mask| mask.message != id);
            change.hidden.push(HiddenMessage { id, seen_count, why });
        }
    }

    pub(super) fn emit(&mut self, change: &mut Change, kind: EventKind) {
        let event = self.event(kind);
        change.events.push(event);
    }

    /// Emits an event that discards the reply that is being streamed, if the turn is waiting for a reply.
    fn clear_stream(&mut self, change: &mut Change) {
        if matches!(self.turn, Some(Turn { phase: Phase::Calling { .. }, .. })) {
            self.emit(change, EventKind::StreamClear);
        }
    }
}

/// Returns the feedback for the model about its rejected output. `how` is an instruction to the
/// model, such as "Answer again".
pub(super) fn feedback(by: &str, problems: &[Violation], how: &str) -> String {
    let mut text = format!("Your answer was not accepted ({by}). {how} with all of this put right:");
    for problem in problems {
        text.push_str("\n- ");
        if !problem.pointer.is_empty() {
            text.push_str(&format!("at {}: ", problem.pointer));
        }
        text.push_str(&problem.message);
    }
    text
}
