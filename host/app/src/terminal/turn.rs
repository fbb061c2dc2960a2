//! A running turn, for people or as JSON lines.

mod delegated;
mod ending;

use super::card::{Card, Outcome};
use super::page::{Block, Page, Spacing};
use super::reply::{Reply, Seen};
use super::spent::Spent;
use super::{DIM, Output as To, Terminal, events, text};
use crate::commands::session::show;
use crate::data::DataDirectory;

use agent_core::change::{CallRecord, Denial};
use agent_core::event::{Event, EventKind, WaitCause};
use agent_core::message::{CallId, Content};
use agent_core::run::TurnCost;
use agent_core::tool::CallCost;
use agent_core::view::result_text;
use agent_runtime::Session;
use agent_store::{CallFilter, MAX_PAGE, Store};
use delegated::Delegated;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

/// Columns of a card where there is no terminal.
const CARD_WIDTH: usize = 120;
/// Characters from which on the model may not have been shown a whole result.
const LONG_RESULT: usize = 1_000;

/// Who reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// A person, on a terminal: the reply as it is written, and a word on each thing that happens.
    Terminal,
    /// Whoever stands behind a pipe: the answer on stdout once it is there, all else on stderr.
    Lines,
    /// A program: every event on stdout, and how the turn ended as the last line.
    Json,
}

/// Where the session is kept.
#[derive(Clone)]
pub(crate) struct Kept {
    /// The database.
    pub(crate) store: Arc<dyn Store>,
    /// Its folder.
    pub(crate) data: DataDirectory,
}

/// Whether a session is one of many turns, typed one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// One turn, and the process ends.
    Once,
    /// The next prompt follows.
    Interactive,
}

/// Shows one session's turns.
pub(crate) struct TurnView<'t> {
    terminal: &'t Terminal,
    format: Format,
    usage: Use,
    session: String,
    kept: Kept,
    /// The last durable event that was shown.
    shown: u64,
    page: Page<'t>,
    reply: Reply<'t>,
    /// Whether a reply is data for programs, and nothing to be read as it is written.
    replies: Replies,
    /// Calls that run now, with their arguments.
    running: BTreeMap<CallId, (String, Value, u32)>,
    /// What was denied to calls whose results are to come, and was shown.
    denied: BTreeMap<CallId, Vec<Denial>>,
    /// The reply that was shown last.
    answered: Option<String>,
    /// The reply that has just become void; the next event says why.
    voided: Seen,
    spent: Spent,
    /// What the turn has cost, once it has stopped.
    cost: Option<TurnCost>,
    delegated: Delegated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replies {
    Words,
    Data,
}

impl<'t> TurnView<'t> {
    /// A view of what happens since the session was opened.
    pub(crate) fn new(terminal: &'t Terminal, (format, usage): (Format, Use), session: &Session, kept: Kept) -> Self {
        let spacing = if format == Format::Terminal { Spacing::Wide } else { Spacing::Narrow };
        Self {
            terminal,
            format,
            usage,
            session: session.subject().to_owned(),
            kept,
            shown: session.opened_at(),
            page: Page::new(terminal, spacing),
            reply: Reply::new(terminal),
            replies: Replies::Words,
            running: BTreeMap::new(),
            denied: BTreeMap::new(),
            answered: None,
            voided: Seen::Nothing,
            spent: Spent::default(),
            cost: None,
            delegated: Delegated::default(),
        }
    }

    /// A turn begins, or is gone on with.
    pub(crate) fn begin(&mut self, session: &Session) {
        let agent = session.agent();
        self.replies = if agent.config().output_schema.is_none() { Replies::Words } else { Replies::Data };
        let facts = agent.models().all().map(|model| model.facts());
        self.spent = Spent::new(facts.filter_map(|facts| Some((facts.model.to_string(), facts.price?))));
        self.reply = Reply::new(self.terminal);
        self.running.clear();
        self.denied.clear();
        self.answered = None;
        if self.usage == Use::Interactive {
            self.page.prompted();
        }
    }

