//! Opens the session that is given on the command line, or a new session.

use super::agent_settings::{self, BuildingReader};
use super::stored_sessions;
use super::trace_export::TraceExport;
use super::user_presence::UserPresence;
use crate::arguments::RunArguments;
use crate::environment;
use crate::exit::Failure;
use crate::terminal::Terminal;
use crate::terminal::turn::Storage;
use agent_config::assembly::{AssembledAgents, Assembler, DelegateReader, UnusablePlugins, open_sandbox, open_store};
use agent_config::{DataDirectory, DataLocation, Settings};
use agent_runtime::{CheckpointObserver, FileChanges, FirstUse, Host, LiveAgent, OpenSession, Session, SessionError};
use agent_store::{MAX_PAGE, SessionFilter, SessionState, SessionSummary, Store, StoreError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::Receiver;

/// Maximum number of queued questions about first uses of plugins. While the queue is full, a call waits before it adds
/// its question.
pub(crate) const FIRST_USE_QUEUE: usize = 16;

/// Time between two attempts to open a session that another process has open.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// An open session, together with everything that the host needs to run the turns of the session.
pub(crate) struct OpenedSession {
    /// Settings of the session's agent.
    pub(crate) settings: Settings,
    /// Resources that all sessions share.
    pub(crate) host: Host,
    /// The agent of the session, its delegates, and their delegates at any depth.
    pub(crate) agents: AssembledAgents,
    /// Receives the questions that are asked before a plugin with missing grants is used for the first time.
    pub(crate) first_uses: Receiver<FirstUse>,
    /// The export of the traces of the turns.
    pub(crate) traces: TraceExport,
    /// The session, whose lease this process has.
    pub(crate) session: Session,
    /// Store and data folder of the session.
    pub(crate) storage: Storage,
}

/// Builds plugins for `--build`, loads them, and opens the session that the arguments name.
pub(crate) async fn open(
    run: &RunArguments,
    data: DataLocation<'_>,
    opened_for: OpenedFor,
    terminal: &Terminal,
) -> Result<OpenedSession, Failure> {
    // A program that reads JSON lines cannot show a question.
    let user = if run.json { UserPresence::Absent } else { UserPresence::of(terminal) };
    let settings = agent_settings::settings(&run.agent, data, user, terminal).await?;
    let data = DataDirectory::open(data, &environment::host())?.for_user(run.user.clone());
    open_in(run, (settings, data), opened_for, terminal).await
}

/// Purpose for which a session is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenedFor {
    /// The session is opened to run turns. It is an error if a file in the plugin folder cannot be loaded, or if
    /// another process has the session open.
    Turns,
    /// The session is opened as [`OpenedFor::Turns`], and its user can ask which files the turns have changed.
    Conversation,
    /// The session is opened to record an answer that the open turn waits for. A file that cannot be loaded causes only
    /// a message and no error, because the open turn keeps the plugins that it began with. If another process has the
    /// session open, the host waits up to [`BUSY_TIMEOUT`] for that process.
    AnAnswer,
}

