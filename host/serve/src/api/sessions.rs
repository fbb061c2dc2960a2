//! Routes about sessions: list, create, show, prompt, cancel and delete.

use crate::access::Caller;
use crate::attachments::{Attachment, decode_attachments};
use crate::body::PROMPT_BYTES;
use crate::problem::{ApiProblems, Problem};
use crate::state::ApiState;
use crate::tokens::Right;
use agent_core::message::{MessageId, Part, StoredMessage, TurnInput};
use agent_core::run::Run;
use agent_runtime::{Accepted, DuringTurn, Prompt, SessionRequest, UserName};
use agent_store::{MessageRange, SessionFilter, SessionState, SessionSummary};
use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};

/// Number of sessions that a list contains if the request does not say how many.
const DEFAULT_LIMIT: usize = 50;
/// Maximum number of sessions or messages of one answer.
const MAX_LIMIT: usize = 500;

/// A list of sessions, the session whose turn was started or stopped last first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionList {
    sessions: Vec<SessionItem>,
}

/// A session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionItem {
    /// Id of the session. In a path, `/` must be written as `%2F`.
    #[schema(example = "clerk/01a20eb6-d915-7899-a368-367c6c553e61")]
    session: String,
    /// Name of the agent.
    agent: String,
    /// The user for whom the session works. `null` if the user is not known.
    user: Option<String>,
    /// The session that delegated work to this session. `null` if no session did.
    delegated_by: Option<String>,
    /// The state of the last turn.
    #[schema(value_type = String, example = "idle")]
    state: SessionState,
    /// Number of turns that began.
    turns: u32,
    /// Beginning of the first prompt.
    title: Option<String>,
    /// Time at which the session was created, as RFC 3339.
    created: String,
    /// Time of the last change, as RFC 3339.
    updated: String,
    /// Model calls, tokens and costs of all turns.
    #[schema(value_type = Object)]
    usage: Value,
}

impl From<SessionSummary> for SessionItem {
    fn from(summary: SessionSummary) -> Self {
        Self {
            usage: serde_json::to_value(summary.usage).unwrap_or_default(),
            session: summary.subject,
            agent: summary.agent,
            user: summary.user,
            delegated_by: summary.delegated_by,
            state: summary.state,
            turns: summary.turns,
            title: summary.title,
            created: summary.created,
            updated: summary.updated,
        }
    }
}

/// Selects sessions.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionQuery {
    /// Only sessions of this agent.
    agent: Option<String>,
    /// Only sessions in this state: `idle`, `running`, `suspended`, `failed` or `cancelled`.
    #[param(pattern = "^(idle|running|suspended|failed|cancelled)$")]
    state: Option<String>,
    /// Only sessions to which this session delegated work.
    delegated_by: Option<String>,
    /// Maximum number of sessions, 1 to 500. Default: 50.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
}

fn limit_of(limit: Option<usize>) -> Result<usize, Problem> {
    match limit.unwrap_or(DEFAULT_LIMIT) {
        limit @ 1..=MAX_LIMIT => Ok(limit),
        limit => Err(Problem::invalid(format!("`limit` is {limit}, but must be 1 to {MAX_LIMIT}"))),
    }
}

