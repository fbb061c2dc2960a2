//! The folders of plugins are watched while a person types (P10).

use agent_runtime::{Host, LiveAgent, Notice, PluginKeeper};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tokio::sync::mpsc::{Receiver, channel};
use tokio_util::sync::{CancellationToken, DropGuard};

/// What may be said of the plugins before a person reads it.
const NOTICES: usize = 64;

/// Watches until it is dropped.
pub(super) struct Watch {
    notices: Option<Receiver<Notice>>,
    _until: DropGuard,
}

impl Watch {
    /// Nothing is watched.
    pub(super) fn nothing() -> Self {
        Self { notices: None, _until: CancellationToken::new().drop_guard() }
    }

    /// One watch for each folder, whichever agents have their plugins from it.
    pub(super) fn begin(host: &Host, agents: Vec<(PathBuf, LiveAgent)>) -> Self {
        let (sender, notices) = channel(NOTICES);
        let until = CancellationToken::new();
        let mut folders: BTreeMap<PathBuf, (PathBuf, Vec<LiveAgent>)> = BTreeMap::new();
        for (folder, agent) in agents {
            let whole = std::fs::canonicalize(&folder).unwrap_or_else(|_| folder.clone());
            folders.entry(whole).or_insert_with(|| (folder, Vec::new())).1.push(agent);
        }
        for (folder, agents) in folders.into_values() {
            let place = (host.store.clone(), host.sandbox.clone());
            let keeper = PluginKeeper::new(place, &folder, agents, sender.clone());
            tokio::spawn(keeper.keep(until.clone()));
        }
        Self { notices: Some(notices), _until: until.drop_guard() }
    }

    /// The next thing to say, if there is one now.
    pub(super) fn next(&mut self) -> Option<Notice> {
        self.notices.as_mut()?.try_recv().ok()
    }
}
