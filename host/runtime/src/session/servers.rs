//! The MCP servers of a turn: connected before it begins or goes on (I5).

use super::{Session, SessionError};
use crate::agent::Agent;
use agent_core::approval::source_of;
use agent_core::change::CallRecord;
use agent_core::tool::ToolSource;
use agent_mcp::{Catalogue, Held};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Tools that a message lists.
const LISTED: usize = 20;

impl Session {
    /// Takes the agent for what follows, with the tools that its MCP servers have now. An open turn keeps the tools that
    /// it began with, as long as this process remembers them.
    pub(super) async fn connect(
        &mut self,
        agent: Arc<Agent>,
        cancel: &CancellationToken,
    ) -> Result<Option<Held>, SessionError> {
        let idle = !self.run.is_open();
        if agent.servers().is_empty() {
            self.use_agent(agent);
            return Ok(None);
        }
        let held = tokio::select! {
            biased;
            () = cancel.cancelled() => {
                self.use_agent(agent);
                return Ok(None);
            }
            held = agent.servers().acquire() => held,
        };
        let known = agent.catalogue();
        if known.is_none_or(|known| known.problems() != held.catalogue().problems()) {
            for problem in held.catalogue().problems() {
                tracing::warn!("{problem}");
            }
        }
        let is_new = known.is_none_or(|known| known != held.catalogue());
        let same = known.is_some_and(|known| !idle || known == held.catalogue());
        let catalogue = held.catalogue().clone();
        let agent = match (same, idle) {
            (true, _) => agent,
            // The next turns find it, too; what it was changed to meanwhile is taken along.
            (false, true) => self.shared.live.change(|current| current.with_catalogue(catalogue))?,
            (false, false) => Arc::new(agent.with_catalogue(catalogue)?),
        };
        if is_new {
            for (server, error) in agent.crowded_out() {
                tracing::warn!("MCP server {server} is left out with all of its tools: {error}");
            }
            warn_of_idle_rules(&agent, held.catalogue());
        }
        self.use_agent(agent);
        Ok(Some(held))
    }

    /// Meets the servers whose calls wait for somebody's decision, as long as nobody cancels. A decision does it, too, but
    /// cannot be cancelled.
    pub async fn prepare_decision(&mut self, cancel: &CancellationToken) -> Result<(), SessionError> {
        let ids: Vec<_> = self.state().open_calls().cloned().collect();
        let calls = self.load_calls(&ids).await?;
        self.connect_for(&calls, cancel).await
    }

    /// The same where somebody decides about calls of servers that this process has not met yet.
    pub(crate) async fn connect_for(
        &mut self,
        calls: &[CallRecord],
        cancel: &CancellationToken,
    ) -> Result<(), SessionError> {
        let agent = self.shared.agent.clone();
        // Of a call that was imported nobody knows yet whose it is.
        let is_of_server = |call: &CallRecord| matches!(call.source, Some(ToolSource::Mcp { .. }) | None);
        if agent.catalogue().is_none() && calls.iter().any(is_of_server) {
            self.held = self.connect(agent, cancel).await?;
        }
        Ok(())
    }
}

/// Rules about approvals that fit no tool of a server that is there: behind a slip, a tool would run unasked (L17).
fn warn_of_idle_rules(agent: &Agent, catalogue: &Catalogue) {
    let tools: Vec<&str> = agent.registry().tools().map(|tool| tool.definition.name.as_str()).collect();
    for rule in agent.config().approvals.idle(&tools) {
        let Some(server) = source_of(rule) else { continue };
        let mut known =
            catalogue.tools().filter(|tool| tool.server == server).map(|tool| &*tool.definition.name).peekable();
        if known.peek().is_some() {
            let known = known.take(LISTED).collect::<Vec<_>>().join(", ");
            tracing::warn!(
                "the approval rule `{rule}` fits no tool of the MCP server {server}, so it does nothing; it has {known}"
            );
        }
    }
}
