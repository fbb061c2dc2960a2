//! A session that is open in this process, with its lease and its state. Only the method `apply` changes the state. The
//! driver in the module `turn` runs the turns of the session.

mod log_writer;
mod opening;
mod secrets;
mod servers;
mod work_clock;

pub(crate) use log_writer::LogWriter;
pub use opening::OpenSession;

pub(crate) use opening::{new_id_ending, new_subject};

use crate::agent::{Agent, AgentError, LiveAgent};
use crate::approvals::{
    ApprovalContext, ApprovalError, HeldRequests, add_edit_note, add_event_details, announce_approvals,
};
use crate::events::{SessionWatch, Watchers};
use crate::history::LoadedHistory;
use crate::host::{Account, BudgetUse, Checkpoint, FinishedQuestion, Reservation, SessionServices};
use crate::media::AttachError;
use crate::open_sessions::Inbox;
use crate::outbox::{self, DeferredDelivery, OutboxError, Receivers, ResultOrigin};
use crate::records::{CommitNotes, HostAnswersRecord, ServiceRequestRecord, StepRecordBody};
use crate::requests::{Accepted, RequestReply};
use agent_core::change::{Change, Denial};
use agent_core::event::{Event, Suspension};
use agent_core::message::{CallId, Digest, Media, TurnInput};
use agent_core::plugin::TraceContext;
use agent_core::run::{Input, InputError, LoopConfig, Output, QueuedPrompt, RestoreError, Run, TurnEnd, TurnError};
use agent_core::tool::ClientTool;
use agent_mcp::AcquiredServers;
use agent_plugins::{GenerationError, NewMediaItem, ProtectedPath};
use agent_store::{Commit, Lease, Status, StoreError, ViewPiece, digest_of};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::broadcast;
use work_clock::WorkClock;

/// Maximum number of characters of a session's title. The title is the beginning of the session's first input.
pub(crate) const TITLE_CHARACTERS: usize = 80;

/// The reason why a session cannot be opened or changed.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The store rejected the operation or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The stored state of the session cannot be restored, for example because no state is stored (`no_context`, L1).
    #[error("session `{session}`: {error}")]
    Restore {
        /// Id (subject) of the session whose state cannot be restored.
        session: String,
        /// The reason why the state cannot be restored.
        error: RestoreError,
    },
    /// The session does not accept this input in its current state.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A user's decision about a tool call was rejected.
    #[error(transparent)]
    Approval(#[from] ApprovalError),
    /// The plugins to which the open turn is pinned cannot be loaded at the moment. A later attempt may succeed.
    #[error("the plugins that the open turn started with cannot be loaded now: {0}; try again")]
    Generation(#[from] GenerationError),
    /// No turn of this agent has begun with these plugin versions, so they are not loaded, but the same agent on another machine
    /// may have used them.
    #[error(
        "the open turn began with {versions}, and no turn of this agent with this configuration file has begun with that, so \
         it is not loaded here; a machine on which the agent's file has the same path as on the machine where the turn began \
         can continue it, and `agent-host session cancel` ends it"
    )]
    UnknownPlugins {
        /// Plugins and the first digits of their digests.
        versions: String,
    },
    /// Too many sessions are open in this process, in total or for the agent and user of this session (F2).
    #[error("too many sessions are open; try again later")]
    NoPlace,
    /// The agent cannot be built again, because the tools that its MCP servers currently offer conflict with
    /// its other tools.
    #[error(transparent)]
    Agent(#[from] AgentError),
}

/// How a turn ended, or why it is still open, when [`Session::run`] returns.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnResult {
    /// The turn finished with this output.
    Finished(Output),
    /// The turn ended with this error.
    Failed(TurnError),
    /// The turn was cancelled.
    Cancelled,
    /// The turn is still open, because the process is shutting down. The turn continues when the session
    /// is opened again.
    Interrupted,
    /// The turn is still open, because it waits for answers, approvals or decisions.
    Suspended(Suspension),
    /// No turn was open, and [`Session::run`] was called without an input.
    Idle,
}

/// When the current model call was first attempted (`first_try`), and when it will be retried (`next_try`). A field is
/// `None` if no such attempt was made or is planned.
#[derive(Default)]
pub(crate) struct ModelRetry {
    pub(crate) first_try: Option<Instant>,
    pub(crate) next_try: Option<Instant>,
}

