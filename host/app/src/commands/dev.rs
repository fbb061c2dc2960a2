//! `agent-host dev`: a session that rebuilds a plugin in the background whenever its source changes, and uses the new
//! build from the next turn on (S5).

mod combined_folder;

use super::build_projects;
use super::chat::{build_news, chat};
use super::open_session::{self, OpenedSession};
use super::run;
use super::user_presence::UserPresence;
use crate::arguments::new::DevArguments;
use crate::arguments::{AgentArguments, RunArguments};
use crate::commands::agent_settings;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::interrupt::{Activity, Interrupts};
use crate::terminal::{DIM, Output, Terminal, show_build, text};
use agent_config::{DataDirectory, DataLocation, Settings};
use agent_core::message::TurnInput;
use agent_devkit::build::{BuildEvent, BuiltPlugin, Written, projects_at};
use agent_devkit::dev::{DevEvent, SourceWatcher};
use agent_plugins::Kind;
use agent_runtime::{MemoryUse, RuleBinding};
use combined_folder::CombinedFolder;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc::{Receiver, channel};
use tokio_util::sync::CancellationToken;

/// Maximum number of queued build messages. When the queue is full, the builder waits.
const NEWS_QUEUE: usize = 16;

/// Builds the plugins, opens a session with them, and rebuilds them in the background after each change.
pub(crate) async fn dev(
    arguments: &DevArguments,
    data: DataLocation<'_>,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let can_type =
        std::io::stdin().is_terminal() && terminal.is_terminal(Output::Stdout) && terminal.is_terminal(Output::Stderr);
    if arguments.prompt.is_none() && !can_type {
        return Err(Failure::refused(
            "`dev` is an interactive session: run it in a terminal, or use --prompt TEXT to ask TEXT after each build",
        ));
    }
    let interrupts = Interrupts::listen(terminal.clone());
    let cancel = interrupts.begin(Activity::Turn);
    let session = DevSession::new(arguments, data)?;
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let (sender, mut news) = channel(NEWS_QUEUE);
    let (watcher, is_first) = (session.watcher.clone(), Arc::new(AtomicBool::new(true)));
    let progress = first_progress(is_first.clone(), terminal.clone());
    tokio::spawn(async move { watcher.run(sender, &progress, stop).await });
    let first = tokio::select! {
        first = first_build(&mut news, terminal) => first?,
        () = cancel.cancelled() => return Ok(Exit::Cancelled),
    };
    is_first.store(false, Ordering::Relaxed);
    terminal.idle();
    if let Some(prompt) = &arguments.prompt {
        return session.ask_after_each_build((prompt, first), news, (&interrupts, terminal)).await;
    }
    let opened = tokio::select! {
        opened = session.open(&first, terminal) => opened?,
        () = cancel.cancelled() => return Ok(Exit::Cancelled),
    };
    interrupts.kill_servers_on_exit(opened.agents.servers());
    chat(opened, (&session.run, Some(news)), interrupts, terminal).await
}

/// Whether both paths name the same folder.
fn is_same(folder: &Path, other: &Path) -> bool {
    let canonical = |path: &Path| -> Option<PathBuf> { path.canonicalize().ok() };
    folder == other || canonical(folder).is_some_and(|folder| canonical(other) == Some(folder))
}

/// Shows the toolchain's output during the first build, because that build takes the longest time. For later builds,
/// only the outcome is shown.
fn first_progress(is_first: Arc<AtomicBool>, terminal: Terminal) -> impl Fn(BuildEvent<'_>) + Send + Sync {
    move |event: BuildEvent<'_>| match &event {
        // The toolchain's output is shown only on an interactive terminal, where each line overwrites the line before
        // it. In a file or a pipe, the lines would not be overwritten and
        // would fill the output.
        BuildEvent::Line { .. } if !terminal.is_interactive() => {}
        _ if is_first.load(Ordering::Relaxed) => show_build(&terminal, &event),
        _ => {}
    }
}

/// Waits for the first successful build, and shows the errors of failed builds.
async fn first_build(news: &mut Receiver<DevEvent>, terminal: &Terminal) -> Result<Vec<BuiltPlugin>, Failure> {
    loop {
        let event = news.recv().await.ok_or_else(|| Failure::failed("the background build has stopped"))?;
        match event {
            DevEvent::Building { .. } => terminal.busy("building; the first build takes the longest time"),
            DevEvent::Superseded => {}
            DevEvent::Built(plugins) => {
                terminal.idle();
                return Ok(plugins);
            }
            failed @ DevEvent::Failed(_) => {
                terminal.idle();
                terminal.note(build_news::describe(&failed).unwrap_or_default());
                terminal.note("waiting for a change; Ctrl-C quits");
            }
        }
    }
}

/// The plugin sources under development, and the settings of the sessions that test them.
struct DevSession {
    watcher: SourceWatcher,
    run: RunArguments,
    data: DataDirectory,
    /// True if the command line names an agent, because the file of this agent then determines which plugins it uses.
    has_agent: bool,
    /// The plugins of the agent and those under development. `None` if the agent has no other plugins.
    combined: Option<CombinedFolder>,
}

impl DevSession {
    fn new(arguments: &DevArguments, data: DataLocation<'_>) -> Result<Self, Failure> {
        let sources = arguments.directory.clone();
        projects_at(&sources).map_err(Failure::refused)?;
        let mut run = arguments.run();
        let has_agent = run.agent.agent.is_some();
        let plugins = match has_agent {
            true => agent_settings::read(&run.agent)?.plugins,
            false => run.agent.plugins.clone(),
        };
        let data = DataDirectory::open(data, &environment::host())?;
        let combined = match plugins.filter(|folder| !is_same(folder, &sources)) {
            Some(folder) => Some(CombinedFolder::create(folder, &sources, &data)?),
            None => None,
        };
        let out = combined.as_ref().map_or_else(|| sources.clone(), |combined| combined.path.clone());
        run.agent.plugins = Some(out.clone());
        agent_settings::read(&run.agent)?;
        let watcher = SourceWatcher { toolchain: environment::development_toolchain(&data), sources, out };
        Ok(Self { watcher, run, data, has_agent, combined })
    }

