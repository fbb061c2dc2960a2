//! The task of one session in the editor: it forwards what happens in the session, asks the user what the session needs, and
//! handles one prompt after another.

use crate::children::{ChildNews, Children};
use crate::commands::{self, Command};
use crate::prompt::EditorPrompt;
use crate::replay::Replayed;
use crate::shared::{Cancellation, Disconnected, Shared, chunk, failed, invalid, request_error, store_error};
use crate::updates::Updates;
use crate::waits::{Settled, Suspended, Waiting};
use agent_client_protocol::v1::Responder;
use agent_client_protocol::v1::schema::{ContentBlock, PromptResponse, SessionUpdate, StopReason};
use agent_client_protocol::{Error, RequestCancellation};
use agent_core::event::{EndReason, EventKind};
use agent_core::message::CallId;
use agent_runtime::{Accepted, EventPosition, Prompt, SessionName, SessionRequest, TurnEvents, TurnUpdate};
use agent_store::{RecordRange, StoreError};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Number of prompts of a session that wait until earlier prompts have ended.
const WAITING_PROMPTS: usize = 8;

/// Code of the error that ends a turn whose replies were all rejected.
const OUTPUT_REJECTED: &str = "output_rejected";

/// A prompt, and what its answer needs.
pub(crate) struct PromptJob {
    blocks: Vec<ContentBlock>,
    responder: Responder<PromptResponse>,
    /// Cancelled when the editor cancels the session's work.
    token: CancellationToken,
    /// Cancelled when the editor cancels the request.
    cancellation: RequestCancellation,
}

/// A session in the editor.
pub(crate) struct SessionHandle {
    jobs: mpsc::Sender<PromptJob>,
    cancellation: Cancellation,
    stop: CancellationToken,
}

impl SessionHandle {
    /// Starts a new session, which is stored when its first prompt arrives.
    pub(crate) fn begin(shared: &Arc<Shared>, subject: String, name: SessionName, note: Option<String>) -> Self {
        let turn = TurnEvents::new(shared.supervisor().events(&subject, EventPosition::default()), 1);
        Self::start(shared, subject, |actor| Actor { first: Some(name), note, ..actor }, (turn, Updates::default()))
    }

    /// Continues a stored session.
    pub(crate) fn resume(shared: &Arc<Shared>, subject: String, stored: Replayed, note: Option<String>) -> Self {
        let Replayed { updates, turn, is_open, suspension, position } = stored;
        let followed = if is_open { turn } else { turn + 1 };
        let events = TurnEvents::new(shared.supervisor().events(&subject, position), followed);
        let state = match (is_open, suspension) {
            (false, _) => TurnState::Closed,
            (true, None) => TurnState::Running,
            (true, Some(_)) => TurnState::Suspended,
        };
        let continued = move |actor: Actor| {
            let mut actor = Actor { state, note, ..actor };
            if actor.state == TurnState::Suspended {
                actor.ask();
            }
            actor
        };
        Self::start(shared, subject, continued, (events, updates))
    }

    fn start(
        shared: &Arc<Shared>,
        subject: String,
        prepare: impl FnOnce(Actor) -> Actor,
        (turn, updates): (TurnEvents, Updates),
    ) -> Self {
        let (jobs, received) = mpsc::channel(WAITING_PROMPTS);
        let cancellation = Cancellation::default();
        let stop = shared.closed.child_token();
        let actor = Actor {
            shared: shared.clone(),
            children: Children::new(shared.clone(), subject.clone()),
            subject,
            first: None,
            note: None,
            turn,
            updates,
            jobs: received,
            token: cancellation.current(),
            cancellation: cancellation.clone(),
            stop: stop.clone(),
            state: TurnState::Closed,
            asking: None,
            question: None,
            prompt: None,
        };
        shared.tasks.spawn(prepare(actor).run().boxed());
        Self { jobs, cancellation, stop }
    }

    /// Hands over a prompt. Prompts are handled in the order in which they arrive.
    pub(crate) fn prompt(&self, blocks: Vec<ContentBlock>, responder: Responder<PromptResponse>) -> Result<(), Error> {
        let (token, cancellation) = (self.cancellation.current(), responder.cancellation());
        match self.jobs.try_send(PromptJob { blocks, responder, token, cancellation }) {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Full(job)) => job
                .responder
                .respond_with_error(failed("too many prompts of this session wait; wait for their answers")),
            Err(mpsc::error::TrySendError::Closed(job)) => {
                job.responder.respond_with_error(failed("the session is closed"))
            }
        }
    }

    /// Cancels the open turn and all prompts that wait.
    pub(crate) fn cancel(&self) {
        self.cancellation.cancel();
    }

    /// Returns what cancels the work of the session.
    pub(crate) fn cancellation(&self) -> Cancellation {
        self.cancellation.clone()
    }

    /// Stops to follow the session. The open turn is not cancelled.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Whether the session is not followed any more.
    pub(crate) fn is_stopped(&self) -> bool {
        self.jobs.is_closed()
    }
}

