//! What an agent is made of is watched while a person types: the folders of plugins (P10), and the agents' own files.

mod files;

use crate::settings::Settings;
use crate::setup;
use crate::setup::agents::MadeAgent;
use agent_devkit::dev::News;
use agent_plugins::Sandbox;
use agent_runtime::{Host, LiveAgent, Notice, PluginKeeper};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, channel};
use tokio_util::sync::{CancellationToken, DropGuard};

/// What may be said of the plugins, and of the files, before a person reads it.
const NOTICES: usize = 64;

/// Between two looks for news while a line is being typed.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// Something that a person should know before they type again.
#[derive(Debug)]
pub(super) enum Told {
    /// Of a folder of plugins.
    Plugins(Notice),
    /// An agent's file was changed, and the next turn has it.
    Configured {
        /// Which.
        path: PathBuf,
        /// What it says.
        settings: Box<Settings>,
        /// Keys that count from the next start only.
        later: Vec<&'static str>,
    },
    /// An agent's file cannot be used as it is: what it said before holds.
    Misconfigured {
        /// With file, line and key.
        reason: String,
    },
    /// What becomes of a source that was changed.
    Built(News),
}

fn watch_files(host: &Host, agents: &[MadeAgent], until: &CancellationToken) -> Receiver<Told> {
    let (sender, told) = channel(NOTICES);
    tokio::spawn(files::watch(agents.to_vec(), (host.store.clone(), host.sandbox.clone()), sender, until.clone()));
    told
}

/// Watches until it is dropped.
pub(in crate::commands) struct Watch {
    notices: Option<Receiver<Notice>>,
    told: Option<Receiver<Told>>,
    sources: Option<Receiver<News>>,
    _until: DropGuard,
}

impl Watch {
    /// Nothing is watched.
    pub(super) fn nothing() -> Self {
        Self { notices: None, told: None, sources: None, _until: CancellationToken::new().drop_guard() }
    }

    /// One watch for each folder, whichever agents have their plugins from it, and one for all files.
    pub(super) fn begin(host: &Host, agents: &[MadeAgent]) -> Self {
        let (sender, notices) = channel(NOTICES);
        let until = CancellationToken::new();
        let mut folders: BTreeMap<PathBuf, (PathBuf, Vec<LiveAgent>, Sandbox)> = BTreeMap::new();
        for MadeAgent { live, settings, .. } in agents {
            let Some(folder) = settings.plugins.clone() else { continue };
            let whole = std::fs::canonicalize(&folder).unwrap_or_else(|_| folder.clone());
            let (_, lives, sandbox) =
                folders.entry(whole).or_insert_with(|| (folder, Vec::new(), host.sandbox.clone()));
            lives.push(live.clone());
            // What one of them refuses serves none of them.
            *sandbox = setup::vetted(sandbox, settings);
        }
        for (folder, agents, sandbox) in folders.into_values() {
            let place = (host.store.clone(), sandbox);
            let keeper = PluginKeeper::new(place, &folder, agents, sender.clone());
            tokio::spawn(keeper.keep(until.clone()));
        }
        let told = watch_files(host, agents, &until);
        Self { notices: Some(notices), told: Some(told), sources: None, _until: until.drop_guard() }
    }

    /// For one turn: what is taken back in the agents' files counts at once, all else has no next turn to count from.
    pub(in crate::commands) fn revocations(host: &Host, agents: &[MadeAgent]) -> Self {
        let until = CancellationToken::new();
        let told = watch_files(host, agents, &until);
        Self { notices: None, told: Some(told), sources: None, _until: until.drop_guard() }
    }

    /// The same, with what becomes of the sources of plugins.
    pub(super) fn with_sources(self, sources: Option<Receiver<News>>) -> Self {
        Self { sources, ..self }
    }

    /// Whether somebody works on a plugin, and so wants to know at once.
    pub(super) fn is_at_work(&self) -> bool {
        self.sources.is_some()
    }

    /// The next thing to say, if there is one now.
    pub(super) fn next(&mut self) -> Option<Told> {
        let of_sources = self.sources.as_mut().and_then(|sources| sources.try_recv().ok()).map(Told::Built);
        let of_plugins = || self.notices.as_mut().and_then(|notices| notices.try_recv().ok()).map(Told::Plugins);
        of_sources.or_else(of_plugins).or_else(|| self.told.as_mut()?.try_recv().ok())
    }

    /// Waits for the next thing to say.
    pub(super) async fn news(&mut self) -> Told {
        loop {
            if let Some(told) = self.next() {
                return told;
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    }
}
