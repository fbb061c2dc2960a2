//! A running turn, for people or as JSON lines, and how it ended.

use super::{DIM, Terminal, YELLOW, events, text};
use crate::commands::session::show;
use crate::data::DataDirectory;
use crate::exit::{Exit, Failure};
use agent_core::change::CallState;
use agent_core::event::{Event, EventKind, Suspension};
use agent_core::message::Content;
use agent_core::run::Output;
use agent_memory::{CallFilter, MAX_PAGE, Store};
use agent_runtime::{Session, TurnResult};
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

/// Who reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// The answer on stdout, all else on stderr.
    People,
    /// Every event on stdout, the output as the last line.
    Json,
}

/// Where the session is kept.
pub(crate) struct Kept {
    /// The database.
    pub(crate) store: Arc<dyn Store>,
    /// Its folder.
    pub(crate) data: DataDirectory,
}

/// Shows one session's turns.
pub(crate) struct TurnView<'t> {
    terminal: &'t Terminal,
    format: Format,
    session: String,
    store: Arc<dyn Store>,
    data: DataDirectory,
    /// The last durable event that was shown.
    shown: u64,
}

impl<'t> TurnView<'t> {
    /// A view of what happens since the session was opened.
    pub(crate) fn new(terminal: &'t Terminal, format: Format, session: &Session, kept: Kept) -> Self {
        let shown = session.opened_at();
        let Kept { store, data } = kept;
        Self { terminal, format, session: session.subject().to_owned(), store, data, shown }
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
            (TurnResult::Finished(output), Format::People) => {
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
                    Format::People => self.print_answer(&output)?,
                }
                Ok(Exit::Done)
            }
            TurnResult::Failed(error) => {
                let (code, message) = (error.code(), error.to_string());
                self.print_status("failed", json!({"code": code, "message": message}))?;
                Err(Failure::failed(format!("{error} · session {}", self.session)))
            }
            TurnResult::Cancelled => {
                // Where nobody reads any more, that is why the turn was cancelled.
                self.print_status("cancelled", json!({}))
                    .map_err(|failure| Failure { exit: Exit::Cancelled, ..failure })?;
                let (session, flag) = (&self.session, self.data.flag());
                self.terminal.note(format!("{DIM}cancelled; to ask on: --session {session}{flag} \"…\"{DIM:#}"));
                Ok(Exit::Cancelled)
            }
            TurnResult::Suspended(suspension) => {
                let Suspension::OutcomeUnknown { calls } = &suspension;
                self.print_status("suspended", json!({"suspension": suspension}))?;
                let calls = self.store.calls(&self.session, CallFilter::Ids(calls.clone())).await;
                let mut calls = calls.map_err(Failure::failed)?;
                calls.retain(|call| call.state == CallState::OutcomeUnknown);
                self.terminal.note(show::waiting(&self.session, &calls, &self.data));
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
        let media = self.media(&event.kind).await;
        if let Some(lines) = media.or_else(|| events::lines(&event.kind)) {
            self.terminal.note(lines);
        }
        if let Some(activity) = events::activity(&event.kind) {
            self.terminal.busy(activity);
        }
        Ok(())
    }

    /// The line of a result that holds nothing but media, which its event does not name.
    async fn media(&self, event: &EventKind) -> Option<String> {
        let EventKind::ToolResult { call, name, content, cost } = event else { return None };
        if !content.is_empty() {
            return None;
        }
        let calls = self.store.calls(&self.session, CallFilter::Ids(vec![call.clone()])).await.ok()?;
        let result = calls.into_iter().next()?.result?;
        let media = result.content.iter().filter_map(|content| match content {
            Content::Media(media) => Some(media),
            _ => None,
        });
        let media: Vec<_> = media.map(show::medium).collect();
        (!media.is_empty()).then(|| events::media_result(name, &media.join(" "), cost))
    }

    async fn catch_up(&mut self) -> io::Result<()> {
        loop {
            let missed = self.store.events(&self.session, self.shown, MAX_PAGE).await.map_err(io::Error::other)?;
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
        if self.format == Format::People {
            return Ok(());
        }
        let mut line = json!({"type": "result", "status": status, "session": self.session});
        if let (Some(line), Value::Object(details)) = (line.as_object_mut(), details) {
            line.extend(details);
        }
        self.terminal.print(line.to_string()).map_err(Failure::output)
    }

    fn print_answer(&self, output: &Output) -> Result<(), Failure> {
        self.terminal.print_foreign(&answer(output)).map_err(Failure::output)?;
        if output.limit_reached {
            let reached = "the turn ended at a bound: of its model calls (`max_interactions` in agent.toml), or of the model's window";
            self.terminal.note(format!("{YELLOW}!{YELLOW:#} {reached}"));
        }
        let calls = text::count(output.interactions as usize, "model call");
        let (model, tokens) = (&output.model, output.usage.total());
        self.terminal.note(format!("{DIM}{model}: {calls}, {tokens} tokens · session {}{DIM:#}", output.session));
        Ok(())
    }
}

fn answer(output: &Output) -> String {
    match &output.data {
        Value::String(text) => text.clone(),
        json => format!("{json:#}"),
    }
}
