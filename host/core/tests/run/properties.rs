//! Property tests with a random driver. The driver applies replies, outcomes, crashes, duplicates, cancellations and
//! decisions in any order. [`crate::session`] and [`crate::ledger`] check the invariants after every input.

mod moves;

use crate::session::{
    Session, WIDE, call, dispatched, grant, rejected, reply, respond_to, restored, result, waiting_for,
};
use agent_core::approval::{ApprovalAnswer, ApprovalVerdict, GrantScope, LastingGrant, ReapprovalRequest, ScopedGrant};
use agent_core::change::CallState;
use agent_core::event::WaitCause;
use agent_core::loop_break::LoopBreak;
use agent_core::message::{CallId, Digest, Message, Role, TurnInput};
use agent_core::model::Usage;
use agent_core::plan::PlanStep;
use agent_core::plugin::{History, OutputData, TraceContext};
use agent_core::run::{
    Action, AfterFailure, Answerer, Approval, Decision, Dispatch, Disposition, Input, LoopConfig, MAX_QUEUED_PROMPTS,
    ModelFailure, OutputVerdict, PlanBudgets, PlannedStep, PlannerReply, PromptBudget, QueuedPrompt, ResolvedCall,
    ResolvedReply, Retryability, Summarised, TurnContext, TurnEnd, TurnError,
};
use agent_core::text_dialect::UnreadableCall;
use agent_core::tool::{CallCost, ModelUse, ToolError};
use moves::{Move, MoveKind, Pick, Stray, moves};
use proptest::prelude::*;
use serde_json::json;

impl Move {
    fn start(&self) -> Input {
        Input::Start {
            input: if self.coin {
                TurnInput::Text(self.text.into())
            } else {
                TurnInput::Json(json!({"text": self.text}))
            },
            config: self.config.clone(),
            plugins: Vec::new(),
            pinned: None,
            trace: TraceContext { traceparent: "00-1-2-01".into(), tracestate: None },
        }
    }

    fn context(&self) -> Input {
        let built = self.pick.index(3);
        let messages = (0..built).map(|nth| Message { seen_count: nth as u32, ..Message::text(Role::User, self.text) });
        Input::Context {
            context: TurnContext {
                history: if self.coin { History::LeaveOut } else { History::Keep },
                messages: messages.collect(),
                budget: self.budget(),
                plan: (self.calls.len() % 2 == 1).then_some(PlanBudgets { planner: WIDE, executor: WIDE }),
                ..Default::default()
            },
        }
    }

    /// Returns a token budget. Some context windows are so small that a few messages fill them.
    fn budget(&self) -> PromptBudget {
        let window = match self.calls.len() {
            6 => 2_900,
            4 => 1_420,
            3 => 1_600,
            _ => WIDE.window,
        };
        PromptBudget { window, ..WIDE }
    }

    fn summarised(&self) -> Input {
        Input::Summarised(Summarised {
            text: self.text.repeat(self.pick.index(400)),
            files: vec![self.text.to_owned(); self.pick.index(3)],
            by: "scripted/one".into(),
            usage: Usage::new(20, 2),
        })
    }

    fn reply(&self) -> Input {
        let calls = self.calls.iter().enumerate().map(|(position, disposition)| {
            let approval = match (self.approval_bits >> position & 1, self.coin) {
                (0, _) => Approval::NotNeeded,
                (_, true) => Approval::Needed(self.digest()),
                (_, false) => Approval::Remembered(grant("tool")),
            };
            // There are two tool names, because outstanding calls must be counted separately for each tool (L11).
            let name = match disposition {
                Disposition::Breaks(LoopBreak::Complete) => "task_completion",
                Disposition::Breaks(LoopBreak::Ask) => "ask_question",
                Disposition::Breaks(LoopBreak::Converse) => "converse",
                _ if position % 2 == 0 => "tool",
                _ => "other",
            };
            ResolvedCall { approval, ..call(name, disposition.clone()) }
        });
        let step = |position: usize| PlannedStep {
            step: PlanStep { tool: "tool".into(), task: self.text.into() },
            offered: vec!["tool".into()],
            tokens: position as u32,
        };
        let plan = match self.pick.index(4) {
            0 => PlannerReply::Invalid("no JSON".into()),
            _ => PlannerReply::Steps((0..self.calls.len()).map(step).collect()),
        };
        let broken = UnreadableCall::ParseError { problem: "no JSON".into(), written: self.text.into() };
        let unreadable = if self.pick.index(5) == 4 { vec![broken] } else { Vec::new() };
        let reply = reply(self.text, calls.collect::<Vec<ResolvedCall>>());
        Input::Reply(ResolvedReply { plan: Some(plan), unreadable, written: self.text.into(), ..reply })
    }

