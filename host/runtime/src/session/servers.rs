//! Connects the MCP servers of a turn before the turn starts or continues (I5).

use super::{Session, SessionError};
use crate::agent::Agent;
use agent_core::approval::rule_source;
use agent_core::change::CallRecord;
use agent_core::tool::ToolSource;
use agent_mcp::{AcquiredServers, Catalogue};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Maximum number of tools that a warning lists.
const MAX_LISTED_TOOLS: usize = 20;

impl Session {
    /// Connects the MCP servers of this agent. The session then uses the agent with the tools that the servers offer
    /// now. However, an open turn keeps its tools if this process has already read those tools from the servers.
    pub(crate) async fn connect(
        &mut self,
        agent: Arc<Agent>,
        cancel: &CancellationToken,
    ) -> Result<Option<AcquiredServers>, SessionError> {
        let is_idle = !self.run.is_open();
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
        let earlier = agent.catalogue();
        if earlier.is_none_or(|earlier| earlier.problems() != held.catalogue().problems()) {
            for problem in held.catalogue().problems() {
                tracing::warn!("{problem}");
            }
        }
        let is_new = earlier.is_none_or(|earlier| earlier != held.catalogue());
        let keeps_tools = earlier.is_some_and(|earlier| !is_idle || earlier == held.catalogue());
        let catalogue = held.catalogue().clone();
        let agent = match (keeps_tools, is_idle) {
            (true, _) => agent,
            // No turn is open, so the tools are also added to the agent that later turns use. The agent that later
            // turns use may have changed since `agent` was read, and such changes must be kept.
            (false, true) => self.services.live.change(|current| current.with_catalogue(catalogue))?,
            (false, false) => Arc::new(agent.with_catalogue(catalogue)?),
        };
        if is_new {
            for (server, error) in agent.servers_left_out() {
                tracing::warn!("MCP server {server} and all of its tools are left out: {error}");
            }
            warn_about_unmatched_rules(&agent, held.catalogue());
        }
        self.use_agent(agent);
        Ok(Some(held))
    }

    /// Connects the agent's MCP servers if a call that waits for a decision may need them. Stops if `cancel` is
    /// cancelled. The methods that store a decision would also connect missing MCP servers, but those methods
    /// cannot be cancelled.
    pub async fn prepare_decision(&mut self, cancel: &CancellationToken) -> Result<(), SessionError> {
        let ids: Vec<_> = self.state().open_calls().cloned().collect();
        let calls = self.history.load_calls(&ids).await?;
        self.connect_for_calls(&calls, cancel).await
    }

    /// Connects the agent's MCP servers if one of these calls may need a server and this process has not connected the
    /// servers yet.
    pub(crate) async fn connect_for_calls(
        &mut self,
        calls: &[CallRecord],
        cancel: &CancellationToken,
    ) -> Result<(), SessionError> {
        let agent = self.services.agent.clone();
        // An imported call has no source yet, so the call may belong to an MCP server.
        let is_of_server = |call: &CallRecord| matches!(call.source, Some(ToolSource::Mcp { .. }) | None);
        if agent.catalogue().is_none() && calls.iter().any(is_of_server) {
            self.held_servers = self.connect(agent, cancel).await?;
        }
        Ok(())
    }
}

/// Warns about approval rules that do not match any tool of a connected server. If a rule misspells a tool's name, the
/// tool runs without an approval, and the user would not notice this without the warning (L17).
fn warn_about_unmatched_rules(agent: &Agent, catalogue: &Catalogue) {
    let tools: Vec<&str> = agent.registry().tools().map(|tool| tool.definition.name.as_str()).collect();
    for rule in agent.config().approvals.unmatched_patterns(&tools) {
        let Some(server) = rule_source(rule) else { continue };
        let mut names =
            catalogue.tools().filter(|tool| tool.server == server).map(|tool| &*tool.definition.name).peekable();
        if names.peek().is_some() {
            let names = names.take(MAX_LISTED_TOOLS).collect::<Vec<_>>().join(", ");
            tracing::warn!(
                "the approval rule `{rule}` matches no tool of the MCP server {server}, so the rule has no effect; the \
                 server's tools are {names}"
            );
        }
    }
}
