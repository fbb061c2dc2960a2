//! `agent-host dev`: a session in which each change of a plugin's source is built in the background and taken up (S5).

use super::chat::{chat, work};
use super::opening::{self, Opened};
use super::run;
use crate::arguments::RunArguments;
use crate::arguments::new::DevArguments;
use crate::data::DataDirectory;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::interrupt::{Doing, Interrupts};
use crate::settings::Settings;
use crate::setup;
use crate::terminal::{Output, Terminal, show_build};
use agent_core::message::TurnInput;
use agent_devkit::build::{BuildEvent, BuiltPlugin, Written, projects_at};
use agent_devkit::dev::{News, Workshop};
use agent_plugins::Kind;
use agent_runtime::RuleBinding;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc::{Receiver, channel};
use tokio_util::sync::CancellationToken;

/// What may be said of builds before anybody reads it; then they wait.
const NEWS: usize = 16;

/// Builds, opens the session, and goes on building.
pub(crate) async fn dev(arguments: &DevArguments, data: Option<&Path>, terminal: &Terminal) -> Result<Exit, Failure> {
    let can_type =
        std::io::stdin().is_terminal() && terminal.is_terminal(Output::Stdout) && terminal.is_terminal(Output::Stderr);
    if arguments.prompt.is_none() && !can_type {
        return Err(Failure::refused(
            "`dev` is a session in which you type: call it on a terminal, or say with --prompt what to ask after each build",
        ));
    }
    let interrupts = Interrupts::listen(terminal.clone());
    let cancel = interrupts.begin(Doing::Turn);
    let bench = Bench::new(arguments, data)?;
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let (sender, mut news) = channel(NEWS);
    let (workshop, is_first) = (bench.workshop.clone(), Arc::new(AtomicBool::new(true)));
    let progress = first_progress(is_first.clone(), terminal.clone());
    tokio::spawn(async move { workshop.keep_built(sender, &progress, stop).await });
    let first = tokio::select! {
        first = first_build(&mut news, terminal) => first?,
        () = cancel.cancelled() => return Ok(Exit::Cancelled),
    };
    is_first.store(false, Ordering::Relaxed);
    terminal.idle();
    if let Some(prompt) = &arguments.prompt {
        return bench.ask_again((prompt, first), news, (&interrupts, terminal)).await;
    }
    let opened = tokio::select! {
        opened = bench.open(&first, terminal) => opened?,
        () = cancel.cancelled() => return Ok(Exit::Cancelled),
    };
    interrupts.end_with_us(opened.servers());
    chat(opened, (&bench.run, Some(news)), interrupts, terminal).await
}

/// What toolchains say passes by until the first build is done: it takes longest. Later ones are told when they are over.
fn first_progress(is_first: Arc<AtomicBool>, terminal: Terminal) -> impl Fn(BuildEvent<'_>) + Send + Sync {
    move |event: BuildEvent<'_>| match &event {
        // Where there is no terminal, lines would stay.
        BuildEvent::Line { .. } if !terminal.is_interactive() => {}
        _ if is_first.load(Ordering::Relaxed) => show_build(&terminal, &event),
        _ => {}
    }
}

/// Waits for a build that succeeds, and shows those that don't.
async fn first_build(news: &mut Receiver<News>, terminal: &Terminal) -> Result<Vec<BuiltPlugin>, Failure> {
    loop {
        let told = news.recv().await.ok_or_else(|| Failure::failed("nothing is built any more"))?;
        match told {
            News::Building { .. } => terminal.busy("building; the first time takes longest"),
            News::Superseded => {}
            News::Built(plugins) => {
                terminal.idle();
                return Ok(plugins);
            }
            failed @ News::Failed(_) => {
                terminal.idle();
                terminal.note(work::words(&failed).unwrap_or_default());
                terminal.note("waiting for a change; Ctrl-C leaves");
            }
        }
    }
}

/// What is worked on, and with what.
struct Bench {
    workshop: Workshop,
    run: RunArguments,
    data: DataDirectory,
    /// Whether the agent is one that was named, and so knows itself what it needs.
    has_agent: bool,
}

impl Bench {
    fn new(arguments: &DevArguments, data: Option<&Path>) -> Result<Self, Failure> {
        let sources = arguments.directory.clone();
        projects_at(&sources).map_err(Failure::refused)?;
        let mut run = arguments.run();
        let has_agent = run.agent.agent.is_some();
        if run.agent.plugins.is_none() && !has_agent {
            run.agent.plugins = Some(sources.clone());
        }
        let settings = Settings::read(&run.agent, &environment::variable)?;
        let out = settings.plugins.unwrap_or_else(|| sources.clone());
        let data = DataDirectory::open(data)?;
        let workshop = Workshop { toolchain: environment::toolchain(), sources, out };
        Ok(Self { workshop, run, data, has_agent })
    }