    fn model_failed(&self) -> Input {
        let then = match self.pick.index(5) {
            0 | 1 => AfterFailure::Retry { wait_ms: 10 },
            2 | 3 => {
                let budget = self.budget();
                AfterFailure::Next { model_index: self.pick.index(4) as u32 + 1, model: "scripted/two".into(), budget }
            }
            _ => AfterFailure::GiveUp,
        };
        Input::ModelFailed(ModelFailure {
            model: "scripted/one".into(),
            message: "busy".into(),
            retryability: Retryability::Retryable,
            then,
        })
    }

    fn verdict(&self) -> Input {
        if self.coin {
            rejected("no")
        } else {
            Input::Verdict(OutputVerdict::Accepted(OutputData::Text(self.text.into())))
        }
    }

    fn outcome(&self, call: &CallId) -> Input {
        let mut result = result(self.text);
        result.is_error = self.coin;
        Input::Outcome { call: call.clone(), result }
    }

    fn resolve(&self, call: &CallId) -> Input {
        let decision = match self.calls.len() {
            0..=2 => Decision::Retry,
            3..=4 => Decision::Failed("no".into()),
            _ => Decision::Result("yes".into()),
        };
        Input::Resolve { call: call.clone(), decision }
    }

    /// Returns a random reason for a call to wait: usually a service, sometimes the user, another agent or a client.
    fn cause(&self) -> WaitCause {
        let expires_at = self.coin.then_some(5);
        match self.pick.index(8) {
            0 => WaitCause::Answer { question: self.text.into(), expires_at },
            1 => WaitCause::Agent { session: "child".into() },
            2 => WaitCause::Client,
            _ => WaitCause::Service { event_type: "service".into(), expires_at, emits: None },
        }
    }

    fn dispatch(&self, dispatches: Vec<Dispatch>) -> Input {
        let granted: Vec<CallId> = dispatches
            .iter()
            .filter(|dispatch| dispatch.authorization.is_some())
            .map(|dispatch| dispatch.call.clone())
            .collect();
        if !granted.is_empty() && self.pick.index(4) == 0 {
            return self.ask_again(&granted);
        }
        match (self.pick.index(16), dispatches.first()) {
            (0, Some(first)) => return self.forbidden(&first.call),
            // Simulates a configuration that now requires an approval for the call but did not require the
            // approval before.
            (2, Some(first)) => return self.ask_again(std::slice::from_ref(&first.call)),
            _ => {}
        }
        let calls: Vec<CallId> = dispatches.into_iter().map(|dispatch| dispatch.call).collect();
        let first = if self.coin { 0 } else { self.pick.index(calls.len()) };
        let Input::Dispatched { mut calls } = dispatched(&calls[first..]) else { unreachable!() };
        for (position, call) in calls.iter_mut().enumerate() {
            call.awaits = (self.service_bits >> position & 1 == 1).then(|| waiting_for(&call.call, self.cause()));
        }
        Input::Dispatched { calls }
    }

    /// Returns the input that a running call causes: its result, or its request to a service (P2).
    fn call_input(&self, call: &CallId) -> Input {
        if self.service_bits & 128 == 128 {
            let cost = CallCost { cpu_us: 7, ..Default::default() };
            return Input::Pending { call: call.clone(), awaits: waiting_for(call, self.cause()), cost };
        }
        self.outcome(call)
    }

    fn respond(&self, session: &Session, call: &CallId) -> Input {
        let Input::Outcome { call, result } = self.outcome(call) else { unreachable!() };
        respond_to(&session.run, call, result)
    }

    /// Returns the identity of the tool, which has sometimes changed since the approval was requested.
    fn digest(&self) -> Digest {
        Digest::from_sha256([if self.pick.index(5) == 0 { 8 } else { 7 }; 32])
    }

    fn ask_again(&self, calls: &[CallId]) -> Input {
        let again = |call: &CallId| ReapprovalRequest { call: call.clone(), digest: self.digest() };
        Input::RequestReapproval { calls: calls.iter().map(again).collect() }
    }

    fn forbidden(&self, call: &CallId) -> Input {
        Input::Forbidden { call: call.clone(), error: ToolError::Denied { message: self.text.into() } }
    }