/// A session that is open in this process.
///
/// ```
/// use agent_core::message::TurnInput;
/// use agent_plugins::{Generation, Sandbox, SandboxOptions};
/// use agent_runtime::{Agent, AgentConfig, Host, OpenSession, Session, TurnResult};
/// use agent_store::SqliteStore;
/// use std::sync::Arc;
/// use tokio_util::sync::CancellationToken;
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // What all sessions of a process share.
/// let host = Host::new(Arc::new(SqliteStore::open_in_memory()?), Sandbox::new(SandboxOptions::default())?);
///
/// // An agent without plugins, whose model replies from a script.
/// let folder = tempfile::tempdir()?;
/// std::fs::write(folder.path().join("replies.json"), r#"{"replies": [{"text": "42"}]}"#)?;
/// let provider = agent_models::provider("scripted:replies.json", folder.path())?;
/// let agent = Agent::new(AgentConfig::new("helper"), provider, Generation::new([]))?;
///
/// let mut session = Session::open(&host, Arc::new(agent), OpenSession::New).await?;
/// let input = TurnInput::Text("What is 6 times 7?".to_owned());
/// let result = session.run(Some(input), CancellationToken::new()).await?;
/// assert!(matches!(result, TurnResult::Finished(output) if output.data == "42"));
/// session.close().await?;
/// # Ok(())
/// # }
/// ```
pub struct Session {
    pub(crate) services: Arc<SessionServices>,
    pub(crate) run: Run,
    pub(crate) history: LoadedHistory,
    pub(crate) watchers: Arc<Watchers>,
    pub(crate) last_event: Option<Event>,
    pub(crate) model_retry: ModelRetry,
    /// What the last model call has reserved of the turn's budgets. The reservation ends after the next commit.
    pub(crate) reservation: Option<Reservation>,
    /// Measures the time that the open turn works.
    work_clock: WorkClock,
    /// Whether a failed commit or a dropped future has stopped the turn before its end. The results of actions that
    /// were running when the turn stopped are lost.
    pub(crate) was_interrupted: bool,
    /// Whether memories that are committed to the outbox still have to be written.
    pub(crate) deferred: DeferredDelivery,
    /// Denials that are not committed yet and that do not belong to the result of a call.
    pub(crate) denied: Vec<(Option<CallId>, Denial)>,
    /// Service requests that plugins have made in this process and that a user must approve before they are sent.
    pub(crate) held_requests: HeldRequests,
    /// Calls that were restored from the stored state and have not been checked again yet. Before a restored call runs,
    /// its arguments are checked again against the tool's schema.
    pub(crate) unverified: HashSet<CallId>,
    /// Connections to MCP servers that were opened to check a user's decision. The connections stay open until the
    /// turn continues and opens its own connections.
    pub(crate) held_servers: Option<AcquiredServers>,
    opened_at: u64,
    /// Trace context of the event that contains the input of the next turn.
    incoming_trace: Option<TraceContext>,
    /// Whether the open turn ended when the session was opened, because the turn could not continue or because an
    /// answer for which it waited was overdue.
    ended_at_opening: bool,
    /// Writes the session's commits.
    pub(crate) log: LogWriter,
    /// Digests of the texts that this process has stored for the session.
    pub(crate) stored_texts: HashSet<Digest>,
    /// The user to whom the session belongs. `None` if the user is not known.
    pub(crate) owner: Option<String>,
    /// The requests that arrive for the session.
    pub(crate) inbox: Inbox,
    /// The tools that the client offers in the next turn.
    pub(crate) client_tools: Vec<ClientTool>,
    /// Receives an answer when the next turn begins.
    pub(crate) start_reply: Option<RequestReply>,
    /// Receive an answer when the open turn ends.
    pub(crate) cancel_replies: Vec<RequestReply>,
}

impl Session {
    /// Returns the session's subject, which identifies the session in the store and in events.
    pub fn subject(&self) -> &str {
        &self.services.subject
    }

    /// Returns the session's current state.
    pub fn state(&self) -> &Run {
        &self.run
    }