/// Lists sessions.
#[utoipa::path(
    get, path = "/api/sessions", tag = "sessions", security(("token" = [])), params(SessionQuery),
    responses(
        (status = 200, body = SessionList),
        ApiProblems,
    )
)]
pub(crate) async fn list_sessions(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    query: Result<Query<SessionQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<SessionList>, Problem> {
    caller.require(Right::Read)?;
    let Query(query) = query.map_err(|error| Problem::invalid(error.body_text()))?;
    let limit = limit_of(query.limit)?;
    let known = |name: String| {
        SessionState::parse(&name).ok_or_else(|| Problem::invalid(format!("there is no state `{name}`")))
    };
    let state_filter = query.state.map(known).transpose()?;
    if let Some(agent) = &query.agent {
        state.check_agent(&caller, agent)?;
    }
    let allowed = caller.agents(state.supervisor.agents().keys());
    // A token for some agents gets the sessions of these agents, one query for each.
    let agents: Vec<String> = match &query.agent {
        Some(agent) => vec![agent.clone()],
        None => allowed.iter().map(|agent| (*agent).to_owned()).collect(),
    };
    let mut sessions = Vec::new();
    for agent in agents {
        let filter = SessionFilter {
            agent: Some(agent),
            user: caller.token.user.clone(),
            state: state_filter,
            delegated_by: query.delegated_by.clone(),
            ..SessionFilter::default()
        };
        sessions.extend(state.store().sessions(filter, limit).await?);
    }
    sessions.retain(|session| session.state != SessionState::Incomplete && session.revision > 0);
    sessions.sort_by(|one, other| other.updated.cmp(&one.updated));
    sessions.truncate(limit);
    Ok(Json(SessionList { sessions: sessions.into_iter().map(Into::into).collect() }))
}

/// A new session with its first prompt.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSession {
    /// Name of the agent.
    #[schema(example = "clerk")]
    agent: String,
    /// The first prompt.
    #[schema(min_length = 1, pattern = r"\S", example = "How many berths has the harbour?")]
    prompt: String,
    /// The user for whom the session works. Only tokens without a user may set this field.
    user: Option<String>,
    /// Images and other media items that belong to the prompt, 20 at most.
    #[serde(default)]
    #[schema(max_items = 20)]
    attachments: Vec<Attachment>,
}

/// A session whose first turn began.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CreatedSession {
    /// Id of the session. In a path, `/` must be written as `%2F`.
    pub(super) session: String,
    /// Path of the session's events.
    pub(super) events: String,
}

/// Returns the path of a session's events.
pub(super) fn events_path(session: &str) -> String {
    let encoded: String = url::form_urlencoded::byte_serialize(session.as_bytes()).collect();
    format!("/api/sessions/{}/events", encoded.replace('+', "%20"))
}

/// Returns the user for whom a prompt works: the user of the token, or else the user in the request.
pub(super) fn user_of(caller: &Caller, requested: Option<String>) -> Result<Option<UserName>, Problem> {
    let user = match (&caller.token.user, requested) {
        (Some(own), Some(other)) if *own != other => {
            let detail = format!("the token works for the user `{own}`, not for `{other}`");
            return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail));
        }
        (Some(own), _) => Some(own.clone()),
        (None, requested) => requested,
    };
    user.map(|user| UserName::new(&user).map_err(Problem::invalid)).transpose()
}

fn input_of(prompt: String) -> Result<TurnInput, Problem> {
    if prompt.len() > PROMPT_BYTES {
        let detail = format!("the prompt has more than {} KiB", PROMPT_BYTES >> 10);
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail));
    }
    match prompt.trim().is_empty() {
        true => Err(Problem::invalid("the prompt is empty")),
        false => Ok(TurnInput::Text(prompt)),
    }
}

/// Creates a session and begins its first turn.
///
/// The list of messages contains the prompt as soon as the turn has prepared its first step. The body has at most 32 MiB.
#[utoipa::path(
    post, path = "/api/sessions", tag = "sessions", security(("token" = [])), request_body = NewSession,
    responses(
        (status = 201, body = CreatedSession, description = "The session exists, and the prompt is stored."),
        ApiProblems,
    )
)]
pub(crate) async fn create_session(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<(StatusCode, Json<CreatedSession>), Problem> {
    caller.require(Right::Talk)?;
    let (new, _place): (NewSession, _) = state.media_body(&caller, request).await?;
    state.check_agent(&caller, &new.agent)?;
    let (input, user) = (input_of(new.prompt)?, user_of(&caller, new.user)?);
    let attachments = decode_attachments(new.attachments).map_err(Problem::invalid)?;
    let prompt = Prompt { user, attachments, trace: caller.trace, ..Prompt::new(input) };
    let session = state.supervisor.create(&new.agent, prompt).await?;
    Ok((StatusCode::CREATED, Json(CreatedSession { events: events_path(&session), session })))
}

/// A session, and what its open turn waits for.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionDetails {
    #[serde(flatten)]
    session: SessionItem,
    /// What the open turn waits for: approvals, answers, services, other agents, and decisions about calls.
    #[schema(value_type = Vec<Object>)]
    waits: Vec<Value>,
    /// Number of prompts that wait until the open turn has ended.
    queued_prompts: usize,
    /// Position of the last stored event. A reader of events can begin after it.
    last_event: u64,
}

