//! The endpoints of the Model Context Protocol (I4): `/agents/{agent}/mcp`, and `/mcp` of a server for one agent.

use super::ApiState;
use super::state::OpenStream;
use crate::access::Caller;
use crate::body::read;
use crate::mcp::{AgentOffer, ClientCalls, McpClient, ToolOffer};
use crate::problem::Problem;
use crate::tokens::Right;
use agent_mcp::offered::{HttpEndpoint, HttpRefusal, MAX_CLIENT_MESSAGE_BYTES, Offer};
use agent_runtime::UserName;
use axum::Extension;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use futures::StreamExt;
use http_body_util::Full;
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Interval;

/// Maximum number of sessions of the protocol that the clients with one token may have.
const SESSIONS_PER_TOKEN: usize = 64;
/// Time between two checks whether the token of an open answer still exists.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

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

/// Selects what the endpoint of an agent offers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct McpQuery {
    #[serde(default)]
    expose: Expose,
}

/// Answers a request to `/agents/{agent}/mcp`.
pub(crate) async fn agent_endpoint(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(agent): Path<String>,
    query: Result<Query<McpQuery>, axum::extract::rejection::QueryRejection>,
    request: Request,
) -> Result<Response, Problem> {
    let Query(McpQuery { expose }) = query.map_err(|error| Problem::invalid(error.body_text()))?;
    answer((state, caller), McpAgent { agent, expose }, request).await
}

/// Answers a request to `/mcp` of a server for this agent.
pub(crate) async fn only_endpoint(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Extension(agent): Extension<McpAgent>,
    request: Request,
) -> Result<Response, Problem> {
    answer((state, caller), agent, request).await
}

async fn answer(
    (state, caller): (Arc<ApiState>, Caller),
    agent: McpAgent,
    request: Request,
) -> Result<Response, Problem> {
    if caller.require(Right::Talk).is_err() {
        caller.require(Right::Read)?;
    }
    state.check_agent(&caller, &agent.agent)?;
    let open = match keeps_open(request.method(), request.headers()) {
        true => Some(state.streams.open(&caller)?),
        false => None,
    };
    let (parts, body) = request.into_parts();
    let bytes = read(body, MAX_CLIENT_MESSAGE_BYTES).await?;
    let request = axum::http::Request::from_parts(parts, Full::new(Bytes::from(bytes)));
    let endpoint = state.mcp_endpoints.endpoint(&state, &caller, agent)?;
    let response = endpoint.handle(request).await.map_err(|error| match error {
        HttpRefusal::TooManySessions(_) => Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_sessions", error),
    })?;
    let (parts, body) = response.into_parts();
    let body = WatchedBody {
        body: Body::new(body).into_data_stream(),
        _open: open,
        next_check: tokio::time::interval(CHECK_INTERVAL),
        state,
        caller,
    };
    let chunks = futures::stream::unfold(body, |mut body| async move { Some((body.next().await?, body)) });
    Ok(Response::from_parts(parts, Body::from_stream(chunks)))
}

/// Returns whether the answer to a request stays open while nothing happens. The protocol's server checks that the header
/// names the method of the request.
fn keeps_open(method: &Method, headers: &HeaderMap) -> bool {
    let names_listening = headers.get("mcp-method").is_some_and(|method| method.as_bytes() == b"subscriptions/listen");
    *method == Method::GET || names_listening
}

impl McpEndpoints {
    /// Returns the endpoint of the caller's token, which other tokens cannot use.
    fn endpoint(&self, state: &Arc<ApiState>, caller: &Caller, agent: McpAgent) -> Result<HttpEndpoint, Problem> {
        let McpAgent { agent, expose } = agent;
        let key = (caller.token.digest.clone(), agent.clone(), expose);
        let mut endpoints = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(endpoint) = endpoints.get(&key) {
            return Ok(endpoint.clone());
        }
        // Tokens that were revoked need no endpoint any more.
        endpoints.retain(|(token, ..), _| state.has_token(token));
        let user = caller.token.user.as_deref().map(UserName::new).transpose().map_err(Problem::invalid)?;
        let client = McpClient { rights: caller.token.rights.clone(), user, agents: caller.token.agents.clone() };
        let calls = ClientCalls::new(state.supervisor.clone(), agent, client);
        let offer: Arc<dyn Offer> = match expose {
            Expose::Tools => Arc::new(ToolOffer::new(calls)),
            Expose::Agent => Arc::new(AgentOffer::new(calls)),
        };
        let endpoint = HttpEndpoint::new(move || offer.clone(), SESSIONS_PER_TOKEN, state.draining.child_token());
        endpoints.insert(key, endpoint.clone());
        Ok(endpoint)
    }
}

/// The body of an answer, which ends when the server shuts down or the token is revoked.
struct WatchedBody {
    body: BodyDataStream,
    _open: Option<OpenStream>,
    next_check: Interval,
    state: Arc<ApiState>,
    caller: Caller,
}

impl WatchedBody {
    async fn next(&mut self) -> Option<Result<Bytes, axum::Error>> {
        loop {
            tokio::select! {
                biased;
                next = self.body.next() => return next,
                () = self.state.draining.cancelled() => return None,
                _ = self.next_check.tick() => {
                    if !self.state.is_still_valid(&self.caller) {
                        return None;
                    }
                }
            }
        }
    }
}