    /// Returns the budgets of the session's current agent that have limits, and what was used of them. The budget of a turn
    /// is that of the last turn (O4).
    pub async fn budget_use(&self) -> Result<Vec<BudgetUse>, StoreError> {
        let LoopConfig { user, budgets, .. } = self.services.live.current().bounds();
        self.services.budget_gate.used(&Account::of_session(&self.run, user, budgets)).await
    }

    /// Returns the sequence number of the last durable event before the session was opened in this process.
    pub fn opened_at(&self) -> u64 {
        self.opened_at
    }

    /// Returns whether the open turn ended when the session was opened, because an answer for which the turn waited
    /// was overdue or because the turn's plugins are not available any more. [`Session::run`] without an input returns
    /// the turn's result.
    pub fn has_ended_at_opening(&self) -> bool {
        self.ended_at_opening
    }

    /// Returns a receiver for all events that the session publishes after this call. The receiver first gets the latest
    /// durable events that no other receiver has received.
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.watchers.subscribe()
    }

    /// Returns a handle with which readers can subscribe to the session's events. Readers may subscribe and unsubscribe
    /// at any time, even while [`Session::run`] runs (L30).
    pub fn watch(&self) -> SessionWatch {
        self.watchers.handle()
    }

    /// Keeps the next events for readers that subscribe a moment after the turn has begun or continued.
    pub(crate) fn keep_events_for_readers(&self) {
        self.watchers.keep_next(self.run.sequence);
    }

    /// Makes the next turn a part of this trace. `trace` is the trace context of the event that contains the turn's
    /// input (I6). A `trace` that is not valid according to the W3C Trace Context recommendation is ignored, and the
    /// turn starts a new trace.
    pub fn continue_trace(&mut self, trace: TraceContext) {
        self.incoming_trace = Some(trace).filter(TraceContext::is_valid);
    }

    /// Queues a prompt that arrives while a turn is open, together with the trace context of the event that contains
    /// the prompt. After the turn has ended, [`Session::next_queued_prompt`] returns the prompt.
    pub async fn queue_prompt(&mut self, input: TurnInput) -> Result<(), SessionError> {
        let prompt = QueuedPrompt { input, trace: self.incoming_trace.take(), steers: false };
        self.apply(Input::QueuePrompt { prompt }, CommitNotes::default()).await
    }

    /// Returns the first queued prompt, or `None` while a turn is open or if the queue is empty. The prompt stays
    /// in the queue until a turn starts with this prompt, so that the prompt is neither lost nor used twice if the
    /// process ends.
    pub fn next_queued_prompt(&self) -> Option<TurnInput> {
        let queued = self.run.queued_prompts.first().filter(|_| !self.run.is_open())?;
        Some(queued.input.clone())
    }

    /// Returns the trace context of the event or request that contains the input of the next turn. `None` if the turn
    /// begins a trace.
    pub(crate) fn incoming_trace(&mut self, input: &TurnInput) -> Option<TraceContext> {
        match self.run.queued_prompts.first().filter(|queued| queued.input == *input) {
            Some(queued) => queued.trace.clone(),
            None => self.incoming_trace.take(),
        }
    }

    /// Returns an error if the store contains no state of the session, because no turn of the session was
    /// ever started (L1).
    #[expect(clippy::result_large_err, reason = "every session operation returns this type, which is rarely moved")]
    pub(crate) fn require_stored_state(&self) -> Result<(), SessionError> {
        if self.log.revision() > 0 {
            return Ok(());
        }
        let session = self.services.subject.clone();
        Err(SessionError::Restore { session, error: RestoreError::NoContext })
    }

    /// Removes the messages of the last turn from the messages that the model is shown. The turn stays in the store,
    /// but its memories are removed (D4, D5).
    pub async fn undo(&mut self) -> Result<(), SessionError> {
        self.apply(Input::Undo, CommitNotes::default()).await
    }

    /// Returns the agent for turns that start from now on.
    pub fn agent(&self) -> Arc<Agent> {
        self.services.live.current()
    }

    /// Returns the files and folders to which no grant gives access, because they control the host.
    pub fn protected_paths(&self) -> Vec<ProtectedPath> {
        self.services.sandbox.protected()
    }

    /// Returns the handle with which the agent can be changed. Turns that start after a change use the changed agent.
    /// An open turn keeps the agent that the turn started with.
    pub fn live(&self) -> &LiveAgent {
        &self.services.live
    }

    /// Returns the lease, which gives this process the exclusive right to write to the session.
    pub(crate) fn lease(&self) -> Lease {
        self.log.lease().clone()
    }

    /// Returns the session's revision. Each commit increases the revision by one.
    pub fn revision(&self) -> u64 {
        self.log.revision()
    }

    /// Releases the lease so that other processes can use the session. After this call, this value cannot change the
    /// session any more. To change the session, open it again.
    pub async fn release_lease(&self) -> Result<(), SessionError> {
        Ok(self.services.store.release(self.log.lease().clone()).await?)
    }

    /// Closes the session and releases its lease.
    pub async fn close(self) -> Result<(), SessionError> {
        let Self { services, log, inbox, .. } = self;
        // A session whose lease is released is no longer listed as open, so that its lease does not count as lost.
        drop(inbox);
        Ok(services.store.release(log.lease().clone()).await?)
    }

    /// Returns a read-only view of the data that decisions about approvals need.
    pub(crate) fn approvals(&self) -> ApprovalContext<'_> {
        let Self { services, run, held_requests, unverified, .. } = self;
        ApprovalContext { services, run, held_requests, unverified }
    }

    /// Returns the context of [`Session::approvals`] together with the session's history.
    pub(crate) fn approvals_and_history(&mut self) -> (ApprovalContext<'_>, &mut LoadedHistory) {
        let Self { services, run, held_requests, unverified, history, .. } = self;
        (ApprovalContext { services: &*services, run: &*run, held_requests, unverified }, history)
    }

    /// Stores a media item in this session, so that a [`TurnInput::Message`] can refer to the item in a
    /// [`Part::Media`]. If several items have the same bytes, the bytes are stored once.
    ///
    /// [`Part::Media`]: agent_core::message::Part::Media
    pub async fn attach(&self, medium: NewMediaItem) -> Result<Media, AttachError> {
        self.services.attach(medium).await
    }

    /// Sends the session's pending events to the server in the agent's configuration. A [`Supervisor`](crate::Supervisor)
    /// does this by itself. If the server does not accept an event, the event stays in the outbox.
    pub async fn deliver_events(&self) -> Result<(), OutboxError> {
        let config = &self.services.agent.config().outbox;
        if !config.is_sent() {
            return Ok(());
        }
        let receivers = Receivers::All(self.services.fleet.as_ref().map(|fleet| &fleet.nats));
        outbox::deliver(&*self.services.store, (config, receivers), Some(self.subject()), &|_| {}).await
    }

    /// Replaces the agent with which the session runs the open turn.
    pub(crate) fn use_agent(&mut self, agent: Arc<Agent>) {
        if !Arc::ptr_eq(&agent, &self.services.agent) {
            self.services = Arc::new(self.services.with_agent(agent));
        }
    }

    /// Ends the wait of each call whose time limit for the answer has passed.
    pub(crate) async fn expire_overdue_calls(&mut self) -> Result<(), SessionError> {
        while let Some(call) = self.overdue_call() {
            self.apply(Input::Expire { call }, CommitNotes::default()).await?;
        }
        Ok(())
    }

    /// Returns the first call whose time limit for the answer has passed, or `None` if no limit has passed.
    pub(crate) fn overdue_call(&self) -> Option<CallId> {
        let now = self.services.now_ms();
        let waits = self.run.waits().into_iter();
        waits.filter(|wait| wait.cause.expires_at().is_some_and(|time| time <= now)).map(|wait| wait.call).next()
    }

    /// Applies an input to the session. No other method changes the session's state. The input may depend on finished
    /// model calls of plugins and on denials (O3) that are not committed yet, so the method commits these first.
    pub(crate) async fn apply(&mut self, input: Input, mut notes: CommitNotes) -> Result<(), SessionError> {
        while let Some(FinishedQuestion { input, record, texts, reservation: _held }) = self.services.ledger.next() {
            if self.run.is_open() {
                let mut notes = CommitNotes { texts, ..CommitNotes::default() };
                notes.add_now(&self.run, StepRecordBody::PluginModel(Box::new(record)));
                self.apply_one(input, notes).await?;
            }
        }
        if let Some(usage) = self.services.abandoned.take()
            && self.run.is_open()
        {
            self.apply_one(Input::ModelSpent { usage }, CommitNotes::default()).await?;
        }
        if let Some((call, host)) = notes.host_answers.take() {
            let record = HostAnswersRecord { call, host };
            notes.add_now(&self.run, StepRecordBody::HostCallLog(Box::new(record)));
        }
        if let Some((call, request)) = notes.service_request.take() {
            let record = ServiceRequestRecord { call, request };
            notes.add_now(&self.run, StepRecordBody::ServiceRequest(Box::new(record)));
        }
        self.note_denials_of_stopped_calls();
        let mut denials = std::mem::take(&mut notes.denials);
        if self.run.is_open() && !(self.denied.is_empty() && denials.is_empty()) {
            denials.splice(0..0, self.denied.drain(..));
            self.apply_one(Input::Denied { denials }, CommitNotes::default()).await?;
        }
        let applied = self.apply_one(input, notes).await;
        self.reservation = None;
        applied
    }

    /// Computes the next state of the session and commits it. The session uses the new state and publishes its events
    /// only after the commit (D6).
    async fn apply_one(&mut self, input: Input, notes: CommitNotes) -> Result<(), SessionError> {
        self.add_queued_prompts();
        let name = input_name(&input);
        let kind = RequestKind::of(&input);
        let input = add_edit_note(&mut self.history, input).await?;
        let redacted = secrets::without_secrets(self.services.agent.redaction(), input, notes);
        let (input, notes) = redacted.map_err(|error| *error)?;
        let results = ResultOrigin::of(&input);
        let mut run = self.run.clone();
        let mut change = run.apply_at(input, self.services.now_ms())?;
        let states = (&self.run, &run);
        outbox::announce_end(&self.services, &mut self.history, states, &mut change).await?;
        outbox::add_memories(&self.services, &mut self.history, states, results, &mut change).await;
        let (approvals, history) = self.approvals_and_history();
        add_event_details(approvals, history, &mut change).await?;
        announce_approvals(&self.services, (&self.run, &run), &mut change);
        let mut commit = self.commit_of(&run, change, notes);
        commit.charge = self.work_clock.charge(&self.run, &run);
        commit.answer = match kind {
            RequestKind::Start => self.log.answer(Accepted::Started { turn: run.turns }),
            RequestKind::Undo => self.log.answer(Accepted::Undone),
            RequestKind::Other => None,
        };
        let is_charged = commit.charge.is_some();
        let (change, texts) = (commit.change.clone(), commit.texts.iter().map(|text| digest_of(text.as_bytes())));
        let texts: Vec<Digest> = texts.collect();
        self.services.reach_checkpoint(Checkpoint::BeforeCommit(name));
        self.log.commit(&*self.services.store, commit).await?;
        self.services.news.committed(&self.services.subject, &change.events);
        self.services.reach_checkpoint(Checkpoint::AfterCommit(name));
        self.services.report_commit(&run, &change.events);
        self.work_clock.committed(&run, is_charged);
        self.run = run;
        self.stored_texts.extend(texts);
        self.history.record_change(&self.run, &change);
        self.last_event = change.events.last().cloned().or(self.last_event.take());
        self.watchers.publish(change.events);
        self.answer_requests_of_turn();
        let deferred = std::mem::replace(&mut self.deferred, DeferredDelivery::Nothing);
        self.deferred = outbox::deliver_after_commit(&self.services, &self.run, &change.outbox, deferred).await;
        Ok(())
    }

    /// Adds the prompts to the state that were queued while an action of the turn borrowed the state.
    pub(crate) fn add_queued_prompts(&mut self) {
        self.log.add_queued_prompts(&mut self.run);
    }

    /// Answers the requests to begin a turn and to cancel a turn, after the commit that fulfils them.
    fn answer_requests_of_turn(&mut self) {
        // A closed channel means that the sender of the request has stopped waiting for the answer.
        if let Some(reply) = self.start_reply.take_if(|_| self.run.is_open()) {
            let _ = reply.send(Ok(Accepted::Started { turn: self.run.turns }));
        }
        if !self.run.is_open() {
            for reply in self.cancel_replies.drain(..) {
                let _ = reply.send(Ok(Accepted::Cancelled));
            }
        }
    }

    /// Collects the denials of calls that were stopped before they could return their denials.
    fn note_denials_of_stopped_calls(&mut self) {
        let denials = self.services.ports.stopped.as_ref().map(|stopped| stopped.take()).unwrap_or_default();
        for (call, denial) in denials {
            // Calls of validators and context builders have names that are not ids of tool calls, so their denials are
            // recorded without an id.
            let call = CallId(call);
            let is_call = self.run.claimed_calls().any(|(open, ..)| *open == call);
            self.denied.push((is_call.then_some(call), denial));
        }
    }

    fn commit_of(&self, run: &Run, change: Change, notes: CommitNotes) -> Commit {
        let title = run.turn.as_ref().filter(|turn| turn.number == 1).map(|turn| title_of(&turn.input));
        let status = status_of_run(run, title);
        let is_new = |text: &String| !self.stored_texts.contains(&digest_of(text.as_bytes()));
        let texts = notes.texts.into_iter().filter(is_new).collect();
        let view = self.log.view_of(run, &self.run);
        let (snapshot, records) = (run.snapshot_without_view(), notes.records);
        Commit { snapshot, view, change, records, texts, status, charge: None, answer: None }
    }

    /// Returns the result of the last turn.
    pub(crate) fn last_result(&self) -> TurnResult {
        match self.run.turn.as_ref().and_then(|turn| turn.end()) {
            Some(TurnEnd::Finished(output)) => TurnResult::Finished(output.clone()),
            Some(TurnEnd::Failed(error)) => TurnResult::Failed(error.clone()),
            Some(TurnEnd::Cancelled) => TurnResult::Cancelled,
            None => TurnResult::Idle,
        }
    }
}

