//! The route that searches the messages of all sessions.

use crate::access::Caller;
use crate::problem::{ApiProblems, Problem};
use crate::state::ApiState;
use crate::tokens::Right;
use agent_store::{SearchedSessions, SessionFilter, SessionState, SessionSummary, Unowned};
use axum::extract::{Query, State};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};

/// Number of results if the request does not say how many.
const DEFAULT_LIMIT: usize = 20;
/// Maximum number of results.
const MAX_LIMIT: usize = 100;

/// Selects messages.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchQuery {
    /// Words that a message must contain.
    query: String,
    /// Maximum number of results, 1 to 100. Default: 20.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<usize>,
}

/// Messages that contain the words.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FoundMessages {
    /// The messages, the best match first.
    messages: Vec<FoundMessage>,
}

/// A message that contains the words.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FoundMessage {
    /// The session.
    session: String,
    /// Name of the agent.
    agent: String,
    /// Beginning of the session's first prompt.
    title: Option<String>,
    /// Id of the message in its session.
    message: u64,
    /// Author of the message: `user`, `assistant`, `tool` or `system`.
    role: &'static str,
    /// About 200 characters of the message around the first word.
    excerpt: String,
}

/// Searches the messages of the sessions that the token may see, including messages that the model no longer sees.
#[utoipa::path(
    get, path = "/api/messages", tag = "sessions", security(("token" = [])), params(SearchQuery),
    responses((status = 200, body = FoundMessages), ApiProblems)
)]
pub(crate) async fn search_messages(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    query: Result<Query<SearchQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<FoundMessages>, Problem> {
    caller.require(Right::Read)?;
    let Query(SearchQuery { query, limit }) = query.map_err(|error| Problem::invalid(error.body_text()))?;
    let limit = match limit.unwrap_or(DEFAULT_LIMIT) {
        limit @ 1..=MAX_LIMIT => limit,
        limit => return Err(Problem::invalid(format!("`limit` is {limit}, but must be 1 to {MAX_LIMIT}"))),
    };
    let agents = caller.agents(state.supervisor.agents().keys()).into_iter().map(str::to_owned).collect();
    let searched = SearchedSessions { agents: Some(agents), user: caller.token.user.clone(), unowned: Unowned::Hidden };
    let mut sessions: HashMap<String, Option<SessionSummary>> = HashMap::new();
    let mut messages = Vec::new();
    for hit in state.store().search_messages_of(&searched, &query, limit).await? {
        if !sessions.contains_key(&hit.session) {
            let found = visible_session(&state, &caller, &hit.session).await?;
            sessions.insert(hit.session.clone(), found);
        }
        let Some(Some(session)) = sessions.get(&hit.session) else { continue };
        messages.push(FoundMessage {
            agent: session.agent.clone(),
            title: session.title.clone(),
            session: hit.session,
            message: hit.id,
            role: hit.role.as_str(),
            excerpt: hit.excerpt,
        });
    }
    Ok(Json(FoundMessages { messages }))
}

/// Returns the session if the caller may see it. A search is not an attempt to use the other sessions, so it is not a refusal.
async fn visible_session(state: &ApiState, caller: &Caller, session: &str) -> Result<Option<SessionSummary>, Problem> {
    let filter = SessionFilter {
        subject: Some(session.to_owned()),
        user: caller.token.user.clone(),
        ..SessionFilter::default()
    };
    let found = state.store().sessions(filter, 1).await?.pop();
    Ok(found.filter(|found| found.state != SessionState::Incomplete && state.may_use_agent(caller, &found.agent)))
}