    /// Opens a session with the built plugins. If the command line does not select an agent, the session uses every
    /// plugin that was built.
    async fn open(&self, built: &[BuiltPlugin], terminal: &Terminal) -> Result<OpenedSession, Failure> {
        self.prepare(built, terminal).await?;
        let user = UserPresence::of(terminal);
        // The projects in the agent's own folder have been built.
        let agent = AgentArguments { build: false, ..self.run.agent.clone() };
        let mut settings = agent_settings::settings(&agent, self.data.location(), user, terminal).await?;
        // Bind approvals to the name of the plugin, because each build changes the digest of the plugin, and the author
        // should not have to approve the same calls again after each build.
        settings.rule_binding = RuleBinding::Name;
        settings.sources = Some(self.watcher.sources.clone());
        if !self.has_agent {
            use_all(&mut settings, built);
            // What earlier versions of a plugin answered must not appear in the answers of this version. Only the author of
            // a context builder needs memories, because context builders choose among them.
            if settings.file.context_builder.is_none() {
                settings.file.memory.get_or_insert(MemoryUse::Off);
            }
        }
        open_session::open_in(&self.run, (settings, self.data.clone()), open_session::OpenedFor::Conversation, terminal)
            .await
    }

    /// Puts the agent's other plugins beside the built plugins. With `--build`, builds the projects in the agent's plugin
    /// folder first.
    async fn prepare(&self, built: &[BuiltPlugin], terminal: &Terminal) -> Result<(), Failure> {
        let Some(combined) = &self.combined else { return Ok(()) };
        if self.run.agent.build {
            build_projects::build(&combined.agent, terminal).await?;
        }
        for name in combined.refresh(built)? {
            let note =
                format!("this session uses the build of `{name}` instead of the one in {}", combined.agent.display());
            terminal.note(text::wrapped(&format!("{DIM}{}{DIM:#}", text::harmless(&note)), terminal.width()));
        }
        Ok(())
    }

    /// Sends the same prompt after each build, each time in a new session, until the user interrupts the command.
    async fn ask_after_each_build(
        &self,
        (prompt, mut built): (&str, Vec<BuiltPlugin>),
        mut news: Receiver<DevEvent>,
        (interrupts, terminal): (&Interrupts, &Terminal),
    ) -> Result<Exit, Failure> {
        loop {
            let cancel = interrupts.begin(Activity::Turn);
            let opened = tokio::select! {
                opened = self.open(&built, terminal) => opened,
                () = cancel.cancelled() => return Ok(Exit::Cancelled),
            };
            // An error does not end the loop, because the next change may fix the plugin.
            let result = match opened {
                Ok(opened) => {
                    interrupts.kill_servers_on_exit(opened.agents.servers());
                    let input = Some(TurnInput::Text(prompt.to_owned()));
                    run::run_once(opened, (run::format(&self.run, terminal), input), (&self.run.yes, &cancel), terminal)
                        .await
                }
                Err(failure) => Err(failure),
            };
            terminal.idle();
            match result {
                Err(failure) if !failure.message.is_empty() => terminal.failure(&failure.message),
                _ if interrupts.is_exiting() => return Ok(Exit::Cancelled),
                _ => {}
            }
            terminal.note("waiting for a change; Ctrl-C quits");
            let cancel = interrupts.begin(Activity::Prompt);
            built = tokio::select! {
                next = next_build((&mut news, &built), terminal) => next?,
                () = cancel.cancelled() => return Ok(Exit::Done),
            };
        }
    }
}

/// Waits for a build that differs from the build with which the last prompt ran. It does not matter whether
/// this process or another process wrote the components. Builds that failed or did not change the component are
/// also reported.
async fn next_build(
    (news, used): (&mut Receiver<DevEvent>, &[BuiltPlugin]),
    terminal: &Terminal,
) -> Result<Vec<BuiltPlugin>, Failure> {
    loop {
        let mut event = news.recv().await.ok_or_else(|| Failure::failed("the background build has stopped"))?;
        if let DevEvent::Built(plugins) = &mut event {
            // Compare digests, because another process may already have written the components of this build.
            for plugin in plugins {
                let is_known = used.iter().any(|used| (&used.name, &used.digest) == (&plugin.name, &plugin.digest));
                plugin.written = if is_known { Written::Unchanged } else { Written::Changed };
            }
        }
        if let Some(text) = build_news::describe(&event) {
            terminal.note(text);
        }
        if let DevEvent::Built(plugins) = event
            && (plugins.len() != used.len() || plugins.iter().any(|plugin| plugin.written == Written::Changed))
        {
            return Ok(plugins);
        }
    }
}

/// Adds each built plugin that is a context builder, an output validator or a media policy to the settings, because an
/// agent uses such a plugin only if its settings name the plugin.
fn use_all(settings: &mut Settings, built: &[BuiltPlugin]) {
    let file = &mut settings.file;
    let providers: Vec<String> =
        settings.models.chain_and_summary().iter().map(|model| provider(&model.name)).collect();
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

/// Returns the provider part of a model name, as in `openai/gpt-5`, `scripted:replies.toml` or `offline`.
fn provider(model: &str) -> String {
    model.split(['/', ':']).next().unwrap_or(model).to_owned()
}
