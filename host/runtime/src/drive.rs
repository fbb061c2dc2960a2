//! The driver: asks the run what to do, does it, and tells the run what happened.

use crate::calls::{self, HasRun, PendingCall, Ran};
use crate::checkpoint::Checkpoint;
use crate::children::Children;
use crate::first_use::Questions;
use crate::outbox::{self, Owing};
use crate::services::HandedOn;
use crate::session::{Notes, Session, SessionError, TurnResult};
use agent_core::change::{CallRecord, Change};
use agent_core::message::CallId;
use agent_core::run::{Action, Dispatch, DispatchedCall, Input, StepPlan, TurnError};
use agent_store::StoreError;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::pin::pin;
use std::time::Duration;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// An input for the run with what is stored beside it, or the error that ends the turn.
pub(crate) type Deed = Result<(Input, Notes), TurnError>;

/// What running calls may still take when the process is to end.
const TIME_TO_LEAVE: Duration = Duration::from_millis(500);

type Running = JoinSet<(CallId, Result<HasRun, TurnError>)>;

impl Session {
    /// Drives the open turn until it ends, waits, or is cancelled. Boxed, since a child of the turn is driven by the same
    /// code.
    pub(crate) fn drive<'s>(
        &'s mut self,
        cancel: &'s CancellationToken,
    ) -> BoxFuture<'s, Result<TurnResult, SessionError>> {
        let driven = async move {
            let (mut running, mut children) = (Running::new(), Children::new(cancel));
            self.was_left = true;
            let result = self.drive_beside(&mut running, &mut children, cancel).await;
            self.was_left = !matches!(&result, Ok(ended) if *ended != TurnResult::Interrupted);
            if result.is_err() {
                // Nobody is there any more to take their answers.
                children.stop().await;
            }
            result
        };
        driven.boxed()
    }

    async fn drive_beside(
        &mut self,
        running: &mut Running,
        children: &mut Children,
        cancel: &CancellationToken,
    ) -> Result<TurnResult, SessionError> {
        let mut questions = Questions::default();
        let leaving = self.shared.leaving.clone();
        loop {
            if leaving.is_cancelled() && self.run.is_open() {
                return self.leave(running, children).await;
            }
            if !cancel.is_cancelled() {
                self.take_up_children(children, running.len()).await?;
            }
            let deed = match self.run.action() {
                Action::Idle => return Ok(TurnResult::Idle),
                Action::Ended => return self.finished().await,
                _ if cancel.is_cancelled() => Ok((Input::Cancel, Notes::default())),
                Action::Suspended(suspension) if children.len() == 0 || self.due().is_some() => match self.due() {
                    Some(call) => Ok((Input::Expire { call }, Notes::default())),
                    None => return Ok(TurnResult::Suspended(suspension)),
                },
                Action::Dispatch(dispatches) => {
                    match self.dispatch(dispatches, (running, children), &mut questions, cancel).await? {
                        Dispatched::Some => continue,
                        Dispatched::NotYet => {
                            match came(running, children, &mut questions, (cancel, &leaving)).await? {
                                Some(came) => self.deed_of(came).await?,
                                None => continue,
                            }
                        }
                        Dispatched::Failed(error) => Err(error),
                    }
                }
                Action::AwaitOutcome | Action::Suspended(_) => {
                    match came(running, children, &mut questions, (cancel, &leaving)).await? {
                        Some(came) => self.deed_of(came).await?,
                        None => continue,
                    }
                }
                // Dropped when the turn is cancelled, so no deed changes the session by itself.
                action => tokio::select! {
                    biased;
                    () = leaving.cancelled() => continue,
                    () = cancel.cancelled() => Ok((Input::Cancel, Notes::default())),
                    deed = self.act(action) => deed,
                },
            };
            let (input, notes) = deed.unwrap_or_else(|error| (Input::Failed(error), Notes::default()));
            if matches!(input, Input::Cancel | Input::Failed(_)) {
                self.stop(running, children).await?;
            }
            match self.commit((input, notes), running, cancel).await {
                // What a plugin or a model made cannot be stored: the turn ends, and the session goes on.
                Err(SessionError::Store(error @ (StoreError::Invalid { .. } | StoreError::TooLarge { .. }))) => {
                    self.stop(running, children).await?;
                    let failed = Input::Failed(TurnError::HostFailed { message: error.to_string() });
                    self.apply(failed, Notes::default()).await?;
                }
                committed => committed?,
            }
        }
    }

    /// Keeps the results that are there already, then stops all calls: dropping a call's future stops its guest. Other
    /// agents' turns end, too.
    async fn stop(&mut self, running: &mut Running, children: &mut Children) -> Result<(), SessionError> {
        self.keep_results(running).await?;
        let (_, stopped) = tokio::join!(running.shutdown(), self.stop_children(children));
        stopped
    }

    /// Leaves the turn as it is, since the process is to end. Calls that are almost done keep their results. Agents below leave
    /// their turns by themselves.
    async fn leave(&mut self, running: &mut Running, children: &mut Children) -> Result<TurnResult, SessionError> {
        let until = tokio::time::Instant::now() + TIME_TO_LEAVE;
        while let Ok(Some(done)) = tokio::time::timeout_at(until, running.join_next()).await {
            self.keep_result(done).await?;
        }
        let (_, left) = tokio::join!(running.shutdown(), self.join_children(children));
        left.map(|()| TurnResult::Interrupted)
    }

    /// Commits the results of calls that are done.
    async fn keep_results(&mut self, running: &mut Running) -> Result<(), SessionError> {
        while let Some(done) = running.try_join_next() {
            self.keep_result(done).await?;
        }
        Ok(())
    }

    async fn keep_result(
        &mut self,
        done: Result<(CallId, Result<HasRun, TurnError>), JoinError>,
    ) -> Result<(), SessionError> {
        // A service that was about to be asked is not asked any more.
        if let Ok((call, Ok(HasRun { ran: Ran::Done(result), answers }))) = done {
            let notes = Notes { answers: answers.map(|answers| (call.clone(), answers)), ..Notes::default() };
            self.apply(Input::Outcome { call, result }, notes).await?;
        }
        Ok(())
    }

    /// Commits an input. Guests don't wait for a slow store to learn that they are cancelled (L29).
    async fn commit(
        &mut self,
        (input, notes): (Input, Notes),
        running: &mut Running,
        cancel: &CancellationToken,
    ) -> Result<(), SessionError> {
        let mut commit = pin!(self.apply(input, notes));
        tokio::select! {
            biased;
            committed = &mut commit => committed,
            () = cancel.cancelled(), if !running.is_empty() => {
                running.abort_all();
                commit.await
            }
        }
    }

    /// What follows from what has come. A plugin's request to a service is judged here, when it would go out.
    async fn deed_of(&mut self, came: Came) -> Result<Deed, SessionError> {
        match came {
            Came::Deed(deed) => Ok(deed),
            Came::Request(pending) => self.take_request(*pending).await,
        }
    }

    async fn act(&mut self, action: Action) -> Deed {
        match action {
            Action::BuildContext => self.build_context().await,
            Action::Summarise(plan) => self.summarise(plan).await,
            Action::CallModel(plan) => self.step(plan).await,
            Action::Validate(validation) => self.validate(validation).await,
            other => Err(TurnError::HostFailed { message: format!("nobody does what the loop wants: {other:?}") }),
        }
    }

    /// Makes one model call. What the tools brought before it is remembered meanwhile.
    async fn step(&mut self, plan: StepPlan) -> Deed {
        let shared = self.shared.clone();
        let owing = self.owing;
        let delivering = async {
            if owing == Owing::Memories {
                outbox::deliver_of(&shared).await;
            }
        };
        let deed = tokio::join!(delivering, self.call_model(plan)).1;
        self.owing = Owing::Nothing;
        deed
    }

    /// Commits the intents, then lets the calls run. Those of other agents are handed on: their turns are driven beside.
    async fn dispatch(
        &mut self,
        dispatches: Vec<Dispatch>,
        (running, children): (&mut Running, &mut Children),
        questions: &mut Questions,
        cancel: &CancellationToken,
    ) -> Result<Dispatched, SessionError> {
        let ids: Vec<CallId> = dispatches.iter().map(|dispatch| dispatch.call.clone()).collect();
        let records = self.load_calls(&ids).await?;
        if records.len() != ids.len() {
            let message = "a call of the open batch has no record in the store".to_owned();
            return Ok(Dispatched::Failed(TurnError::HostFailed { message }));
        }
        if let Some((instead, denial)) = self.stopped(&records, &dispatches).await? {
            let denial = denial.or_else(|| self.denial_of(&instead, &records));
            let denials = denial.into_iter().collect();
            self.commit((instead, Notes { denials, ..Notes::default() }), running, cancel).await?;
            return Ok(Dispatched::Some);
        }
        let mut to_dispatch = Vec::with_capacity(records.len());
        for (record, dispatch) in records.into_iter().zip(dispatches) {
            let handed_on = match &dispatch.request {
                None => self.handed_on(&record),
                Some(_) => match self.handed_on_held(&record).await? {
                    Some(handed_on) => Some(handed_on),
                    // It was there a moment ago, and the tool must not run a second time.
                    None => {
                        let message = format!("what call {} asks of a service cannot be read any more", record.id);
                        return Ok(Dispatched::Failed(TurnError::HostFailed { message }));
                    }
                },
            };
            to_dispatch.push((handed_on, record, dispatch));
        }
        let records = to_dispatch;
        let records = self.with_room(records, running.len() + children.len(), children.len()).into_iter();
        let records: Vec<_> = records
            .filter(|(_, record, dispatch)| dispatch.request.is_some() || questions.admit(self, record))
            .collect();
        if records.is_empty() {
            return Ok(Dispatched::NotYet);
        }
        let (mut calls, mut notes) = (Vec::with_capacity(records.len()), Notes::default());
        for (handed_on, record, _) in &records {
            let call = DispatchedCall::running(record.id.clone(), record.effective_arguments().clone());
            notes.texts.extend(handed_on.as_ref().and_then(|handed_on| handed_on.contract.clone()));
            calls.push(DispatchedCall { awaits: handed_on.as_ref().map(|handed_on| handed_on.awaits.clone()), ..call });
        }
        self.commit((Input::Dispatched { calls }, notes), running, cancel).await?;
        let runs = |record: &CallRecord| self.run.is_running(&record.id);
        for (_, record, dispatch) in records.into_iter().filter(|(_, record, _)| runs(record)) {
            let (shared, scope) = (self.shared.clone(), self.scope());
            running.spawn(async move {
                shared.pass(Checkpoint::BeforeCall(&record.name));
                let result = calls::run(&shared, &record, dispatch.attempt, scope).await;
                shared.pass(Checkpoint::AfterCall(&record.name));
                (record.id, result)
            });
        }
        Ok(Dispatched::Some)
    }

    /// The loop does not count the agents that work beside: with them, too, no more run at once than may, and a
    /// sequential call runs alone (L9).
    fn with_room(&self, records: Vec<ToDispatch>, busy: usize, children: usize) -> Vec<ToDispatch> {
        let cap = self.run.turn.as_ref().map_or(1, |turn| turn.config.parallel_calls.max(1) as usize);
        let registry = self.shared.agent.registry();
        let mut free = cap.saturating_sub(busy);
        let mut has_room = |(handed_on, record, _): &ToDispatch| {
            if handed_on.is_some() {
                return true;
            }
            let alone = registry.get(&record.name).is_some_and(|tool| tool.definition.traits.sequential);
            let has_room = free > 0 && (children == 0 || !alone);
            free -= usize::from(has_room);
            has_room
        };
        records.into_iter().filter(|record| has_room(record)).collect()
    }

    /// The result of a turn that is over.
    async fn finished(&mut self) -> Result<TurnResult, SessionError> {
        let mut result = self.ended();
        if let TurnResult::Finished(output) = &mut result
            && self.shared.agent.config().include_history
        {
            let run = self.run.clone();
            output.messages = Some(self.conversation(&run, &Change::default()).await?);
        }
        Ok(result)
    }
}

