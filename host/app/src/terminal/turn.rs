//! Shows a running turn, as text or as JSON lines.

mod delegated;
mod ending;

use super::card::{Card, Outcome};
use super::page::{Block, Page, Spacing};
use super::reply::{Reply, ScreenOutput};
use super::{Announced, DIM, Output as OutputStream, Terminal, events, text};
use agent_config::DataDirectory;
use agent_core::change::{CallRecord, Denial};
use agent_core::cost::TurnCost;
use agent_core::event::{Event, EventKind, WaitCause};
use agent_core::message::{CallId, Content};
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

/// Width of a call's card in columns, if the output is not a terminal.
const CARD_WIDTH: usize = 120;
/// If the result in a call's event has at least this many bytes, the result may be shortened, so the view shows the
/// complete result from the store.
const MIN_SHORTENED_RESULT: usize = 1_000;

/// Format in which a turn is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Format for a terminal: the reply appears while it is streamed, and each other event appears as lines.
    Terminal,
    /// Format for pipes: the complete answer goes to stdout, and everything else goes to stderr.
    Lines,
    /// Format for programs: every event goes to stdout as a JSON line. The last line is the turn's result.
    Json,
}

/// The store and the data directory that contain the session.
#[derive(Clone)]
pub(crate) struct Storage {
    /// The store that contains the events of the session.
    pub(crate) store: Arc<dyn Store>,
    /// The data directory of the store.
    pub(crate) data: DataDirectory,
}

/// Whether the process runs one turn or an interactive session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionUse {
    /// The process runs one turn and then exits.
    Once,
    /// The process runs a turn for each prompt that the user types.
    Interactive,
}

/// Shows the turns of one session.
pub(crate) struct TurnView<'t> {
    terminal: &'t Terminal,
    format: Format,
    usage: SessionUse,
    session: String,
    storage: Storage,
    /// Sequence number of the last stored event that was shown.
    shown: u64,
    page: Page<'t>,
    reply: Reply<'t>,
    replies: Replies,
    /// Name, arguments and attempt of each running call.
    running: BTreeMap<CallId, (String, Value, u32)>,
    /// The denials of calls that have not ended. A denial is shown with the outcome of its call.
    denied: BTreeMap<CallId, Vec<Denial>>,
    /// The last complete reply that was shown.
    answered: Option<String>,
    /// Whether a reply that is on the screen has been discarded and the reason has not been shown yet. A later event
    /// contains the reason, and then the reason is shown.
    discarded: ScreenOutput,
    /// Cost of the turn that has ended. `None` while the turn runs.
    cost: Option<TurnCost>,
    delegated: Delegated,
    /// Ids of the memories that were recalled for the last turn.
    recalled: Vec<String>,
}

/// Whether the model's replies in this turn are text or JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replies {
    /// The reply is text for users. The text is shown while the reply is streamed.
    Words,
    /// The reply is JSON for programs. The JSON is shown when the reply is complete.
    Data,
}

impl<'t> TurnView<'t> {
    /// Creates a view that shows the events that follow the opening of the session.
    pub(crate) fn new(
        terminal: &'t Terminal,
        (format, usage): (Format, SessionUse),
        session: &Session,
        storage: Storage,
    ) -> Self {
        let spacing = if format == Format::Terminal { Spacing::Wide } else { Spacing::Narrow };
        Self {
            terminal,
            format,
            usage,
            session: session.subject().to_owned(),
            storage,
            shown: session.opened_at(),
            page: Page::new(terminal, spacing),
            reply: Reply::new(terminal),
            replies: Replies::Words,
            running: BTreeMap::new(),
            denied: BTreeMap::new(),
            answered: None,
            discarded: ScreenOutput::Nothing,
            cost: None,
            delegated: Delegated::default(),
            recalled: Vec::new(),
        }
    }

    /// Prepares the view for a turn that starts or is resumed.
    pub(crate) fn begin(&mut self, session: &Session) {
        let agent = session.agent();
        self.replies = if agent.config().output_schema.is_none() { Replies::Words } else { Replies::Data };
        self.reply = Reply::new(self.terminal);
        self.running.clear();
        self.denied.clear();
        self.answered = None;
        self.recalled.clear();
        if self.usage == SessionUse::Interactive {
            self.page.prompted();
        }
    }

