//! `agent-host` on a terminal: a session of as many turns as are asked, and slash commands between them.

mod completion;
mod editor;
mod history;
mod lent;
mod lists;
mod slash;
pub(super) mod watch;
pub(super) mod work;

use super::asking::{Asker, Person};
use super::first_use::FirstUseDesk;
use super::opening::{self, Opened};
use super::run::asked;
use super::session;
use crate::arguments::RunArguments;
use crate::exit::{Exit, Failure};
use crate::interrupt::{Doing, Interrupts};
use crate::settings::Settings;
use crate::setup;
use crate::terminal::turn::{Format, Kept, TurnView, Use};
use crate::terminal::{DIM, Output, RED, Terminal, YELLOW, text};
use agent_core::event::{Suspension, Wait, WaitCause};
use agent_core::message::{CallId, TurnInput};
use agent_core::run::{Action, Decision};
use agent_core::tool::errors_in_words;
use agent_core::view::result_text;
use agent_devkit::dev::News;
use agent_models::Provider;
use agent_runtime::{Host, LiveAgent, Models, Notice, OpenSession, Responded, Session, TurnResult};
use agent_store::{CallFilter, SessionFilter};
use completion::Names;
use editor::{Editor, Typed};
use slash::Asked;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;
use watch::{Told, Watch};

/// Sessions that `/session list` shows.
const LATEST: usize = 10;

/// What a person can do about a turn that waits, by what it waits for.
fn how_to_go_on(waits: &[Wait]) -> String {
    let mut ways: Vec<&str> = Vec::new();
    for wait in waits {
        let way = match wait.cause {
            WaitCause::Approval => "/approve asks about its calls",
            WaitCause::Service { .. } => "/respond FILE gives a service's answer",
            WaitCause::OutcomeUnknown => "/resolve decides about a call",
            WaitCause::Agent { .. } => "/approve asks what the agents below it wait for",
            WaitCause::Answer { .. } => "write the answer to its question",
        };
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    if ways.is_empty() {
        ways.push("/continue goes on with it");
    }
    format!("the turn before this one has not ended: {}; /cancel ends it", ways.join("; "))
}

/// Talks until the person leaves. With what becomes of sources that are built meanwhile, where there are any.
pub(crate) async fn chat(
    opened: Opened,
    (run, sources): (&RunArguments, Option<Receiver<News>>),
    interrupts: Interrupts,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let _silent = terminal.silent_keyboard();
    Interrupts::give_keyboard_back(terminal.clone());
    let Opened { settings, host, agent, made, first_uses, session, kept } = opened;
    let watch = if run.no_watch { Watch::nothing() } else { Watch::begin(&host, &made) };
    let watch = watch.with_sources(sources);
    let names = Names {
        models: lists::models(&agent.current()),
        tools: agent.current().registry().offered().iter().map(|tool| tool.author_name.clone()).collect(),
    };
    let mut editor = Editor::new(terminal, &interrupts, &kept.data, names);
    let view = TurnView::new(terminal, (Format::Terminal, Use::Interactive), &session, kept.clone());
    let person = Person::of(terminal);
    let desk = FirstUseDesk::new(
        terminal,
        person.at_first_use(&run.yes),
        kept.store.clone(),
        (first_uses, opening::files(&made)),
    );
    let asker = Asker::new(terminal, person, (&kept.data, desk), &run.yes);
    let mut chat = Chat { terminal, interrupts, settings, host, agent, watch, session, kept, view, asker };
    chat.greet();
    let left = chat.talk(&mut editor).await;
    let servers = chat.agent.current().servers().clone();
    let is_told_to_end = chat.interrupts.is_leaving();
    let store = chat.host.store.clone();
    let closed = chat.close().await;
    opening::finish(&*store, &made, terminal).await;
    if is_told_to_end {
        servers.hurry();
    }
    servers.shutdown().await;
    let exit = left?;
    closed?;
    Ok(exit)
}

/// An interactive session.
struct Chat<'t> {
    terminal: &'t Terminal,
    interrupts: Interrupts,
    settings: Settings,
    host: Host,
    agent: LiveAgent,
    watch: Watch,
    session: Session,
    kept: Kept,
    view: TurnView<'t>,
    asker: Asker,
}

/// Whether the session goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Prompt,
    Leave,
}

