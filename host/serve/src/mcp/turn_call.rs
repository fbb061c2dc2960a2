//! One call of a client: follows the turn that runs the call, and asks and answers its questions.

use super::calls::{CallSlot, ClientCalls, ContinuesWith, TurnPlace, refusal, store_failed};
use super::output;
use crate::tokens::Right;
use agent_core::approval::GrantScope;
use agent_core::change::CallRecord;
use agent_core::event::{Event, EventKind, Wait, WaitCause};
use agent_core::message::CallId;
use agent_core::run::Run;
use agent_mcp::offered::{Answer, CallOutput, CallUpdate, OfferError, OfferProblem, OpenCall, Question, QuestionKind};
use agent_runtime::{ApprovalDecision, EventPosition, RequestProblem, SessionRequest, TurnEvents, TurnUpdate, Verdict};
use agent_store::CallFilter;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

/// Time between two checks whether an agent to which a call delegates work waits for an answer.
const DELEGATE_INTERVAL: Duration = Duration::from_millis(300);
/// Maximum number of agents between a call and the agent that asks a question.
const MAX_DELEGATES: usize = 8;

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    /// The call runs a tool. After the call, its session can run further calls.
    Tool,
    /// The call sends a prompt to an agent.
    Prompt,
}

/// A call of a client.
pub(super) struct TurnCall {
    calls: Arc<ClientCalls>,
    kind: CallKind,
    key: String,
    place: TurnPlace,
    events: TurnEvents,
    /// The questions that the client was asked last.
    asked: Vec<AskedQuestion>,
    /// Whether the turn waits for an agent to which it has delegated work.
    waits_for_agents: bool,
    stage: Stage,
    _slot: CallSlot,
}

/// How far the client's request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The request is open. If the client goes away, the turn is cancelled.
    Open,
    /// The turn has ended, but its result was not returned yet.
    TurnEnded,
    /// The request has ended.
    Closed,
}

/// A question that a client was asked, and the session and the call that wait for the answer.
struct AskedQuestion {
    id: String,
    session: String,
    call: CallId,
}

impl TurnCall {
    pub(super) fn new(
        calls: Arc<ClientCalls>,
        (kind, key): (CallKind, String),
        place: TurnPlace,
        slot: CallSlot,
    ) -> Box<Self> {
        let events = TurnEvents::new(calls.supervisor.events(&place.session, place.after), place.turn);
        let (asked, stage) = (Vec::new(), Stage::Open);
        Box::new(Self { calls, kind, key, place, events, asked, waits_for_agents: false, stage, _slot: slot })
    }

    /// Reads an event, and returns the update that the client receives.
    async fn read(&mut self, event: Event) -> Result<Option<CallUpdate>, OfferError> {
        Ok(match event.kind {
            EventKind::ToolCall { name, attempt, .. } if attempt > 0 => {
                Some(CallUpdate::Progress(format!("{name} is running")))
            }
            EventKind::ToolResult { name, .. } => Some(CallUpdate::Progress(format!("{name} has finished"))),
            EventKind::ToolResultError { name, .. } => Some(CallUpdate::Progress(format!("{name} has failed"))),
            EventKind::LoopStart { agent, .. } => Some(CallUpdate::Progress(format!("{agent} has begun"))),
            EventKind::LoopIteration { step, .. } if self.kind == CallKind::Prompt => {
                Some(CallUpdate::Progress(format!("step {step}")))
            }
            EventKind::Retry { reason, .. } => {
                Some(CallUpdate::Progress(format!("the model is asked again: {reason}")))
            }
            EventKind::Resumed => {
                self.place.after = EventPosition { sequence: event.sequence, provisional: 0 };
                self.waits_for_agents = false;
                None
            }
            EventKind::Suspended { .. } => self.read_waits().await?,
            EventKind::LoopEnd { .. } => {
                self.stage = Stage::TurnEnded;
                None
            }
            _ => None,
        })
    }

    /// Finds out what the turn waits for now. It may have continued since the event, because someone has answered.
    async fn read_waits(&mut self) -> Result<Option<CallUpdate>, OfferError> {
        self.events.resume();
        let waits = self.waits_of(&self.place.session, Some(self.place.turn)).await?;
        if waits.is_empty() {
            return Ok(None);
        }
        self.waits_for_agents = waits.iter().any(|wait| matches!(wait.cause, WaitCause::Agent { .. }));
        let unknown = waits.iter().find(|wait| wait.cause == WaitCause::OutcomeUnknown);
        if let Some(wait) = unknown {
            let (session, call) = (&self.place.session, &wait.call);
            let output = CallOutput::error(format!(
                "it is not known whether the call of `{}` took effect, because the host stopped while it was running; \
                 decide with: agent-host session resolve {session} {call}",
                wait.name
            ));
            self.stage = Stage::Closed;
            return Ok(Some(CallUpdate::Done(output)));
        }
        if let Some(update) = self.ask(&self.place.session.clone(), &waits).await? {
            return Ok(Some(update));
        }
        let waited = waits.first().map(|wait| wait.name.clone()).unwrap_or_default();
        Ok(Some(CallUpdate::Progress(format!("waiting for {waited}"))))
    }

