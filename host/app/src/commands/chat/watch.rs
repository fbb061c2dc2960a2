//! Collects the news to show before the next prompt: changes to plugins, changes to the agents' files, and builds
//! by `dev`.

use agent_config::assembly::AssembledAgents;
use agent_config::{AgentWatch, WatchEvent};
use agent_devkit::dev::DevEvent;
use agent_runtime::Host;
use std::time::Duration;
use tokio::sync::mpsc::Receiver;

/// Time between two checks for changes while a line is being typed.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A change that is shown before the next prompt.
#[derive(Debug)]
pub(super) enum ChatNews {
    /// A plugin or an agent's file has changed.
    Agents(WatchEvent),
    /// A background build of `dev` has started or ended.
    Built(DevEvent),
}

/// Watches for changes until it is dropped.
pub(super) struct ChatWatch {
    agents: Option<AgentWatch>,
    sources: Option<Receiver<DevEvent>>,
}

impl ChatWatch {
    /// Watches the agents' files and plugin folders.
    pub(super) fn begin(host: &Host, agents: &AssembledAgents) -> Self {
        Self { agents: Some(AgentWatch::begin(host, &agents.all)), sources: None }
    }

    /// Creates a watch that never reports a change.
    pub(super) fn inactive() -> Self {
        Self { agents: None, sources: None }
    }

    /// Returns this watch with a receiver of background builds. If `sources` is not `None`, the watch also reports the
    /// builds that `sources` receives.
    pub(super) fn with_sources(self, sources: Option<Receiver<DevEvent>>) -> Self {
        Self { sources, ..self }
    }

    /// Returns true in a `dev` session, which shows changes while the user types.
    pub(super) fn has_sources(&self) -> bool {
        self.sources.is_some()
    }

    /// Returns the next change without waiting, or `None` if there is no change.
    pub(super) fn try_next(&mut self) -> Option<ChatNews> {
        let built = self.sources.as_mut().and_then(|sources| sources.try_recv().ok()).map(ChatNews::Built);
        built.or_else(|| self.agents.as_mut()?.try_next().map(ChatNews::Agents))
    }

    /// Waits for the next change.
    pub(super) async fn next(&mut self) -> ChatNews {
        loop {
            if let Some(news) = self.try_next() {
                return news;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}
