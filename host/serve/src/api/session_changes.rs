//! Routes that change or copy a session as a whole: undo, retry, fork and export.

use crate::access::Caller;
use crate::body::{JsonBody, SMALL_BYTES};
use crate::problem::{ApiProblems, Problem};
use crate::state::ApiState;
use crate::tokens::Right;
use agent_core::message::{MessageId, Part, Role, TurnInput};
use agent_core::run::Run;
use agent_runtime::transfer::ForkAt;
use agent_runtime::{Accepted, DuringTurn, Prompt, RequestError, SessionRequest, Supervisor};
use agent_store::{MessageRange, Store};
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, DuplexStream};
use tokio::task::JoinHandle;
use utoipa::ToSchema;

/// Number of bytes of an exported session that are in memory at the same time.
const EXPORT_BUFFER: usize = 64 << 10;

/// Undoes the last turn of a session.
///
/// The model no longer sees the turn, whose messages stay stored. What tools changed is not undone.
#[utoipa::path(
    post, path = "/api/sessions/{session}/undo", tag = "sessions", security(("token" = [])),
    params(("session" = String, Path, description = "Id of the session, with `/` written as `%2F`.")),
    responses((status = 204, description = "The last turn is undone."), ApiProblems)
)]
pub(crate) async fn undo_turn(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(session): Path<String>,
) -> Result<StatusCode, Problem> {
    caller.require(Right::Talk)?;
    state.session(&caller, &session).await?;
    state.supervisor.send(&session, SessionRequest::Undo).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A turn that began again.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RetriedTurn {
    /// Number of the new turn.
    turn: u32,
}

/// Undoes the last turn of a session, and begins a turn with the same prompt and attachments.
#[utoipa::path(
    post, path = "/api/sessions/{session}/retry", tag = "sessions", security(("token" = [])),
    params(("session" = String, Path, description = "Id of the session, with `/` written as `%2F`.")),
    responses((status = 202, body = RetriedTurn), ApiProblems)
)]
pub(crate) async fn retry_turn(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(session): Path<String>,
) -> Result<(StatusCode, Json<RetriedTurn>), Problem> {
    caller.require(Right::Talk)?;
    state.session(&caller, &session).await?;
    let conflict = |detail: &str| Problem::new(StatusCode::CONFLICT, "conflict", detail);
    let snapshot = state.store().snapshot(&session).await?;
    let run = snapshot.and_then(|snapshot| Run::restore(Some(&snapshot)).ok());
    let run = run.ok_or_else(|| conflict("the session has no turn"))?;
    let input = last_input(state.store(), &run).await?;
    let input = input.ok_or_else(|| conflict("the last turn has no prompt that could be sent again"))?;
    state.supervisor.send(&session, SessionRequest::Undo).await?;
    let prompt = Prompt {
        during_turn: DuringTurn::Refuse,
        after_turn: Some(run.turns),
        trace: caller.trace.clone(),
        ..Prompt::new(input)
    };
    match state.supervisor.send(&session, SessionRequest::Prompt(prompt)).await? {
        Accepted::Started { turn } => Ok((StatusCode::ACCEPTED, Json(RetriedTurn { turn }))),
        _ => Err(conflict("another turn began at the same time")),
    }
}

/// Number of messages that are read at once.
const MESSAGES_PER_PAGE: usize = 100;

/// Returns the input of the last turn, which is its first message of a user.
async fn last_input(store: &dyn Store, run: &Run) -> Result<Option<TurnInput>, Problem> {
    // The snapshot does not contain the view, so the messages are read from the last one backwards.
    let (mut end, mut first) = (run.next_message, None);
    'pages: while end > 1 {
        let after = end.saturating_sub(MESSAGES_PER_PAGE as u64 + 1);
        let page = store.messages(&run.session, MessageRange::After { id: after, limit: MESSAGES_PER_PAGE }).await?;
        for message in page.into_iter().rev().skip_while(|message| message.id >= end) {
            if message.turn < run.turns {
                break 'pages;
            }
            if message.role == Role::User {
                first = Some(message);
            }
        }
        end = after + 1;
    }
    let Some(message) = first else { return Ok(None) };
    // A turn that was undone is not the last turn any more.
    let hidden = store.hidden(&run.session, message.id.saturating_sub(1), 1).await?;
    if hidden.iter().any(|hidden| hidden.id == message.id) {
        return Ok(None);
    }
    let mut parts: Vec<Part> = message
        .parts
        .into_iter()
        .filter(|part| matches!(part, Part::Text(_) | Part::Json(_) | Part::Media(_)))
        .collect();
    Ok(match parts.as_mut_slice() {
        [] => None,
        [Part::Text(text)] => Some(TurnInput::Text(std::mem::take(text))),
        _ => Some(TurnInput::Message(parts)),
    })
}