    fn approval(&self, calls: &[CallId]) -> Input {
        let answer = |(position, call): (usize, &CallId)| {
            let scope = [GrantScope::Once, GrantScope::Session, GrantScope::Always][self.pick.index(3)];
            let verdict = match self.approval_bits >> (position % 8) & 1 {
                0 => {
                    let grant = ScopedGrant { scope, grant: LastingGrant { digest: self.digest(), ..grant("tool") } };
                    ApprovalVerdict::Granted { edited: self.coin.then(|| json!({"edited": true})), grant }
                }
                _ => ApprovalVerdict::Denied { reason: self.coin.then(|| self.text.to_owned()) },
            };
            ApprovalAnswer { call: call.clone(), verdict }
        };
        Input::Approval { answers: calls.iter().enumerate().map(answer).collect() }
    }

    /// Returns an input that ends the wait of one or more waiting calls: a response, a decision, approval answers or
    /// an expiry.
    fn unblock(&self, session: &Session, waits: &[agent_core::event::Wait]) -> Input {
        let wait = &waits[self.pick.index(waits.len())];
        match &wait.cause {
            WaitCause::OutcomeUnknown => self.resolve(&wait.call),
            WaitCause::Approval { .. } => {
                let asking = session.ledger.in_state(CallState::AwaitingApproval);
                let count = 1 + self.pick.index(asking.len());
                self.approval(&asking[asking.len() - count..])
            }
            _ if self.calls.len() == 3 => Input::Expire { call: wait.call.clone() },
            _ => self.respond(session, &wait.call),
        }
    }

    /// Returns an input that the run's action requires.
    fn proceed(&self, session: &Session) -> Input {
        let running = session.ledger.in_state(CallState::Started);
        match session.run.action() {
            Action::Idle | Action::Ended => self.start(),
            Action::BuildContext => self.context(),
            Action::Summarise(_) => self.summarised(),
            Action::CallModel(_) if self.calls.len() == 5 => self.model_failed(),
            Action::CallModel(_) => self.reply(),
            Action::Dispatch(_) if self.coin && !running.is_empty() => self.call_input(self.pick.get(&running)),
            Action::Dispatch(dispatches) => self.dispatch(dispatches),
            Action::AwaitOutcome => self.call_input(self.pick.get(&running)),
            Action::Validate(_) => self.verdict(),
            Action::Suspended(suspension) => self.unblock(session, &suspension.waits),
        }
    }

    fn stray(&self, stray: Stray, session: &Session) -> Input {
        let calls = &session.ledger.calls;
        let call = match calls.is_empty() || self.calls.len() == 1 {
            true => CallId("call_0_0_0".into()),
            // The call is one of the latest calls of the session, because earlier calls cannot be open.
            false => calls[calls.len() - 1 - self.pick.index(calls.len().min(6))].record.id.clone(),
        };
        match stray {
            Stray::Start => self.start(),
            Stray::Context => self.context(),
            Stray::Summarised => self.summarised(),
            Stray::Reply => self.reply(),
            Stray::ModelFailed => self.model_failed(),
            Stray::Undo => Input::Undo,
            Stray::QueuePrompt => {
                let trace = self.coin.then(|| TraceContext { traceparent: "t".into(), tracestate: None });
                Input::QueuePrompt {
                    prompt: QueuedPrompt {
                        input: TurnInput::Text("And then?".into()),
                        trace,
                        steers: self.calls.len() > 1,
                    },
                }
            }
            Stray::Dispatched if self.coin => dispatched(&[call.clone(), call]),
            Stray::Dispatched => dispatched(&[call]),
            Stray::Outcome => self.outcome(&call),
            Stray::Verdict => self.verdict(),
            Stray::Resolve => self.resolve(&call),
            Stray::Pending => {
                let awaits = waiting_for(&call, self.cause());
                Input::Pending { call, awaits, cost: CallCost::default() }
            }
            // Sometimes the response comes from a sender for which the call does not wait.
            Stray::Respond if self.coin => {
                let Input::Outcome { call, result } = self.outcome(&call) else { unreachable!() };
                Input::Respond { call, from: Answerer::User, result }
            }
            Stray::Respond => self.respond(session, &call),
            Stray::Expire => Input::Expire { call },
            Stray::Approval if self.coin && self.calls.len() == 2 => self.approval(&[call.clone(), call]),
            Stray::Approval if self.calls.is_empty() => self.approval(&[]),
            Stray::Approval => self.approval(&[call]),
            Stray::RequestReapproval if self.calls.is_empty() => self.ask_again(&[]),
            Stray::RequestReapproval if self.calls.len() == 2 => self.ask_again(&[call.clone(), call]),
            Stray::RequestReapproval => self.ask_again(&[call]),
            Stray::Forbidden => self.forbidden(&call),
            Stray::ModelSpent => Input::ModelSpent { usage: Usage::new(4, 1) },
            Stray::PluginUsedModel => {
                let usage = Usage::new(3, 2);
                Input::PluginUsedModel { plugin: "p".into(), used: ModelUse { asks: 1, usage } }
            }
        }
    }

