//! Checks that compare the ledger with the state of the run.

use super::*;

impl Ledger {
    /// Checks that a suspended turn emits `resumed` before it continues, and that no other turn emits `resumed` (L30).
    pub(super) fn check_suspension(&self, next: &EventKind) {
        let suspended = self.events.iter().rev().find_map(|event| match event.kind {
            EventKind::Suspended { .. } => Some(true),
            EventKind::Resumed | EventKind::LoopStart { .. } => Some(false),
            _ => None,
        });
        let suspended = suspended.unwrap_or(false);
        match next {
            EventKind::Resumed => assert!(suspended, "the turn was not suspended"),
            // A call may be denied while other calls wait. The event of the denied call has attempt 0, because the call
            // has never run.
            EventKind::ToolCall { attempt: 0, .. } => {}
            EventKind::ToolCall { .. } | EventKind::LoopIteration { .. } => {
                assert!(!suspended, "{next:?} while the turn waits")
            }
            EventKind::ApprovalRequested { calls, .. } => {
                let requested: Vec<CallId> = calls.iter().map(|item| item.call.clone()).collect();
                assert_eq!(
                    requested,
                    self.in_state(CallState::AwaitingApproval),
                    "all calls that need approval are in one request (L17)"
                );
                let about = |item: &ApprovalItem| {
                    item.digest.is_some() && item.digest == self.call(&item.call).approval_identity
                };
                assert!(calls.iter().all(about), "the request identifies the tool (L17)");
            }
            _ => {}
        }
    }

    /// Checks the invariants that must hold after every input.
    pub(crate) fn check(&self, run: &Run) {
        let view: Vec<u64> = run.view.iter().map(|entry| entry.id).collect();
        let visible = (1..).zip(&self.messages).filter(|(_, message)| !message.hidden);
        assert_eq!(
            view,
            visible.map(|(id, _)| id).collect::<Vec<u64>>(),
            "the view contains all messages that are not hidden"
        );
        for entry in &run.view {
            assert_eq!(run.seen_count(entry), self.messages[entry.id as usize - 1].seen, "message {} (L3)", entry.id);
        }
        assert_eq!(run.sequence, self.events.len() as u64);
        assert_eq!(run.next_message, self.messages.len() as u64 + 1);
        let Some(turn) = &run.turn else {
            return assert_eq!(run.action(), Action::Idle);
        };
        assert_eq!(
            (turn.interactions, u128::from(turn.units())),
            (self.replies, self.units.div_ceil(1_000_000)),
            "L4, L5"
        );
        assert!(self.replies <= self.config.max_interactions + 1, "L4");
        let ended = matches!(self.events.last().map(|event| &event.kind), Some(EventKind::LoopEnd { .. }));
        assert_eq!(ended, turn.is_over(), "loop_end ends the turn");
        self.check_running();
        self.check_action(run.action());
        Self::check_window(run);
    }

    /// L26: every prompt leaves enough tokens for the reply.
    fn check_window(run: &Run) {
        let Action::CallModel(plan) = run.action() else { return };
        let budget = run.prompt_budget();
        let messages: u32 = run.sent().map(|entry| entry.tokens).sum();
        let tools = if plan.last { 0 } else { budget.tools };
        assert!(budget.system + tools + messages + budget.reserved <= budget.window, "{budget:?} {messages}");
    }

    fn check_running(&self) {
        let running: Vec<&Call> = self.calls.iter().filter(|call| call.record.state == CallState::Started).collect();
        assert!(running.len() <= self.config.parallel_calls.max(1) as usize, "the limit is kept (L9)");
        assert!(
            running.len() < 2 || !running.iter().any(|call| call.is_sequential()),
            "a sequential call runs alone (L9)"
        );
    }

    fn check_action(&self, action: Action) {
        let (running, waiting) = (self.in_state(CallState::Started), self.in_state(CallState::Waiting));
        match action {
            Action::Dispatch(dispatches) => {
                let next = dispatches.iter().map(|dispatch| self.call(&dispatch.call));
                let parallel: Vec<&Call> = next.chain(running.iter().map(|id| self.call(id))).collect();
                assert!(parallel.len() <= self.config.parallel_calls.max(1) as usize, "the limit is kept (L9)");
                assert!(
                    parallel.len() == 1 || !parallel.iter().any(|call| call.is_sequential()),
                    "a sequential call runs alone (L9)"
                );
                let calls: Vec<CallId> = dispatches.iter().map(|dispatch| dispatch.call.clone()).collect();
                assert!(calls.iter().all(|call| waiting.contains(call)), "only waiting calls are dispatched");
                for dispatch in dispatches {
                    assert_eq!(dispatch.attempt, self.call(&dispatch.call).dispatches + 1);
                }
            }
            Action::AwaitOutcome => assert!(!running.is_empty()),
            Action::Suspended(suspension) => {
                let states = [CallState::OutcomeUnknown, CallState::AwaitingApproval, CallState::Outstanding];
                let mut blocked: Vec<CallId> = states.into_iter().flat_map(|state| self.in_state(state)).collect();
                blocked.sort();
                let breaks_loop = |id: &CallId| matches!(self.call(id).disposition, Disposition::Breaks(_));
                assert!(running.is_empty() && waiting.iter().all(breaks_loop) && !blocked.is_empty());
                let mut waits: Vec<CallId> = suspension.waits.iter().map(|wait| wait.call.clone()).collect();
                waits.sort();
                assert_eq!(waits, blocked);
                assert!(
                    self.in_state(CallState::AwaitingApproval).is_empty() || self.user_asked,
                    "a user has been asked (L17)"
                );
                let announced = self.events.iter().rev().find_map(|event| match &event.kind {
                    EventKind::Suspended { suspension } => Some(Some(suspension)),
                    EventKind::Resumed | EventKind::LoopStart { .. } => Some(None),
                    _ => None,
                });
                assert_eq!(announced.flatten(), Some(&suspension), "a suspension is announced with its calls");
            }
            Action::Validate(Validation { result: Some(_), .. }) => {
                let [completion] = &running[..] else {
                    panic!("only the completion may be running (L18): {running:?}")
                };
                assert!(matches!(self.call(completion).disposition, Disposition::Breaks(LoopBreak::Complete)));
                let open = self.calls.iter().filter(|call| call.record.state != CallState::Finished).count();
                assert_eq!(open, 1, "all other calls have finished (L18)");
            }
            Action::Idle
            | Action::BuildContext
            | Action::Summarise(_)
            | Action::CallModel(_)
            | Action::Validate(_)
            | Action::Ended => {
                let open = self.calls.iter().filter(|call| call.record.state != CallState::Finished).count();
                assert_eq!(open, 0, "{action:?} with open calls");
                self.check_pairs();
            }
        }
    }

    /// Checks that, in the visible messages, each message with calls is followed by the results of these calls in
    /// order, and that the messages contain no other results.
    fn check_pairs(&self) {
        let mut expected: Vec<CallId> = Vec::new();
        for message in self.messages.iter().filter(|message| !message.hidden) {
            match &message.body {
                Body::ResultOf(id) => assert_eq!(*id, expected.remove(0)),
                Body::Parts(_) => {
                    assert!(expected.is_empty(), "{expected:?} have no result (L9)");
                    expected = calls_of(&message.body);
                }
            }
        }
        assert!(expected.is_empty(), "{expected:?} have no result (L9)");
        assert!(self.calls.iter().all(|call| call.results == 1), "every call has exactly one result");
    }
}