    /// Returns what the open turn of a session waits for.
    async fn waits_of(&self, session: &str, turn: Option<u32>) -> Result<Vec<Wait>, OfferError> {
        let snapshot = self.calls.supervisor.host().store.snapshot(session).await.map_err(store_failed)?;
        let run = snapshot.and_then(|snapshot| Run::restore(Some(&snapshot)).ok());
        Ok(run.filter(|run| turn.is_none_or(|turn| run.turns == turn)).map(|run| run.waits()).unwrap_or_default())
    }

    /// Returns the questions of a session's turn that the user of the client may answer. Returns the result that ends the
    /// client's request if it must not answer them.
    async fn ask(&mut self, session: &str, waits: &[Wait]) -> Result<Option<CallUpdate>, OfferError> {
        let is_question = |wait: &&Wait| matches!(wait.cause, WaitCause::Approval { .. } | WaitCause::Answer { .. });
        let waits: Vec<&Wait> = waits.iter().filter(is_question).collect();
        if waits.is_empty() {
            return Ok(None);
        }
        let ids = waits.iter().map(|wait| wait.call.clone()).collect();
        let store = &self.calls.supervisor.host().store;
        let records = store.calls(session, CallFilter::Ids(ids)).await.map_err(store_failed)?;
        self.asked.clear();
        let mut questions = Vec::new();
        for wait in waits {
            let id = wait.call.0.clone();
            let record = records.iter().find(|record| record.id == wait.call);
            let kind = match &wait.cause {
                WaitCause::Answer { question, .. } => QuestionKind::Text(question.clone()),
                _ => self.approval(session, wait, record).await?,
            };
            self.asked.push(AskedQuestion { id: id.clone(), session: session.to_owned(), call: wait.call.clone() });
            questions.push(Question { id, kind });
        }
        let asks_for_approval = questions.iter().any(|question| matches!(question.kind, QuestionKind::Approval { .. }));
        let is_delegate = session != self.place.session;
        let may_decide = (!asks_for_approval || self.calls.client.rights.contains(&Right::Approve))
            && (!is_delegate || self.calls.may_decide_in(session).await?);
        if !may_decide {
            return Ok(Some(CallUpdate::Done(self.keep_waiting().await)));
        }
        Ok(Some(CallUpdate::Waits(questions)))
    }

    /// Returns the question whether a call may run, with the arguments that are stored in the call's record.
    async fn approval(
        &self,
        session: &str,
        wait: &Wait,
        record: Option<&CallRecord>,
    ) -> Result<QuestionKind, OfferError> {
        let agent = self.agent_of(session);
        let definition = agent.and_then(|agent| Some(agent.current().registry().get(&wait.name)?.definition.clone()));
        let because = self.reason_for(session, &wait.call).await?;
        Ok(QuestionKind::Approval {
            tool: wait.name.clone(),
            arguments: record.map(|record| record.effective_arguments().clone()).unwrap_or_default(),
            because: because.unwrap_or_else(|| "the agent's configuration".to_owned()),
            traits: definition.map(|definition| definition.traits).unwrap_or_default(),
        })
    }

    fn agent_of(&self, session: &str) -> Option<&agent_runtime::LiveAgent> {
        let name = session.rsplit_once('/').map_or(session, |(agent, _)| agent);
        self.calls.supervisor.agents().get(name)
    }

    /// Returns the configuration key that requires the approval of a call.
    async fn reason_for(&self, session: &str, call: &CallId) -> Result<Option<String>, OfferError> {
        let after = if session == self.place.session { self.place.after.sequence } else { 0 };
        let store = &self.calls.supervisor.host().store;
        let events = store.events(session, after, 256).await.map_err(store_failed)?;
        let requested = events.into_iter().rev().find_map(|stored| match stored.event.kind {
            EventKind::ApprovalRequested { calls, .. } => calls.into_iter().find(|item| item.call == *call),
            _ => None,
        });
        Ok(requested.and_then(|item| item.details).map(|details| details.because))
    }

    /// Looks for an agent to which the turn has delegated work and that waits for an answer.
    async fn ask_for_delegates(&mut self) -> Result<Option<CallUpdate>, OfferError> {
        let mut waits = self.waits_of(&self.place.session, Some(self.place.turn)).await?;
        for _ in 0..MAX_DELEGATES {
            let delegate = waits.iter().find_map(|wait| match &wait.cause {
                WaitCause::Agent { session } => Some(session.clone()),
                _ => None,
            });
            let Some(session) = delegate else { return Ok(None) };
            waits = self.waits_of(&session, None).await?;
            if let Some(update) = self.ask(&session, &waits).await? {
                return Ok(Some(update));
            }
        }
        Ok(None)
    }