/// Returns the pieces of the run's view (the messages that the model is shown) that a commit must write: the pieces
/// that differ from the view of `since`, or all pieces if `since` is `None`.
pub(crate) fn view_pieces(run: &Run, since: Option<&Run>) -> Vec<ViewPiece> {
    run.view_pieces(since).into_iter().map(|(number, items)| ViewPiece { number, items }).collect()
}

/// Returns the status of a session for lists of sessions. `snapshot` is the stored state of the session. Returns `None`
/// if this host cannot read the snapshot.
pub fn status_of(snapshot: &[u8]) -> Option<Status> {
    Run::restore(Some(snapshot)).ok().map(|run| status_of_run(&run, None))
}

/// Returns the status of a session for lists of sessions. `run` is the state of the session.
pub(crate) fn status_of_run(run: &Run, title: Option<String>) -> Status {
    let open_turn = run.turn.as_ref().filter(|turn| !turn.is_over()).map(agent_core::run::Turn::cost);
    let continues_at = run.continues_at();
    Status { state: run.session_state(), turn: run.turns, title, open_turn, continues_at }
}

fn title_of(input: &TurnInput) -> String {
    let text = input.message().plain_text();
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    line.trim().chars().take(TITLE_CHARACTERS).collect()
}

/// The inputs that carry out a request which must not be carried out twice.
#[derive(Clone, Copy)]
enum RequestKind {
    Start,
    Undo,
    Other,
}