    /// A session with what was built. Where nobody has named an agent, it uses what it has of every kind.
    async fn open(&self, built: &[BuiltPlugin], terminal: &Terminal) -> Result<Opened, Failure> {
        let mut settings = setup::settings(&self.run.agent, terminal).await?;
        // Who develops a plugin replaces it with each build, and has not to allow it again each time.
        settings.rule_binding = RuleBinding::Name;
        settings.sources = Some(self.workshop.sources.clone());
        if !self.has_agent {
            use_all(&mut settings, built);
        }
        opening::open_in(&self.run, (settings, self.data.clone()), opening::OpenedFor::Turns, terminal).await
    }

    /// Asks the same after each build, each time in a new session, until somebody stops it.
    async fn ask_again(
        &self,
        (prompt, mut built): (&str, Vec<BuiltPlugin>),
        mut news: Receiver<News>,
        (interrupts, terminal): (&Interrupts, &Terminal),
    ) -> Result<Exit, Failure> {
        loop {
            let cancel = interrupts.begin(Doing::Turn);
            let opened = tokio::select! {
                opened = self.open(&built, terminal) => opened,
                () = cancel.cancelled() => return Ok(Exit::Cancelled),
            };
            // What cannot be loaded, and a turn that fails, may be mended by the next change.
            let asked = match opened {
                Ok(opened) => {
                    interrupts.end_with_us(opened.servers());
                    let input = Some(TurnInput::Text(prompt.to_owned()));
                    run::once(opened, (run::format(&self.run, terminal), input), (&self.run.yes, &cancel), terminal)
                        .await
                }
                Err(failure) => Err(failure),
            };
            terminal.idle();
            match asked {
                Err(failure) if !failure.message.is_empty() => terminal.failure(&failure.message),
                _ if interrupts.is_leaving() => return Ok(Exit::Cancelled),
                _ => {}
            }
            terminal.note("waiting for a change; Ctrl-C leaves");
            let cancel = interrupts.begin(Doing::Prompt);
            built = tokio::select! {
                next = next_build((&mut news, &built), terminal) => next?,
                () = cancel.cancelled() => return Ok(Exit::Done),
            };
        }
    }
}

/// Waits for a build of something else than was asked last, whoever has built it, and shows what becomes of the others.
async fn next_build(
    (news, asked): (&mut Receiver<News>, &[BuiltPlugin]),
    terminal: &Terminal,
) -> Result<Vec<BuiltPlugin>, Failure> {
    loop {
        let mut told = news.recv().await.ok_or_else(|| Failure::failed("nothing is built any more"))?;
        if let News::Built(plugins) = &mut told {
            // A file may hold this build already: somebody else has made it meanwhile.
            for plugin in plugins {
                let is_known = asked.iter().any(|asked| (&asked.name, &asked.digest) == (&plugin.name, &plugin.digest));
                plugin.written = if is_known { Written::Unchanged } else { Written::Changed };
            }
        }
        if let Some(text) = work::words(&told) {
            terminal.note(text);
        }
        if let News::Built(plugins) = told
            && (plugins.len() != asked.len() || plugins.iter().any(|plugin| plugin.written == Written::Changed))
        {
            return Ok(plugins);
        }
    }
}

/// Names the plugins that work only where an agent names them.
fn use_all(settings: &mut Settings, built: &[BuiltPlugin]) {
    let file = &mut settings.file;
    let providers: Vec<String> = settings.models.asked().iter().map(|model| provider(&model.name)).collect();
    for plugin in built {
        let is = |kind: Kind| {
            let interface = format!("agent-host:plugin/{}@", kind.interface());
            plugin.exports.iter().any(|export| export.starts_with(&interface))
        };
        if is(Kind::ContextBuilder) {
            file.context_builder.get_or_insert_with(|| plugin.name.clone());
        }
        if is(Kind::OutputValidator) {
            file.validators.get_or_insert_default().push(plugin.name.clone());
        }
        if is(Kind::MediaPolicy) {
            let policies = providers.iter().map(|provider| (provider.clone(), plugin.name.clone()));
            file.media_policies.extend(policies);
        }
    }
}

/// The first part of a model's name: `openai/gpt-5`, `scripted:replies.toml`, `offline`.
fn provider(model: &str) -> String {
    model.split(['/', ':']).next().unwrap_or(model).to_owned()
}
