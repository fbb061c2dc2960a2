//! The in-memory stand-in for the store holds the data of a session that a store would hold, and checks the invariants
//! after every change.

mod checks;
mod entries;

pub(crate) use entries::{Call, Stored};

use agent_core::approval::{ApprovalAnswer, ApprovalVerdict, ReapprovalRequest};
use agent_core::change::{Body, CallChange, CallRecord, CallResult, CallState, Change, HideReason, OutboxEffect};
use agent_core::event::{ApprovalItem, Event, EventKind};
use agent_core::loop_break::LoopBreak;
use agent_core::message::{CallId, Part, Role};
use agent_core::model::{StopReason, Usage};
use agent_core::plugin::History;
use agent_core::run::{
    Action, Approval, Decision, Disposition, Input, LoopConfig, MAX_CALLS, ModelRole, ResolvedCall, ResolvedReply, Run,
    UnitWeights, Validation, Weight,
};
use serde_json::Value;
use std::collections::BTreeSet;

/// Maximum number of nested levels of arguments that are stored as JSON.
const MAX_LEVELS: usize = 64;

#[derive(Default)]
pub(crate) struct Ledger {
    /// The stored messages in order. The first message has id 1.
    pub(crate) messages: Vec<Stored>,
    pub(crate) calls: Vec<Call>,
    pub(crate) events: Vec<Event>,
    /// Number of replies that the model has sent in the turn.
    pub(crate) replies: u32,
    /// Whether a user has been asked about the calls that need approval.
    pub(crate) user_asked: bool,
    pub(crate) outbox: Vec<String>,
    /// Names of the tools that were disabled in the turn (L28).
    disabled: BTreeSet<String>,
    /// Execution units that the turn has used, in millionths.
    units: u128,
    /// Whether the context builder left out the messages of earlier turns.
    leave_out: bool,
    /// The id of the last message with which the turn began, plus 1.
    begun_until: u64,
    /// Id of the first message that no model call has sent.
    new_from: u64,
    config: LoopConfig,
}

impl Ledger {
    /// Adds the cost of a successful model call (L5).
    fn spend(&mut self, usage: Usage) {
        let UnitWeights { prompt_token, completion_token, model_call } = self.config.execution_units;
        let millionths = |weight: Weight| (weight.units() * 1e6).round() as u128;
        self.units += millionths(prompt_token) * u128::from(usage.prompt_tokens);
        self.units += millionths(completion_token) * u128::from(usage.completion_tokens) + millionths(model_call);
    }

    pub(crate) fn call(&self, id: &CallId) -> &Call {
        self.calls.iter().find(|call| call.record.id == *id).unwrap_or_else(|| panic!("{id} was never requested"))
    }

    fn call_mut(&mut self, id: &CallId) -> &mut Call {
        self.calls.iter_mut().find(|call| call.record.id == *id).unwrap_or_else(|| panic!("{id} was never requested"))
    }

    /// Returns the ids of the calls that are in `state`.
    pub(crate) fn in_state(&self, state: CallState) -> Vec<CallId> {
        self.calls.iter().filter(|call| call.record.state == state).map(|call| call.record.id.clone()).collect()
    }

    /// Stores a change, and checks it against the input that caused it.
    pub(crate) fn commit(&mut self, before: &Run, input: &Input, change: &Change) {
        let open = before.is_open();
        match input {
            Input::Start { config, .. } => {
                (self.replies, self.units, self.leave_out) = (0, 0, false);
                self.config = config.clone();
                self.disabled.clear();
            }
            Input::PluginUsedModel { used, .. } => self.spend(used.usage),
            Input::ModelSpent { usage } => self.spend(*usage),
            Input::Summarised(summarised) => {
                self.spend(summarised.usage);
                self.check_eviction(before, change);
            }
            Input::Context { context } => {
                self.leave_out = context.history == History::LeaveOut;
                // Prompts that steer the turn follow the messages with which the turn began (I9).
                let is_steering = |event: &&Event| matches!(event.kind, EventKind::Steered { .. });
                let steering = change.events.iter().filter(is_steering).count();
                self.begun_until = before.next_message + (change.messages.len() - steering) as u64;
                self.new_from = self.begun_until;
            }
            Input::Reply(reply) => {
                self.new_from = before.next_message;
                self.user_asked = false;
                self.count_sent(before);
                self.replies += 1;
                self.spend(reply.usage);
            }
            Input::Resolve { call, decision: Decision::Retry } => self.call_mut(call).retry = true,
            Input::RequestReapproval { calls } => {
                self.user_asked = false;
                for ReapprovalRequest { call, digest } in calls {
                    self.call_mut(call).approval_identity = Some(digest.clone());
                }
            }
            Input::ServiceNeedsApproval { .. } => self.user_asked = false,
            Input::Approval { answers } => self.take_answers(answers),
            _ => {}
        }
        let mut requested = if let Input::Reply(reply) = input { reply.calls.clone() } else { Vec::new() };
        let is_plan_step =
            matches!(before.turn.as_ref().map(|turn| turn.model_role()), Some(ModelRole::Executor { .. }));
        if is_plan_step {
            keep_first_call(&mut requested, &self.disabled);
        }
        self.take_calls(input, (&requested, is_plan_step), change);
        self.take_messages(before.turns.max(1), input, change);
        self.take_hidden(change);
        self.take_events(open, change);
        self.take_outbox(input, change);
    }

