//! Responses: one request begins or continues a turn of an agent, and the response can be read and continued later.

mod builder;
mod id;
mod request;
mod stored;
mod stream;

use super::conversation::ClientInput;
use super::error::{ErrorBody, OpenAiError, add_session};
use super::models::check_model;
use super::turn::{self, FollowedTurn, OnDisconnect, Start, session_of, stored_run};
use crate::access::Caller;
use crate::problem::Problem;
use crate::state::ApiState;
use crate::tokens::Right;
use agent_core::tool::ClientTool;
use agent_runtime::SessionRequest;
use agent_store::StoreError;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use builder::{ResponseBuilder, ResponseHead};
use id::ResponseId;
use request::{ClientItems, ResponseRequest};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use stored::{StoredResponse, stored_response};
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};

/// Maximum time for which a deletion waits until the idle session is closed.
const DELETION_TIMEOUT: Duration = Duration::from_secs(15);
/// Time between two attempts to delete a session.
const DELETION_INTERVAL: Duration = Duration::from_millis(100);

/// Creates a response: the agent's reply to the input.
///
/// `previous_response_id`, or the header `X-Agent-Session`, continues a session. Otherwise, the request begins a new session. The
/// agent's own tools appear as items of the type `mcp_call`. The client can offer functions in `tools`: their calls end the response
/// as items of the type `function_call`, and items of the type `function_call_output` continue the turn. If the turn waits, the response is `incomplete`; calls that wait for
/// an approval appear as items of the type `mcp_approval_request`, and a token with the right `approve` can answer them with
/// items of the type `mcp_approval_response`.
#[utoipa::path(
    post, path = "/v1/responses", tag = "openai", security(("token" = [])),
    params(("X-Agent-Session" = Option<String>, Header, description = "Id of the session to continue.")),
    request_body(content = Object, description = "A request of OpenAI's responses API, 32 MiB at most."),
    responses(
        (status = 200, content((Object = "application/json"), (String = "text/event-stream"))),
        (status = "4XX", body = ErrorBody),
        (status = "5XX", body = ErrorBody),
    )
)]
pub(crate) async fn create_response(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, OpenAiError> {
    caller.require(Right::Talk)?;
    // The answer contains what the agent wrote.
    caller.require(Right::Read)?;
    let session = session_of(request.headers())?;
    let (mut request, _place): (ResponseRequest, _) = state.media_body(&caller, request).await?;
    request.check_parameters()?;
    check_model(&state, &caller, &request.model)?;
    let (is_background, is_stored) = (request.background.unwrap_or_default(), request.store.unwrap_or(true));
    if is_background && !is_stored {
        return Err(OpenAiError::invalid("background", "a response in the background must be stored"));
    }
    let (items, tools) = (request.take_items()?, request.tools()?);
    let of_results = match &items {
        ClientItems::Results(results) => Some(results.session.clone()),
        _ => None,
    };
    let place = place_to_continue(&state, &caller, &request, [session, of_results]).await?;
    let keeps_running = is_background || place.is_some();
    let on_disconnect = if keeps_running { OnDisconnect::Continue } else { OnDisconnect::Cancel };
    let start = start_of(&request.model, place, (items, tools))?;
    let followed = turn::start(&state, &caller, start, on_disconnect).await?;
    let session = followed.session.clone();
    let builder = builder_of(&followed, request.model, (request.previous_response_id, is_stored, is_background));
    let mut response = match (request.stream.unwrap_or_default(), is_background) {
        (true, _) => stream::response(followed, builder),
        (false, true) => Json(builder.response()).into_response(),
        (false, false) => {
            let whole = stream::whole_response(followed, builder).await;
            Json(whole.map_err(|error| error.in_session(&session))?).into_response()
        }
    };
    add_session(response.headers_mut(), &session);
    Ok(response)
}

/// Where a request continues a session.
struct Place {
    session: String,
    /// The turn of the previous response. `None` if the request names no response.
    after_turn: Option<u32>,
}

/// Returns where the request continues a session. `None` if it begins a new session. `named` are the session in the header and
/// the session of the results.
async fn place_to_continue(
    state: &ApiState,
    caller: &Caller,
    request: &ResponseRequest,
    named: [Option<String>; 2],
) -> Result<Option<Place>, OpenAiError> {
    let mut named = named.into_iter().flatten();
    let (found, after_turn) = match (&request.previous_response_id, named.next()) {
        (None, None) => return Ok(None),
        (None, Some(named)) => (state.session(caller, &named).await?, None),
        (Some(previous), first) => {
            let previous = stored_response(state, caller, previous).await;
            let previous = previous.map_err(|error| error.about("previous_response_id"))?;
            if first.is_some_and(|first| first != previous.session.subject) {
                let message = "the previous response belongs to another session than the header or the results";
                return Err(OpenAiError::invalid("previous_response_id", message));
            }
            previous.check_is_last(state).await?;
            (previous.session, Some(previous.id.turn))
        }
    };
    if named.any(|other| other != found.subject) {
        let message = "the header `X-Agent-Session` names another session than the ids of the calls";
        return Err(OpenAiError::invalid("input", message));
    }
    if found.agent != request.model {
        let message = format!("the session `{}` belongs to the agent `{}`", found.subject, found.agent);
        return Err(OpenAiError::invalid("model", message));
    }
    Ok(Some(Place { session: found.subject, after_turn }))
}

fn start_of(
    model: &str,
    place: Option<Place>,
    (items, tools): (ClientItems, Vec<ClientTool>),
) -> Result<Start, OpenAiError> {
    match (place, items) {
        (None, ClientItems::Messages(messages)) => {
            let input = ClientInput { tools, ..messages.into_first_input()? };
            Ok(Start::NewSession { agent: model.to_owned(), input })
        }
        (Some(Place { session, after_turn }), ClientItems::Messages(messages)) => {
            let input = ClientInput { tools, after_turn, ..messages.into_next_input()? };
            Ok(Start::NextTurn { session, input })
        }
        (_, ClientItems::Results(results)) => Ok(Start::TakeResults(results)),
        (Some(Place { session, .. }), ClientItems::Decisions(decisions)) => Ok(Start::Decide { session, decisions }),
        (None, ClientItems::Decisions(_)) => {
            let message = "a decision about a call needs `previous_response_id`";
            Err(OpenAiError::invalid("previous_response_id", message))
        }
    }
}

fn builder_of(
    followed: &FollowedTurn,
    model: String,
    (previous_response_id, is_stored, is_background): (Option<String>, bool, bool),
) -> ResponseBuilder {
    let (session, turn, first_event) = (followed.session.clone(), followed.turn, followed.first_event);
    let id = ResponseId { session, turn, first_event };
    let created_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    // No request can use the id of a response that the client does not want to be stored.
    let unstored = || format!("resp_unstored_{}", uuid::Uuid::new_v4().simple());
    let visible = if is_stored { id.encode() } else { unstored() };
    let head = ResponseHead { id: visible, created_at, model, previous_response_id, is_stored, is_background };
    ResponseBuilder::new(head, &id)
}

/// Options for reading a response. Other options are ignored.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ResponseQuery {
    /// Whether the response is sent as server-sent events, from its beginning to its end. Default: `false`.
    stream: Option<bool>,
    /// Must be absent: pieces of text are not stored, so a stream cannot begin after one of them.
    starting_after: Option<u64>,
}

