//! What an agent is made of is watched while a person types: the folders of plugins (P10), and the agents' own files.

mod files;

use crate::settings::Settings;
use crate::setup::agents::MadeAgent;
use agent_runtime::{Host, LiveAgent, Notice, PluginKeeper};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tokio::sync::mpsc::{Receiver, channel};
use tokio_util::sync::{CancellationToken, DropGuard};

/// What may be said of the plugins, and of the files, before a person reads it.
const NOTICES: usize = 64;

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
}

fn watch_files(host: &Host, agents: &[MadeAgent], until: &CancellationToken) -> Receiver<Told> {
    let (sender, told) = channel(NOTICES);
    tokio::spawn(files::watch(agents.to_vec(), host.store.clone(), sender, until.clone()));
    told
}

/// Watches until it is dropped.
pub(in crate::commands) struct Watch {
    notices: Option<Receiver<Notice>>,
    told: Option<Receiver<Told>>,
    _until: DropGuard,
}

impl Watch {
    /// Nothing is watched.
    pub(super) fn nothing() -> Self {
        Self { notices: None, told: None, _until: CancellationToken::new().drop_guard() }
    }

    /// One watch for each folder, whichever agents have their plugins from it, and one for all files.
    pub(super) fn begin(host: &Host, agents: &[MadeAgent]) -> Self {
        let (sender, notices) = channel(NOTICES);
        let until = CancellationToken::new();
        let mut folders: BTreeMap<PathBuf, (PathBuf, Vec<LiveAgent>)> = BTreeMap::new();
        for MadeAgent { live, settings, .. } in agents {
            let Some(folder) = settings.plugins.clone() else { continue };
            let whole = std::fs::canonicalize(&folder).unwrap_or_else(|_| folder.clone());
            folders.entry(whole).or_insert_with(|| (folder, Vec::new())).1.push(live.clone());
        }
        for (folder, agents) in folders.into_values() {
            let place = (host.store.clone(), host.sandbox.clone());
            let keeper = PluginKeeper::new(place, &folder, agents, sender.clone());
            tokio::spawn(keeper.keep(until.clone()));
        }
        let told = watch_files(host, agents, &until);
        Self { notices: Some(notices), told: Some(told), _until: until.drop_guard() }
    }

    /// For one turn: what is taken back in the agents' files counts at once, all else has no next turn to count from.
    pub(in crate::commands) fn revocations(host: &Host, agents: &[MadeAgent]) -> Self {
        let until = CancellationToken::new();
        let told = watch_files(host, agents, &until);
        Self { notices: None, told: Some(told), _until: until.drop_guard() }
    }

    /// The next thing to say, if there is one now.
    pub(super) fn next(&mut self) -> Option<Told> {
        let of_plugins = self.notices.as_mut().and_then(|notices| notices.try_recv().ok()).map(Told::Plugins);
        of_plugins.or_else(|| self.told.as_mut()?.try_recv().ok())
    }
}