impl RequestKind {
    fn of(input: &Input) -> Self {
        match input {
            Input::Start { .. } => Self::Start,
            Input::Undo => Self::Undo,
            _ => Self::Other,
        }
    }
}

fn input_name(input: &Input) -> &'static str {
    match input {
        Input::Start { .. } => "start",
        Input::Context { .. } => "context",
        Input::Summarised(_) => "summarised",
        Input::Reply(_) => "reply",
        Input::ModelFailed(_) => "model_failed",
        Input::QueuePrompt { .. } => "keep",
        Input::Undo => "undo",
        Input::PluginUsedModel { .. } => "asked",
        Input::ModelSpent { .. } => "spent",
        Input::Dispatched { .. } => "dispatched",
        Input::Outcome { .. } => "outcome",
        Input::Verdict(_) => "verdict",
        Input::Failed(_) => "failed",
        Input::Cancel => "cancel",
        Input::Recover => "recover",
        Input::Pending { .. } => "pending",
        Input::ServiceNeedsApproval { .. } => "held",
        Input::Respond { .. } => "respond",
        Input::Expire { .. } => "expire",
        Input::Approval { .. } => "approval",
        Input::RequestReapproval { .. } => "ask_again",
        Input::Forbidden { .. } => "forbidden",
        Input::Denied { .. } => "denied",
        Input::Resolve { .. } => "resolve",
    }
}
