//! The first use of a plugin that lacks what it asks for: who sits at the terminal is asked, before the call's intent is
//! committed (P6).

use crate::agent::Asking;
use crate::live::LiveAgent;
use crate::session::{Session, Shared};
use agent_core::tool::ToolSource;
use agent_plugins::{Grants, LoadedPlugin, PluginIdentity, Unmet};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Where first uses go to whoever answers them; one after another.
pub type FirstUses = mpsc::Sender<FirstUse>;

/// A plugin is about to be used for the first time, and lacks something that its agent's configuration neither grants nor
/// refuses. The turn goes on when this is dropped: an answer is a change of the [agent](FirstUse::agent).
pub struct FirstUse {
    /// Whose plugin it is. [`LiveAgent::answer`] takes what is given, for turns that are open, too.
    pub agent: LiveAgent,
    /// Subject of the session.
    pub session: String,
    /// Which.
    pub plugin: PluginIdentity,
    /// What for: the tool that is called, or nothing where it builds the context.
    pub tool: Option<String>,
    /// What it asks for and does not get.
    pub lacking: Vec<Unmet>,
    component: Arc<LoadedPlugin>,
    dealt_with: oneshot::Sender<()>,
}

impl FirstUse {
    /// Whether the call still waits: its turn may have been cancelled meanwhile.
    pub fn is_waited_for(&self) -> bool {
        !self.dealt_with.is_closed()
    }

    /// What of it the agent has not granted since: it may have been answered for another call of the plugin.
    pub fn still_lacking(&self) -> Vec<Unmet> {
        let agent = self.agent.current();
        let nothing = Grants::default();
        let still = self.component.unmet(agent.grants_of(&self.plugin.name).unwrap_or(&nothing));
        still.into_iter().filter(|unmet| self.lacking.iter().any(|lacking| lacking.need == unmet.need)).collect()
    }
}

/// What is being asked, and what was asked already, while a turn is driven.
#[derive(Default)]
pub(crate) struct Questions {
    open: Option<BoxFuture<'static, ()>>,
    asked: BTreeSet<String>,
}

impl Questions {
    /// Whether somebody is being asked.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Waits until what was asked is dealt with; for ever where nothing was.
    pub(crate) async fn dealt_with(&mut self) {
        match &mut self.open {
            Some(open) => open.await,
            None => std::future::pending().await,
        }
        self.open = None;
    }

    /// Whether a call of this tool may be dispatched now. If not, somebody is asked about its plugin first.
    pub(crate) fn admit(&mut self, session: &Session, tool: &str) -> bool {
        let shared = &session.shared;
        let Some(ToolSource::Plugin { plugin, .. }) = shared.agent.registry().source_of(tool) else { return true };
        let is_asked = self.asked.contains(plugin);
        let question = if is_asked { None } else { shared.first_use(plugin, Some(tool)) };
        match question {
            // While it is being asked about, or after another one.
            _ if self.is_open() && (is_asked || question.is_some()) => false,
            None => true,
            Some(question) => {
                self.asked.insert(plugin.clone());
                self.open = Some(question);
                false
            }
        }
    }
}

impl Session {
    /// Asks about the context builder before its first turn.
    pub(crate) async fn ask_about_builder(&self) {
        let builder = self.shared.agent.config().context_builder.as_deref();
        if let Some(question) = builder.and_then(|builder| self.shared.first_use(builder, None)) {
            question.await;
        }
    }
}

impl Shared {
    /// Asks about a plugin before it is used; nothing where it lacks nothing, where its agent's configuration says not to
    /// ask, or where nobody is there. Ends when it is dealt with, whether it was answered or whoever was there has gone.
    fn first_use(&self, plugin: &str, tool: Option<&str>) -> Option<BoxFuture<'static, ()>> {
        let somebody = self.first_uses.clone().filter(|somebody| !somebody.is_closed())?;
        let setup = self.setup(self.agent.setups().get(plugin)?);
        if setup.unmet().is_empty() || self.live.current().asking_about(plugin) == Asking::Never {
            return None;
        }
        let (dealt_with, is_dealt_with) = oneshot::channel();
        let question = FirstUse {
            agent: self.live.clone(),
            session: self.subject.clone(),
            plugin: setup.plugin().identity().clone(),
            tool: tool.map(str::to_owned),
            lacking: setup.unmet().to_vec(),
            component: setup.plugin().clone(),
            dealt_with,
        };
        let asked = async move {
            if somebody.send(question).await.is_ok() {
                // Its other end is dropped, never used.
                let _ = is_dealt_with.await;
            }
        };
        Some(asked.boxed())
    }
}