    /// Shows the next event. Who was too slow for some reads them from the store.
    pub(crate) async fn receive(&mut self, event: Result<Event, RecvError>) -> io::Result<()> {
        match event {
            Ok(event) => self.show(&event).await,
            Err(RecvError::Lagged(_)) => self.catch_up().await,
            Err(RecvError::Closed) => Ok(()),
        }
    }

    /// Shows an event that is already there; whether there was one.
    pub(crate) async fn receive_waiting(&mut self, events: &mut Receiver<Event>) -> io::Result<bool> {
        match events.try_recv() {
            Ok(event) => self.show(&event).await?,
            Err(TryRecvError::Lagged(_)) => self.catch_up().await?,
            Err(TryRecvError::Empty | TryRecvError::Closed) => return Ok(false),
        }
        Ok(true)
    }

    async fn show(&mut self, event: &Event) -> io::Result<()> {
        if event.session != self.session && self.format != Format::Json {
            self.of_another(event);
            return Ok(());
        }
        if event.provisional.is_none() && event.session == self.session {
            if event.sequence <= self.shown {
                return Ok(());
            }
            self.shown = event.sequence;
        }
        if self.format == Format::Json {
            return self.terminal.print(serde_json::to_string(event)?);
        }
        self.explain_void(&event.kind);
        match &event.kind {
            EventKind::ThinkingStart | EventKind::ThinkingContent { .. } | EventKind::ThinkingEnd => {
                self.thinking(&event.kind)
            }
            EventKind::StreamToken { text } => self.words(text),
            EventKind::StreamComplete { text, model, usage } => {
                self.spent.add(model, *usage);
                self.completed(text)
            }
            EventKind::StreamClear => {
                self.voided = self.reply.void(&mut self.page)?;
                Ok(())
            }
            EventKind::ToolCall { .. } | EventKind::ToolResult { .. } | EventKind::ToolResultError { .. } => {
                self.call(&event.kind).await;
                Ok(())
            }
            EventKind::Suspended { suspension } => {
                self.delegated.waits(suspension);
                // What was handed on to services runs no longer here.
                let waits = suspension.waits.iter();
                for wait in waits.filter(|wait| matches!(wait.cause, WaitCause::Service { .. })) {
                    self.running.remove(&wait.call);
                }
                self.show_running();
                Ok(())
            }
            other if self.delegated.resumes_silently(other) => Ok(()),
            other => {
                if let EventKind::Denied { call: Some(call), denial } = other {
                    self.denied.entry(call.clone()).or_default().push(denial.clone());
                }
                if let Some(lines) = events::lines(other) {
                    let block = if matches!(other, EventKind::Retry { .. }) { Block::Note } else { Block::Calls };
                    self.page
                        .note(block, if self.is_seen() { text::wrapped(&lines, self.terminal.width()) } else { lines });
                }
                if let Some(activity) = events::activity(other) {
                    self.terminal.busy(activity);
                }
                Ok(())
            }
        }
    }

    /// Says of a reply that is seen and void why it is, as soon as an event tells.
    fn explain_void(&mut self, event: &EventKind) {
        let is_rejected = matches!(event, EventKind::OutputRejected { .. }) && self.format == Format::Terminal;
        if self.voided == Seen::Nothing && !is_rejected {
            return;
        }
        if let Some(why) = events::void(event) {
            self.voided = Seen::Nothing;
            self.answered = None;
            self.page.note(Block::Note, format!("{DIM}the reply above is void: {why}{DIM:#}"));
        }
    }

    fn thinking(&mut self, event: &EventKind) -> io::Result<()> {
        match (event, self.format) {
            (EventKind::ThinkingContent { text }, Format::Terminal) => self.reply.think(text, &mut self.page),
            (EventKind::ThinkingEnd, Format::Terminal) => self.reply.end_thinking(&mut self.page),
            _ => {
                self.terminal.busy("thinking");
                Ok(())
            }
        }
    }

    fn words(&mut self, piece: &str) -> io::Result<()> {
        if self.format == Format::Terminal && self.replies == Replies::Words {
            return self.reply.say(piece, &mut self.page);
        }
        self.reply.end_thinking(&mut self.page)?;
        self.terminal.busy("writing the answer");
        Ok(())
    }

