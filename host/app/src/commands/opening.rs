//! From the command line to an open session.

use super::session;
use crate::arguments::RunArguments;
use crate::data::DataDirectory;
use crate::environment;
use crate::exit::Failure;
use crate::protection;
use crate::settings::Settings;
use crate::setup;
use crate::setup::agents::{self, MadeAgent, Projects};
use crate::terminal::turn::Kept;
use crate::terminal::{BOLD, Terminal, YELLOW, text};
use agent_mcp::McpServers;
use agent_runtime::{
    CheckpointObserver, Downscaler, FirstUse, Host, LiveAgent, Notice, OpenSession, Session, SessionError, swap,
};
use agent_store::{INCOMPLETE, MAX_PAGE, Rollback, SessionFilter, SessionSummary, SqliteStore, Store, StoreError};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::Receiver;

/// First uses that may wait to be asked about; more wait where they come from.
const FIRST_USES: usize = 16;

/// Before a session that is open elsewhere is tried again.
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// An open session with what it was opened from.
pub(crate) struct Opened {
    /// What was asked for.
    pub(crate) settings: Settings,
    /// What all sessions share.
    pub(crate) host: Host,
    /// Whose session it is.
    pub(crate) agent: LiveAgent,
    /// It and all agents below it, each with what it was made of.
    pub(crate) made: Vec<MadeAgent>,
    /// Plugins that are about to be used for the first time and lack something.
    pub(crate) first_uses: Receiver<FirstUse>,
    /// Itself.
    pub(crate) session: Session,
    /// Where it is kept.
    pub(crate) kept: Kept,
}

impl Opened {
    /// The MCP servers of all agents.
    pub(crate) fn servers(&self) -> Vec<McpServers> {
        self.made.iter().map(|made| made.live.current().servers().clone()).collect()
    }
}

/// The files of those agents that have one, by name.
pub(crate) fn files(made: &[MadeAgent]) -> BTreeMap<String, PathBuf> {
    let files = made.iter().filter_map(|made| Some((made.settings.name.clone(), made.settings.path.clone()?)));
    files.collect()
}

/// Builds and loads the plugins, and opens the session that is asked for.
pub(crate) async fn open(run: &RunArguments, data: Option<&Path>, terminal: &Terminal) -> Result<Opened, Failure> {
    let settings = setup::settings(&run.agent, terminal).await?;
    let data = DataDirectory::open(data)?.for_user(run.user.clone());
    open_in(run, (settings, data), OpenedFor::Turns, terminal).await
}

/// What a session is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenedFor {
    /// To run turns. A file in the plugin folder that cannot be loaded is an error, and so is a session that another process has open.
    Turns,
    /// To answer what the open turn waits for. The turn has its plugins already, so such files are reported, and the host
    /// waits up to [`PATIENCE`] for another process that works on the session.
    AnAnswer,
}

/// How long another process may work on the session before an answer is given back.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The same in a data folder.
pub(crate) async fn open_in(
    run: &RunArguments,
    (mut settings, data): (Settings, DataDirectory),
    opened_for: OpenedFor,
    terminal: &Terminal,
) -> Result<Opened, Failure> {
    settings.user = run.user.clone().or_else(|| data.user());
    let data = data.for_user(settings.user.clone());
    let store = setup::store(&data)?;
    let which = which(run, &settings, (&*store, &data)).await?;
    let sandbox = setup::sandbox_of(&settings, &data)?;
    let (generation, problems) = setup::plugins(&settings, &sandbox, terminal).await?;
    match (setup::refuse(&problems), opened_for) {
        (refused, OpenedFor::Turns) => refused?,
        (Ok(()), OpenedFor::AnAnswer) => {}
        (Err(problems), OpenedFor::AnAnswer) => {
            terminal.note(format!("{YELLOW}!{YELLOW:#} {}", text::harmless(&problems.message)));
        }
    }
    setup::note_no_plugins(&settings, &generation, terminal);
    let projects = if run.agent.build { Projects::Build } else { Projects::Leave };
    let delegates = agents::delegates(&settings, &sandbox, (projects, agents::ReadFor::Host), terminal).await?;
    let servers = settings.servers(&environment::variable)?;
    let agent = LiveAgent::new(setup::agent(&settings, (generation, delegates.below), servers, terminal)?);
    let mut made = delegates.made;
    made.push(MadeAgent { live: agent.clone(), arguments: run.agent.clone(), settings: settings.clone() });
    protection::hold_trees(&sandbox, made.iter().map(|made| &made.settings))?;
    for MadeAgent { live, settings, .. } in &made {
        let Some(folder) = &settings.plugins else { continue };
        for notice in
            swap::begin(&*store, &setup::vetted(&sandbox, settings), folder, live).await.map_err(Failure::refused)?
        {
            if let Notice::Refused { subject, reason } = notice {
                let told = format!("{subject}: {reason}\n  what was there before goes on serving");
                terminal.note(format!("{YELLOW}!{YELLOW:#} {}", text::harmless(&told)));
            }
        }
    }
    let (sender, first_uses) = tokio::sync::mpsc::channel(FIRST_USES);
    let downscaler = Downscaler::default();
    let host = Host {
        store,
        sandbox,
        downscaler,
        checkpoint: checkpoint(),
        first_uses: Some(sender),
        http: None,
        leaving: terminal.leaving(),
    };
    let patience = if opened_for == OpenedFor::AnAnswer { PATIENCE } else { Duration::ZERO };
    let session = patiently(&host, &agent, which, patience).await?;
    let kept = Kept { store: host.store.clone(), data };
    Ok(Opened { settings, host, agent, made, first_uses, session, kept })
}