    /// L26, L30: the budget is reported before `stream_complete` if and only if the next action is to validate the
    /// reply as an answer.
    pub(crate) fn check_order(after: &Run, change: &Change) {
        let complete = change.events.iter().position(|event| matches!(event.kind, EventKind::StreamComplete { .. }));
        let Some(index) = complete.filter(|_| after.is_open()) else { return };
        let reported = change.events[..index].iter().any(|event| matches!(event.kind, EventKind::ContextBudget { .. }));
        let checked = matches!(after.action(), Action::Validate(Validation { result: None, .. }));
        assert_eq!(reported, checked, "{:?}", change.events);
    }

    /// Checks that the request of a call is sent once, in the commit that dispatches the call (D2, I6).
    fn take_outbox(&mut self, input: &Input, change: &Change) {
        // If a call waits for something that needs no event, such as the user's answer, no request is sent.
        let silent = |id: &CallId| match input {
            Input::Dispatched { calls } => calls
                .iter()
                .any(|call| call.call == *id && call.awaits.as_ref().is_some_and(|awaits| awaits.event.is_none())),
            _ => false,
        };
        let sent_calls = change.calls.iter().filter_map(|call| match call {
            CallChange::Moved { id, state: CallState::Outstanding, .. } if !silent(id) => Some(id.0.as_str()),
            _ => None,
        });
        let events = change.outbox.iter().filter_map(|item| match &item.effect {
            OutboxEffect::Event(event) => Some((item.id.as_str(), event.id.as_str())),
            OutboxEffect::Allow(_) | OutboxEffect::Remember { .. } | OutboxEffect::Forget { .. } => None,
        });
        let expected: Vec<_> = sent_calls.map(|id| (id, id)).collect();
        assert_eq!(events.collect::<Vec<_>>(), expected);
        for item in &change.outbox {
            assert!(!self.outbox.contains(&item.id), "{} is sent twice", item.id);
            self.outbox.push(item.id.clone());
        }
    }

    /// Applies the answers of an approval. An answer about a tool other than the tool in the request is void (L17,
    /// row 19).
    fn take_answers(&mut self, answers: &[ApprovalAnswer]) {
        for ApprovalAnswer { call, verdict } in answers {
            let ApprovalVerdict::Granted { grant, edited } = verdict else { continue };
            let call = self.call_mut(call);
            match call.approval_identity.as_ref() == Some(&grant.grant.digest) {
                true => (call.granted, call.record.edited) = (true, edited.clone().or(call.record.edited.take())),
                false => {
                    call.approval_identity = Some(grant.grant.digest.clone());
                    self.user_asked = false;
                }
            }
        }
    }

    /// Counts a model call: the seen count of each sent message increases by one.
    fn count_sent(&mut self, before: &Run) {
        let sent: Vec<u64> = before.sent().map(|entry| entry.id).collect();
        let mut expected = Vec::new();
        for (id, message) in (1..).zip(&mut self.messages) {
            if !message.hidden && (!self.leave_out || message.turn == before.turns) {
                expected.push(id);
                message.seen += 1;
            }
        }
        assert_eq!(sent, expected, "the sent messages are those of the view, without left-out turns");
    }

