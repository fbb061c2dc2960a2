//! A session that is open here: its lease, its run, and the one way to change it.

mod kept;
mod servers;

pub(crate) use kept::result_part;

use crate::agent::{Agent, AgentError, Answered};
use crate::approvals::ApprovalError;
use crate::checkpoint::{Checkpoint, CheckpointObserver};
use crate::events::{Watch, Watchers};
use crate::first_use::FirstUses;
use crate::host_model::{AgentModel, ModelLedger, RECORD_KIND, Settlement};
use crate::key_values::StoredValues;
use crate::live::LiveAgent;
use crate::media::{Downscaler, StoredMedia};
use crate::outbox::Owing;
use crate::pinned;
use crate::remember::Results;
use crate::user::UserName;
use agent_core::change::{CallRecord, Change, Denial};
use agent_core::event::{Event, Suspension};
use agent_core::message::{CallId, Digest, ID_ENDING, MessageId, StoredMessage, TurnInput};
use agent_core::plugin::TraceContext;
use agent_core::run::{Action, Decision, Input, LoopConfig, Output, Refused, RestoreError, Run, TurnEnd, TurnError};
use agent_mcp::Held;
use agent_memory::{Commit, Lease, OpenMode, SessionMeta, Status, StepRecord, Store, StoreError, digest_of};
use agent_plugins::{
    Generation, GenerationError, Grants, MediaPort, ModelPort, PluginSetup, Ports, Sandbox, TreeGrant, trees_within,
};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Characters of the first input that make a session's title.
const TITLE_CHARACTERS: usize = 80;

/// What all sessions of a process share.
#[derive(Clone)]
pub struct Host {
    /// What outlives a turn.
    pub store: Arc<dyn Store>,
    /// Where plugins run.
    pub sandbox: Sandbox,
    /// Makes pictures smaller for models.
    pub downscaler: Downscaler,
    /// Told of every named point, in tests.
    pub checkpoint: Option<CheckpointObserver>,
    /// Who is asked for what plugins lack at their first use (P6). None: nobody is there.
    pub first_uses: Option<FirstUses>,
}

/// Which session to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenSession {
    /// A new one.
    New,
    /// That of this subject.
    Existing(String),
    /// The same, to decide something about its open turn, which cannot go on here. That its plugins cannot be loaded is
    /// no hindrance.
    ToDecide(String),
}

/// What a session is opened for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    GoOn,
    Decide,
}

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

/// What a running call needs of its session.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) sandbox: Sandbox,
    /// The open turn's, whole, until the turn ends.
    pub(crate) agent: Arc<Agent>,
    /// What the agent is now: the next turn's, and the grants of this one are no more than its own.
    pub(crate) live: LiveAgent,
    pub(crate) media: Arc<dyn MediaPort>,
    /// What plugins reach.
    pub(crate) ports: Ports,
    /// What plugins have asked of the agent's model.
    pub(crate) ledger: Arc<ModelLedger>,
    pub(crate) downscaler: Downscaler,
    pub(crate) subject: String,
    /// What the ids of the session's calls end with.
    pub(crate) id_ending: String,
    /// Subject of the session that delegated the work (L16).
    pub(crate) delegated_by: Option<String>,
    pub(crate) checkpoint: Option<CheckpointObserver>,
    pub(crate) first_uses: Option<FirstUses>,
}

impl Shared {
    /// The ids that somebody may mean by `id`: itself, or one whose ending was left out.
    pub(crate) fn call_ids(&self, id: &str) -> Vec<CallId> {
        vec![CallId(id.to_owned()), CallId(format!("{id}_{}", self.id_ending))]
    }

    /// What other sessions of this process share with this one.
    pub(crate) fn host(&self) -> Host {
        Host {
            store: self.store.clone(),
            sandbox: self.sandbox.clone(),
            downscaler: self.downscaler.clone(),
            checkpoint: self.checkpoint.clone(),
            first_uses: self.first_uses.clone(),
        }
    }