/// Shows a response. A response whose turn still works has the status `in_progress`, or is followed as a stream. Thinking is not
/// stored.
#[utoipa::path(
    get, path = "/v1/responses/{id}", tag = "openai", security(("token" = [])),
    params(("id" = String, Path, description = "Id of the response."), ResponseQuery),
    responses(
        (status = 200, content((Object = "application/json"), (String = "text/event-stream"))),
        (status = "4XX", body = ErrorBody),
        (status = "5XX", body = ErrorBody),
    )
)]
pub(crate) async fn show_response(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    query: Result<Query<ResponseQuery>, QueryRejection>,
) -> Result<Response, OpenAiError> {
    caller.require(Right::Read)?;
    let Query(query) = query.map_err(|error| OpenAiError::invalid("stream", error.body_text()))?;
    if query.starting_after.is_some() {
        let message = "a stream of a response begins at its beginning; omit `starting_after`";
        return Err(OpenAiError::unsupported("starting_after", message));
    }
    let stored = stored_response(&state, &caller, &id).await?;
    let session = stored.session.subject.clone();
    let mut response = match query.stream.unwrap_or_default() {
        false => Json(stored.response).into_response(),
        true => {
            let StoredResponse { id: place, head, .. } = stored;
            let followed = turn::follow(&state, &caller, session.clone(), (place.turn, place.first_event))?;
            stream::response(followed, ResponseBuilder::new(head, &place))
        }
    };
    add_session(response.headers_mut(), &session);
    Ok(response)
}