    fn apply_to(&self, session: &mut Session) {
        let input = match self.kind {
            MoveKind::Proceed => self.proceed(session),
            MoveKind::Cancel => Input::Cancel,
            MoveKind::Fail => Input::Failed(TurnError::ModelFailed {
                message: "no answer".into(),
                retryability: Retryability::Retryable,
            }),
            MoveKind::Crash => {
                session.run = restored(&session.run);
                Input::Recover
            }
            MoveKind::Stray(stray) => self.stray(stray, session),
        };
        let is_valid = is_valid(&input, session);
        let result = session.apply(input.clone());
        assert_eq!(result.is_ok(), is_valid, "{input:?} returned {result:?}");
    }
}

/// Whether an input is valid, according to the ledger and the run's action.
fn is_valid(input: &Input, session: &Session) -> bool {
    let state = |id: &CallId| {
        let calls = &session.ledger.calls;
        calls.iter().find(|call| call.record.id == *id).map(|call| call.record.state)
    };
    match (input, session.run.action()) {
        (Input::Start { .. }, action) => matches!(action, Action::Idle | Action::Ended),
        (
            Input::Cancel
            | Input::Failed(_)
            | Input::Recover
            | Input::PluginUsedModel { .. }
            | Input::ModelSpent { .. }
            | Input::Denied { .. },
            action,
        ) => !matches!(action, Action::Idle | Action::Ended),
        (Input::Context { .. }, action) => action == Action::BuildContext,
        (Input::Summarised(_), action) => matches!(action, Action::Summarise(_)),
        (Input::Reply(_), action) => matches!(action, Action::CallModel(_)),
        (Input::ModelFailed(failure), Action::CallModel(plan)) => match failure.then {
            AfterFailure::Next { model_index, .. } => model_index > plan.model_index,
            _ => true,
        },
        (Input::ModelFailed(_), _) => false,
        (Input::QueuePrompt { .. }, action) => {
            let queued = session.run.queued_prompts.len();
            (queued > 0 || !matches!(action, Action::Idle | Action::Ended)) && queued < MAX_QUEUED_PROMPTS
        }
        (Input::Undo, action) => matches!(action, Action::Idle | Action::Ended) && !session.run.view.is_empty(),
        (Input::Verdict(_), action) => matches!(action, Action::Validate(_)),
        (
            Input::Outcome { call, .. } | Input::Pending { call, .. } | Input::ServiceNeedsApproval { call, .. },
            action,
        ) => {
            // While the result of a call is being checked, the call is not running.
            state(call) == Some(CallState::Started) && !matches!(action, Action::Validate(_))
        }
        (Input::Resolve { call, .. }, _) => state(call) == Some(CallState::OutcomeUnknown),
        (Input::Expire { call }, _) => state(call) == Some(CallState::Outstanding),
        (Input::Respond { call, from, .. }, _) => {
            let waits = session.run.waits();
            waits.iter().any(|wait| {
                wait.call == *call
                    && match wait.cause {
                        WaitCause::Service { .. } => *from == Answerer::Service,
                        WaitCause::Agent { .. } => *from == Answerer::Agent,
                        WaitCause::Answer { .. } => *from == Answerer::User,
                        WaitCause::Client => *from == Answerer::Client,
                        WaitCause::Approval { .. } | WaitCause::OutcomeUnknown => false,
                    }
            })
        }
        (Input::Approval { answers }, _) => {
            let ids: Vec<&CallId> = answers.iter().map(|answer| &answer.call).collect();
            let distinct = ids.iter().all(|id| ids.iter().filter(|other| *other == id).count() == 1);
            let asking = ids.iter().all(|id| state(id) == Some(CallState::AwaitingApproval));
            distinct && asking && !ids.is_empty() && session.ledger.user_asked
        }
        (Input::RequestReapproval { calls }, _) => {
            let once = |id: &CallId| calls.iter().filter(|request| request.call == *id).count() == 1;
            let breaks = |id: &CallId| matches!(session.ledger.call(id).disposition, Disposition::Breaks(_));
            let waiting = |id: &CallId| state(id) == Some(CallState::Waiting) && once(id);
            calls.iter().all(|request| waiting(&request.call) && !breaks(&request.call)) && !calls.is_empty()
        }
        (Input::Forbidden { call, .. }, _) => state(call) == Some(CallState::Waiting),
        (Input::Dispatched { calls }, Action::Dispatch(dispatches)) => {
            let once = |id: &CallId| calls.iter().filter(|call| call.call == *id).count() == 1;
            let distinct = calls.iter().all(|call| once(&call.call));
            distinct && calls.iter().all(|call| dispatches.iter().any(|dispatch| dispatch.call == call.call))
        }
        (Input::Dispatched { .. }, _) => false,
    }
}

