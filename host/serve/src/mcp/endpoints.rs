//! The endpoints of the Model Context Protocol over HTTP: one for each token, agent and kind of offer.

use super::{AgentOffer, ClientCalls, McpClient, ToolOffer};
use crate::access::Caller;
use crate::problem::Problem;
use agent_mcp::offered::{HttpEndpoint, Offer};
use agent_runtime::{Supervisor, UserName};
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio_util::sync::CancellationToken;

/// Maximum number of sessions of the protocol that the clients with one token may have.
const SESSIONS_PER_TOKEN: usize = 64;

/// What an endpoint offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expose {
    /// The tools of the agent.
    #[default]
    Tools,
    /// The agent as one tool.
    Agent,
}

/// The agent that a server offers at `/mcp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpAgent {
    /// The configured name of the agent.
    pub agent: String,
    /// What is offered.
    pub expose: Expose,
}

/// The endpoints that are in use, by the digest of their token, their agent and what they offer.
#[derive(Default)]
pub(crate) struct McpEndpoints(Mutex<HashMap<(String, String, Expose), HttpEndpoint>>);

impl McpEndpoints {
    /// Returns the endpoint of the caller's token, which other tokens cannot use. It closes its sessions when `draining` is
    /// cancelled. `token_exists` tells whether a token with this digest exists.
    pub(crate) fn endpoint(
        &self,
        (caller, agent): (&Caller, McpAgent),
        supervisor: &Supervisor,
        draining: &CancellationToken,
        token_exists: impl Fn(&str) -> bool,
    ) -> Result<HttpEndpoint, Problem> {
        let McpAgent { agent, expose } = agent;
        let key = (caller.token.digest.clone(), agent.clone(), expose);
        let mut endpoints = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(endpoint) = endpoints.get(&key) {
            return Ok(endpoint.clone());
        }
        // Tokens that were revoked need no endpoint any more.
        endpoints.retain(|(token, ..), _| token_exists(token));
        let user = caller.token.user.as_deref().map(UserName::new).transpose().map_err(Problem::invalid)?;
        let name = caller.token.name.clone();
        let client = McpClient { name, rights: caller.token.rights.clone(), user, agents: caller.token.agents.clone() };
        let calls = ClientCalls::new(supervisor.clone(), agent, client);
        let offer: Arc<dyn Offer> = match expose {
            Expose::Tools => Arc::new(ToolOffer::new(calls)),
            Expose::Agent => Arc::new(AgentOffer::new(calls)),
        };
        let endpoint = HttpEndpoint::new(move || offer.clone(), SESSIONS_PER_TOKEN, draining.child_token());
        endpoints.insert(key, endpoint.clone());
        Ok(endpoint)
    }
}
