//! A running turn, for people or as JSON lines, and how it ended.

use super::card::{Card, Outcome};
use super::markdown::Markdown;
use super::page::{Block, Page, Spacing};
use super::reply::{Reply, Seen};
use super::spent::Spent;
use super::{DIM, Output as To, Terminal, YELLOW, events, text};
use crate::commands::session::show;
use crate::data::DataDirectory;
use crate::exit::{Exit, Failure};
use agent_core::change::{CallRecord, CallState};
use agent_core::event::{Event, EventKind, Suspension};
use agent_core::message::{CallId, Content};
use agent_core::run::Output;
use agent_core::tool::CallCost;
use agent_core::view::result_text;
use agent_memory::{CallFilter, MAX_PAGE, Store};
use agent_runtime::{Session, TurnResult};
use serde_json::{Value, json};
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
    /// A program: every event on stdout, the output as the last line.
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
    /// The reply that was shown last.
    answered: Option<String>,
    /// The reply that has just become void; the next event says why.
    voided: Seen,
    spent: Spent,
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
            answered: None,
            voided: Seen::Nothing,
            spent: Spent::default(),
        }
    }

    /// A turn begins, or is gone on with.
    pub(crate) fn begin(&mut self, session: &Session) {
        let agent = session.agent();
        self.replies = if agent.config().output_schema.is_none() { Replies::Words } else { Replies::Data };
        let facts = agent.models().chain().iter().map(|model| model.facts());
        self.spent = Spent::new(facts.filter_map(|facts| Some((facts.model.to_string(), facts.price?))));
        self.reply = Reply::new(self.terminal);
        self.running.clear();
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

    /// Nothing is left to do; what follows is how the last turn ended.
    pub(crate) fn nothing_interrupted(&self) {
        self.terminal.note(format!("{DIM}nothing was interrupted; this is how the last turn ended:{DIM:#}"));
    }

    /// The session waits, so what was asked now has not been sent.
    pub(crate) fn not_asked(&self) {
        self.terminal
            .note(format!("{YELLOW}!{YELLOW:#} the interrupted turn comes first: what you ask now was not sent"));
    }

    /// An interrupted turn has ended, and another begins.
    pub(crate) fn interrupted_turn_ended(&self, result: &TurnResult) -> Result<(), Failure> {
        match (result, self.format) {
            (TurnResult::Finished(output), Format::Json) => self.print_output(output),
            (TurnResult::Finished(_), Format::Terminal) => {
                self.terminal.note(format!("{DIM}the interrupted turn has ended{DIM:#}"));
                Ok(())
            }
            (TurnResult::Finished(output), Format::Lines) => {
                let answer = text::harmless(&answer(output)).into_owned();
                self.terminal.note(format!("{DIM}the interrupted turn has ended:{DIM:#}\n{answer}"));
                Ok(())
            }
            (TurnResult::Failed(error), _) => {
                self.terminal
                    .note(format!("{YELLOW}!{YELLOW:#} the interrupted turn has ended with an error: {error}"));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Shows how the last turn came out.
    pub(crate) async fn end(&mut self, result: TurnResult) -> Result<Exit, Failure> {
        self.terminal.idle();
        match result {
            TurnResult::Finished(output) => {
                match self.format {
                    Format::Json => self.print_output(&output)?,
                    Format::Lines | Format::Terminal => self.print_answer(&output)?,
                }
                Ok(Exit::Done)
            }
            TurnResult::Failed(error) => {
                let (code, message) = (error.code(), error.to_string());
                self.print_status("failed", json!({"code": code, "message": message}))?;
                match self.usage {
                    Use::Once => Err(Failure::failed(format!("{error} · session {}", self.session))),
                    Use::Interactive => Err(Failure::failed(error)),
                }
            }
            TurnResult::Cancelled => {
                // Where nobody reads any more, that is why the turn was cancelled.
                self.print_status("cancelled", json!({}))
                    .map_err(|failure| Failure { exit: Exit::Cancelled, ..failure })?;
                let (session, flag) = (&self.session, self.kept.data.flag());
                self.page.note(
                    Block::Note,
                    match self.usage {
                        Use::Once => format!("{DIM}cancelled; to ask on: --session {session}{flag} \"…\"{DIM:#}"),
                        Use::Interactive => format!("{DIM}cancelled; ask on, or /undo takes the turn back{DIM:#}"),
                    },
                );
                Ok(Exit::Cancelled)
            }
            TurnResult::Suspended(suspension) => {
                let Suspension::OutcomeUnknown { calls } = &suspension;
                self.print_status("suspended", json!({"suspension": suspension}))?;
                let mut calls = self.calls(calls.clone()).await.map_err(Failure::failed)?;
                calls.retain(|call| call.state == CallState::OutcomeUnknown);
                let waiting = match self.usage {
                    Use::Once => show::waiting(&self.session, &calls, &self.kept.data),
                    Use::Interactive => self.fitted(waiting(&calls)),
                };
                self.page.note(Block::Note, waiting);
                Ok(Exit::Suspended)
            }
            TurnResult::Idle => {
                self.terminal.note("there is nothing to go on with: ask something");
                Ok(Exit::Done)
            }
        }
    }

    async fn show(&mut self, event: &Event) -> io::Result<()> {
        if event.provisional.is_none() {
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
            other => {
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
                self.card((call, name), Outcome::Error(content.clone()), *cost);
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
        self.page.note(Block::Calls, card.shown(width, rest));
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

    async fn calls(&self, ids: Vec<CallId>) -> Result<Vec<CallRecord>, agent_memory::StoreError> {
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

    fn print_output(&self, output: &Output) -> Result<(), Failure> {
        let mut line = serde_json::Map::from_iter([("type".to_owned(), Value::from("output"))]);
        if let Value::Object(fields) = serde_json::to_value(output).map_err(Failure::failed)? {
            line.extend(fields);
        }
        self.terminal.print(Value::Object(line).to_string()).map_err(Failure::output)
    }

    /// The last line where there is no output.
    fn print_status(&self, status: &str, details: Value) -> Result<(), Failure> {
        if self.format != Format::Json {
            return Ok(());
        }
        let mut line = json!({"type": "result", "status": status, "session": self.session});
        if let (Some(line), Value::Object(details)) = (line.as_object_mut(), details) {
            line.extend(details);
        }
        self.terminal.print(line.to_string()).map_err(Failure::output)
    }

    fn print_answer(&mut self, output: &Output) -> Result<(), Failure> {
        let answer = answer(output);
        match self.format {
            Format::Terminal if self.answered.as_ref() == Some(&answer) => {}
            Format::Terminal if output.data.is_string() => {
                let mut markdown = Markdown::new(self.terminal.look(To::Stdout), self.terminal.width());
                let shown = markdown.push(&answer) + &markdown.finish();
                self.page.stream(Block::Words, &shown).map_err(Failure::output)?;
            }
            Format::Terminal => {
                let shown = format!("{}\n", text::harmless(&answer));
                self.page.stream(Block::Words, &shown).map_err(Failure::output)?;
            }
            Format::Lines | Format::Json => self.terminal.print_foreign(&answer).map_err(Failure::output)?,
        }
        if output.limit_reached {
            let reached = "the turn ended at a bound: of its model calls (`max_interactions` in agent.toml), or of the model's window";
            self.page.note(Block::Note, format!("{YELLOW}!{YELLOW:#} {reached}"));
        }
        let (model, spent) = (&output.model, self.spent.line(output.interactions, output.usage));
        let session = match self.usage {
            Use::Once => format!(" · session {}", output.session),
            Use::Interactive => String::new(),
        };
        let line = format!("{DIM}{model}: {spent}{session}{DIM:#}");
        self.page.note(Block::Note, self.fitted(line));
        Ok(())
    }
}

/// What an interactive session waits for, and how to decide there.
fn waiting(calls: &[CallRecord]) -> String {
    let mut lines = vec![format!(
        "{YELLOW}waits for a decision{YELLOW:#}: the host stopped while these calls ran, and it is not known whether \
         they had their effect"
    )];
    for call in calls {
        let (name, arguments) = (text::one_line(&call.name, 100), text::json_line(&call.arguments, 100));
        lines.push(format!("  {name} {arguments}\n    /resolve {} retry|failed|result [TEXT]", call.id));
    }
    lines.push("  or /cancel ends the turn".to_owned());
    lines.join("\n")
}

fn answer(output: &Output) -> String {
    match &output.data {
        Value::String(text) => text.clone(),
        json => format!("{json:#}"),
    }
}
