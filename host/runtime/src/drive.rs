//! The driver: asks the run what to do, does it, and tells the run what happened.

use crate::calls;
use crate::checkpoint::Checkpoint;
use crate::session::{Notes, Session, SessionError, TurnResult};
use agent_core::change::{CallRecord, CallResult};
use agent_core::message::{CallId, Message};
use agent_core::run::{Action, Dispatch, DispatchedCall, Input, Output, TurnError};
use agent_memory::{Memory, MemoryKind, StoreError};
use std::pin::pin;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Characters of the question and of the answer that are remembered for long.
const REMEMBERED_CHARACTERS: usize = 2_000;

/// An input for the run with what is stored beside it, or the error that ends the turn.
pub(crate) type Deed = Result<(Input, Notes), TurnError>;

type Running = JoinSet<(CallId, Result<CallResult, TurnError>)>;

impl Session {
    /// Drives the open turn until it ends, waits, or is cancelled.
    pub(crate) async fn drive(&mut self, cancel: &CancellationToken) -> Result<TurnResult, SessionError> {
        let mut running = Running::new();
        loop {
            let deed = match self.run.action() {
                Action::Idle => return Ok(TurnResult::Idle),
                Action::Ended => return self.finished().await,
                _ if cancel.is_cancelled() => Ok((Input::Cancel, Notes::default())),
                Action::Suspended(suspension) => return Ok(TurnResult::Suspended(suspension)),
                Action::Dispatch(dispatches) => match self.dispatch(dispatches, &mut running, cancel).await? {
                    Dispatched::Running => continue,
                    Dispatched::Failed(error) => Err(error),
                },
                // Dropped when the turn is cancelled, so no deed changes the session by itself.
                action => tokio::select! {
                    biased;
                    () = cancel.cancelled() => Ok((Input::Cancel, Notes::default())),
                    deed = self.act(action, &mut running) => deed,
                },
            };
            let (input, notes) = deed.unwrap_or_else(|error| (Input::Failed(error), Notes::default()));
            if matches!(input, Input::Cancel | Input::Failed(_)) {
                self.stop(&mut running).await?;
            }
            match self.commit((input, notes), &mut running, cancel).await {
                // What a plugin or a model made cannot be stored: the turn ends, and the session goes on.
                Err(SessionError::Store(error @ (StoreError::Invalid { .. } | StoreError::TooLarge { .. }))) => {
                    self.stop(&mut running).await?;
                    let failed = Input::Failed(TurnError::HostFailed { message: error.to_string() });
                    self.apply(failed, Notes::default()).await?;
                }
                committed => committed?,
            }
        }
    }

    /// Keeps the results that are there already, then stops all calls: dropping a call's future stops its guest.
    async fn stop(&mut self, running: &mut Running) -> Result<(), SessionError> {
        while let Some(done) = running.try_join_next() {
            if let Ok((call, Ok(result))) = done {
                self.apply(Input::Outcome { call, result }, Notes::default()).await?;
            }
        }
        running.shutdown().await;
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

    async fn act(&mut self, action: Action, running: &mut Running) -> Deed {
        match action {
            Action::BuildContext => self.build_context().await,
            Action::CallModel(plan) => self.call_model(plan).await,
            Action::Validate(validation) => self.validate(validation).await,
            _ => await_outcome(running).await,
        }
    }

    /// Commits the intents, then lets the calls run.
    async fn dispatch(
        &mut self,
        dispatches: Vec<Dispatch>,
        running: &mut Running,
        cancel: &CancellationToken,
    ) -> Result<Dispatched, SessionError> {
        let ids: Vec<CallId> = dispatches.iter().map(|dispatch| dispatch.call.clone()).collect();
        let records = self.load_calls(&ids).await?;
        if records.len() != ids.len() {
            let message = "a call of the open batch has no record in the store".to_owned();
            return Ok(Dispatched::Failed(TurnError::HostFailed { message }));
        }
        let calls = records.iter().map(|record| DispatchedCall {
            awaits: self.awaited_answer(record),
            ..DispatchedCall::running(record.id.clone(), record.effective_arguments().clone())
        });
        let calls = calls.collect();
        self.commit((Input::Dispatched { calls }, Notes::default()), running, cancel).await?;
        let runs = |record: &CallRecord| self.run.is_running(&record.id);
        for (record, dispatch) in records.into_iter().zip(dispatches).filter(|(record, _)| runs(record)) {
            let (shared, scope) = (self.shared.clone(), self.scope());
            running.spawn(async move {
                shared.pass(Checkpoint::BeforeCall(&record.name));
                let result = calls::run(&shared, &record, dispatch.attempt, scope).await;
                shared.pass(Checkpoint::AfterCall(&record.name));
                (record.id, result)
            });
        }
        Ok(Dispatched::Running)
    }

    /// The result of a turn that is over.
    async fn finished(&mut self) -> Result<TurnResult, SessionError> {
        let mut result = self.ended();
        if let TurnResult::Finished(output) = &mut result {
            self.remember_for_long(output).await;
            if self.shared.agent.config().include_history {
                let turn = self.run.turns;
                let messages = self.shown_up_to(usize::MAX, |entry| entry.turn == turn).await?;
                output.messages = Some(messages.into_iter().map(Message::without_hosts_parts).collect());
            }
        }
        Ok(result)
    }

    /// Writes the ending into the user's long-term memory (D4). A failed write never fails the turn; the id is the turn's,
    /// so that writing it again changes nothing.
    async fn remember_for_long(&self, output: &Output) {
        let (Some(user), Some(turn)) = (&self.shared.agent.config().user, &self.run.turn) else { return };
        let (kind, word) = match output.limit_reached {
            true => (MemoryKind::Limit, "limit"),
            false => (MemoryKind::Final, "final"),
        };
        let asked = first_characters(&turn.input.message().plain_text());
        let answered = match &output.data {
            serde_json::Value::String(text) => first_characters(text),
            json => first_characters(&json.to_string()),
        };
        let memory = Memory {
            user: user.clone(),
            kind,
            session: output.session.clone(),
            text: format!("Asked: {asked}\nAnswered: {answered}"),
            written: None,
        };
        let id = format!("{}/{}/{word}", output.session, output.turn);
        if let Err(error) = self.shared.store.add(&id, memory).await {
            tracing::warn!(session = %output.session, %error, "the answer was not remembered");
        }
    }
}

/// What became of calls that were to run.
enum Dispatched {
    Running,
    Failed(TurnError),
}

async fn await_outcome(running: &mut Running) -> Deed {
    match running.join_next().await {
        Some(Ok((call, Ok(result)))) => Ok((Input::Outcome { call, result }, Notes::default())),
        Some(Ok((_, Err(error)))) => Err(error),
        // Aborted while a commit was going on: the turn is being cancelled.
        Some(Err(error)) if error.is_cancelled() => Ok((Input::Cancel, Notes::default())),
        Some(Err(error)) => Err(TurnError::HostFailed { message: format!("a call of a tool ended abruptly: {error}") }),
        None => Err(TurnError::HostFailed { message: "a call is marked as running, and nothing runs".to_owned() }),
    }
}

fn first_characters(text: &str) -> String {
    text.chars().take(REMEMBERED_CHARACTERS).collect()
}
