//! A session that is open here: its lease, its run, and the one way to change it.

mod kept;
mod opening;
mod secrets;
mod servers;
mod shared;

pub(crate) use kept::result_part;
pub use opening::OpenSession;
pub(crate) use opening::{new_id_ending, new_subject};
pub use shared::Host;
pub(crate) use shared::Shared;

use crate::agent::{Agent, AgentError};
use crate::approvals::ApprovalError;
use crate::checkpoint::Checkpoint;
use crate::events::{Watch, Watchers};
use crate::host_model::{RECORD_KIND, Settlement};
use crate::live::LiveAgent;
use crate::outbox::Owing;
use crate::pinned;
use crate::remember::Results;
use crate::trace;
use crate::user::UserName;
use agent_core::change::{CallRecord, Change, Denial};
use agent_core::event::{Event, Suspension};
use agent_core::message::{CallId, Digest, MessageId, StoredMessage, TurnInput};
use agent_core::plugin::TraceContext;
use agent_core::run::{
    Action, HeldRequest, Input, KeptPrompt, LoopConfig, Output, Refused, RestoreError, Run, TurnEnd, TurnError,
};
use agent_core::tool::ServiceRequest;
use agent_mcp::Held;
use agent_plugins::{GenerationError, HostAnswers};
use agent_store::{Commit, Lease, Status, StepRecord, StoreError, StoredView, ViewPiece, digest_of};
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

/// What the step records call that.
pub(crate) const ANSWERS_KIND: &str = "host_answers";
/// Of the step record with what a call's plugin asked of a service.
pub(crate) const REQUEST_KIND: &str = "service_request";
/// Characters of the first input that make a session's title.
pub(crate) const TITLE_CHARACTERS: usize = 80;

/// A session that cannot be worked on.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The stored state cannot be read (L1's `no_context` among others).
    #[error("session `{session}`: {error}")]
    Restore {
        /// Its subject.
        session: String,
        /// What is wrong.
        error: RestoreError,
    },
    /// The state does not take this now.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// What was decided about a call cannot be done.
    #[error(transparent)]
    Approval(#[from] ApprovalError),
    /// The plugins that the turn is pinned to cannot be loaded now.
    #[error("the plugins that the open turn began with cannot be loaded now: {0}; try again")]
    Generation(#[from] GenerationError),
    /// The tools that MCP servers have now cannot stand beside the others.
    #[error(transparent)]
    Agent(#[from] AgentError),
}

/// How far a turn has come.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnResult {
    /// It has its output.
    Finished(Output),
    /// It ended with a typed error.
    Failed(TurnError),
    /// It was stopped.
    Cancelled,
    /// The process is to end, and left it in the middle: it goes on when the session is opened again.
    Interrupted,
    /// It waits.
    Suspended(Suspension),
    /// There was nothing to do.
    Idle,
}

/// Which bounds a turn has.
pub(crate) enum Bounds {
    /// Its agent's.
    Own,
    /// Narrower ones, of the turn that it works for.
    Given(LoopConfig),
}

/// What is stored beside a change (D1).
#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) records: Vec<StepRecord>,
    pub(crate) texts: Vec<String>,
    /// What was refused meanwhile beside a call's own outcome: told before the change.
    pub(crate) denials: Vec<(Option<CallId>, Denial)>,
    /// What the host answered the plugin of a call that has come to its end.
    pub(crate) answers: Option<(CallId, Box<HostAnswers>)>,
    /// What the plugin of such a call asks of a service.
    pub(crate) request: Option<(CallId, ServiceRequest)>,
}

/// A session that is open in this process.
pub struct Session {
    pub(crate) shared: Arc<Shared>,
    pub(crate) run: Run,
    pub(crate) watchers: Arc<Watchers>,
    pub(crate) last_event: Option<Event>,
    /// When the first try of the model call that is being made began.
    pub(crate) asking_since: Option<Instant>,
    /// When the next try may begin.
    pub(crate) retry_at: Option<Instant>,
    /// A failed commit or a caller that went away has stopped the turn in the middle: what was running then is gone.
    pub(crate) was_left: bool,
    /// What is committed to be remembered, and is not written yet.
    pub(crate) owing: Owing,
    /// Refused to plugins that no call has asked, and not told yet.
    pub(crate) denied: Vec<(Option<CallId>, Denial)>,
    opened_at: u64,
    /// Of whoever brings the next input.
    incoming_trace: Option<TraceContext>,
    /// The open turn could not go on when the session was opened, or what it waited for had expired.
    ended_at_opening: bool,
    /// What plugins ask of services and somebody must allow first, as far as it was asked in this process.
    pub(crate) held_requests: HashMap<CallId, (HeldRequest, ServiceRequest)>,
    /// MCP servers that a decision was checked against, until the turn that goes on holds them itself.
    held: Option<Held>,
    lease: Lease,
    revision: u64,
    /// The store has the view of `run` in pieces.
    view_is_stored: bool,
    messages: HashMap<MessageId, Arc<StoredMessage>>,
    calls: HashMap<CallId, CallRecord>,
    stored_texts: HashSet<Digest>,
    /// Calls that the stored state brought along: their arguments are checked again before they run.
    pub(crate) unverified: HashSet<CallId>,
}

