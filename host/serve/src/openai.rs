//! The OpenAI-compatible API (I3): programs that use OpenAI's API can use the agents of this server without a change. An
//! agent is a model, the tools of the agent run inside the host, and a client runs its own tools.
//!
//! Each module imports only modules that come before it in this list: `error`, `parameters`, `client_tools`,
//! `conversation`, `turn`, `ending`, `models`, `chat`, `responses`.

mod chat;
mod client_tools;
mod conversation;
mod ending;
mod error;
mod models;
mod parameters;
mod responses;
mod turn;

pub(crate) use error::{SESSION_HEADER, with_openai_error};

use crate::state::ApiState;
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Beginning of the paths whose errors have the form of OpenAI's API.
pub(crate) const PATH: &str = "/v1/";

/// Returns the routes of the OpenAI-compatible API.
pub(crate) fn routes() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::new()
        .routes(routes!(models::list_models))
        .routes(routes!(models::show_model))
        .routes(routes!(chat::create_chat_completion))
        .routes(routes!(responses::create_response))
        .routes(routes!(responses::show_response, responses::delete_response))
        .routes(routes!(responses::cancel_response))
}