    fn take_calls(&mut self, input: &Input, (requested, is_plan_step): (&[ResolvedCall], bool), change: &Change) {
        let priorities = requested.iter().filter_map(|call| match call.disposition {
            Disposition::Ready { priority, .. } if can_run(call, &self.disabled) => Some(priority),
            _ => None,
        });
        let (lowest, highest) = (priorities.clone().min(), priorities.max());
        let breaks = |call: &ResolvedCall| matches!(call.disposition, Disposition::Breaks(_));
        // Only the first loop-breaking call is accepted. No loop-breaking call is accepted if other calls were deferred
        // (L18) or if the current step of a plan already has its call (L24).
        let is_accepted = lowest == highest && (!is_plan_step || highest.is_none());
        let breaks = requested.iter().position(breaks).filter(|_| is_accepted);
        // If a reply was cut (row 31) or has too many calls, none of its calls runs.
        let is_cut =
            matches!(input, Input::Reply(ResolvedReply { stop: StopReason::Length | StopReason::ContentFilter, .. }));
        let is_void = is_cut || requested.len() > MAX_CALLS;
        let mut requested = requested.iter().enumerate();
        for call in &change.calls {
            match call {
                CallChange::Requested(record) => {
                    let (position, call) = requested.next().expect("only calls of the reply are recorded");
                    let ready = match call.disposition {
                        Disposition::Ready { priority, .. } => Some(priority) == highest,
                        Disposition::Breaks(_) => Some(position) == breaks,
                        _ => false,
                    };
                    self.request(record, call, ready && !is_void && can_run(call, &self.disabled));
                }
                CallChange::Moved { id, state, attempt } => self.check_moved_call((id, *state), *attempt, input),
                CallChange::Edited { id, arguments } => {
                    assert!(matches!(input, Input::Approval { .. }), "only an approval edits arguments (L17)");
                    let call = self.call(id);
                    assert!(
                        call.granted && call.record.edited.as_ref() == Some(arguments),
                        "the edited arguments are those of the user's answer (L17)"
                    );
                }
                CallChange::Finished { id, result } => {
                    let newly_disabled = newly_disabled(change);
                    let (asked, was_disabled) = (self.user_asked, self.disabled.contains(&self.call(id).record.name));
                    let record = &mut self.call_mut(id).record;
                    assert_ne!(record.state, CallState::Finished, "{id} has two results");
                    // A stored result may have a warning before the content that the tool returned. Calls to a disabled
                    // tool end with an error (L28).
                    let contains = |given: &CallResult| result.content.ends_with(&given.content);
                    let is_disabled = was_disabled || newly_disabled.contains(&record.name.as_str());
                    let has_begun = match record.state {
                        CallState::Waiting => false,
                        CallState::AwaitingApproval => asked,
                        _ => true,
                    };
                    let refused = is_disabled && !has_begun && result.is_error;
                    let is_refused_with = |call: &CallId| call != id && refused;
                    if let Input::Outcome { call, result: given } = input {
                        let own = call == id && contains(given) && record.state == CallState::Started;
                        assert!(own || is_refused_with(call), "an outcome finishes its own running call");
                    }
                    if let Input::Respond { call, result: given, .. } = input {
                        let own = call == id && contains(given) && record.state == CallState::Outstanding;
                        assert!(own || is_refused_with(call), "a response finishes its own outstanding call (L10)");
                    }
                    if let Input::Approval { answers } = input {
                        let denied = |answer: &_| matches!(answer, ApprovalVerdict::Denied { .. });
                        let named = answers.iter().any(|answer| answer.call == *id && denied(&answer.verdict));
                        let own = named && record.state == CallState::AwaitingApproval && result.is_error;
                        assert!(own || refused, "only a denial (L17) or a disabled tool (L28) finishes a call");
                    }
                    if let Input::Forbidden { call, .. } = input {
                        let own = call == id && record.state == CallState::Waiting && result.is_error;
                        assert!(own || is_refused_with(call), "a forbidden call had not begun (L17)");
                    }
                    (record.state, record.result) = (CallState::Finished, Some(result.clone()));
                }
            }
        }
    }

