//! The endpoints of the Model Context Protocol over HTTP: one for each token, agent and kind of offer.

use super::{AgentOffer, ClientCalls, McpClient, ToolOffer};
use crate::access::Caller;
use crate::problem::Problem;
use crate::tokens::Token;
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
pub(crate) struct McpEndpoints(Mutex<HashMap<(String, String, Expose), OpenEndpoint>>);

/// An endpoint, which has the rights that its token had when the endpoint was created.
struct OpenEndpoint {
    token: Token,
    endpoint: HttpEndpoint,
    /// Cancelled when the sessions of the endpoint must end.
    stop: CancellationToken,
}

impl McpEndpoints {
    /// Returns the endpoint of the caller's token, which other tokens cannot use. It closes its sessions when `draining` is
    /// cancelled. Endpoints of tokens that have changed since then, or that were revoked, are closed. `is_valid` tells whether a
    /// token exists exactly as it is.
    pub(crate) fn endpoint(
        &self,
        (caller, agent): (&Caller, McpAgent),
        supervisor: &Supervisor,
        draining: &CancellationToken,
        is_valid: impl Fn(&Token) -> bool,
    ) -> Result<HttpEndpoint, Problem> {
        let McpAgent { agent, expose } = agent;
        let key = (caller.token.digest.clone(), agent.clone(), expose);
        let mut endpoints = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = endpoints.get(&key).filter(|open| open.token == caller.token) {
            return Ok(open.endpoint.clone());
        }
        close(&mut endpoints, |open| open.token.digest == caller.token.digest || !is_valid(&open.token));
        let user = caller.token.user.as_deref().map(UserName::new).transpose().map_err(Problem::invalid)?;
        let name = caller.token.name.clone();
        let client = McpClient { name, rights: caller.token.rights.clone(), user, agents: caller.token.agents.clone() };
        let calls = ClientCalls::new(supervisor.clone(), agent, client);
        let offer: Arc<dyn Offer> = match expose {
            Expose::Tools => Arc::new(ToolOffer::new(calls)),
            Expose::Agent => Arc::new(AgentOffer::new(calls)),
        };
        let stop = draining.child_token();
        let endpoint = HttpEndpoint::new(move || offer.clone(), SESSIONS_PER_TOKEN, stop.clone());
        let open = OpenEndpoint { token: caller.token.clone(), endpoint: endpoint.clone(), stop };
        endpoints.insert(key, open);
        Ok(endpoint)
    }

    /// Closes the endpoints whose token has changed, or was revoked.
    pub(crate) fn close_outdated(&self, is_valid: impl Fn(&Token) -> bool) {
        close(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner), |open| !is_valid(&open.token));
    }
}

fn close<K>(endpoints: &mut HashMap<K, OpenEndpoint>, must_close: impl Fn(&OpenEndpoint) -> bool) {
    endpoints.retain(|_, open| {
        let closes = must_close(open);
        if closes {
            open.stop.cancel();
        }
        !closes
    });
}
