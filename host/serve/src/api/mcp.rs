//! The endpoints of the Model Context Protocol (I4): `/agents/{agent}/mcp`, and `/mcp` of a server for one agent.

use crate::access::Caller;
use crate::body::read;
use crate::mcp::{Expose, McpAgent};
use crate::problem::Problem;
use crate::state::{ApiState, OpenStream};
use crate::tokens::Right;
use agent_mcp::offered::{HttpRefusal, MAX_CLIENT_MESSAGE_BYTES};
use axum::Extension;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use futures::StreamExt;
use http_body_util::Full;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Interval;

/// Time between two checks whether the token of an open answer still exists.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

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
    let endpoint = state.mcp_endpoint(&caller, agent)?;
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