    fn request(&mut self, record: &CallRecord, call: &ResolvedCall, runs: bool) {
        assert!(self.calls.iter().all(|earlier| earlier.record.id != record.id), "{} is used twice", record.id);
        let text = || Value::String(call.arguments.to_string());
        let arguments = if levels(&call.arguments) > MAX_LEVELS { text() } else { call.arguments.clone() };
        assert_eq!((&record.name, &record.arguments, &record.source), (&call.name, &arguments, &call.source));
        assert_eq!((record.attempt, record.step), (0, self.replies));
        let breaks = matches!(call.disposition, Disposition::Breaks(_));
        let state = match runs {
            true if matches!(call.approval, Approval::Needed(_)) && !breaks => CallState::AwaitingApproval,
            true => CallState::Waiting,
            false => CallState::Finished,
        };
        assert_eq!(record.state, state, "only the highest priority runs (L6)");
        assert_eq!(record.result.as_ref().map(|result| result.is_error), (!runs).then_some(true));
        self.calls.push(Call {
            record: record.clone(),
            disposition: call.disposition.clone(),
            dispatches: 0,
            awaits_request_approval: false,
            granted: matches!(call.approval, Approval::Remembered(_)) && !breaks,
            approval_identity: match &call.approval {
                Approval::Needed(digest) => Some(digest.clone()),
                _ => None,
            },
            retry: false,
            results: 0,
        });
    }

    fn check_moved_call(&mut self, (id, state): (&CallId, CallState), attempt: u32, input: &Input) {
        let call = self.call_mut(id);
        let from = call.record.state;
        match state {
            CallState::Started => {
                assert!(matches!(input, Input::Dispatched { .. }));
                assert_eq!(from, CallState::Waiting, "{id} runs or has run");
                call.dispatched(id);
            }
            CallState::Waiting => {
                let recovered = *input == Input::Recover && from == CallState::Started && call.is_repeatable();
                let retried = call.retry && from == CallState::OutcomeUnknown;
                let named = |answers: &[ApprovalAnswer]| answers.iter().any(|answer| answer.call == *id);
                let answered = matches!(input, Input::Approval { answers } if named(answers));
                let allowed = answered && from == CallState::AwaitingApproval && call.granted;
                assert!(recovered || retried || allowed, "{id} waits again without a reason");
            }
            CallState::OutcomeUnknown => {
                assert!(*input == Input::Recover && from == CallState::Started && !call.is_repeatable(), "{id}");
            }
            CallState::AwaitingApproval => {
                let again = matches!(input, Input::RequestReapproval { .. }) && from == CallState::Waiting;
                let needs_approval = matches!(input, Input::ServiceNeedsApproval { .. }) && from == CallState::Started;
                assert!(again || needs_approval, "{id}");
                call.awaits_request_approval |= needs_approval;
                if let Input::ServiceNeedsApproval { digest, .. } = input {
                    call.approval_identity = Some(digest.clone());
                }
                call.granted = false;
            }
            CallState::Outstanding => {
                let dispatched = matches!(input, Input::Dispatched { .. }) && from == CallState::Waiting;
                let pending = matches!(input, Input::Pending { .. }) && from == CallState::Started;
                assert!(dispatched || pending, "{id} is sent without a reason");
                // If the tool has already run, the commit only sends the tool's request to a service and does not
                // dispatch the call.
                if dispatched && !call.awaits_request_approval {
                    call.dispatched(id);
                }
            }
            CallState::Finished => panic!("{id} finished without a result"),
        }
        call.record.state = state;
        assert_eq!(attempt, call.dispatches);
        call.record.attempt = attempt;
    }

    fn take_messages(&mut self, turn: u32, input: &Input, change: &Change) {
        let mut results = Vec::new();
        for (index, message) in change.messages.iter().enumerate() {
            assert_eq!(message.id, self.messages.len() as u64 + 1, "message ids have no gap");
            assert_eq!(message.turn, turn);
            let built = match input {
                Input::Context { context } => context.messages.get(index).map(|message| message.seen_count),
                _ => None,
            };
            let seen = built.unwrap_or(u32::from(message.role == Role::Assistant));
            if let Body::ResultOf(id) = &message.body {
                assert_eq!(message.role, Role::Tool);
                let call = self.call_mut(id);
                assert_eq!(call.record.state, CallState::Finished, "{id} is answered before it has a result");
                call.results += 1;
                assert_eq!(call.results, 1, "{id} is answered once");
                results.push(id.clone());
            }
            let (role, body) = (message.role, message.body.clone());
            self.messages.push(Stored { turn, role, body, seen, hidden: false });
        }
        if !results.is_empty() {
            let requested =
                self.messages.iter().rev().map(|message| calls_of(&message.body)).find(|calls| !calls.is_empty());
            assert_eq!(Some(results), requested, "a batch is answered completely, in call order (L9)");
        }
    }