/// Applies inputs until the turn ends. The simulated model always calls a tool, and its answers are always rejected.
/// Returns the number of applied inputs.
fn drain(session: &mut Session) -> u32 {
    let bad = Move {
        kind: MoveKind::Proceed,
        config: LoopConfig::default(),
        calls: vec![Disposition::Ready { priority: 0, sequential: true, repeatable: false }; 4],
        text: "wrong",
        // If `pick` were 0, every approved call would need a new approval each time it is dispatched.
        pick: Pick(1),
        coin: true,
        approval_bits: 0,
        service_bits: 0,
    };
    if !session.run.is_open() {
        session.must(bad.start());
    }
    let mut steps = 0;
    while session.run.is_open() {
        bad.apply_to(session);
        steps += 1;
        assert!(steps < 1_000, "the turn does not end");
    }
    steps
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_path_through_the_loop_keeps_the_invariants(moves in moves()) {
        let mut session = Session::new();
        for step in &moves {
            step.apply_to(&mut session);
            let end = session.run.turn.as_ref().and_then(|turn| turn.end());
            prop_assert!(!matches!(end, Some(TurnEnd::Failed(TurnError::OutstandingMismatch { .. }))), "L11: {end:?}");
        }
        drain(&mut session);
        assert_eq!(session.run.action(), Action::Ended);
    }

    // L1: the same inputs lead to the same session, regardless of whether the state stays in memory or is restored
    // before each input.
    #[test]
    fn l1_a_session_with_a_restored_state_continues_in_the_same_way(moves in moves()) {
        let (mut kept_session, mut restored_session) = (Session::new(), Session::new());
        for step in &moves {
            step.apply_to(&mut kept_session);
            restored_session.run = restored(&restored_session.run);
            step.apply_to(&mut restored_session);
            assert_eq!(kept_session.run.snapshot(), restored_session.run.snapshot());
        }
        assert_eq!(kept_session.ledger.events, restored_session.ledger.events);
    }
}

#[test]
fn the_state_grows_with_the_view_and_not_with_hidden_messages() {
    let snapshot_after = |rejections: u32| {
        let config = LoopConfig { max_interactions: 5_000, max_corrections: 5_000, ..Default::default() };
        let mut session = Session::calling(config);
        for _ in 0..rejections {
            session.reply("wrong", Vec::new());
            session.reject("no");
        }
        assert_eq!(session.run.view.len(), 3);
        assert_eq!(session.ledger.messages.len(), 1 + 2 * rejections as usize);
        session.run.snapshot().len()
    };
    // The size of the state increases only because its numbers get longer: about ten numbers get two more digits each.
    let (few, many) = (snapshot_after(5), snapshot_after(500));
    assert!(many <= few + 40, "{few} bytes after 5 rejected answers, {many} after 500");
}

#[test]
fn the_state_contains_no_content_of_the_history() {
    let sizes = [10, 100_000].map(|length| {
        let mut session = Session::calling(LoopConfig::default());
        let long = "x".repeat(length);
        session.reply(&long, vec![crate::session::plain("a")]);
        session.dispatch();
        session.outcome("call_1_1_1", &long);
        session.reply(&long, Vec::new());
        session.reject(&long);
        session.answer("done");
        session.run.snapshot().len()
    });
    assert!(sizes[1] <= sizes[0] + 40, "{sizes:?}");
}