    /// A plugin of the turn, granted what the turn began with and what a person has answered since, as far as it still is
    /// granted (P6, P10).
    pub(crate) fn setup<'s>(&self, pinned: &'s PluginSetup) -> Cow<'s, PluginSetup> {
        let now = self.live.current();
        let name = pinned.plugin().name();
        let (granted, granted_now) = (self.agent.grants_of(name), now.grants_of(name));
        if Arc::ptr_eq(&now, &self.agent) || granted_now == granted {
            return Cow::Borrowed(pinned);
        }
        let nothing = Grants::default();
        let within_now = |setup: &PluginSetup| Cow::Owned(setup.within(granted_now.unwrap_or(&nothing)));
        match now.answered_about(name) {
            None => within_now(pinned),
            Some(Answered { for_this_run, for_good }) => {
                let granted = granted.cloned().unwrap_or_default().and(for_this_run).and(for_good);
                within_now(&pinned.granted(granted))
            }
        }
    }

    /// What the host's own file tools may read: what the turn began with as far as it still is granted.
    pub(crate) fn host_trees(&self) -> Vec<TreeGrant> {
        trees_within(&self.agent.config().host_trees, &self.live.current().config().host_trees)
    }

    pub(crate) fn pass(&self, checkpoint: Checkpoint<'_>) {
        if let Some(observer) = &self.checkpoint {
            observer(checkpoint);
        }
    }
}

/// What is stored beside a change (D1).
#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) records: Vec<StepRecord>,
    pub(crate) texts: Vec<String>,
    /// What was refused meanwhile beside a call's own outcome: told before the change.
    pub(crate) denials: Vec<(Option<CallId>, Denial)>,
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
    /// MCP servers that a decision was checked against, until the turn that goes on holds them itself.
    held: Option<Held>,
    lease: Lease,
    revision: u64,
    messages: HashMap<MessageId, Arc<StoredMessage>>,
    calls: HashMap<CallId, CallRecord>,
    stored_texts: HashSet<Digest>,
}

impl Session {
    /// Opens a session under its lease. What was running when its last host died is taken up again (D3).
    pub async fn open(host: &Host, agent: impl Into<LiveAgent>, which: OpenSession) -> Result<Self, SessionError> {
        let agent = agent.into();
        let name = agent.current().config().name.clone();
        let (subject, mode, purpose) = match which {
            OpenSession::New => (new_subject(&name), OpenMode::CreateNew, Purpose::GoOn),
            OpenSession::Existing(subject) => (subject, OpenMode::Existing, Purpose::GoOn),
            OpenSession::ToDecide(subject) => (subject, OpenMode::Existing, Purpose::Decide),
        };
        Self::open_for(host, agent, (Run::new(subject, name), mode), (Watchers::new(), purpose)).await
    }

    /// The same for a session that is as `new` where nothing of it is stored yet.
    pub(crate) async fn open_as(
        host: &Host,
        live: LiveAgent,
        (new, mode): (Run, OpenMode),
        watchers: Watchers,
    ) -> Result<Self, SessionError> {
        Self::open_for(host, live, (new, mode), (watchers, Purpose::GoOn)).await
    }