/// Shows a session.
#[utoipa::path(
    get, path = "/api/sessions/{session}", tag = "sessions", security(("token" = [])),
    params(("session" = String, Path, description = "Id of the session, with `/` written as `%2F`.")),
    responses(
        (status = 200, body = SessionDetails),
        ApiProblems,
    )
)]
pub(crate) async fn show_session(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(session): Path<String>,
) -> Result<Json<SessionDetails>, Problem> {
    caller.require(Right::Read)?;
    let summary = state.session(&caller, &session).await?;
    let run = state.store().snapshot(&session).await?.and_then(|snapshot| Run::restore(Some(&snapshot)).ok());
    let waits = run.as_ref().map(Run::waits).unwrap_or_default();
    Ok(Json(SessionDetails {
        waits: waits.into_iter().map(|wait| serde_json::to_value(wait).unwrap_or_default()).collect(),
        queued_prompts: run.as_ref().map_or(0, |run| run.queued_prompts.len()),
        last_event: run.as_ref().map_or(0, |run| run.sequence),
        session: summary.into(),
    }))
}

/// Deletes a session with all of its data, unless a turn of the session runs.
#[utoipa::path(
    delete, path = "/api/sessions/{session}", tag = "sessions", security(("token" = [])),
    params(("session" = String, Path, description = "Id of the session, with `/` written as `%2F`.")),
    responses(
        (status = 204, description = "The session and its data are deleted."),
        ApiProblems,
    )
)]
pub(crate) async fn delete_session(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(session): Path<String>,
) -> Result<StatusCode, Problem> {
    caller.require(Right::Administer)?;
    state.session(&caller, &session).await?;
    state.supervisor.delete(&session).await?;
    state.supervisor.end_session_grants(&session).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A page of messages.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MessageList {
    /// The messages, oldest first.
    messages: Vec<MessageItem>,
    /// The value of `after` with which the next page begins. `null` if there are no more messages.
    next: Option<u64>,
}

/// A message of a session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MessageItem {
    /// Id of the message in its session.
    id: u64,
    /// Number of the turn that appended the message.
    turn: u32,
    /// Author of the message: `user`, `assistant`, `tool` or `system`.
    #[schema(example = "assistant")]
    role: String,
    /// The parts of the message, without the parts that only the host and a provider see.
    #[schema(value_type = Vec<Object>)]
    parts: Vec<Value>,
}

impl From<StoredMessage> for MessageItem {
    fn from(message: StoredMessage) -> Self {
        let visible = message.parts.iter().filter(|part| !matches!(part, Part::Preface(_) | Part::Replay(_)));
        Self {
            id: message.id,
            turn: message.turn,
            role: message.role.as_str().to_owned(),
            parts: visible.map(|part| serde_json::to_value(part).unwrap_or_default()).collect(),
        }
    }
}

/// Selects messages.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct MessageQuery {
    /// Only messages after the message with this id. Default: 0, which means all messages.
    #[param(value_type = Option<u64>)]
    after: Option<MessageId>,
    /// Maximum number of messages, 1 to 500. Default: 50.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
}

