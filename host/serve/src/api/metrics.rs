//! The route from which Prometheus reads the metrics of the server (O2).

use crate::access::Caller;
use crate::problem::{ApiProblems, Problem};
use crate::state::ApiState;
use crate::tokens::Right;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

/// Content type of the text format of Prometheus.
const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics of the process in the text format of Prometheus. They describe the sessions of all agents and users, so a
/// token that is limited to agents or to a user cannot read them.
#[utoipa::path(
    get, path = "/metrics", tag = "operations", security(("token" = [])),
    responses((status = 200, body = String, content_type = "text/plain"), ApiProblems)
)]
pub(crate) async fn read_metrics(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    metrics_for(&state, &caller).await
}

/// The metrics of a process that only shows its health. The sender of a request is recognised by its token alone, because the
/// process has no names and serves no web pages.
pub(crate) async fn read_worker_metrics(
    State(state): State<Arc<ApiState>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let caller = state.caller(&headers)?;
    metrics_for(&state, &caller).await
}

async fn metrics_for(state: &ApiState, caller: &Caller) -> Result<Response, Problem> {
    caller.require(Right::Observe)?;
    if !caller.token.agents.is_empty() || caller.token.user.is_some() {
        let detail = "the metrics describe all agents and users, so this needs a token that is not limited to agents or to a user";
        return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail));
    }
    let Some(metrics) = &state.metrics else {
        return Err(Problem::not_found("this server counts no metrics"));
    };
    Ok(([(header::CONTENT_TYPE, PROMETHEUS_TEXT)], metrics.text().await).into_response())
}
