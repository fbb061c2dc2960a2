//! The first use of a plugin that lacks what it asks for: who sits at the terminal is asked, before the call's intent is
//! committed (P6).

use crate::agent::Asking;
use crate::live::LiveAgent;
use crate::session::{Session, Shared};
use agent_core::change::CallRecord;
use agent_core::tool::ToolSource;
use agent_plugins::{CallReach, Grants, LoadedPlugin, PluginIdentity, ProtectedPath, Unmet, needed};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use std::collections::BTreeMap;
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
    /// What of that the call needs and does not get.
    pub lacking: Vec<Unmet>,
    /// What no grant covers.
    pub protected: Vec<ProtectedPath>,
    /// Arguments of the call; null where it builds the context.
    pub arguments: Value,
    reach: CallReach,
    component: Arc<LoadedPlugin>,
    dealt_with: oneshot::Sender<()>,
}

impl FirstUse {
    /// Whether the call still waits: its turn may have been cancelled meanwhile.
    pub fn is_waited_for(&self) -> bool {
        !self.dealt_with.is_closed()
    }

    /// What the agent had granted the plugin and somebody took away: nobody is asked to give more than that back (row 48).
    pub fn revoked(&self) -> Grants {
        self.agent.revoked(&self.plugin.name)
    }

    /// What of it the agent has not granted since: it may have been answered for another call of the plugin.
    pub fn still_lacking(&self) -> Vec<Unmet> {
        let agent = self.agent.current();
        let nothing = Grants::default();
        let granted = agent.grants_of(&self.plugin.name).unwrap_or(&nothing);
        let still = needed(&self.plugin.name, &self.component.unmet(granted), granted, self.reach);
        still.into_iter().filter(|unmet| self.lacking.iter().any(|lacking| lacking.need == unmet.need)).collect()
    }
}

/// What a plugin is used for.
struct Use<'u> {
    /// None: it builds the context.
    tool: Option<&'u str>,
    arguments: &'u Value,
    reach: CallReach,
}

/// What is being asked, and what was asked already, while a turn is driven.
#[derive(Default)]
pub(crate) struct Questions {
    open: Option<BoxFuture<'static, ()>>,
    asked: BTreeMap<String, CallReach>,
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
    pub(crate) fn admit(&mut self, session: &Session, call: &CallRecord) -> bool {
        let (shared, tool) = (&session.shared, call.name.as_str());
        let Some(ToolSource::Plugin { plugin, .. }) = shared.agent.registry().source_of(tool) else { return true };
        let definition = shared.agent.registry().get(tool).map(|tool| &tool.definition);
        let reads = definition.is_some_and(|definition| definition.traits.read_only);
        let reach = if reads { CallReach::Reads } else { CallReach::Changes };
        let is_asked = self.asked.get(plugin).is_some_and(|asked| *asked >= reach);
        let use_of = Use { tool: Some(tool), arguments: call.effective_arguments(), reach };
        let question = if is_asked { None } else { shared.first_use(plugin, &use_of) };
        match question {
            // While it is being asked about, or after another one.
            _ if self.is_open() && (is_asked || question.is_some()) => false,
            None => true,
            Some(question) => {
                self.asked.insert(plugin.clone(), reach);
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
        let building = Use { tool: None, arguments: &Value::Null, reach: CallReach::Changes };
        if let Some(question) = builder.and_then(|builder| self.shared.first_use(builder, &building)) {
            question.await;
        }
    }
}

impl Shared {
    /// Asks about a plugin before it is used; nothing where it lacks nothing, where its agent's configuration says not to
    /// ask, or where nobody is there. Ends when it is dealt with, whether it was answered or whoever was there has gone.
    fn first_use(&self, plugin: &str, use_of: &Use<'_>) -> Option<BoxFuture<'static, ()>> {
        let somebody = self.first_uses.clone().filter(|somebody| !somebody.is_closed())?;
        let setup = self.setup(self.agent.setups().get(plugin)?);
        let lacking = needed(plugin, setup.unmet(), setup.grants(), use_of.reach);
        if lacking.is_empty() || self.live.current().asking_about(plugin) == Asking::Never {
            return None;
        }
        let (dealt_with, is_dealt_with) = oneshot::channel();
        let question = FirstUse {
            agent: self.live.clone(),
            session: self.subject.clone(),
            plugin: setup.plugin().identity().clone(),
            tool: use_of.tool.map(str::to_owned),
            lacking,
            protected: self.sandbox.protected(),
            arguments: use_of.arguments.clone(),
            reach: use_of.reach,
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
