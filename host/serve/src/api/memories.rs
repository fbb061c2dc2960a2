//! Routes about the long-term memories of users (D4).

use crate::access::Caller;
use crate::problem::{ApiProblems, Problem};
use crate::state::ApiState;
use crate::tokens::Right;
use agent_store::{MemoryFilter, StoredMemory};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};

/// Number of memories that a list contains if the request does not say how many.
const DEFAULT_LIMIT: usize = 50;
/// Maximum number of memories of one answer.
const MAX_LIMIT: usize = 200;

/// Memories of a user.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MemoryList {
    /// The memories: the best matches first if the request has a query, otherwise the newest first.
    memories: Vec<MemoryItem>,
}

/// A memory of a user.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MemoryItem {
    /// Id of the memory. In a path, `/` must be written as `%2F`.
    id: String,
    /// The text of the memory.
    text: String,
    /// Time at which the memory was written, as RFC 3339.
    written: Option<String>,
    /// The kind of the memory: `tool`, `final` or `limit`. `null` if the memory was found by a query.
    kind: Option<String>,
    /// The session that the memory comes from. `null` if the memory was found by a query.
    session: Option<String>,
}

/// Selects memories.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct MemoryQuery {
    /// The user whose memories are listed. Default: the user of the token.
    user: Option<String>,
    /// Words of which a memory must contain at least one.
    query: Option<String>,
    /// Only memories after the memory with this id. Not allowed together with `query`.
    after: Option<String>,
    /// Maximum number of memories, 1 to 200. Default: 50.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<usize>,
}

/// Returns the user whose memories the caller wants, if the caller may have them. Memories of all agents belong to a user, so
/// a token for single agents cannot have them.
fn user_of(caller: &Caller, requested: Option<String>) -> Result<String, Problem> {
    if !caller.token.agents.is_empty() {
        let detail = "a token for single agents cannot use memories, because they come from all agents";
        return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail));
    }
    match (&caller.token.user, requested) {
        (Some(own), Some(other)) if *own != other => {
            let detail = format!("the token works for the user `{own}`, not for `{other}`");
            Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail))
        }
        (Some(own), _) => Ok(own.clone()),
        (None, Some(user)) => Ok(user),
        (None, None) => Err(Problem::invalid("name the user whose memories you want, with `user`")),
    }
}

/// Lists or searches the memories of a user.
#[utoipa::path(
    get, path = "/api/memories", tag = "memories", security(("token" = [])), params(MemoryQuery),
    responses((status = 200, body = MemoryList), ApiProblems)
)]
pub(crate) async fn list_memories(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    query: Result<Query<MemoryQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<MemoryList>, Problem> {
    caller.require(Right::Read)?;
    let Query(MemoryQuery { user, query, after, limit }) =
        query.map_err(|error| Problem::invalid(error.body_text()))?;
    let user = user_of(&caller, user)?;
    let limit = match limit.unwrap_or(DEFAULT_LIMIT) {
        limit @ 1..=MAX_LIMIT => limit,
        limit => return Err(Problem::invalid(format!("`limit` is {limit}, but must be 1 to {MAX_LIMIT}"))),
    };
    let memories = match (query, after) {
        (Some(_), Some(_)) => return Err(Problem::invalid("`query` and `after` cannot be combined")),
        (Some(query), None) => {
            let found = state.store().search(&MemoryFilter::of_user(user), &query, limit).await?;
            let item = |found: agent_core::plugin::Recollection| MemoryItem {
                id: found.id,
                text: found.text,
                written: Some(found.written),
                kind: None,
                session: None,
            };
            found.into_iter().map(item).collect()
        }
        (None, after) => {
            let listed = state.store().list(&user, after.as_deref().unwrap_or_default(), limit).await?;
            listed.into_iter().map(Into::into).collect()
        }
    };
    Ok(Json(MemoryList { memories }))
}

impl From<StoredMemory> for MemoryItem {
    fn from(StoredMemory { id, memory }: StoredMemory) -> Self {
        Self {
            id,
            text: memory.text,
            written: memory.written,
            kind: Some(memory.kind.as_str().to_owned()),
            session: Some(memory.session),
        }
    }
}

/// Selects the user whose memory is deleted.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForgetQuery {
    /// The user to whom the memory belongs. Default: the user of the token.
    user: Option<String>,
}

/// Deletes a memory.
#[utoipa::path(
    delete, path = "/api/memories/{memory}", tag = "memories", security(("token" = [])),
    params(("memory" = String, Path, description = "Id of the memory, with `/` written as `%2F`."), ForgetQuery),
    responses((status = 204, description = "The memory is deleted."), ApiProblems)
)]
pub(crate) async fn forget_memory(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(memory): Path<String>,
    query: Result<Query<ForgetQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<StatusCode, Problem> {
    caller.require(Right::Administer)?;
    let Query(ForgetQuery { user }) = query.map_err(|error| Problem::invalid(error.body_text()))?;
    let user = user_of(&caller, user)?;
    match state.store().forget(&user, &memory).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found(format!("the user `{user}` has no memory `{memory}`"))),
    }
}