/// Where a session is forked.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForkPlace {
    /// Id of the last message that the copy contains. If the message contains calls, their results are copied, too. Default: the
    /// last message whose calls all have results.
    #[serde(default)]
    message: Option<MessageId>,
}

/// A copy of a session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ForkedSession {
    /// Id of the new session.
    session: String,
    /// Number of messages that were copied.
    messages: u64,
}

/// Copies a session up to a message into a new session. The session itself does not change.
#[utoipa::path(
    post, path = "/api/sessions/{session}/forks", tag = "sessions", security(("token" = [])), request_body = ForkPlace,
    params(("session" = String, Path, description = "Id of the session, with `/` written as `%2F`.")),
    responses((status = 201, body = ForkedSession), ApiProblems)
)]
pub(crate) async fn fork_session(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(session): Path<String>,
    JsonBody(ForkPlace { message }): JsonBody<ForkPlace, SMALL_BYTES>,
) -> Result<(StatusCode, Json<ForkedSession>), Problem> {
    caller.require(Right::Talk)?;
    state.session(&caller, &session).await?;
    let at = message.map_or(ForkAt::Last, ForkAt::Message);
    let forked = state.supervisor.fork(&session, at).await?;
    Ok((StatusCode::CREATED, Json(ForkedSession { session: forked.session, messages: forked.messages })))
}

/// Exports a session with its messages, calls, events, records and media as one JSON document.
///
/// The right `administer` is needed, because the document contains the prompts, with the operator's instructions.
/// `agent-host session import` reads the document. A session whose turn runs cannot be exported.
#[utoipa::path(
    get, path = "/api/sessions/{session}/export", tag = "sessions", security(("token" = [])),
    params(("session" = String, Path, description = "Id of the session, with `/` written as `%2F`.")),
    responses(
        (status = 200, body = Object, description = "The document."),
        ApiProblems,
    )
)]
pub(crate) async fn export_session(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(session): Path<String>,
) -> Result<Response, Problem> {
    caller.require(Right::Administer)?;
    state.session(&caller, &session).await?;
    let (mut output, mut input) = tokio::io::duplex(EXPORT_BUFFER);
    let (supervisor, exported): (Supervisor, String) = (state.supervisor.clone(), session.clone());
    let task = tokio::spawn(async move { supervisor.export(&exported, &mut output).await });
    // The first piece arrives after everything that can refuse the export.
    let mut first = vec![0; EXPORT_BUFFER];
    let read = input.read(&mut first).await.unwrap_or(0);
    first.truncate(read);
    if read == 0 {
        let failed = || Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", "the session was not exported");
        return Err(match task.await {
            Ok(Err(error)) => error.into(),
            _ => failed(),
        });
    }
    let name = session.replace(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-', "-");
    let disposition = HeaderValue::from_str(&format!("attachment; filename=\"{name}.json\""))
        .unwrap_or_else(|_| HeaderValue::from_static("attachment"));
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::CONTENT_DISPOSITION, disposition),
    ];
    Ok((headers, Body::from_stream(pieces(first, input, task))).into_response())
}

/// Returns the pieces of a document. If the export fails, the answer ends with an error, so that no reader takes it for complete.
fn pieces(
    first: Vec<u8>,
    input: DuplexStream,
    task: JoinHandle<Result<(), RequestError>>,
) -> impl futures::Stream<Item = std::io::Result<Vec<u8>>> {
    let state = (Some(first), input, Some(task));
    futures::stream::try_unfold(state, |(first, mut input, task)| async move {
        if let Some(first) = first {
            return Ok(Some((first, (None, input, task))));
        }
        let Some(task) = task else { return Ok(None) };
        let mut piece = vec![0; EXPORT_BUFFER];
        let read = input.read(&mut piece).await?;
        if read > 0 {
            piece.truncate(read);
            return Ok(Some((piece, (None, input, Some(task)))));
        }
        match task.await {
            Ok(Ok(())) => Ok(None),
            ended => {
                tracing::error!(?ended, "a session was not exported completely");
                Err(std::io::Error::other("the session was not exported completely"))
            }
        }
    })
}