/// If another process has the session open, a command that records an answer waits for at most this time.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// Opens a session like [`open`], but with settings that were already read and a data folder that is already open.
pub(crate) async fn open_in(
    run: &RunArguments,
    (mut settings, data): (Settings, DataDirectory),
    opened_for: OpenedFor,
    terminal: &Terminal,
) -> Result<OpenedSession, Failure> {
    settings.user = run.user.clone().or_else(|| data.user());
    let data = data.for_user(settings.user.clone());
    let store = open_store(&data).await?;
    let target = requested_session(run, &settings, (&*store, &data)).await?;
    let sandbox = open_sandbox(&settings, &data)?;
    let environment = settings.environment.clone();
    let building = BuildingReader { terminal, environment: environment.clone() };
    let delegates: &dyn DelegateReader = if run.agent.build { &building } else { &environment };
    let unusable_plugins = match opened_for {
        OpenedFor::Turns | OpenedFor::Conversation => UnusablePlugins::Refuse,
        OpenedFor::AnAnswer => UnusablePlugins::Report,
    };
    let assembler = Assembler { store: &*store, sandbox: &sandbox, delegates, unusable_plugins, reporter: terminal };
    let agents = assembler.assemble(&settings).await?;
    let traces = TraceExport::start(&store, &[&agents]).await;
    let (sender, first_uses) = tokio::sync::mpsc::channel(FIRST_USE_QUEUE);
    let host = Host {
        checkpoint: checkpoint(),
        observer: Some(traces.observer()),
        first_uses: Some(sender),
        leaving: terminal.exiting(),
        file_changes: (opened_for == OpenedFor::Conversation).then(FileChanges::default),
        ..Host::new(store, sandbox)
    };
    let timeout = if opened_for == OpenedFor::AnAnswer { BUSY_TIMEOUT } else { Duration::ZERO };
    let session = open_when_free(&host, &agents.agent, target, timeout).await?;
    let storage = Storage { store: host.store.clone(), data };
    Ok(OpenedSession { settings, host, agents, first_uses, traces, session, storage })
}

/// Returns the observer that ends the process at a chosen point, for crash tests. Returns `None` in release builds.
pub(crate) fn checkpoint() -> Option<CheckpointObserver> {
    #[cfg(all(debug_assertions, unix))]
    return crate::crash::observer();
    #[cfg(not(all(debug_assertions, unix)))]
    return None;
}

/// Opens a session. If another process has the session open, tries again until the session opens or the timeout
/// has passed.
pub(crate) async fn open_when_free(
    host: &Host,
    agent: &LiveAgent,
    target: OpenSession,
    timeout: Duration,
) -> Result<Session, Failure> {
    let begun = Instant::now();
    loop {
        match Session::open(host, agent.clone(), target.clone()).await {
            Err(SessionError::Store(StoreError::Busy { .. })) if begun.elapsed() < timeout => {
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            opened => return opened.map_err(Failure::refused),
        }
    }
}

/// Closes the session. A session without any turn is deleted.
pub(crate) async fn close(session: Session, store: &dyn Store) -> Result<(), Failure> {
    let state = session.state();
    let (subject, is_empty) = (session.subject().to_owned(), state.turns == 0 && state.delegated_by.is_none());
    session.close().await.map_err(Failure::failed)?;
    if is_empty {
        store.delete(&subject).await.map_err(Failure::failed)?;
    }
    Ok(())
}

async fn requested_session(
    run: &RunArguments,
    settings: &Settings,
    (store, data): (&dyn Store, &DataDirectory),
) -> Result<OpenSession, Failure> {
    let agent = &settings.name;
    if run.continue_latest {
        let filter = SessionFilter { agent: Some(agent.clone()), ..SessionFilter::default() };
        let sessions = stored_sessions::sessions(store, data, filter, MAX_PAGE).await?;
        let is_complete = |session: &SessionSummary| session.revision > 0 && session.state != SessionState::Incomplete;
        let latest = sessions.into_iter().find(|session| session.delegated_by.is_none() && is_complete(session));
        return latest.map(|session| OpenSession::Existing(session.subject)).ok_or_else(|| {
            Failure::refused(format!("the agent `{agent}` has no session yet: run without --continue to begin one"))
        });
    }
    match &run.session {
        Some(id) => existing(id, agent, (store, data)).await,
        None => Ok(OpenSession::New),
    }
}

/// Finds the session with this id or id prefix. It is an error if the session belongs to another agent.
pub(crate) async fn existing(
    id: &str,
    agent: &str,
    (store, data): (&dyn Store, &DataDirectory),
) -> Result<OpenSession, Failure> {
    let session = stored_sessions::find(store, data, Some(id)).await?;
    if session.agent != agent {
        let (subject, owner) = (session.subject, session.agent);
        return Err(Failure::refused(format!(
            "session {subject} belongs to the agent `{owner}`, not to `{agent}`: name that agent's file with --agent FILE; \
             if its folder has moved, add `name = \"{owner}\"` to the file"
        )));
    }
    Ok(OpenSession::Existing(session.subject))
}