    async fn open_for(
        host: &Host,
        live: LiveAgent,
        (new, mode): (Run, OpenMode),
        (watchers, purpose): (Watchers, Purpose),
    ) -> Result<Self, SessionError> {
        let agent = live.current();
        let subject = new.session.clone();
        let (user, delegated_by) = (agent.config().user.clone(), new.delegated_by.clone());
        let meta = SessionMeta { agent: new.agent.clone(), user, delegated_by };
        let opened = host.store.open(&subject, mode, meta).await?;
        let run = match opened.revision {
            0 => Ok(new.with_id_ending(new_id_ending())),
            _ => Run::restore(opened.snapshot.as_deref()),
        };
        let run = match run {
            Ok(run) => run,
            Err(error) => {
                host.store.release(opened.lease).await?;
                return Err(SessionError::Restore { session: subject, error });
            }
        };
        let media: Arc<dyn MediaPort> = Arc::new(StoredMedia(host.store.clone()));
        let ledger = Arc::new(ModelLedger::default());
        let shared = Shared {
            store: host.store.clone(),
            sandbox: host.sandbox.clone(),
            live,
            media: media.clone(),
            ports: Ports {
                media: Some(media),
                key_value: Some(Arc::new(StoredValues(host.store.clone()))),
                model: Some(model_of(&agent, &ledger, &subject)),
            },
            agent,
            ledger,
            downscaler: host.downscaler.clone(),
            subject,
            id_ending: run.id_ending.clone(),
            delegated_by: run.delegated_by.clone(),
            checkpoint: host.checkpoint.clone(),
            first_uses: host.first_uses.clone(),
        };
        let mut session = Self {
            shared: Arc::new(shared),
            run,
            watchers: Arc::new(watchers),
            last_event: None,
            asking_since: None,
            retry_at: None,
            was_left: false,
            owing: Owing::Nothing,
            denied: Vec::new(),
            opened_at: opened.last_event,
            held: None,
            lease: opened.lease,
            revision: opened.revision,
            messages: HashMap::new(),
            calls: HashMap::new(),
            stored_texts: HashSet::new(),
        };
        match session.take_up(purpose).await {
            Ok(()) => {
                // What the process before this one could not deliver any more.
                if session.revision > 0 {
                    session.deliver().await;
                }
                Ok(session)
            }
            Err(error) => {
                session.close().await?;
                Err(error)
            }
        }
    }

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

