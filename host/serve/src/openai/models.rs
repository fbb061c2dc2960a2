//! The routes that list the agents as models.

use super::error::{ErrorBody, OpenAiError};
use crate::access::Caller;
use crate::state::ApiState;
use crate::tokens::Right;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// The agents that the token may use, as models.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ModelList {
    /// Always `list`.
    object: &'static str,
    data: Vec<Model>,
}

/// An agent, as a model.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Model {
    /// The name of the agent.
    #[schema(example = "clerk")]
    id: String,
    /// Always `model`.
    object: &'static str,
    /// Always 0, because an agent has no time of creation.
    created: u64,
    /// Always `agent-host`.
    owned_by: &'static str,
}

impl Model {
    fn of_agent(agent: &str) -> Self {
        Self { id: agent.to_owned(), object: "model", created: 0, owned_by: "agent-host" }
    }
}

/// Checks that the caller may use this agent, and that the server runs it.
pub(super) fn check_model(state: &ApiState, caller: &Caller, model: &str) -> Result<(), OpenAiError> {
    state.check_agent(caller, model).map_err(|problem| {
        let message = format!("{}; `GET /v1/models` lists the models of the token", problem.detail);
        OpenAiError::new(StatusCode::NOT_FOUND, "model_not_found", message).about("model")
    })
}

/// Lists the agents that the token may use, as models.
#[utoipa::path(
    get, path = "/v1/models", tag = "openai", security(("token" = [])),
    responses(
        (status = 200, body = ModelList),
        (status = "4XX", body = ErrorBody),
        (status = "5XX", body = ErrorBody),
    )
)]
pub(crate) async fn list_models(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<ModelList>, OpenAiError> {
    caller.require(Right::Read)?;
    let allowed = state.supervisor.agents().keys().filter(|name| caller.token.allows_agent(name));
    Ok(Json(ModelList { object: "list", data: allowed.map(|name| Model::of_agent(name)).collect() }))
}

/// Shows an agent, as a model.
#[utoipa::path(
    get, path = "/v1/models/{model}", tag = "openai", security(("token" = [])),
    params(("model" = String, Path, description = "The name of the agent.")),
    responses(
        (status = 200, body = Model),
        (status = "4XX", body = ErrorBody),
        (status = "5XX", body = ErrorBody),
    )
)]
pub(crate) async fn show_model(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(model): Path<String>,
) -> Result<Json<Model>, OpenAiError> {
    caller.require(Right::Read)?;
    check_model(&state, &caller, &model)?;
    Ok(Json(Model::of_agent(&model)))
}
