//! Dispatches tool calls. Their intents are committed before anything runs.

use super::Driver;
use crate::approvals::BlockedDispatch;
use crate::host::Checkpoint;
use crate::outbox::ForwardedCall;
use crate::records::CommitNotes;
use crate::session::SessionError;
use crate::turn::calls;
use crate::waiting::forwarded_call;
use agent_core::change::CallRecord;
use agent_core::message::CallId;
use agent_core::run::{Dispatch, DispatchedCall, Input, TurnError};

/// What happened to calls that were ready to be dispatched.
pub(super) enum Dispatched {
    /// At least one call runs or waits for an answer from outside.
    Some,
    /// No call was dispatched. One can be when a running call ends or a question is answered.
    NotYet,
    Failed(TurnError),
}

/// A call that is ready to be dispatched.
struct ReadyCall {
    record: CallRecord,
    dispatch: Dispatch,
    /// What the call waits for if it is answered outside the host.
    forwarded: Option<ForwardedCall>,
}

impl Driver<'_> {
    /// Commits the intents, then starts the calls. The turns of other agents are run by `Children`.
    pub(super) async fn dispatch(&mut self, dispatches: Vec<Dispatch>) -> Result<Dispatched, SessionError> {
        let ids: Vec<CallId> = dispatches.iter().map(|dispatch| dispatch.call.clone()).collect();
        let records = self.session.history.load_calls(&ids).await?;
        if records.len() != ids.len() {
            let message = "internal error: a call of the open batch has no record in the store".to_owned();
            return Ok(Dispatched::Failed(TurnError::HostFailed { message }));
        }
        let blocked = self.session.approvals().check_dispatch(&records, &dispatches).await?;
        if let Some(BlockedDispatch { input, denial }) = blocked {
            let denials = denial.into_iter().collect();
            self.commit(input, CommitNotes { denials, ..CommitNotes::default() }).await?;
            return Ok(Dispatched::Some);
        }
        let ready = match self.forward(records, dispatches).await? {
            Ok(ready) => ready,
            Err(error) => return Ok(Dispatched::Failed(error)),
        };
        let ready = self.with_room(ready).into_iter();
        let (services, questions) = (&self.session.services, &mut self.questions);
        let ready: Vec<ReadyCall> = ready
            .filter(|call| call.dispatch.request.is_some() || questions.may_dispatch(services, &call.record))
            .collect();
        if ready.is_empty() {
            return Ok(Dispatched::NotYet);
        }
        let (mut calls, mut notes) = (Vec::with_capacity(ready.len()), CommitNotes::default());
        for ReadyCall { record, forwarded, .. } in &ready {
            let call = DispatchedCall::running(record.id.clone(), record.effective_arguments().clone());
            notes.texts.extend(forwarded.as_ref().and_then(|forwarded| forwarded.contract.clone()));
            calls.push(DispatchedCall { awaits: forwarded.as_ref().map(|forwarded| forwarded.awaits.clone()), ..call });
        }
        self.commit(Input::Dispatched { calls }, notes).await?;
        self.start_calls(ready);
        Ok(Dispatched::Some)
    }

    /// Determines which calls are answered outside the host. The inner error ends the turn.
    async fn forward(
        &mut self,
        records: Vec<CallRecord>,
        dispatches: Vec<Dispatch>,
    ) -> Result<Result<Vec<ReadyCall>, TurnError>, SessionError> {
        let mut ready = Vec::with_capacity(records.len());
        for (record, dispatch) in records.into_iter().zip(dispatches) {
            let forwarded = match &dispatch.request {
                None => forwarded_call(&self.session.services, &self.session.run, &record),
                Some(_) => match self.session.approvals().forwarded_held_request(&record).await? {
                    Some(forwarded) => Some(forwarded),
                    // The request could be read a moment ago, and the tool must not run a second time.
                    None => {
                        let message = format!("the service request of call {} can no longer be read", record.id);
                        return Ok(Err(TurnError::HostFailed { message }));
                    }
                },
            };
            ready.push(ReadyCall { record, dispatch, forwarded });
        }
        Ok(Ok(ready))
    }

    /// Selects the calls that may start now. Children count towards the limit of parallel calls, which the loop does not know,
    /// and a sequential call runs alone (L9).
    fn with_room(&self, ready: Vec<ReadyCall>) -> Vec<ReadyCall> {
        let (session, children) = (&*self.session, self.children.len());
        let cap = session.run.turn.as_ref().map_or(1, |turn| turn.config.parallel_calls.max(1) as usize);
        let registry = session.services.agent.registry();
        let mut free = cap.saturating_sub(self.running.len() + children);
        let mut has_room = |ReadyCall { record, forwarded, .. }: &ReadyCall| {
            if forwarded.is_some() {
                return true;
            }
            let alone = registry.get(&record.name).is_some_and(|tool| tool.definition.traits.sequential);
            let has_room = free > 0 && (children == 0 || !alone);
            free -= usize::from(has_room);
            has_room
        };
        ready.into_iter().filter(|call| has_room(call)).collect()
    }

    /// Starts the calls whose intents are committed.
    fn start_calls(&mut self, ready: Vec<ReadyCall>) {
        let session = &*self.session;
        for ReadyCall { record, dispatch, .. } in ready {
            if !session.run.is_running(&record.id) {
                continue;
            }
            let (services, scope) = (session.services.clone(), session.services.scope(&session.run));
            self.running.spawn(async move {
                services.reach_checkpoint(Checkpoint::BeforeCall(&record.name));
                let result = calls::run(&services, &record, dispatch.attempt, scope).await;
                services.reach_checkpoint(Checkpoint::AfterCall(&record.name));
                (record.id, result)
            });
        }
    }
}