    fn completed(&mut self, whole: &str) -> io::Result<()> {
        if self.format == Format::Terminal && self.replies == Replies::Words {
            self.reply.complete(whole, &mut self.page)?;
            self.answered = Some(whole.to_owned());
        }
        Ok(())
    }

    async fn call(&mut self, event: &EventKind) {
        match event {
            EventKind::ToolCall { call, name, arguments, attempt } => {
                self.running.insert(call.clone(), (name.clone(), arguments.clone(), *attempt));
                if !self.terminal.is_interactive() {
                    events::begun(event).into_iter().for_each(|line| self.page.note(Block::Calls, line));
                }
            }
            EventKind::ToolResult { call, name, content, cost } => {
                let outcome = self.outcome(call, content).await;
                self.card((call, name), outcome, *cost);
            }
            EventKind::ToolResultError { call, name, content, cost } => {
                let denied = self.denied.remove(call).unwrap_or_default();
                self.card((call, name), Outcome::Error(content.clone(), denied), *cost);
            }
            _ => {}
        }
        self.show_running();
    }

    fn card(&mut self, (call, name): (&CallId, &str), outcome: Outcome, cost: CallCost) {
        let begun = self.running.remove(call);
        let (arguments, attempt) =
            begun.as_ref().map_or((None, 1), |(_, arguments, attempt)| (Some(arguments), *attempt));
        let width = if self.is_seen() { self.terminal.width() } else { CARD_WIDTH };
        let rest = if self.usage == Use::Interactive { ": /result" } else { "" };
        let card = Card { name, arguments, attempt, outcome, cost };
        let mut shown = card.shown(width, rest);
        if let Some(session) = self.delegated.session_of(call) {
            shown += &format!("\n  {DIM}session {session}{DIM:#}");
        }
        self.page.note(Block::Calls, shown);
    }

    /// Whether lines have the width of a terminal.
    fn is_seen(&self) -> bool {
        self.terminal.is_terminal(To::Stderr)
    }

    fn fitted(&self, lines: String) -> String {
        if self.is_seen() { text::wrapped(&lines, self.terminal.width()) } else { lines }
    }

    fn show_running(&self) {
        let names: Vec<_> = self.running.values().map(|(name, ..)| text::one_line(name, 100)).collect();
        match names.as_slice() {
            [] => self.terminal.idle(),
            [name] => self.terminal.busy(format!("running {name}")),
            several => self.terminal.busy(format!("running {} calls: {}", several.len(), several.join(", "))),
        }
    }

    /// What came of a call: the event has only what the model is shown, which may be less than the whole.
    async fn outcome(&self, call: &CallId, content: &str) -> Outcome {
        let plain = Outcome::Text(content.to_owned(), content.len());
        if !content.is_empty() && content.len() < LONG_RESULT {
            return plain;
        }
        let calls = self.calls(vec![call.clone()]).await.unwrap_or_default();
        let Some(result) = calls.into_iter().next().and_then(|call| call.result) else { return plain };
        let media = result.content.iter().filter_map(|content| match content {
            Content::Media(media) => Some(show::medium(media)),
            _ => None,
        });
        let media: Vec<_> = media.collect();
        if content.is_empty() && !media.is_empty() {
            return Outcome::Media(media.join(" "));
        }
        let whole = result_text(&result.content);
        Outcome::Text(whole.clone(), whole.len())
    }

    async fn calls(&self, ids: Vec<CallId>) -> Result<Vec<CallRecord>, agent_store::StoreError> {
        self.kept.store.calls(&self.session, CallFilter::Ids(ids)).await
    }

    async fn catch_up(&mut self) -> io::Result<()> {
        self.reply.miss();
        loop {
            let shown = self.shown;
            let missed = self.kept.store.events(&self.session, shown, MAX_PAGE).await.map_err(io::Error::other)?;
            if missed.is_empty() {
                return Ok(());
            }
            for missed in &missed {
                self.show(&missed.event).await?;
            }
        }
    }
}
