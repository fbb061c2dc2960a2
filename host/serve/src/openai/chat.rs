//! Chat completions: one request begins or continues a turn of an agent, and its answer is the agent's reply.

mod request;
mod stream;
mod text;

use super::client_tools::ClientCall;
use super::conversation::{ClientInput, Conversation};
use super::ending::{Ending, chat_usage};
use super::error::{ErrorBody, OpenAiError, add_session};
use super::models::check_model;
use super::turn::{self, FollowedTurn, OnDisconnect, Start, Step, session_of};
use crate::access::Caller;
use crate::state::ApiState;
use crate::tokens::Right;
use agent_core::tool::ClientTool;
use agent_runtime::TurnUpdate;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use request::ChatRequest;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use text::ReplyText;

/// Creates a chat completion: the agent's reply to the messages.
///
/// Without the header `X-Agent-Session`, the request begins a new session. With the header, it continues this session, and only
/// the messages after the last message of the assistant are new. Each answer has the header. With `stream`, the answer consists
/// of server-sent events. The agent's own tools run inside the host, and do not appear in the answer. The client can offer
/// functions in `tools`: their calls end the answer as `tool_calls`, and messages with the role `tool` continue the turn, with or
/// without the header. If the turn waits for a person or a service, the reply ends with a notice that names what it waits for.
#[utoipa::path(
    post, path = "/v1/chat/completions", tag = "openai", security(("token" = [])),
    params(("X-Agent-Session" = Option<String>, Header, description = "Id of the session to continue.")),
    request_body(content = Object, description = "A request of OpenAI's chat completions API, 32 MiB at most."),
    responses(
        (status = 200, content((Object = "application/json"), (String = "text/event-stream"))),
        (status = "4XX", body = ErrorBody),
        (status = "5XX", body = ErrorBody),
    )
)]
pub(crate) async fn create_chat_completion(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, OpenAiError> {
    caller.require(Right::Talk)?;
    // The answer contains what the agent wrote.
    caller.require(Right::Read)?;
    let session = session_of(request.headers())?;
    let (mut request, _place): (ChatRequest, _) = state.media_body(&caller, request).await?;
    request.check_parameters()?;
    check_model(&state, &caller, &request.model)?;
    let (conversation, tools) = (request.take_conversation()?, request.tools()?);
    let (start, on_disconnect) = start_of(&state, &caller, (&request.model, session), (conversation, tools)).await?;
    let followed = turn::start(&state, &caller, start, on_disconnect).await?;
    let completion = Completion::new(request.model);
    let session = followed.session.clone();
    let mut response = match request.stream.unwrap_or_default() {
        true => {
            let options = request.stream_options.unwrap_or_default();
            stream::response(followed, completion, options.include_usage.unwrap_or_default())
        }
        false => {
            let answer = whole_reply(followed, &completion).await.map_err(|error| error.in_session(&session))?;
            Json(answer).into_response()
        }
    };
    add_session(response.headers_mut(), &session);
    Ok(response)
}

/// Decides which session the request begins or continues. A client that names a session can find the result of the turn there,
/// so the turn continues if the client disconnects.
async fn start_of(
    state: &ApiState,
    caller: &Caller,
    (model, named): (&str, Option<String>),
    (mut conversation, tools): (Conversation, Vec<ClientTool>),
) -> Result<(Start, OnDisconnect), OpenAiError> {
    let results = conversation.take_results()?;
    if let (Some(named), Some(results)) = (&named, &results)
        && *named != results.session
    {
        let message = "the header `X-Agent-Session` names another session than the ids of the calls";
        return Err(OpenAiError::invalid("messages", message));
    }
    let Some(session) = results.as_ref().map(|results| results.session.clone()).or(named) else {
        let input = ClientInput { tools, ..conversation.into_first_input()? };
        return Ok((Start::NewSession { agent: model.to_owned(), input }, OnDisconnect::Cancel));
    };
    let found = state.session(caller, &session).await?;
    if found.agent != model {
        let message = format!("the session `{session}` belongs to the agent `{}`", found.agent);
        return Err(OpenAiError::invalid("model", message));
    }
    let start = match results {
        Some(results) => Start::TakeResults(results),
        None => Start::NextTurn { session, input: ClientInput { tools, ..conversation.into_next_input()? } },
    };
    Ok((start, OnDisconnect::Continue))
}

/// The parts of a completion that are the same in all of its chunks.
pub(super) struct Completion {
    id: String,
    created: u64,
    model: String,
}

impl Completion {
    fn new(model: String) -> Self {
        let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self { id: format!("chatcmpl-{}", uuid::Uuid::new_v4().simple()), created, model }
    }

    /// Returns an object of this kind with these choices.
    fn object(&self, kind: &str, choices: Value) -> Map<String, Value> {
        let Self { id, created, model } = self;
        let fields = [
            ("id", json!(id)),
            ("object", json!(kind)),
            ("created", json!(created)),
            ("model", json!(model)),
            ("choices", choices),
        ];
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// Returns a call of one of the client's tools.
fn tool_call(call: &ClientCall) -> Value {
    let ClientCall { id, name, arguments } = call;
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

/// Returns why the reply ends: the client must run these calls, or the reply is complete.
fn finish_reason(calls: &[ClientCall]) -> &'static str {
    if calls.is_empty() { "stop" } else { "tool_calls" }
}

/// Waits for the whole reply.
async fn whole_reply(mut followed: FollowedTurn, completion: &Completion) -> Result<Value, OpenAiError> {
    let (mut ending, mut text) = (Ending::default(), ReplyText::default());
    let mut waits = Vec::new();
    while let Some(step) = followed.next().await? {
        match step {
            Step::Update(update) => {
                if let TurnUpdate::Event(event) = &update {
                    ending.update(event);
                }
                text.update(update);
            }
            Step::Waits(open) => waits = open,
        }
    }
    if let Some(failure) = ending.failure() {
        return Err(failure);
    }
    let calls = followed.client_calls(&waits).await?;
    let content = match (waits.is_empty(), ending.reason()) {
        (false, _) if !calls.is_empty() => text.accepted().map_or(Value::Null, |text| json!(text)),
        (false, _) => json!(text.with_notice(&waits)),
        (true, Some(_)) => json!(followed.output().await?.unwrap_or_default()),
        (true, None) => {
            let message = "the turn ended early; the host's log contains the reason";
            return Err(OpenAiError::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", message).never_repeated());
        }
    };
    let mut message = json!({"role": "assistant", "content": content, "refusal": null});
    if !text.thinking().is_empty() {
        message["reasoning_content"] = json!(text.thinking());
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.iter().map(tool_call).collect();
    }
    let choices = json!([{"index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason(&calls)}]);
    let mut answer = completion.object("chat.completion", choices);
    answer.insert("usage".to_owned(), chat_usage(ending.usage()));
    Ok(Value::Object(answer))
}