/// What the calls of new versions came to counts in the next process, too (P10).
pub(crate) async fn finish(store: &dyn Store, made: &[MadeAgent], terminal: &Terminal) {
    for MadeAgent { live, settings, .. } in made {
        let Some(folder) = &settings.plugins else { continue };
        match swap::finish(store, folder, live).await {
            Ok(taken_back) => taken_back.into_iter().for_each(|Rollback { plugin, from, to, .. }| {
                let (plugin, from, to) = (text::one_line(&plugin, 64), from.short().to_owned(), to.short().to_owned());
                terminal.note(format!(
                    "{YELLOW}!{YELLOW:#} {BOLD}{plugin}{BOLD:#} has crashed too often: {from} → {to}, until its file changes"
                ));
            }),
            Err(error) => terminal.note(format!("{YELLOW}!{YELLOW:#} trials of plugins were not counted: {error}")),
        }
    }
}

/// Where tests kill the process; nowhere in a release.
pub(crate) fn checkpoint() -> Option<CheckpointObserver> {
    #[cfg(all(debug_assertions, unix))]
    return crate::crash::observer();
    #[cfg(not(all(debug_assertions, unix)))]
    return None;
}

/// Opens a session; while another process has it open, again and again for so long.
pub(crate) async fn patiently(
    host: &Host,
    agent: &LiveAgent,
    which: OpenSession,
    patience: Duration,
) -> Result<Session, Failure> {
    let begun = Instant::now();
    loop {
        match Session::open(host, agent.clone(), which.clone()).await {
            Err(SessionError::Store(StoreError::Busy { .. })) if begun.elapsed() < patience => {
                tokio::time::sleep(BETWEEN_TRIES).await;
            }
            opened => return opened.map_err(Failure::refused),
        }
    }
}

/// Gives the session back. One in which nothing was asked leaves nothing behind.
pub(crate) async fn close(session: Session, store: &dyn Store) -> Result<(), Failure> {
    let state = session.state();
    let (subject, is_empty) = (session.subject().to_owned(), state.turns == 0 && state.delegated_by.is_none());
    session.close().await.map_err(Failure::failed)?;
    if is_empty {
        store.delete(&subject).await.map_err(Failure::failed)?;
    }
    Ok(())
}

async fn which(
    run: &RunArguments,
    settings: &Settings,
    (store, data): (&SqliteStore, &DataDirectory),
) -> Result<OpenSession, Failure> {
    let agent = &settings.name;
    if run.continue_latest {
        let filter = SessionFilter { agent: Some(agent.clone()), ..SessionFilter::default() };
        let sessions = session::sessions(store, data, filter, MAX_PAGE).await?;
        let is_whole = |session: &SessionSummary| session.revision > 0 && session.state != INCOMPLETE;
        let latest = sessions.into_iter().find(|session| session.delegated_by.is_none() && is_whole(session));
        return latest.map(|session| OpenSession::Existing(session.subject)).ok_or_else(|| {
            Failure::refused(format!("the agent `{agent}` has no session yet: leave --continue out to begin one"))
        });
    }
    match &run.session {
        Some(asked) => existing(asked, agent, (store, data)).await,
        None => Ok(OpenSession::New),
    }
}

/// The session of that id, or beginning of an id, if it is this agent's.
pub(crate) async fn existing(
    asked: &str,
    agent: &str,
    (store, data): (&dyn Store, &DataDirectory),
) -> Result<OpenSession, Failure> {
    let session = session::find(store, data, Some(asked)).await?;
    if session.agent != agent {
        let (subject, owner) = (session.subject, session.agent);
        return Err(Failure::refused(format!(
            "session {subject} belongs to the agent `{owner}`, not `{agent}`: give the configuration of that agent with \
             --agent FILE; where its folder has moved, `name = \"{owner}\"` in the file makes it that agent"
        )));
    }
    Ok(OpenSession::Existing(session.subject))
}
