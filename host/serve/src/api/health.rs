//! Routes with which a process manager checks the server.

use crate::problem::Problem;
use crate::state::ApiState;
use agent_store::SessionFilter;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// The state of the server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// Always `ok`.
    #[schema(example = "ok")]
    status: &'static str,
}

/// Whether the process runs.
#[utoipa::path(get, path = "/health", tag = "health", responses((status = 200, body = Health)))]
pub(crate) async fn health() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// Whether the server accepts work: it is not shutting down, and its database can be read.
#[utoipa::path(
    get, path = "/ready", tag = "health",
    responses((status = 200, body = Health), (status = 503, body = Problem, content_type = "application/problem+json"))
)]
pub(crate) async fn ready(State(state): State<Arc<ApiState>>) -> Result<Json<Health>, Problem> {
    let unavailable = |detail: &str| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail);
    if state.draining.is_cancelled() {
        return Err(unavailable("the server is shutting down"));
    }
    match state.store().sessions(SessionFilter::default(), 1).await {
        Ok(_) => Ok(Json(Health { status: "ok" })),
        Err(error) => {
            tracing::error!(%error, "the server is not ready");
            Err(unavailable("the database cannot be read; the server's log contains the reason"))
        }
    }
}
