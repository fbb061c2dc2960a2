//! The interactive session: a loop that reads prompts and slash commands from the terminal and runs turns.

pub(super) mod build_news;
mod changed_files;
mod clipboard;
mod compaction;
mod completion;
mod editor;
mod history;
mod lists;
mod models;
mod path_completion;
mod recap;
mod reports;
mod session_lease;
mod slash;
pub(crate) mod themes;
mod watch;

use super::approval_prompt::ApprovalPrompter;
use super::attachments::Attachments;
use super::drive_turn::open_question;
use super::event_file;
use super::first_use;
use super::open_session::{self, OpenedSession};
use super::stored_sessions;
use super::user_presence::UserPresence;
use crate::arguments::RunArguments;
use crate::exit::{Exit, Failure};
use crate::interrupt::{Activity, Interrupts};
use crate::terminal::turn::{Format, SessionUse, Storage, TurnView};
use crate::terminal::{DIM, Output, RED, Terminal, YELLOW, text};
use agent_config::{Settings, WatchEvent};
use agent_core::event::{Suspension, Wait, WaitCause};
use agent_core::message::{CallId, TurnInput};
use agent_core::run::{Action, Decision};
use agent_devkit::dev::DevEvent;
use agent_runtime::{Host, LiveAgent, NewMediaItem, Notice, OpenSession, ResponseOutcome, Session, TurnResult};
use agent_store::SessionFilter;
use changed_files::ChangedFiles;
use compaction::Compaction;
use completion::Names;
use editor::{Editor, Typed};
use slash::SlashCommand;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;
use watch::{ChatNews, ChatWatch};

/// Maximum number of sessions that `/session list` shows.
const LISTED_SESSIONS: usize = 10;

/// Returns a message that explains how to continue an open turn. The message names one command for each kind of answer
/// that the turn waits for.
fn how_to_continue(waits: &[Wait]) -> String {
    let mut ways: Vec<&str> = Vec::new();
    for wait in waits {
        let way = match wait.cause {
            WaitCause::Approval { .. } => "/approve asks you about the turn's calls",
            WaitCause::Service { .. } => "/respond FILE records a service's answer",
            WaitCause::OutcomeUnknown => "/resolve decides about a call whose outcome is unknown",
            WaitCause::Agent { .. } => "/approve asks you for the answers that the delegates wait for",
            WaitCause::Answer { .. } => "type the answer to the open question",
            WaitCause::Client => "the program that began the turn runs its own tool and sends the result",
        };
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    if ways.is_empty() {
        ways.push("/continue continues it");
    }
    format!("the previous turn has not ended: {}; /cancel ends it", ways.join("; "))
}

/// Runs the interactive session until the user quits. In a `dev` session, `sources` receives the build messages. In
/// other sessions, `sources` is `None`.
pub(crate) async fn chat(
    opened: OpenedSession,
    (run, sources): (&RunArguments, Option<Receiver<DevEvent>>),
    interrupts: Interrupts,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let _echo_off = terminal.echo_off_guard();
    interrupts.restore_keyboard_on_suspend(terminal.clone());
    let OpenedSession { settings, host, agents, first_uses, traces, session, storage } = opened;
    let agent = agents.agent.clone();
    let watch = if run.no_watch { ChatWatch::inactive() } else { ChatWatch::begin(&host, &agents) };
    let watch = watch.with_sources(sources);
    let names = Names {
        models: lists::models(&agent.current()),
        tools: agent.current().registry().offered().iter().map(|tool| tool.author_name.clone()).collect(),
        plugins: agent.current().setups().keys().cloned().collect(),
    };
    let mut editor = Editor::new(terminal, &interrupts, &storage.data, names);
    let view = TurnView::new(terminal, (Format::Terminal, SessionUse::Interactive), &session, storage.clone());
    let user = UserPresence::of(terminal);
    let first_uses = first_use::handler(
        (terminal, user.at_first_use(&run.yes)),
        storage.store.clone(),
        settings.environment.clone(),
        (first_uses, agents.files()),
    );
    let prompter = ApprovalPrompter::new(terminal, user, (&storage.data, first_uses), &run.yes);
    let (changed_files, compaction) = (ChangedFiles::default(), Compaction::default());
    let mut chat = Chat {
        terminal,
        interrupts,
        settings,
        host,
        agent,
        watch,
        session,
        storage,
        view,
        prompter,
        changed_files,
        compaction,
    };
    chat.greet();
    let ended = match chat.show_last_turns().await {
        Ok(()) => chat.handle_inputs(&mut editor).await,
        Err(failure) => Err(failure),
    };
    let servers = chat.agent.current().servers().clone();
    let is_terminated = chat.interrupts.is_exiting();
    let store = chat.host.store.clone();
    let closed = chat.close().await;
    agents.record_trials(&*store, terminal).await;
    if is_terminated {
        servers.shorten_grace_periods();
    }
    servers.shutdown().await;
    traces.finish(terminal).await;
    let exit = ended?;
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
    watch: ChatWatch,
    session: Session,
    storage: Storage,
    view: TurnView<'t>,
    prompter: ApprovalPrompter,
    changed_files: ChangedFiles,
    compaction: Compaction,
}

/// What the session does after it has handled an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterInput {
    /// Read the next input.
    Prompt,
    /// End the session.
    Quit,
}