    /// Leaves the turn waiting, and returns the result that says how a person can answer.
    async fn keep_waiting(&mut self) -> CallOutput {
        let place = (self.key.clone(), self.place.clone());
        if let Err(error) = self.calls.put_aside(place, ContinuesWith::Repetition).await {
            self.calls.cancel(&self.place.session).await;
            self.stage = Stage::Closed;
            return CallOutput::error(error.message);
        }
        self.stage = Stage::Closed;
        let asked = self.asked.first();
        let session = asked.map_or(&self.place.session, |asked| &asked.session);
        CallOutput::error(format!(
            "The call waits for the answer of a person, and has not run. To see what it asks, run: agent-host session show \
             {session}. To decide, run: agent-host session approve {session}, or: agent-host session deny {session} (for a \
             question: agent-host session answer {session} \"TEXT\"), with the options of the agent. Programs with a token \
             that has the right `approve` can use POST /api/sessions/ID/approvals. Afterwards, repeat exactly this call to \
             receive its result."
        ))
    }

    /// Returns the result of the call after the turn has ended.
    async fn output(&self) -> Result<CallOutput, OfferError> {
        let store = &*self.calls.supervisor.host().store;
        match self.kind {
            CallKind::Tool => output::of_tool_call(store, &self.place.session, self.place.turn).await,
            CallKind::Prompt => output::of_prompt(store, &self.place.session, self.place.turn).await,
        }
    }

    /// Lets later calls use the session, after the turn has ended.
    fn release(&mut self) {
        self.stage = Stage::Closed;
        if self.kind == CallKind::Tool {
            self.calls.release(self.place.clone());
        }
    }
}

#[async_trait]
impl OpenCall for TurnCall {
    async fn next(&mut self) -> Result<CallUpdate, OfferError> {
        loop {
            if self.stage == Stage::TurnEnded {
                let output = self.output().await?;
                self.release();
                return Ok(CallUpdate::Done(output));
            }
            if self.stage == Stage::Closed {
                return Err(OfferError::new(OfferProblem::Invalid, "the call has ended"));
            }
            let next = match self.waits_for_agents {
                false => self.events.next().await,
                true => match tokio::time::timeout(DELEGATE_INTERVAL, self.events.next()).await {
                    Ok(next) => next,
                    Err(_) => match self.ask_for_delegates().await? {
                        Some(update) => return Ok(update),
                        None => continue,
                    },
                },
            };
            let update = match next.map_err(store_failed)? {
                Some(TurnUpdate::Event(event)) => self.read(event).await?,
                Some(TurnUpdate::Text(_) | TurnUpdate::Thinking(_) | TurnUpdate::Discard) => None,
                // The turn waited, and its waits were read.
                None => {
                    self.events.resume();
                    None
                }
            };
            if let Some(update) = update {
                return Ok(update);
            }
        }
    }

    async fn answer(&mut self, answers: Vec<(String, Answer)>) -> Result<(), OfferError> {
        for asked in std::mem::take(&mut self.asked) {
            let Some((_, answer)) = answers.iter().find(|(id, _)| *id == asked.id) else { continue };
            let verdict = match answer {
                Answer::AllowOnce => Verdict::Allow { scope: GrantScope::Once, edited: None },
                Answer::AllowForSession => Verdict::Allow { scope: GrantScope::Session, edited: None },
                Answer::Deny(reason) => Verdict::Deny { reason: Some(reason.clone()) },
                Answer::Text(text) => {
                    let request = SessionRequest::Answer { call: asked.call, text: text.clone() };
                    self.send(&asked.session, request).await?;
                    continue;
                }
            };
            self.calls.require(Right::Approve)?;
            let request = SessionRequest::Approve(vec![ApprovalDecision { call: asked.call, verdict }]);
            self.send(&asked.session, request).await?;
        }
        Ok(())
    }

    async fn put_aside(mut self: Box<Self>) -> Result<String, OfferError> {
        let place = (self.key.clone(), self.place.clone());
        let handle = self.calls.put_aside(place, ContinuesWith::Handle).await?;
        self.stage = Stage::Closed;
        Ok(handle)
    }

    async fn leave_waiting(mut self: Box<Self>) -> CallOutput {
        self.keep_waiting().await
    }

    async fn cancel(mut self: Box<Self>) {
        if self.stage == Stage::Open {
            self.calls.cancel(&self.place.session).await;
        }
        self.release();
    }
}

impl TurnCall {
    /// Sends an answer to a session. Someone else may have answered in the meantime.
    async fn send(&self, session: &str, request: SessionRequest) -> Result<(), OfferError> {
        match self.calls.supervisor.send(session, request).await {
            Ok(_) => Ok(()),
            Err(error) if matches!(error.kind, RequestProblem::Conflict | RequestProblem::NotFound) => {
                tracing::info!(session, %error, "an answer of an MCP client came too late");
                Ok(())
            }
            Err(error) => Err(refusal(error)),
        }
    }
}

impl Drop for TurnCall {
    /// Cancels the turn if the client has gone away.
    fn drop(&mut self) {
        if self.stage == Stage::Open
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (calls, session) = (self.calls.clone(), self.place.session.clone());
            runtime.spawn(async move { calls.cancel(&session).await });
        }
    }
}