impl Session {
    /// The session's subject.
    pub fn subject(&self) -> &str {
        &self.shared.subject
    }

    /// The session's state.
    pub fn state(&self) -> &Run {
        &self.run
    }

    /// Number of the last durable event before the session was opened here.
    pub fn opened_at(&self) -> u64 {
        self.opened_at
    }

    /// Whether opening it has ended its turn: the question that it waited for had expired, or its plugins are gone.
    /// [`Session::run`] without an input gives the result.
    pub fn has_ended_at_opening(&self) -> bool {
        self.ended_at_opening
    }

    /// Its events from now on, and before them the last durable ones that nobody has watched.
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.watchers.subscribe()
    }

    /// For other readers, who may come and go at any time, also while [`Session::run`] runs (L30).
    pub fn watch(&self) -> Watch {
        self.watchers.handle()
    }

    /// Begins a turn with the input, or without one goes on with the open turn, until it ends or waits. Cancelling stops
    /// it within 100 ms and leaves a session that can go on (L29). Where the process is to end ([`Host::leaving`]), the turn
    /// stops as soon and stays open. MCP servers are connected meanwhile, and let go of when
    /// the turn ends, fails or waits (I5).
    pub async fn run(
        &mut self,
        input: Option<TurnInput>,
        cancel: CancellationToken,
    ) -> Result<TurnResult, SessionError> {
        if let Some(input) = input {
            let trace = self.next_trace(&input);
            return self.begin((input, None), Bounds::Own, trace, cancel).await;
        }
        self.has_context()?;
        // Let go of when the turn has ended or waits, and where an error or the caller stops it.
        let _held = match self.run.is_open() {
            true => self.connect(self.shared.agent.clone(), &cancel).await?,
            false => None,
        };
        self.held = None;
        if self.was_left {
            self.recover().await?;
        }
        self.shared.ledger.begin(&self.run);
        self.prepare(&cancel).await;
        let result = self.drive(&cancel).await;
        self.let_go();
        result
    }

    /// Begins a turn for a user who is not the agent's own: who it is stays with the turn, wherever it goes on (D4).
    pub async fn run_for(
        &mut self,
        user: UserName,
        input: TurnInput,
        cancel: CancellationToken,
    ) -> Result<TurnResult, SessionError> {
        let trace = self.next_trace(&input);
        self.begin((input, Some(user)), Bounds::Own, trace, cancel).await
    }

    /// The next turn belongs to this trace: that of the event which brings its input (I6). One that the W3C recommendation does not
    /// allow is passed over, and the turn has a trace of its own.
    pub fn continue_trace(&mut self, trace: TraceContext) {
        self.incoming_trace = Some(trace).filter(trace::is_trace);
    }

    /// Keeps a prompt that comes while a turn is open, with the trace of the event that brings it. [`Session::next_kept`] gives it
    /// when the turn has ended.
    pub async fn keep(&mut self, input: TurnInput) -> Result<(), SessionError> {
        let prompt = KeptPrompt { input, trace: self.incoming_trace.take() };
        self.apply(Input::Keep { prompt }, Notes::default()).await
    }

    /// The first prompt that is kept, if no turn is open. It is kept until a turn begins with it, so it is neither lost nor asked
    /// twice, whenever the process ends.
    pub fn next_kept(&self) -> Option<TurnInput> {
        let kept = self.run.kept.first().filter(|_| !self.run.is_open())?;
        Some(kept.input.clone())
    }

    fn next_trace(&mut self, input: &TurnInput) -> TraceContext {
        let incoming = match self.run.kept.first().filter(|kept| kept.input == *input) {
            Some(kept) => kept.trace.clone(),
            None => self.incoming_trace.take(),
        };
        incoming.map_or_else(trace::root, |incoming| trace::child(&incoming))
    }

    /// Begins a turn within these bounds and in this trace.
    pub(crate) async fn begin(
        &mut self,
        (input, user): (TurnInput, Option<UserName>),
        bounds: Bounds,
        trace: TraceContext,
        cancel: CancellationToken,
    ) -> Result<TurnResult, SessionError> {
        if self.run.is_open() {
            return Err(Refused::TurnOpen(self.run.turns).into());
        }
        // Taken once: the turn never sees a part of another generation.
        let _held = self.connect(self.shared.live.current(), &cancel).await?;
        if let Some(user) = user {
            self.use_agent(self.shared.agent.for_user(Some(user.as_str()))?);
        }
        let (plugins, pinned) = (self.shared.agent.pins(), Some(pinned::pins_of(&self.shared.agent)));
        let components = plugins.iter().map(|pin| (pin.name.clone(), pin.digest.clone())).collect();
        // Before the turn's own record, which only counts together with this one (row 38).
        self.shared.store.note_begun(&self.shared.agent.config().record_name(), components).await?;
        self.bind_rules().await?;
        let config = match bounds {
            Bounds::Own => self.shared.agent.bounds(),
            Bounds::Given(config) => LoopConfig { user: self.shared.agent.config().user.clone(), ..config },
        };
        self.apply(Input::Start { input, config, plugins, pinned, trace }, Notes::default()).await?;
        self.shared.ledger.begin(&self.run);
        self.prepare(&cancel).await;
        let result = self.drive(&cancel).await;
        self.let_go();
        result
    }

    /// What some plugins' limits need is compiled before their calls' time begins. A call that goes without says why.
    async fn prepare(&self, cancel: &CancellationToken) {
        for setup in self.shared.agent.setups().values() {
            tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                prepared = self.shared.sandbox.prepare(setup) => {
                    if let Err(problem) = prepared {
                        tracing::warn!("{problem}");
                    }
                }
            }
        }
    }

    /// A turn that is over holds no generation back.
    fn let_go(&mut self) {
        if !self.run.is_open() {
            self.held_requests.clear();
            self.use_agent(self.shared.live.current());
        }
    }

    /// Nothing is resumed where nothing is stored (L1): no turn of the session has ever been begun.
    #[expect(clippy::result_large_err, reason = "the error of all that a session does; nobody moves it often")]
    pub(crate) fn has_context(&self) -> Result<(), SessionError> {
        if self.revision > 0 {
            return Ok(());
        }
        let session = self.shared.subject.clone();
        Err(SessionError::Restore { session, error: RestoreError::NoContext })
    }

    /// Takes the last turn out of the view; it stays stored, and is not remembered any more (D4, D5).
    pub async fn undo(&mut self) -> Result<(), SessionError> {
        self.apply(Input::Undo, Notes::default()).await
    }

    /// The agent of the turns that begin from now on.
    pub fn agent(&self) -> Arc<Agent> {
        self.shared.live.current()
    }

    /// What the agent is now, to be changed: turns that begin from then on have it. An open turn keeps what it began with.
    pub fn live(&self) -> &LiveAgent {
        &self.shared.live
    }

    /// The right to write to it.
    pub(crate) fn lease(&self) -> Lease {
        self.lease.clone()
    }

    /// How often it was changed.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Lets other processes have the session, which cannot be changed here from now on: it is to be opened again.
    pub async fn lend(&self) -> Result<(), SessionError> {
        Ok(self.shared.store.release(self.lease.clone()).await?)
    }

    /// Gives the lease back.
    pub async fn close(self) -> Result<(), SessionError> {
        Ok(self.shared.store.release(self.lease).await?)
    }

    /// The only way to change the session. What plugins have asked of the model, and what was refused meanwhile (O3), come
    /// before what follows from it.
    pub(crate) async fn apply(&mut self, input: Input, mut notes: Notes) -> Result<(), SessionError> {
        while let Some(Settlement { input, body, texts }) = self.shared.ledger.next() {
            if self.run.is_open() {
                let step = self.run.turn.as_ref().map_or(0, |turn| turn.interactions);
                let mut notes = Notes { texts, ..Notes::default() };
                self.note(&mut notes, step, RECORD_KIND, body);
                self.apply_one(input, notes).await?;
            }
        }
        if let Some((call, answers)) = notes.answers.take() {
            let step = self.run.turn.as_ref().map_or(0, |turn| turn.interactions);
            self.note(&mut notes, step, ANSWERS_KIND, json!({"call": call, "host": answers}));
        }
        if let Some((call, request)) = notes.request.take() {
            let step = self.run.turn.as_ref().map_or(0, |turn| turn.interactions);
            self.note(&mut notes, step, REQUEST_KIND, json!({"call": call, "request": request}));
        }
        self.note_denials_of_stopped_calls();
        let mut denials = std::mem::take(&mut notes.denials);
        if self.run.is_open() && !(self.denied.is_empty() && denials.is_empty()) {
            denials.splice(0..0, self.denied.drain(..));
            self.apply_one(Input::Denied { denials }, Notes::default()).await?;
        }
        self.apply_one(input, notes).await
    }

    /// The next state is computed, committed, and only then taken and told (D6).
    async fn apply_one(&mut self, input: Input, notes: Notes) -> Result<(), SessionError> {
        let name = name_of(&input);
        let input = self.with_edit_told(input).await?;
        let cleaned = secrets::without_secrets(self.shared.agent.redaction(), input, notes);
        let (input, notes) = cleaned.map_err(|error| *error)?;
        let results = Results::of(&input);
        let mut run = self.run.clone();
        let mut change = run.apply(input)?;
        self.announce_end(&run, &mut change).await?;
        self.note_memories(&run, results, &mut change).await;
        self.explain(&mut change).await?;
        self.announce_approvals(&run, &mut change);
        let commit = self.commit_of(&run, change, notes);
        let (change, texts) = (commit.change.clone(), commit.texts.iter().map(|text| digest_of(text.as_bytes())));
        let texts: Vec<Digest> = texts.collect();
        self.shared.pass(Checkpoint::BeforeCommit(name));
        self.revision = self.shared.store.commit(&self.lease, self.revision, commit).await?;
        self.shared.pass(Checkpoint::AfterCommit(name));
        self.run = run;
        self.view_is_stored = true;
        self.stored_texts.extend(texts);
        self.remember(&change);
        self.last_event = change.events.last().cloned().or(self.last_event.take());
        self.watchers.publish(change.events);
        self.follow(&change.outbox).await;
        Ok(())
    }

    fn commit_of(&self, run: &Run, change: Change, notes: Notes) -> Commit {
        let title = run.turn.as_ref().filter(|turn| turn.number == 1).map(|turn| title_of(&turn.input));
        let status = status(run, title);
        let new = |text: &String| !self.stored_texts.contains(&digest_of(text.as_bytes()));
        let texts = notes.texts.into_iter().filter(new).collect();
        let view = match self.view_is_stored {
            true => StoredView::Changed(pieces(run, Some(&self.run))),
            false => StoredView::Whole(pieces(run, None)),
        };
        Commit { snapshot: run.snapshot_without_view(), view, change, records: notes.records, texts, status }
    }

    /// How the last turn ended.
    pub(crate) fn ended(&self) -> TurnResult {
        match self.run.turn.as_ref().and_then(|turn| turn.end()) {
            Some(TurnEnd::Finished(output)) => TurnResult::Finished(output.clone()),
            Some(TurnEnd::Failed(error)) => TurnResult::Failed(error.clone()),
            Some(TurnEnd::Cancelled) => TurnResult::Cancelled,
            None => TurnResult::Idle,
        }
    }
}