impl Chat<'_> {
    fn greet(&self) {
        let agent = self.agent.current();
        let models = agent.models();
        let (plugins, tools) = (agent.generation().plugins().len(), agent.registry().offered().len());
        let (plugins, tools) = (text::count(plugins, "plugin"), text::count(tools, "tool"));
        let model = models.first().info().model.to_string();
        let servers = match agent.servers().names().len() {
            0 => String::new(),
            number => format!(", and {}", text::count(number, "MCP server")),
        };
        self.prose(format!("{model} with {plugins} and {tools}{servers}"));
        if let Some(advice) = self.settings.advice_without_plugin_folder() {
            self.hint(advice);
        }
        self.hint(format!("session {}", self.session.subject()));
        self.hint("/help shows the commands; Ctrl-C cancels, Ctrl-D quits");
    }

    async fn handle_inputs(&mut self, editor: &mut Editor) -> Result<Exit, Failure> {
        if self.session.state().is_open() {
            self.turn(None).await?;
        }
        self.run_queued_prompts().await?;
        let mut has_warned = false;
        while !self.interrupts.is_exiting() {
            self.show_changes();
            self.terminal.note("");
            let lease = self.release_lease_while_waiting().await?;
            let typed = self.read_input(editor).await?;
            let quits = matches!(typed, Typed::End | Typed::Leave) || (has_warned && typed == Typed::Interrupted);
            if !quits && !self.reacquire_lease(lease).await? {
                continue;
            }
            let is_interrupted = typed == Typed::Interrupted;
            match typed {
                Typed::End => return Ok(Exit::Done),
                Typed::Interrupted if has_warned => return Ok(Exit::Done),
                Typed::Interrupted => self.hint("press Ctrl-C again, or Ctrl-D, to quit"),
                Typed::Leave => {
                    self.terminal.note("");
                    break;
                }
                Typed::Cleared => {}
                Typed::Text(text) => {
                    let pictures = editor.take_pictures(&text);
                    if self.handle_text(text, pictures).await? == AfterInput::Quit {
                        return Ok(Exit::Done);
                    }
                }
            }
            has_warned = is_interrupted;
        }
        Ok(Exit::Cancelled)
    }

    /// Waits for the next input. In `dev`, shows build messages while waiting.
    async fn read_input(&mut self, editor: &mut Editor) -> Result<Typed, Failure> {
        if !self.watch.has_sources() {
            return editor.read().await;
        }
        let above = editor.above();
        let reading = editor.read();
        tokio::pin!(reading);
        loop {
            let news = tokio::select! {
                biased;
                typed = &mut reading => return typed,
                news = self.watch.next() => news,
            };
            let Some(text) = self.describe(news) else { continue };
            match &above {
                Some(above) => above.print(text),
                None => self.terminal.note(text),
            }
        }
    }

    /// Shows the changes to the agents' files and reports the files in the plugin folder that the host refused to load.
    fn show_changes(&mut self) {
        while let Some(news) = self.watch.try_next() {
            if let Some(text) = self.describe(news) {
                self.terminal.note(text);
            }
        }
    }

    /// Describes a change, or returns `None` if the change needs no message. In `dev`, a new plugin version is reported
    /// immediately. In other sessions, a new version is reported by the first turn that uses it.
    fn describe(&mut self, news: ChatNews) -> Option<String> {
        let width = self.terminal.width();
        let warning =
            |message: String| Some(text::wrapped(&format!("{YELLOW}!{YELLOW:#} {}", text::harmless(&message)), width));
        match news {
            ChatNews::Agents(WatchEvent::Plugins(Notice::Refused { subject, reason })) => {
                warning(format!("{subject}: {reason}\n  the previous version stays in use"))
            }
            ChatNews::Agents(WatchEvent::Plugins(notice)) => {
                self.watch.has_sources().then(|| build_news::describe_version_change(&notice)).flatten()
            }
            ChatNews::Built(news) => build_news::describe(&news),
            ChatNews::Agents(WatchEvent::Misconfigured { reason }) => {
                warning(format!("{reason}\n  the previous configuration stays in effect until the problem is fixed"))
            }
            ChatNews::Agents(WatchEvent::Configured { path, settings, later }) => {
                let later = match later.as_slice() {
                    [] => String::new(),
                    [one] => format!("; `{one}` takes effect at the next start"),
                    several => format!("; `{}` take effect at the next start", several.join("`, `")),
                };
                if settings.path == self.settings.path {
                    self.settings = *settings;
                }
                let message = format!("{DIM}{} has changed: the next turn uses it{later}{DIM:#}", path.display());
                Some(text::wrapped(&message, width))
            }
        }
    }

    /// Handles a typed text with the pictures that were pasted into it.
    async fn handle_text(&mut self, text: String, pictures: Vec<NewMediaItem>) -> Result<AfterInput, Failure> {
        self.show_changes();
        if text.trim().is_empty() {
            return Ok(AfterInput::Prompt);
        }
        match slash::parse(&text) {
            None if open_question(&self.session).is_some() => self.answer(text).await?,
            None => {
                if let Err(failure) = self.prompt(text, pictures).await? {
                    self.fail(&failure);
                }
            }
            Some(Err(problem)) => self.warn(problem),
            Some(Ok(SlashCommand::Quit)) => return Ok(AfterInput::Quit),
            Some(Ok(command)) => {
                if let Err(failure) = self.run_command(command).await {
                    self.fail(&failure);
                }
            }
        }
        Ok(AfterInput::Prompt)
    }

    /// Runs a turn with a typed prompt, its attachments, and the pictures that were pasted into it. If a turn is open, queues the prompt. The inner error is about
    /// the prompt, and does not end the session.
    async fn prompt(&mut self, text: String, pictures: Vec<NewMediaItem>) -> Result<Result<(), Failure>, Failure> {
        let attachments = Attachments::of(&text, &self.storage.data).with_pasted(pictures);
        attachments.show(self.terminal);
        let input = match attachments.attach(&self.session, TurnInput::Text(text)).await {
            Ok(input) => input,
            Err(failure) => return Ok(Err(failure)),
        };
        if !self.session.state().is_open() {
            return self.turn(Some(input)).await.map(Ok);
        }
        let queued = self.session.queue_prompt(input).await.map_err(Failure::refused);
        if queued.is_ok() {
            self.view.note_prompt_queued();
        }
        self.warn(how_to_continue(&self.session.state().waits()));
        Ok(queued)
    }

    /// Records the typed text as the answer to the open question (L18), and continues the turn.
    async fn answer(&mut self, text: String) -> Result<(), Failure> {
        if let Some(call) = open_question(&self.session) {
            let attachments = Attachments::of(&text, &self.storage.data);
            if attachments.has_image() {
                self.warn("an answer can only be a text, so it has no images");
            }
            let attachments = attachments.without_images();
            attachments.show(self.terminal);
            let answer = attachments.attach(&self.session, TurnInput::Text(text)).await?;
            self.session.answer(call, answer.message().plain_text()).await.map_err(Failure::refused)?;
        }
        self.turn(None).await
    }

    /// Runs a turn, or continues the open turn if there is no input. A turn that fails does not end the session.
    async fn turn(&mut self, input: Option<TurnInput>) -> Result<(), Failure> {
        let cancel = self.interrupts.begin(Activity::Turn);
        self.run(input, &cancel).await?;
        self.run_queued_prompts().await
    }

    /// Runs the prompts that were typed while a turn waited.
    async fn run_queued_prompts(&mut self) -> Result<(), Failure> {
        while !self.interrupts.is_exiting()
            && let Some(prompt) = self.session.next_queued_prompt()
        {
            let queued_before = self.session.state().queued_prompts.len();
            self.view.note_queued_prompt_sent(&prompt);
            let cancel = self.interrupts.begin(Activity::Turn);
            self.run(Some(prompt), &cancel).await?;
            if self.session.state().queued_prompts.len() >= queued_before {
                break;
            }
        }
        Ok(())
    }

    async fn run(&mut self, input: Option<TurnInput>, cancel: &CancellationToken) -> Result<(), Failure> {
        let compacting = match &input {
            Some(_) => {
                self.changed_files.begin_turn();
                self.begin_compaction()?
            }
            None => None,
        };
        let result = self.prompter.run(&mut self.session, input, &mut self.view, cancel).await;
        self.terminal.idle();
        self.take_file_changes();
        self.end_compaction(compacting)?;
        let shown = match result {
            Ok(TurnResult::Idle) => Ok(Exit::Done),
            Ok(result) => self.view.end(result).await,
            Err(failure) => Err(failure),
        };
        // The terminal was closed, so the session must end.
        if !self.terminal.is_terminal(Output::Stderr) {
            return shown.map(|_| ());
        }
        if let Err(failure) = shown {
            self.fail(&failure);
        }
        Ok(())
    }

    async fn run_command(&mut self, command: SlashCommand) -> Result<(), Failure> {
        match command {
            SlashCommand::Help => self.note(lists::help(self.terminal.width())),
            SlashCommand::Tools => self.list_tools().await?,
            SlashCommand::Plugins => self.note(lists::plugins(&self.agent.current(), self.terminal.width())),
            SlashCommand::Models => self.choose_model().await?,
            SlashCommand::Model(name) => self.switch_model(&name)?,
            SlashCommand::Session => self.show_session(),
            SlashCommand::Sessions => self.list_sessions().await?,
            SlashCommand::NewSession => self.switch_session(OpenSession::New).await?,
            SlashCommand::OtherSession(id) => {
                let target =
                    open_session::existing(&id, &self.settings.name, (&*self.host.store, &self.storage.data)).await?;
                if target == OpenSession::Existing(self.session.subject().to_owned()) {
                    self.show_session();
                } else {
                    self.switch_session(target).await?;
                }
            }
            SlashCommand::Result(number) => self.show_result(number).await?,
            SlashCommand::Cost => self.show_cost().await?,
            SlashCommand::Memories => self.list_memories().await?,
            SlashCommand::Forget(id) => self.forget_memory(&id).await?,
            SlashCommand::Grants(change) => {
                let stop = self.interrupts.begin(Activity::Turn);
                self.prompter.change_grants(&self.session, &change, &stop).await?;
            }
            SlashCommand::Diff(shown) => self.show_changed_files(shown),
            SlashCommand::Compact => self.compact()?,
            SlashCommand::Theme(theme) => self.set_theme(theme)?,
            SlashCommand::Undo => self.undo().await?,
            SlashCommand::Approve | SlashCommand::Continue if self.session.state().is_open() => self.turn(None).await?,
            SlashCommand::Approve | SlashCommand::Continue => self.note("no turn is waiting"),
            SlashCommand::Resolve(call, verdict, text) => self.resolve(call, &verdict, text).await?,
            SlashCommand::Respond(file) => self.respond(&file).await?,
            SlashCommand::Cancel if self.session.state().is_open() => {
                let cancelled = CancellationToken::new();
                cancelled.cancel();
                self.run(None, &cancelled).await?;
            }
            SlashCommand::Cancel => self.note("there is no turn to cancel"),
            SlashCommand::Quit => {}
        }
        Ok(())
    }

    fn show_session(&self) {
        let state = self.session.state();
        let turns = text::count(state.turns as usize, "turn");
        let messages = text::count(state.view.len(), "message");
        let tokens: u64 = state.view.iter().map(|entry| u64::from(entry.tokens)).sum();
        self.note(self.session.subject());
        self.hint(format!("{turns}; the model sees {messages}, about {} tokens", text::grouped(tokens)));
    }

    /// Lists the tools, including those of MCP servers. If no turn has requested the tool lists of the MCP servers yet,
    /// this function requests them.
    async fn list_tools(&self) -> Result<(), Failure> {
        let mut agent = self.session.agent();
        if agent.catalogue().is_none() && !agent.servers().is_empty() {
            agent = Arc::new(agent.with_servers().await.map_err(Failure::refused)?);
        }
        self.note(lists::tools(&agent, self.terminal.width()));
        for problem in agent.catalogue().iter().flat_map(|catalogue| catalogue.problems()) {
            self.warn(problem.to_string());
        }
        Ok(())
    }

    async fn list_sessions(&self) -> Result<(), Failure> {
        let filter = SessionFilter { agent: Some(self.settings.name.clone()), ..SessionFilter::default() };
        for session in stored_sessions::sessions(&*self.host.store, &self.storage.data, filter, LISTED_SESSIONS).await?
        {
            self.entry(&stored_sessions::summary(&session));
        }
        Ok(())
    }

    /// Opens another session and closes the current session.
    async fn switch_session(&mut self, target: OpenSession) -> Result<(), Failure> {
        let other = Session::open(&self.host, self.agent.clone(), target).await.map_err(Failure::refused)?;
        self.view =
            TurnView::new(self.terminal, (Format::Terminal, SessionUse::Interactive), &other, self.storage.clone());
        let previous = std::mem::replace(&mut self.session, other);
        // The grants of the previous session end even if this session cannot be closed properly.
        self.prompter.first_uses().leave_session().await;
        open_session::close(previous, &*self.host.store).await?;
        self.show_session();
        self.show_last_turns().await?;
        if self.session.state().is_open() {
            self.turn(None).await?;
        }
        Ok(())
    }

    async fn undo(&mut self) -> Result<(), Failure> {
        if let Action::Suspended(Suspension { waits }) = self.session.state().action() {
            return Err(Failure::refused(how_to_continue(&waits)));
        }
        let turn = self.session.state().view.iter().map(|entry| entry.turn).max();
        self.session.undo().await.map_err(Failure::refused)?;
        if let Some(turn) = turn {
            self.prose(format!(
                "turn {turn} was undone: the model no longer sees the turn, and the turn is not remembered; the \
                 changes that its tools made are not undone"
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
            _ => {
                return Err(Failure::refused(
                    "write /resolve CALL retry, /resolve CALL failed [TEXT] or /resolve CALL result TEXT",
                ));
            }
        };
        self.session.resolve(CallId(call), decision).await.map_err(Failure::refused)?;
        self.turn(None).await
    }

    async fn respond(&mut self, file: &str) -> Result<(), Failure> {
        let event = event_file::read(Path::new(file))?;
        match self.session.respond(event).await.map_err(Failure::refused)? {
            ResponseOutcome::Taken { .. } => self.turn(None).await,
            ResponseOutcome::Duplicate => {
                self.note("the call has this answer already; nothing was changed");
                Ok(())
            }
            ResponseOutcome::Late => {
                self.note("the call already has a different result; nothing was changed");
                Ok(())
            }
        }
    }

    async fn close(self) -> Result<(), Failure> {
        open_session::close(self.session, &*self.host.store).await
    }

    fn note(&self, lines: impl AsRef<str>) {
        self.terminal.note(lines);
    }

    fn entry(&self, lines: &str) {
        self.note(text::wrapped_entry(lines, self.terminal.width()));
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