/// A call, and what it waits for where somebody else answers it.
type ToDispatch = (Option<HandedOn>, CallRecord, Dispatch);

/// What became of calls that were to run.
enum Dispatched {
    /// At least one runs, or is handed on.
    Some,
    /// None, before one of the others is done or a question is answered.
    NotYet,
    Failed(TurnError),
}

/// What has come of the calls that run and of the agents that work beside.
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and none waits in a buffer")]
enum Came {
    Deed(Deed),
    /// A plugin asks for a service.
    Request(Box<PendingCall>),
}

/// The next thing that comes of the calls that run and of the agents that work beside; nothing where one of these waits, or
/// where a question was answered.
async fn came(
    running: &mut Running,
    children: &mut Children,
    questions: &mut Questions,
    (cancel, leaving): (&CancellationToken, &CancellationToken),
) -> Result<Option<Came>, SessionError> {
    let nothing_else = children.len() == 0 && !questions.is_open();
    tokio::select! {
        biased;
        () = leaving.cancelled() => Ok(None),
        () = cancel.cancelled() => Ok(Some(Came::Deed(Ok((Input::Cancel, Notes::default()))))),
        () = questions.dealt_with() => Ok(None),
        came = await_outcome(running), if !running.is_empty() || nothing_else => Ok(Some(came)),
        deed = children.next() => Ok(deed?.map(Came::Deed)),
    }
}

async fn await_outcome(running: &mut Running) -> Came {
    Came::Deed(match running.join_next().await {
        Some(Ok((call, Ok(HasRun { ran: Ran::Done(result), answers })))) => {
            let notes = Notes { answers: answers.map(|answers| (call.clone(), answers)), ..Notes::default() };
            Ok((Input::Outcome { call, result }, notes))
        }
        Some(Ok((call, Ok(HasRun { ran: Ran::Pending(request, cost, denials), answers })))) => {
            return Came::Request(Box::new(PendingCall { call, request: *request, cost, denials, answers }));
        }
        Some(Ok((_, Err(error)))) => Err(error),
        // Aborted while a commit was going on: the turn is being cancelled.
        Some(Err(error)) if error.is_cancelled() => Ok((Input::Cancel, Notes::default())),
        Some(Err(error)) => Err(TurnError::HostFailed { message: format!("a call of a tool ended abruptly: {error}") }),
        None => Err(TurnError::HostFailed { message: "a call is marked as running, and nothing runs".to_owned() }),
    })
}