/// The pieces of the view that a commit of the run writes.
pub(crate) fn pieces(run: &Run, since: Option<&Run>) -> Vec<ViewPiece> {
    run.view_pieces(since).into_iter().map(|(number, items)| ViewPiece { number, items }).collect()
}

/// What lists show of a session with this snapshot; none where this host cannot read it.
pub fn status_of(snapshot: &[u8]) -> Option<Status> {
    Run::restore(Some(snapshot)).ok().map(|run| status(&run, None))
}

/// What lists show of a session in this state.
pub(crate) fn status(run: &Run, title: Option<String>) -> Status {
    let state = match run.action() {
        Action::Suspended(_) => "suspended",
        _ if run.is_open() => "running",
        _ => match run.turn.as_ref().and_then(|turn| turn.end()) {
            Some(TurnEnd::Failed(_)) => "failed",
            Some(TurnEnd::Cancelled) => "cancelled",
            Some(TurnEnd::Finished(_)) | None => "idle",
        },
    };
    Status { state: state.to_owned(), turn: run.turns, title }
}

fn title_of(input: &TurnInput) -> String {
    let text = input.message().plain_text();
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    line.trim().chars().take(TITLE_CHARACTERS).collect()
}

fn name_of(input: &Input) -> &'static str {
    match input {
        Input::Start { .. } => "start",
        Input::Context { .. } => "context",
        Input::Summarised(_) => "summarised",
        Input::Reply(_) => "reply",
        Input::ModelFailed(_) => "model_failed",
        Input::Keep { .. } => "keep",
        Input::Undo => "undo",
        Input::Asked { .. } => "asked",
        Input::Dispatched { .. } => "dispatched",
        Input::Outcome { .. } => "outcome",
        Input::Verdict(_) => "verdict",
        Input::Failed(_) => "failed",
        Input::Cancel => "cancel",
        Input::Recover => "recover",
        Input::Pending { .. } => "pending",
        Input::Held { .. } => "held",
        Input::Respond { .. } => "respond",
        Input::Expire { .. } => "expire",
        Input::Approval { .. } => "approval",
        Input::AskAgain { .. } => "ask_again",
        Input::Forbidden { .. } => "forbidden",
        Input::Denied { .. } => "denied",
        Input::Resolve { .. } => "resolve",
    }
}