    fn take_hidden(&mut self, change: &Change) {
        for hidden in &change.hidden {
            let message = &mut self.messages[hidden.id as usize - 1];
            assert!(!message.hidden, "message {} is hidden twice", hidden.id);
            assert_eq!(hidden.seen_count, message.seen, "a hidden message keeps its seen count (L3)");
            message.hidden = true;
        }
    }

    /// L27: an eviction removes only messages that were in the view and are not system messages. Neither the messages
    /// with which the open turn began nor new messages are evicted.
    fn check_eviction(&self, before: &Run, change: &Change) {
        let Action::Summarise(plan) = before.action() else { panic!("{:?}", before.action()) };
        let evicted: Vec<u64> =
            change.hidden.iter().filter(|hidden| hidden.why == HideReason::Evicted).map(|h| h.id).collect();
        assert_eq!(evicted, plan.messages, "exactly the summarised messages are evicted");
        for id in evicted {
            let message = &self.messages[id as usize - 1];
            assert_ne!(message.role, Role::System, "system messages stay");
            let is_new = id >= self.new_from || id < self.begun_until;
            assert!(message.turn < before.turns || !is_new, "message {id} began the turn, or is new to the model");
        }
        let events = change.events.iter().filter(|event| matches!(event.kind, EventKind::Evicted { .. })).count();
        assert_eq!(events, 1);
    }

    fn take_events(&mut self, mut open: bool, change: &Change) {
        for event in &change.events {
            assert_eq!(event.sequence, self.events.len() as u64 + 1, "events have no gap (L30)");
            assert_eq!((event.session.as_str(), event.provisional), ("subject", None));
            let starts = matches!(event.kind, EventKind::LoopStart { .. });
            assert_eq!(open, !starts, "loop_start is first, nothing follows loop_end: {event:?}");
            open = !matches!(event.kind, EventKind::LoopEnd { .. });
            self.check_suspension(&event.kind);
            if let EventKind::ToolDisabled { name, .. } = &event.kind {
                assert!(self.disabled.insert(name.clone()), "{name} is disabled twice (L28)");
            }
            self.user_asked |= matches!(event.kind, EventKind::ApprovalRequested { .. });
            self.events.push(event.clone());
        }
    }
}

/// Returns the names of the tools that a change disables.
fn newly_disabled(change: &Change) -> Vec<&str> {
    let names = change.events.iter().filter_map(|event| match &event.kind {
        EventKind::ToolDisabled { name, .. } => Some(name.as_str()),
        _ => None,
    });
    names.collect()
}

/// Whether a call may run: its tool is not disabled (L28), and its arguments are not nested too deeply (row 26).
fn can_run(call: &ResolvedCall, disabled: &BTreeSet<String>) -> bool {
    !disabled.contains(&call.name) && levels(&call.arguments) <= MAX_LEVELS
}

fn levels(json: &Value) -> usize {
    match json {
        Value::Array(items) => 1 + items.iter().map(levels).max().unwrap_or_default(),
        Value::Object(fields) => 1 + fields.values().map(levels).max().unwrap_or_default(),
        _ => 0,
    }
}

/// Keeps one call for the step of a plan (L24): the first call with the highest priority among the calls that can run.
fn keep_first_call(calls: &mut [ResolvedCall], disabled: &BTreeSet<String>) {
    let mut highest: Option<&mut i32> = None;
    for call in calls.iter_mut().filter(|call| can_run(call, disabled)) {
        if let Disposition::Ready { priority, .. } = &mut call.disposition {
            match &mut highest {
                Some(highest) if **highest >= *priority => *priority = i32::MIN,
                _ => {
                    if let Some(previous) = highest.replace(priority) {
                        *previous = i32::MIN;
                    }
                }
            }
        }
    }
}

fn calls_of(body: &Body) -> Vec<CallId> {
    let Body::Parts(parts) = body else { return Vec::new() };
    let calls = parts.iter().filter_map(|part| match part {
        Part::ToolCall(call) => Some(call.id.clone()),
        _ => None,
    });
    calls.collect()
}