/// Lists the messages of a session, including messages that were undone.
#[utoipa::path(
    get, path = "/api/sessions/{session}/messages", tag = "sessions", security(("token" = [])),
    params(("session" = String, Path, description = "Id of the session, with `/` written as `%2F`."), MessageQuery),
    responses(
        (status = 200, body = MessageList),
        ApiProblems,
    )
)]
pub(crate) async fn list_messages(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(session): Path<String>,
    query: Result<Query<MessageQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<MessageList>, Problem> {
    caller.require(Right::Read)?;
    let Query(query) = query.map_err(|error| Problem::invalid(error.body_text()))?;
    let limit = limit_of(query.limit)?;
    let after = query.after.unwrap_or_default();
    if i64::try_from(after).is_err() {
        return Err(Problem::invalid("`after` is too large"));
    }
    state.session(&caller, &session).await?;
    let messages = state.store().messages(&session, MessageRange::After { id: after, limit }).await?;
    // A page can end before its limit. Only an empty page means that there are no more messages.
    let next = messages.last().map(|message| message.id);
    Ok(Json(MessageList { messages: messages.into_iter().map(Into::into).collect(), next }))
}

/// A prompt for an existing session.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPrompt {
    /// The prompt.
    #[schema(min_length = 1, pattern = r"\S", example = "And how deep are they?")]
    prompt: String,
    /// Whether the prompt is added to the open turn before its next model call. Otherwise, it begins a turn after the open
    /// turn has ended. Default: `false`.
    #[serde(default)]
    steer: bool,
    /// The user for whom the turn works. Only tokens without a user may set this field.
    user: Option<String>,
    /// Images and other media items that belong to the prompt, 20 at most.
    #[serde(default)]
    #[schema(max_items = 20)]
    attachments: Vec<Attachment>,
}

/// What happened to a prompt.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AcceptedPrompt {
    /// `started` if a turn began, or `queued` if a turn was open.
    #[schema(example = "started")]
    status: &'static str,
    /// Number of the turn that began. `null` if the prompt was queued.
    turn: Option<u32>,
}

/// Sends a prompt to a session. The answer is sent after the prompt was stored.
///
/// The body has at most 32 MiB.
#[utoipa::path(
    post, path = "/api/sessions/{session}/prompts", tag = "sessions", security(("token" = [])),
    params(("session" = String, Path, description = "Id of the session, with `/` written as `%2F`.")),
    request_body = NewPrompt,
    responses(
        (status = 202, body = AcceptedPrompt),
        ApiProblems,
    )
)]
pub(crate) async fn send_prompt(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(session): Path<String>,
    request: Request,
) -> Result<(StatusCode, Json<AcceptedPrompt>), Problem> {
    caller.require(Right::Talk)?;
    let (new, _place): (NewPrompt, _) = state.media_body(&caller, request).await?;
    state.session(&caller, &session).await?;
    let (input, user) = (input_of(new.prompt)?, user_of(&caller, new.user)?);
    let during_turn = if new.steer { DuringTurn::Steer } else { DuringTurn::Queue };
    let attachments = decode_attachments(new.attachments).map_err(Problem::invalid)?;
    let prompt = Prompt { during_turn, user, attachments, trace: caller.trace, ..Prompt::new(input) };
    let accepted = match state.supervisor.send(&session, SessionRequest::Prompt(prompt)).await? {
        Accepted::Started { turn } => AcceptedPrompt { status: "started", turn: Some(turn) },
        _ => AcceptedPrompt { status: "queued", turn: None },
    };
    Ok((StatusCode::ACCEPTED, Json(accepted)))
}

/// Cancels the open turn of a session. Prompts that wait in its queue are dropped.
#[utoipa::path(
    post, path = "/api/sessions/{session}/cancel", tag = "sessions", security(("token" = [])),
    params(("session" = String, Path, description = "Id of the session, with `/` written as `%2F`.")),
    responses(
        (status = 204, description = "No turn of the session is open any more."),
        ApiProblems,
    )
)]
pub(crate) async fn cancel_turn(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(session): Path<String>,
) -> Result<StatusCode, Problem> {
    caller.require(Right::Talk)?;
    state.session(&caller, &session).await?;
    state.supervisor.send(&session, SessionRequest::Cancel).await?;
    Ok(StatusCode::NO_CONTENT)
}