    /// Shows the next event of the session. If the receiver has missed events, the missed events are read from
    /// the store.
    pub(crate) async fn receive(&mut self, event: Result<Event, RecvError>) -> io::Result<()> {
        match event {
            Ok(event) => self.show(&event).await,
            Err(RecvError::Lagged(_)) => self.catch_up().await,
            Err(RecvError::Closed) => Ok(()),
        }
    }

    /// Shows the next event if the event has already arrived. Returns false if no event is available.
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
            self.show_delegate_event(event);
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
        self.explain_discarded_reply(&event.kind);
        match &event.kind {
            EventKind::ThinkingStart | EventKind::ThinkingContent { .. } | EventKind::ThinkingEnd => {
                self.thinking(&event.kind)
            }
            EventKind::StreamToken { text } => self.words(text),
            EventKind::StreamComplete { text, .. } => self.completed(text),
            EventKind::StreamClear => {
                self.discarded = self.reply.discard(&mut self.page)?;
                Ok(())
            }
            EventKind::ToolCall { .. } | EventKind::ToolResult { .. } | EventKind::ToolResultError { .. } => {
                self.call(&event.kind).await;
                Ok(())
            }
            EventKind::Denied { call: Some(call), denial } => {
                self.denied.entry(call.clone()).or_default().push(denial.clone());
                Ok(())
            }
            EventKind::Suspended { suspension } => {
                self.show_denials_of_open_calls();
                self.delegated.record_waits(suspension);
                // A call that waits for a service or a client is not shown as running, because it runs outside of this
                // process.
                let waits = suspension.waits.iter();
                for wait in waits.filter(|wait| matches!(wait.cause, WaitCause::Service { .. } | WaitCause::Client)) {
                    self.running.remove(&wait.call);
                }
                self.show_running();
                Ok(())
            }
            EventKind::MemoriesRecalled { memories } => {
                self.note_recalled(memories);
                Ok(())
            }
            other if self.delegated.resumes_silently(other) => Ok(()),
            other => {
                if matches!(other, EventKind::LoopEnd { .. }) {
                    self.show_denials_of_open_calls();
                }
                if let Some(lines) = events::lines(other) {
                    let block = if matches!(other, EventKind::Retry { .. }) { Block::Note } else { Block::Calls };
                    self.page.note(block, self.fitted(lines));
                }
                if let Some(activity) = events::activity(other) {
                    self.terminal.busy(activity);
                }
                Ok(())
            }
        }
    }

    /// On a terminal, reports how many memories were added to the prompt (D4).
    fn note_recalled(&mut self, memories: &[String]) {
        self.recalled = memories.to_vec();
        if self.is_on_terminal() {
            let recalled = match memories.len() {
                1 => "1 memory".to_owned(),
                number => format!("{number} memories"),
            };
            let how = match (self.usage, memories.len()) {
                (SessionUse::Once, _) => "",
                (SessionUse::Interactive, 1) => ": /memory shows it",
                (SessionUse::Interactive, _) => ": /memory shows them",
            };
            self.page.note(Block::Note, format!("{DIM}recalled {recalled}{how}{DIM:#}"));
        }
    }

    /// Returns the ids of the memories that were recalled for the last turn that this view has shown.
    pub(crate) fn recalled(&self) -> &[String] {
        &self.recalled
    }

    /// If a reply on the screen was discarded, shows the reason as soon as an event contains it.
    fn explain_discarded_reply(&mut self, event: &EventKind) {
        let is_rejected = matches!(event, EventKind::OutputRejected { .. }) && self.format == Format::Terminal;
        if self.discarded == ScreenOutput::Nothing && !is_rejected {
            return;
        }
        if let Some(reason) = events::discard_reason(event) {
            self.discarded = ScreenOutput::Nothing;
            self.answered = None;
            self.page.note(Block::Note, format!("{DIM}the reply above is discarded: {reason}{DIM:#}"));
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
            return self.reply.write(piece, &mut self.page);
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
            EventKind::ToolCall { call, name, arguments, attempt, .. } => {
                self.running.insert(call.clone(), (name.clone(), arguments.clone(), *attempt));
                if !self.terminal.is_interactive() {
                    events::started_call(event).into_iter().for_each(|line| self.page.note(Block::Calls, line));
                }
            }
            EventKind::ToolResult { call, name, content, cost } => {
                let outcome = self.outcome(call, content).await;
                self.card((call, name), outcome, *cost);
                let denied = self.denied.remove(call).unwrap_or_default();
                self.show_denials(denied);
            }
            EventKind::ToolResultError { call, name, content, cost } => {
                let denied = self.denied.remove(call).unwrap_or_default();
                self.card((call, name), Outcome::Error(content.clone(), denied), *cost);
            }
            _ => {}
        }
        self.show_running();
    }

    /// Shows the denials of calls that wait, or that the turn has cancelled.
    fn show_denials_of_open_calls(&mut self) {
        let denied = std::mem::take(&mut self.denied);
        self.show_denials(denied.into_values().flatten());
    }

    fn show_denials(&mut self, denials: impl IntoIterator<Item = Denial>) {
        for denial in denials {
            let lines = events::denial(&denial);
            self.page.note(Block::Calls, self.fitted(lines));
        }
    }

    fn card(&mut self, (call, name): (&CallId, &str), outcome: Outcome, cost: CallCost) {
        let started = self.running.remove(call);
        let (arguments, attempt) =
            started.as_ref().map_or((None, 1), |(_, arguments, attempt)| (Some(arguments), *attempt));
        let width = if self.is_on_terminal() { self.terminal.width() } else { CARD_WIDTH };
        let hint = if self.usage == SessionUse::Interactive { ": /result" } else { "" };
        let card = Card { name, arguments, attempt, outcome, cost };
        let mut shown = card.render(width, hint);
        if let Some(session) = self.delegated.session_of(call) {
            shown += &format!("\n  {DIM}session {session}{DIM:#}");
        }
        self.page.note(Block::Calls, shown);
    }

    /// Returns true if lines must fit into the width of a terminal.
    fn is_on_terminal(&self) -> bool {
        self.terminal.is_terminal(OutputStream::Stderr)
    }

    fn fitted(&self, lines: String) -> String {
        if self.is_on_terminal() { text::wrapped(&lines, self.terminal.width()) } else { lines }
    }

    fn show_running(&self) {
        let names: Vec<_> = self.running.values().map(|(name, ..)| text::one_line(name, 100)).collect();
        match names.as_slice() {
            [] => self.terminal.idle(),
            // In a pipe, the line of the call has already named it.
            [name] => self.terminal.show_activity(&format!("running {name}"), Announced::Already),
            several => {
                let activity = format!("running {} calls: {}", several.len(), several.join(", "));
                self.terminal.show_activity(&activity, Announced::Already);
            }
        }
    }

    /// Returns the outcome of a successful call. The result in the event may be shortened for the model, so a long
    /// result is read from the store.
    async fn outcome(&self, call: &CallId, content: &str) -> Outcome {
        let plain = Outcome::Text(content.to_owned(), content.len());
        if !content.is_empty() && content.len() < MIN_SHORTENED_RESULT {
            return plain;
        }
        let calls = self.calls(vec![call.clone()]).await.unwrap_or_default();
        let Some(result) = calls.into_iter().next().and_then(|call| call.result) else { return plain };
        let media = result.content.iter().filter_map(|content| match content {
            Content::Media(media) => Some(text::media_item(media)),
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
        self.storage.store.calls(&self.session, CallFilter::Ids(ids)).await
    }

    async fn catch_up(&mut self) -> io::Result<()> {
        self.reply.note_missed_pieces();
        loop {
            let shown = self.shown;
            let missed = self.storage.store.events(&self.session, shown, MAX_PAGE).await.map_err(io::Error::other)?;
            if missed.is_empty() {
                return Ok(());
            }
            for missed in &missed {
                self.show(&missed.event).await?;
            }
        }
    }
}