impl Chat<'_> {
    fn greet(&self) {
        let agent = self.agent.current();
        let models = agent.models();
        let (plugins, tools) = (agent.generation().plugins().len(), agent.registry().offered().len());
        let (plugins, tools) = (text::count(plugins, "plugin"), text::count(tools, "tool"));
        let model = models.first().facts().model.to_string();
        let servers = match agent.servers().names().len() {
            0 => String::new(),
            number => format!(", and {}", text::count(number, "MCP server")),
        };
        self.prose(format!("{model} with {plugins} and {tools}{servers}"));
        self.hint(format!("session {}", self.session.subject()));
        self.hint("/help shows the commands; Ctrl-C cancels, Ctrl-D leaves");
    }

    async fn talk(&mut self, editor: &mut Editor) -> Result<Exit, Failure> {
        if self.session.state().is_open() {
            self.turn(None).await?;
        }
        self.ask_kept().await?;
        let mut warned = false;
        while !self.interrupts.is_leaving() {
            self.tell_changes();
            self.terminal.note("");
            let held = self.lend().await?;
            let typed = self.typed(editor).await?;
            let leaves = matches!(typed, Typed::End | Typed::Leave) || (warned && typed == Typed::Interrupted);
            if !leaves && !self.take_back(held).await? {
                continue;
            }
            let is_interrupted = typed == Typed::Interrupted;
            match typed {
                Typed::End => return Ok(Exit::Done),
                Typed::Interrupted if warned => return Ok(Exit::Done),
                Typed::Interrupted => self.hint("Ctrl-C once more leaves, as does Ctrl-D"),
                Typed::Leave => {
                    self.terminal.note("");
                    break;
                }
                Typed::Cleared => {}
                Typed::Text(text) => {
                    if self.take(text).await? == Next::Leave {
                        return Ok(Exit::Done);
                    }
                }
            }
            warned = is_interrupted;
        }
        Ok(Exit::Cancelled)
    }

    /// Waits for the next input. Who works on a plugin is told meanwhile what becomes of it.
    async fn typed(&mut self, editor: &mut Editor) -> Result<Typed, Failure> {
        if !self.watch.is_at_work() {
            return editor.read().await;
        }
        let above = editor.above();
        let reading = editor.read();
        tokio::pin!(reading);
        loop {
            let told = tokio::select! {
                biased;
                typed = &mut reading => return typed,
                told = self.watch.news() => told,
            };
            let Some(text) = self.words(told) else { continue };
            match &above {
                Some(above) => above.print(text),
                None => self.terminal.note(text),
            }
        }
    }

    /// What has become of the agents' files, and what was not taken of the plugins' folder.
    fn tell_changes(&mut self) {
        while let Some(told) = self.watch.next() {
            if let Some(text) = self.words(told) {
                self.terminal.note(text);
            }
        }
    }

    /// What to say of a change. What was taken of the plugins' folder is told by the turn that has it, but for who works on
    /// one.
    fn words(&mut self, told: Told) -> Option<String> {
        let width = self.terminal.width();
        let warning =
            |said: String| Some(text::wrapped(&format!("{YELLOW}!{YELLOW:#} {}", text::harmless(&said)), width));
        match told {
            Told::Plugins(Notice::Refused { subject, reason }) => {
                warning(format!("{subject}: {reason}\n  what was there before goes on serving"))
            }
            Told::Plugins(notice) => self.watch.is_at_work().then(|| work::swapped(&notice)).flatten(),
            Told::Built(news) => work::words(&news),
            Told::Misconfigured { reason } => {
                warning(format!("{reason}\n  what the configuration said before holds until that is mended"))
            }
            Told::Configured { path, settings, later } => {
                let later = match later.as_slice() {
                    [] => String::new(),
                    [one] => format!("; `{one}` counts from the next start"),
                    several => format!("; `{}` count from the next start", several.join("`, `")),
                };
                if settings.path == self.settings.path {
                    self.settings = *settings;
                }
                let said = format!("{DIM}{} has changed: the next turn has it{later}{DIM:#}", path.display());
                Some(text::wrapped(&said, width))
            }
        }
    }

    async fn take(&mut self, text: String) -> Result<Next, Failure> {
        self.tell_changes();
        if text.trim().is_empty() {
            return Ok(Next::Prompt);
        }
        match slash::parse(&text) {
            None if asked(&self.session).is_some() => self.answer(text).await?,
            None if self.session.state().is_open() => {
                match self.session.keep(TurnInput::Text(text)).await {
                    Ok(()) => self.view.kept_prompt(),
                    Err(error) => self.fail(&Failure::refused(error)),
                }
                self.warn(how_to_go_on(&self.session.state().waits()));
            }
            None => self.turn(Some(text)).await?,
            Some(Err(problem)) => self.warn(problem),
            Some(Ok(Asked::Quit)) => return Ok(Next::Leave),
            Some(Ok(asked)) => {
                if let Err(failure) = self.obey(asked).await {
                    self.fail(&failure);
                }
            }
        }
        Ok(Next::Prompt)
    }

    /// What is typed after a question is its answer (L18).
    async fn answer(&mut self, text: String) -> Result<(), Failure> {
        if let Some(call) = asked(&self.session) {
            self.session.answer(call, text).await.map_err(Failure::refused)?;
        }
        self.turn(None).await
    }

    /// Runs a turn, or without an input goes on with the open one. That it fails does not end the session.
    async fn turn(&mut self, input: Option<String>) -> Result<(), Failure> {
        let cancel = self.interrupts.begin(Doing::Turn);
        self.run(input.map(TurnInput::Text), &cancel).await?;
        self.ask_kept().await
    }

    /// Asks what was typed while a turn waited.
    async fn ask_kept(&mut self) -> Result<(), Failure> {
        while !self.interrupts.is_leaving()
            && let Some(kept) = self.session.next_kept()
        {
            let left = self.session.state().kept.len();
            self.view.asks_kept(&kept);
            let cancel = self.interrupts.begin(Doing::Turn);
            self.run(Some(kept), &cancel).await?;
            if self.session.state().kept.len() >= left {
                break;
            }
        }
        Ok(())
    }

    async fn run(&mut self, input: Option<TurnInput>, cancel: &CancellationToken) -> Result<(), Failure> {
        let result = self.asker.run(&mut self.session, input, &mut self.view, cancel).await;
        self.terminal.idle();
        let shown = match result {
            Ok(TurnResult::Idle) => Ok(Exit::Done),
            Ok(result) => self.view.end(result).await,
            Err(failure) => Err(failure),
        };
        // Nobody sees or types anything any more.
        if !self.terminal.is_terminal(Output::Stderr) {
            return shown.map(|_| ());
        }
        if let Err(failure) = shown {
            self.fail(&failure);
        }
        Ok(())
    }

    async fn obey(&mut self, asked: Asked) -> Result<(), Failure> {
        match asked {
            Asked::Help => self.say(lists::help(self.terminal.width())),
            Asked::Tools => self.list_tools().await?,
            Asked::Plugins => self.say(lists::plugins(&self.agent.current(), self.terminal.width())),
            Asked::Models => self.prose(lists::shown_models(&self.agent.current())),
            Asked::Model(name) => self.ask_another_model(&name)?,
            Asked::Session => self.show_session(),
            Asked::Sessions => self.list_sessions().await?,
            Asked::NewSession => self.go_to(OpenSession::New).await?,
            Asked::OtherSession(id) => {
                let which = opening::existing(&id, &self.settings.name, (&*self.host.store, &self.kept.data)).await?;
                if which == OpenSession::Existing(self.session.subject().to_owned()) {
                    self.show_session();
                } else {
                    self.go_to(which).await?;
                }
            }
            Asked::Result => self.show_result().await?,
            Asked::Undo => self.undo().await?,
            Asked::Approve | Asked::Continue if self.session.state().is_open() => self.turn(None).await?,
            Asked::Approve | Asked::Continue => self.say("there is no turn that waits"),
            Asked::Resolve(call, verdict, text) => self.resolve(call, &verdict, text).await?,
            Asked::Respond(file) => self.respond(&file).await?,
            Asked::Cancel if self.session.state().is_open() => {
                let cancelled = CancellationToken::new();
                cancelled.cancel();
                self.run(None, &cancelled).await?;
            }
            Asked::Cancel => self.say("there is no turn to cancel"),
            Asked::Quit => {}
        }
        Ok(())
    }

    /// The models that follow in the chain stay behind the new one.
    fn ask_another_model(&mut self, name: &str) -> Result<(), Failure> {
        let agent = self.agent.current();
        let models = agent.models();
        let known = models.chain().iter().find(|model| model.facts().model.to_string() == name).cloned();
        let first = known.map_or_else(|| setup::model(&self.settings, name), Ok)?;
        let is_other = |model: &&Arc<dyn Provider>| model.facts().model != first.facts().model;
        let others: Vec<_> = models.chain().iter().filter(is_other).cloned().collect();
        let mut chain = Models::new(first.clone(), others);
        (chain.retry, chain.cooldown) = (models.retry, models.cooldown);
        chain.fallback_text.clone_from(&models.fallback_text);
        (chain.planning, chain.embedder) = (models.planning.clone(), models.embedder.clone());
        self.agent.change(|agent| agent.with_models(chain)).map_err(Failure::refused)?;
        self.say(format!("{} answers from now on", first.facts().model));
        Ok(())
    }

    fn show_session(&self) {
        let state = self.session.state();
        let turns = text::count(state.turns as usize, "turn");
        let messages = text::count(state.view.len(), "message");
        let tokens: u64 = state.view.iter().map(|entry| u64::from(entry.tokens)).sum();
        self.say(self.session.subject());
        self.hint(format!("{turns}; the model sees {messages} of about {} tokens", text::grouped(tokens)));
    }

    /// Asks the MCP servers, too, where no turn has asked them yet.
    async fn list_tools(&self) -> Result<(), Failure> {
        let mut agent = self.session.agent();
        if agent.catalogue().is_none() && !agent.servers().is_empty() {
            agent = Arc::new(agent.with_servers().await.map_err(Failure::refused)?);
        }
        self.say(lists::tools(&agent, self.terminal.width()));
        for problem in agent.catalogue().iter().flat_map(|catalogue| catalogue.problems()) {
            self.warn(problem.to_string());
        }
        Ok(())
    }

    async fn list_sessions(&self) -> Result<(), Failure> {
        let filter = SessionFilter { agent: Some(self.settings.name.clone()), ..SessionFilter::default() };
        for session in session::sessions(&*self.host.store, &self.kept.data, filter, LATEST).await? {
            self.say(session::summary(&session));
        }
        Ok(())
    }

    /// Opens another session and closes this one.
    async fn go_to(&mut self, which: OpenSession) -> Result<(), Failure> {
        let other = Session::open(&self.host, self.agent.clone(), which).await.map_err(Failure::refused)?;
        self.view = TurnView::new(self.terminal, (Format::Terminal, Use::Interactive), &other, self.kept.clone());
        let this = std::mem::replace(&mut self.session, other);
        opening::close(this, &*self.host.store).await?;
        self.show_session();
        if self.session.state().is_open() {
            self.turn(None).await?;
        }
        Ok(())
    }

    async fn show_result(&self) -> Result<(), Failure> {
        let turn = self.session.state().turns;
        let calls = self.host.store.calls(self.session.subject(), CallFilter::Turn(turn)).await;
        let mut calls = calls.map_err(Failure::failed)?;
        let last = calls.pop().and_then(|call| Some((call.name, call.result?)));
        match last {
            Some((name, result)) => {
                self.hint(text::one_line(&name, 100));
                let whole = result_text(&result.content);
                self.say(text::harmless(&if result.is_error { errors_in_words(&whole) } else { whole }));
            }
            None => self.say("the last turn has called no tool"),
        }
        Ok(())
    }

    async fn undo(&mut self) -> Result<(), Failure> {
        if let Action::Suspended(Suspension { waits }) = self.session.state().action() {
            return Err(Failure::refused(how_to_go_on(&waits)));
        }
        let turn = self.session.state().view.iter().map(|entry| entry.turn).max();
        self.session.undo().await.map_err(Failure::refused)?;
        if let Some(turn) = turn {
            self.prose(format!(
                "turn {turn} is taken back: the model does not see it any more, nor is it remembered; what tools did stays done"
            ));
        }
        Ok(())
    }

    async fn resolve(&mut self, call: String, verdict: &str, text: Option<String>) -> Result<(), Failure> {
        let decision = match (verdict, text) {
            ("retry", None) => Decision::Retry,
            ("failed", text) => {
                Decision::Failed(text.unwrap_or_else(|| "the call was interrupted and has failed".to_owned()))
            }
            ("result", Some(text)) => Decision::Result(text),
            _ => return Err(Failure::refused("write /resolve CALL retry, failed [TEXT] or result TEXT")),
        };
        self.session.resolve(CallId(call), decision).await.map_err(Failure::refused)?;
        self.turn(None).await
    }

    async fn respond(&mut self, file: &str) -> Result<(), Failure> {
        let event = session::respond::read(Path::new(file))?;
        match self.session.respond(event).await.map_err(Failure::refused)? {
            Responded::Taken { .. } => self.turn(None).await,
            Responded::Duplicate => {
                self.say("the call has this answer already; nothing has changed");
                Ok(())
            }
            Responded::Late => {
                self.say("the call has another result already; nothing has changed");
                Ok(())
            }
        }
    }

    async fn close(self) -> Result<(), Failure> {
        opening::close(self.session, &*self.host.store).await
    }

    fn say(&self, lines: impl AsRef<str>) {
        self.terminal.note(lines);
    }

    fn hint(&self, line: impl AsRef<str>) {
        self.prose(format!("{DIM}{}{DIM:#}", line.as_ref()));
    }

    fn warn(&self, line: impl AsRef<str>) {
        self.prose(format!("{YELLOW}!{YELLOW:#} {}", text::harmless(line.as_ref())));
    }

    fn fail(&self, failure: &Failure) {
        let message = text::harmless(&failure.message);
        self.prose(format!("{RED}error:{RED:#} {message}"));
    }

    fn prose(&self, words: impl AsRef<str>) {
        self.terminal.note(text::wrapped(words.as_ref(), self.terminal.width()));
    }
}