    /// Its events from now on, and before them the last durable ones that nobody has watched.
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.watchers.subscribe()
    }

    /// For other readers, who may come and go at any time, also while [`Session::run`] runs (L30).
    pub fn watch(&self) -> Watch {
        self.watchers.handle()
    }

    /// Begins a turn with the input, or without one goes on with the open turn, until it ends or waits. Cancelling stops
    /// it within 100 ms and leaves a session that can go on (L29). MCP servers are connected meanwhile, and let go of when
    /// the turn ends, fails or waits (I5).
    pub async fn run(
        &mut self,
        input: Option<TurnInput>,
        cancel: CancellationToken,
    ) -> Result<TurnResult, SessionError> {
        if let Some(input) = input {
            return self.begin((input, None), Bounds::Own, crate::trace::root(), cancel).await;
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
        self.begin((input, Some(user)), Bounds::Own, crate::trace::root(), cancel).await
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

    /// Decides about a call whose outcome is unknown (D3). [`Session::run`] then goes on.
    pub async fn resolve(&mut self, call: CallId, decision: Decision) -> Result<(), SessionError> {
        self.has_context()?;
        let call = self.run.named_call(call);
        self.apply(Input::Resolve { call, decision }, Notes::default()).await
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
        Commit { snapshot: run.snapshot(), change, records: notes.records, texts, status }
    }

    /// Goes on where another process stopped: with the plugins of the open turn, and with what was running decided.
    async fn take_up(&mut self, purpose: Purpose) -> Result<(), SessionError> {
        if !self.run.is_open() {
            return Ok(());
        }
        if let Some(user) = self.run.turn.as_ref().and_then(|turn| turn.config.user.clone()) {
            self.use_agent(self.shared.agent.for_user(Some(&user))?);
        }
        self.recover().await?;
        self.expire_due().await?;
        let Some(turn) = &self.run.turn else { return Ok(()) };
        let plugins: Vec<_> = turn.plugins.iter().map(|pin| (pin.name.clone(), pin.digest.clone())).collect();
        let (current, pinned) = (self.shared.agent.clone(), turn.pinned.clone());
        let is_current = plugins == current.generation().pinned();
        if is_current && pinned.as_ref().is_none_or(|pinned| *pinned == pinned::pins_of(&current)) {
            return Ok(());
        }
        let generation = match is_current {
            true => Ok(current.generation().clone()),
            false => Generation::from_digests(&self.shared.sandbox, &plugins).await,
        };
        let agent = match generation {
            Ok(generation) => pinned::resumed(&current, generation, pinned.as_ref()).map_err(|error| error.to_string()),
            // What is decided about the turn needs none of them, least of all that it is cancelled.
            Err(error) if purpose == Purpose::Decide => {
                tracing::info!(session = %self.run.session, %error, "the open turn's plugins are not loaded");
                return Ok(());
            }
            Err(error) if error.is_lasting() => Err(error.to_string()),
            // It may be there the next time: the turn stays open.
            Err(error) => return Err(error.into()),
        };
        match agent {
            Ok(agent) => self.use_agent(Arc::new(agent)),
            Err(_) if purpose == Purpose::Decide => {}
            Err(reason) => {
                self.apply(Input::Failed(TurnError::PluginChanged { reason }), Notes::default()).await?;
            }
        }
        Ok(())
    }

    /// Decides about calls that nothing runs any more (D3).
    async fn recover(&mut self) -> Result<(), SessionError> {
        if self.run.is_open() {
            let mut after = self.run.clone();
            after.apply(Input::Recover)?;
            if after != self.run {
                self.apply(Input::Recover, Notes::default()).await?;
            }
        }
        Ok(())
    }

    fn use_agent(&mut self, agent: Arc<Agent>) {
        if Arc::ptr_eq(&agent, &self.shared.agent) {
            return;
        }
        let shared = &self.shared;
        let model = Some(model_of(&agent, &shared.ledger, &shared.subject));
        let ports = Ports { model, ..shared.ports.clone() };
        self.shared = Arc::new(Shared {
            store: shared.store.clone(),
            sandbox: shared.sandbox.clone(),
            agent,
            live: shared.live.clone(),
            media: shared.media.clone(),
            ports,
            ledger: shared.ledger.clone(),
            downscaler: shared.downscaler.clone(),
            subject: shared.subject.clone(),
            id_ending: shared.id_ending.clone(),
            delegated_by: shared.delegated_by.clone(),
            checkpoint: shared.checkpoint.clone(),
            first_uses: shared.first_uses.clone(),
        });
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

/// The agent's model for its plugins.
fn model_of(agent: &Agent, ledger: &Arc<ModelLedger>, session: &str) -> Arc<dyn ModelPort> {
    let (models, reply_tokens) = (agent.models().clone(), agent.config().reply_tokens);
    Arc::new(AgentModel { models, ledger: ledger.clone(), reply_tokens, session: session.to_owned() })
}

/// A subject that no session has.
pub(crate) fn new_subject(agent: &str) -> String {
    format!("{agent}/{}", Uuid::now_v7())
}

/// What the ids of a session's calls end with: nobody else has it.
pub(crate) fn new_id_ending() -> String {
    let mut ending = Uuid::new_v4().simple().to_string();
    ending.truncate(ID_ENDING);
    ending
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
        Input::Undo => "undo",
        Input::Asked { .. } => "asked",
        Input::Dispatched { .. } => "dispatched",
        Input::Outcome { .. } => "outcome",
        Input::Verdict(_) => "verdict",
        Input::Failed(_) => "failed",
        Input::Cancel => "cancel",
        Input::Recover => "recover",
        Input::Pending { .. } => "pending",
        Input::Respond { .. } => "respond",
        Input::Expire { .. } => "expire",
        Input::Approval { .. } => "approval",
        Input::AskAgain { .. } => "ask_again",
        Input::Forbidden { .. } => "forbidden",
        Input::Denied { .. } => "denied",
        Input::Resolve { .. } => "resolve",
    }
}
