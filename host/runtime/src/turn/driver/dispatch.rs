//! Dispatches tool calls. Before any of the dispatched calls runs, the driver stores which calls are about to run.

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
use agent_core::trace::SpanKey;
use tracing::Instrument;

/// The outcome of an attempt to dispatch calls.
pub(super) enum Dispatched {
    /// The state of the run has changed: at least one call is now running, is waiting for an answer from outside the
    /// host, or was blocked.
    StateChanged,
    /// No call can be dispatched until a running call ends or a first-use question is answered.
    NotYet,
    /// The calls cannot be dispatched, and the turn ends with this error.
    Failed(TurnError),
}

/// A call that is ready to be dispatched.
struct ReadyCall {
    record: CallRecord,
    dispatch: Dispatch,
    /// How the call is forwarded and which answer it waits for. `None` if the host itself runs the call.
    forwarded: Option<ForwardedCall>,
}

impl Driver<'_> {
    /// Stores which calls are about to run, and then starts these calls. Calls to other agents are not started here, but
    /// by `Children`.
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
            return Ok(Dispatched::StateChanged);
        }
        let ready = match self.forward(records, dispatches).await? {
            Ok(ready) => ready,
            Err(error) => return Ok(Dispatched::Failed(error)),
        };
        let ready = self.within_parallel_limit(ready).into_iter();
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
        Ok(Dispatched::StateChanged)
    }

    /// Determines which calls are answered from outside the host. The inner `Err` is the error with which the
    /// turn ends.
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
                    // The request could be read when the dispatch was checked, but cannot be read now. The turn ends,
                    // because the tool must not run a second time.
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

    /// Selects the calls that may start now. Running child sessions count towards the limit of parallel calls. The
    /// child sessions must be counted here, because the loop has no information about them. A sequential call is not
    /// started while a child session is running (L9).
    fn within_parallel_limit(&self, ready: Vec<ReadyCall>) -> Vec<ReadyCall> {
        let (session, children) = (&*self.session, self.children.len());
        let limit = session.run.turn.as_ref().map_or(1, |turn| turn.config.parallel_calls.max(1) as usize);
        let registry = session.services.agent.registry();
        let mut free = limit.saturating_sub(self.running.len() + children);
        let mut may_start = |ReadyCall { record, forwarded, .. }: &ReadyCall| {
            if forwarded.is_some() {
                return true;
            }
            let is_sequential = registry.get(&record.name).is_some_and(|tool| tool.definition.traits.sequential);
            let may_start = free > 0 && (children == 0 || !is_sequential);
            free -= usize::from(may_start);
            may_start
        };
        ready.into_iter().filter(|call| may_start(call)).collect()
    }

    /// Starts calls, after the change that marks them as running was committed.
    fn start_calls(&mut self, ready: Vec<ReadyCall>) {
        let session = &*self.session;
        for ReadyCall { record, dispatch, .. } in ready {
            if !session.run.is_running(&record.id) {
                continue;
            }
            let key = Some(SpanKey::Call(&record.id));
            let (services, scope) = (session.services.clone(), session.services.scope(&session.run, key));
            let call = async move {
                services.reach_checkpoint(Checkpoint::BeforeCall(&record.name));
                let result = calls::run(&services, &record, dispatch.attempt, scope).await;
                services.reach_checkpoint(Checkpoint::AfterCall(&record.name));
                (record.id, result)
            };
            // The lines that the call logs name the turn.
            self.running.spawn(call.in_current_span());
        }
    }
}
