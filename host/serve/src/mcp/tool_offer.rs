//! Offers the tools of an agent (I4).

use super::calls::{CallSlot, ClientCalls, TurnPlace, key_of};
use super::turn_call::{CallKind, TurnCall};
use crate::tokens::Right;
use agent_core::message::TurnInput;
use agent_core::plugin::TraceContext;
use agent_mcp::offered::{Offer, OfferError, OfferProblem, OfferedTool, OpenCall};
use agent_runtime::{Agent, Prompt};
use agent_store::digest_of;
use async_trait::async_trait;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Offers the tools of an agent to one client.
pub struct ToolOffer(Arc<ClientCalls>);

impl ToolOffer {
    /// Offers the tools of the agent with which the client makes these calls.
    pub fn new(calls: Arc<ClientCalls>) -> Self {
        Self(calls)
    }

    /// Returns the agent with the tools of its MCP servers. They are read when a client asks for the tools for the first
    /// time, and at the beginning of each call.
    async fn agent(&self) -> Result<Arc<Agent>, OfferError> {
        let live = self.0.live()?;
        let agent = live.current();
        if agent.servers().is_empty() || agent.catalogue().is_some() {
            return Ok(agent);
        }
        let failed = |error: agent_runtime::AgentError| {
            tracing::error!(%error, "the tools of an agent cannot be listed");
            OfferError::new(OfferProblem::Failed, "the tools cannot be listed; the host's log contains the reason")
        };
        let catalogue = agent.with_servers().await.map_err(failed)?.catalogue().cloned();
        match catalogue {
            Some(catalogue) => live.change(|current| current.with_catalogue(catalogue)).map_err(failed),
            None => Ok(agent),
        }
    }

    fn follow(&self, key: String, place: TurnPlace, slot: CallSlot) -> Box<dyn OpenCall> {
        TurnCall::new(self.0.clone(), (CallKind::Tool, key), place, slot)
    }
}

fn tools_of(agent: &Agent) -> Vec<OfferedTool> {
    let tools = agent.direct_tools().into_iter().map(|(offered, definition)| OfferedTool {
        name: offered.author_name.clone(),
        title: definition.title.clone(),
        description: offered.description.clone(),
        input_schema: offered.input_schema.clone(),
        output_schema: definition.output_schema.clone(),
        traits: definition.traits,
    });
    tools.collect()
}

fn version_of(agent: &Agent) -> String {
    digest_of(format!("{:?}", tools_of(agent)).as_bytes()).to_string()
}

#[async_trait]
impl Offer for ToolOffer {
    fn instructions(&self) -> String {
        format!("The tools of the agent `{}`.", self.0.agent)
    }

    async fn tools(&self) -> Result<Vec<OfferedTool>, OfferError> {
        self.0.require_any(&[Right::Read, Right::Talk])?;
        Ok(tools_of(&*self.agent().await?))
    }

    fn list_version(&self) -> String {
        self.0.live().map(|live| version_of(&live.current())).unwrap_or_default()
    }

    async fn list_changed(&self, seen: &str) -> String {
        let Ok(live) = self.0.live() else { return std::future::pending().await };
        let mut changes = live.changes();
        loop {
            let version = version_of(&changes.borrow_and_update().clone());
            if version != seen {
                return version;
            }
            if changes.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    async fn begin(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        trace: Option<TraceContext>,
    ) -> Result<Box<dyn OpenCall>, OfferError> {
        self.0.require(Right::Talk)?;
        let arguments = Value::Object(arguments);
        let key = key_of(tool, &arguments);
        let slot = self.0.slot().await?;
        let place = match self.0.take_repeated(&key) {
            Some(waiting) => waiting.turn,
            None => {
                let input = TurnInput::Call { tool: tool.to_owned(), arguments };
                let prompt = Prompt { user: self.0.client.user.clone(), trace, ..Prompt::new(input) };
                self.0.begin_in_any_session(prompt).await?
            }
        };
        Ok(self.follow(key, place, slot))
    }

    async fn resume(
        &self,
        handle: &str,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<Box<dyn OpenCall>, OfferError> {
        self.0.require(Right::Talk)?;
        let key = key_of(tool, &Value::Object(arguments));
        let slot = self.0.slot().await?;
        let waiting = self.0.take_waiting(handle, &key)?;
        Ok(self.follow(key, waiting.turn, slot))
    }
}