/// The state of the turn that the task follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TurnState {
    /// The turn has not begun.
    Closed,
    /// The turn runs.
    Running,
    /// The turn waits.
    Suspended,
}

/// The prompt that the task handles.
struct CurrentPrompt {
    job: PromptJob,
    work: PromptWork,
    is_cancelled: bool,
}

/// What the task does for a prompt.
enum PromptWork {
    /// The prompt begins a turn when the open turn has ended.
    AfterOpenTurn(Box<Prompt>),
    /// The prompt ends when the turn with this number ends.
    Turn(u32),
}

/// Asks the user about the suspended turn.
type Asking = BoxFuture<'static, Result<Settled, Error>>;

struct Actor {
    shared: Arc<Shared>,
    subject: String,
    /// The name of a session that is not stored yet.
    first: Option<SessionName>,
    /// A text that is sent at the beginning of the first answer.
    note: Option<String>,
    turn: TurnEvents,
    updates: Updates,
    jobs: mpsc::Receiver<PromptJob>,
    cancellation: Cancellation,
    token: CancellationToken,
    stop: CancellationToken,
    state: TurnState,
    asking: Option<Asking>,
    /// The session and the call whose question the next prompt answers.
    question: Option<(String, CallId)>,
    children: Children,
    prompt: Option<CurrentPrompt>,
}

/// What happens next.
enum Step {
    Stop,
    Update(Result<Option<TurnUpdate>, StoreError>),
    Settled(Result<Settled, Error>),
    News(ChildNews),
    Cancel,
    Job(PromptJob),
}

impl Actor {
    async fn run(mut self) {
        loop {
            let step = self.next_step().await;
            let handled = match step {
                Step::Stop => return,
                Step::Update(Ok(Some(update))) => self.forward(update).boxed().await,
                Step::Update(Ok(None)) => Ok(()),
                Step::Update(Err(error)) => {
                    self.answer(Err(store_error(error)));
                    return;
                }
                Step::Settled(settled) => self.settled(settled).await,
                Step::News(ChildNews::Child(session)) => {
                    self.children.follow(session);
                    Ok(())
                }
                Step::News(ChildNews::Waits(waiting)) => self.wait(waiting).await,
                Step::Cancel => self.cancel_turn().await,
                Step::Job(job) => self.begin(job).boxed().await,
            };
            if let Err(Disconnected) = handled {
                return;
            }
        }
    }