/// A response that was deleted.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeletedResponse {
    id: String,
    /// Always `response`.
    object: &'static str,
    /// Always `true`.
    deleted: bool,
}

/// Deletes a response together with its session.
///
/// The host deletes only whole sessions, so the response must be the only turn of its session.
#[utoipa::path(
    delete, path = "/v1/responses/{id}", tag = "openai", security(("token" = [])),
    params(("id" = String, Path, description = "Id of the response.")),
    responses(
        (status = 200, body = DeletedResponse),
        (status = "4XX", body = ErrorBody),
        (status = "5XX", body = ErrorBody),
    )
)]
pub(crate) async fn delete_response(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Json<DeletedResponse>, OpenAiError> {
    caller.require(Right::Administer)?;
    let stored = stored_response(&state, &caller, &id).await?;
    let subject = &stored.session.subject;
    let conflict =
        |message: String| Err(OpenAiError::new(StatusCode::CONFLICT, "conflict", message).in_session(subject));
    if stored.session.turns > 1 {
        return conflict(format!(
            "the session `{subject}` has more turns than this response; to delete all of them, delete the session with \
             `DELETE /api/sessions/SESSION`"
        ));
    }
    let run = stored_run(state.store(), subject).await?;
    if run.is_some_and(|run| run.is_open()) {
        return conflict("the turn of this response is open; cancel it first".to_owned());
    }
    let until = Instant::now() + DELETION_TIMEOUT;
    loop {
        match state.store().delete(subject).await {
            Ok(_) => break,
            // An idle session is closed after a few seconds.
            Err(StoreError::Busy { .. }) if Instant::now() < until => tokio::time::sleep(DELETION_INTERVAL).await,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Json(DeletedResponse { id, object: "response", deleted: true }))
}

/// Cancels the turn of a response. If the turn has ended, nothing changes.
#[utoipa::path(
    post, path = "/v1/responses/{id}/cancel", tag = "openai", security(("token" = [])),
    params(("id" = String, Path, description = "Id of the response.")),
    responses(
        (status = 200, body = Object),
        (status = "4XX", body = ErrorBody),
        (status = "5XX", body = ErrorBody),
    )
)]
pub(crate) async fn cancel_response(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response, OpenAiError> {
    caller.require(Right::Talk)?;
    caller.require(Right::Read)?;
    let mut stored = stored_response(&state, &caller, &id).await?;
    let subject = stored.session.subject.clone();
    let run = stored_run(state.store(), &subject).await?;
    if run.is_some_and(|run| run.turns == stored.id.turn && run.is_open()) {
        state.supervisor.send(&subject, SessionRequest::Cancel).await.map_err(Problem::from)?;
        stored = stored_response(&state, &caller, &id).await?;
    }
    let mut response = Json(stored.response).into_response();
    add_session(response.headers_mut(), &subject);
    Ok(response)
}