    async fn next_step(&mut self) -> Step {
        let prompt = self.prompt.as_ref().filter(|prompt| !prompt.is_cancelled);
        let cancellation = prompt.map(|prompt| prompt.job.cancellation.clone());
        let asking = &mut self.asking;
        let asked = async {
            match asking {
                Some(asking) => asking.await,
                None => std::future::pending().await,
            }
        };
        let request_cancelled = async {
            match cancellation {
                Some(cancellation) => cancellation.cancelled().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Step::Stop,
            () = self.token.cancelled() => Step::Cancel,
            () = request_cancelled => Step::Cancel,
            update = self.turn.next() => Step::Update(update),
            settled = asked => Step::Settled(settled),
            news = self.children.next() => Step::News(news),
            job = self.jobs.recv(), if self.prompt.is_none() => job.map_or(Step::Stop, Step::Job),
        }
    }

    /// Sends an update of the followed turn to the editor.
    async fn forward(&mut self, update: TurnUpdate) -> Result<(), Disconnected> {
        let event = match update {
            TurnUpdate::Text(text) => {
                let update = self.updates.text(text);
                return self.shared.update(&self.subject, update).await;
            }
            TurnUpdate::Thinking(text) => {
                return self.shared.update(&self.subject, SessionUpdate::AgentThoughtChunk(chunk(text))).await;
            }
            TurnUpdate::Discard => {
                let update = self.updates.withdrawn();
                return self.shared.update(&self.subject, update).await;
            }
            TurnUpdate::Event(event) => event,
        };
        let kind = event.kind.clone();
        for update in self.updates.event(&self.shared, event).await {
            self.shared.update(&self.subject, update).await?;
        }
        match kind {
            EventKind::LoopStart { .. } => self.state = TurnState::Running,
            // The turn may continue without an answer of this user, for example because a time limit has passed or the
            // answer was given elsewhere. Questions that are still open are asked again when the turn is suspended again.
            EventKind::Resumed => (self.state, self.asking) = (TurnState::Running, None),
            EventKind::Suspended { .. } => {
                self.turn.resume();
                self.state = TurnState::Suspended;
                self.ask();
            }
            EventKind::LoopEnd { reason, .. } => self.ended(reason).await?,
            _ => {}
        }
        Ok(())
    }

    /// Begins to ask the user about the suspended turn.
    fn ask(&mut self) {
        let suspended = Suspended {
            shared: self.shared.clone(),
            root: self.subject.clone(),
            session: self.subject.clone(),
            approvals: self.updates.approvals.clone(),
            stop: self.token.clone(),
        };
        self.asking = Some(suspended.settle().boxed());
    }

    async fn settled(&mut self, settled: Result<Settled, Error>) -> Result<(), Disconnected> {
        self.asking = None;
        match settled {
            Ok(Settled::Continues { children }) => {
                children.into_iter().for_each(|session| self.children.follow(session));
                Ok(())
            }
            Ok(Settled::Waits(waiting)) => self.wait(waiting).await,
            Err(error) => self.wait(Waiting { text: error.message, question: None }).await,
        }
    }

    /// Tells the user what the turn waits for, and ends the prompt. The turn stays open.
    async fn wait(&mut self, Waiting { text, question }: Waiting) -> Result<(), Disconnected> {
        let update = self.updates.text(text);
        self.shared.update(&self.subject, update).await?;
        self.question = question.or(self.question.take());
        let Some(CurrentPrompt { job, work, is_cancelled }) = self.prompt.take() else { return Ok(()) };
        if let PromptWork::AfterOpenTurn(prompt) = work
            && !is_cancelled
        {
            if let Err(error) = self.shared.supervisor().send(&self.subject, SessionRequest::Prompt(*prompt)).await {
                return respond(job, Err(request_error(error)));
            }
            self.shared.say(&self.subject, "\n\nYour prompt is kept until the turn has ended.").await?;
        }
        respond(job, Ok(if is_cancelled { StopReason::Cancelled } else { StopReason::EndTurn }))
    }

    /// Handles the end of the followed turn.
    async fn ended(&mut self, reason: EndReason) -> Result<(), Disconnected> {
        let turn = self.turn.turn();
        self.turn.follow(turn + 1);
        (self.state, self.asking, self.question) = (TurnState::Closed, None, None);
        self.children.stop();
        let error = self.updates.error.take();
        match self.prompt.take() {
            Some(CurrentPrompt { job, work: PromptWork::AfterOpenTurn(prompt), is_cancelled: false }) => {
                self.start_turn(job, *prompt).await
            }
            Some(CurrentPrompt { job, is_cancelled: true, .. }) => respond(job, Ok(StopReason::Cancelled)),
            Some(CurrentPrompt { job, work: PromptWork::Turn(awaited), .. }) if awaited == turn => {
                let answer = match (reason, error) {
                    (EndReason::Error, Some((code, _)))
                        if code == OUTPUT_REJECTED && is_refused(&self.shared, &self.subject, turn).await =>
                    {
                        Ok(StopReason::Refusal)
                    }
                    (EndReason::Error, error) => {
                        Err(failed(error.map_or_else(|| "the turn failed".to_owned(), |(_, message)| message)))
                    }
                    (EndReason::Cancelled, _) => Ok(StopReason::Cancelled),
                    (EndReason::Limit, _) => Ok(StopReason::MaxTurnRequests),
                    _ => Ok(StopReason::EndTurn),
                };
                respond(job, answer)
            }
            other => {
                self.prompt = other;
                match error {
                    Some((_, message)) if self.prompt.is_none() => {
                        self.shared.say(&self.subject, format!("\n\nThe turn failed: {message}")).await
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    /// Begins to handle a prompt.
    async fn begin(&mut self, mut job: PromptJob) -> Result<(), Disconnected> {
        if job.token.is_cancelled() || job.cancellation.is_cancelled() {
            return respond(job, Ok(StopReason::Cancelled));
        }
        let (blocks, trees) = (std::mem::take(&mut job.blocks), self.shared.trees());
        let read = tokio::task::spawn_blocking(move || EditorPrompt::read(blocks, &trees)).await;
        let prompt = match read {
            Ok(Ok(prompt)) => prompt,
            Ok(Err(error)) => return respond(job, Err(invalid(error.to_string()))),
            Err(_) => return respond(job, Err(failed("the prompt cannot be read"))),
        };
        if let Some(note) = self.note.take() {
            self.shared.say(&self.subject, format!("{note}\n\n")).await?;
        }
        if let Some(command) = Command::parse(&prompt.text).filter(|_| prompt.attachments.is_empty()) {
            return self.run_command(command, job).await;
        }
        if let Some((session, call)) = self.question.clone() {
            if !prompt.attachments.is_empty() {
                return respond(job, Err(invalid("the answer to a question cannot contain images or files")));
            }
            let answer = SessionRequest::Answer { call, text: prompt.text };
            return match self.shared.supervisor().send(&session, answer).await {
                Ok(_) => {
                    self.question = None;
                    self.follow(job, PromptWork::Turn(self.turn.turn()));
                    Ok(())
                }
                Err(error) => respond(job, Err(request_error(error))),
            };
        }
        let prompt = prompt.into_prompt();
        match self.state {
            TurnState::Closed => self.start_turn(job, prompt).await,
            TurnState::Running => {
                self.follow(job, PromptWork::AfterOpenTurn(Box::new(prompt)));
                Ok(())
            }
            TurnState::Suspended => {
                self.follow(job, PromptWork::AfterOpenTurn(Box::new(prompt)));
                if self.asking.is_none() {
                    self.ask();
                }
                Ok(())
            }
        }
    }

    fn follow(&mut self, job: PromptJob, work: PromptWork) {
        self.prompt = Some(CurrentPrompt { job, work, is_cancelled: false });
    }

    /// Begins a turn with a prompt.
    async fn start_turn(&mut self, job: PromptJob, prompt: Prompt) -> Result<(), Disconnected> {
        let supervisor = self.shared.supervisor();
        let started = match &self.first {
            Some(name) => {
                let created = supervisor.create_once(&self.shared.options.agent, name, prompt).await;
                created.map(|_| Accepted::Started { turn: 1 })
            }
            None => supervisor.send(&self.subject, SessionRequest::Prompt(prompt)).await,
        };
        match started {
            Ok(Accepted::Started { turn }) => {
                self.first = None;
                self.follow(job, PromptWork::Turn(turn));
                Ok(())
            }
            Ok(_) => {
                let text = "Another turn of this session is open. Your prompt is kept until it has ended.";
                self.shared.say(&self.subject, text).await?;
                respond(job, Ok(StopReason::EndTurn))
            }
            Err(error) => respond(job, Err(request_error(error))),
        }
    }

    async fn run_command(&mut self, command: Command, job: PromptJob) -> Result<(), Disconnected> {
        let Some(agent) = self.shared.agent() else { return respond(job, Err(failed("the agent is not loaded"))) };
        let text = match command {
            Command::Plugins => commands::plugins(&agent),
            Command::Grants => commands::grants(&agent),
            Command::Tools => commands::tools(&agent),
            Command::Session => commands::session(&self.shared, &self.subject).await,
            Command::Undo if self.first.is_some() => "Nothing was undone: no turn has begun.".to_owned(),
            Command::Undo => commands::undo(&self.shared, &self.subject).await,
            Command::Continue if self.state == TurnState::Closed => "No turn waits.".to_owned(),
            Command::Continue => {
                if self.state == TurnState::Suspended && self.asking.is_none() {
                    self.ask();
                }
                self.follow(job, PromptWork::Turn(self.turn.turn()));
                return Ok(());
            }
        };
        self.shared.say(&self.subject, text).await?;
        respond(job, Ok(StopReason::EndTurn))
    }

    /// Cancels the open turn.
    async fn cancel_turn(&mut self) -> Result<(), Disconnected> {
        self.token = self.cancellation.current();
        self.asking = None;
        self.children.stop();
        if let Some(prompt) = &mut self.prompt {
            prompt.is_cancelled = true;
        }
        if self.state == TurnState::Closed && self.prompt.is_none() {
            return Ok(());
        }
        let cancelled = tokio::select! {
            cancelled = self.shared.supervisor().send(&self.subject, SessionRequest::Cancel) => cancelled,
            () = self.stop.cancelled() => return Err(Disconnected),
        };
        match cancelled {
            // The end of the turn follows as an event.
            Ok(_) => Ok(()),
            Err(error) => {
                self.answer(Err(request_error(error)));
                Ok(())
            }
        }
    }

    /// Answers the prompt, if there is one.
    fn answer(&mut self, answer: Result<StopReason, Error>) {
        if let Some(prompt) = self.prompt.take() {
            // The connection may have ended.
            let _ = respond(prompt.job, answer);
        }
    }
}

fn respond(job: PromptJob, answer: Result<StopReason, Error>) -> Result<(), Disconnected> {
    job.responder.respond_with_result(answer.map(PromptResponse::new)).map_err(|_| Disconnected)
}

/// Whether the model refused to answer, or its provider cut the answer.
async fn is_refused(shared: &Shared, session: &str, turn: u32) -> bool {
    let records = shared.store().records(session, RecordRange::Turn(turn)).await.unwrap_or_default();
    let reply = records.iter().rev().find(|stored| stored.record.kind == "reply");
    reply.is_some_and(|stored| stored.record.body["reply"]["stop"] == "content_filter")
}
