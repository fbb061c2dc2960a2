//! Webhooks: requests of other programs that begin sessions (I9).

use super::sessions::user_of;
use crate::access::{Caller, single};
use crate::body::read;
use crate::problem::{ApiProblems, Problem};
use crate::state::ApiState;
use crate::tokens::Right;
use agent_core::cloud_event::{CloudEvent, MAX_EVENT_BYTES};
use agent_core::message::{Part, TurnInput};
use agent_core::plugin::TraceContext;
use agent_runtime::{Prompt, SessionKind, SessionName, SignedMessage, SigningKey, Webhook, WebhookAuthentication};
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::{Extension, Json};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use utoipa::ToSchema;
use uuid::Uuid;

/// Beginning of the paths of webhooks. A request to a webhook may have a signature instead of a token.
pub(super) const WEBHOOK_PATH: &str = "/webhooks/";

/// What the server did with a request to a webhook.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookReceipt {
    /// `started` if the request began a session, or `duplicate` if an earlier request with the same id has begun it.
    #[schema(example = "started")]
    status: &'static str,
    /// Id of the session.
    session: String,
}

/// Begins a session with the data of a request.
///
/// The body is JSON, or a CloudEvent in structured or binary mode. The request is authenticated with a token, or with a
/// signature if the webhook is configured with a key.
#[utoipa::path(
    post, path = "/webhooks/{agent}/{webhook}", tag = "webhooks", security(("token" = []), ()),
    params(
        ("agent" = String, Path, description = "The name of the agent."),
        ("webhook" = String, Path, description = "The name of the webhook in the agent's configuration."),
    ),
    request_body(content = Object, description = "JSON data, or a CloudEvent."),
    responses(
        (status = 202, body = WebhookReceipt, description = "The session exists, and the data is stored."),
        ApiProblems,
    )
)]
pub(crate) async fn receive_webhook(
    State(state): State<Arc<ApiState>>,
    caller: Option<Extension<Caller>>,
    Path((agent, name)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<WebhookReceipt>), Problem> {
    let caller = caller.map(|Extension(caller)| caller);
    let webhook = find(&state, caller.as_ref(), (&agent, &name))?;
    // The body is read first, so that a sender without a token does not learn from the time of the answer which webhooks exist.
    let body = read(body, MAX_EVENT_BYTES).await?;
    let webhook = webhook.ok_or_else(unauthenticated)?;
    let id = authenticate(&webhook, caller.as_ref(), &headers, &body)?;
    let request = read_request(&headers, &body)?;
    let input = match &webhook.prompt {
        None => TurnInput::Json(request.data),
        Some(prompt) => TurnInput::Message(vec![Part::Text(prompt.to_string()), Part::Json(request.data)]),
    };
    let user = match &caller {
        Some(caller) => user_of(caller, webhook.user.as_ref().map(|user| user.as_str().to_owned()))?,
        None => webhook.user.clone(),
    };
    let prompt = Prompt { user, trace: request.trace, ..Prompt::new(input) };
    // The name of the session also says that nobody waits for its turn.
    let id = id.or(request.id).unwrap_or_else(|| Uuid::new_v4().to_string());
    let unique = SessionName::new(SessionKind::Webhook, &format!("{name}\0{id}"));
    let (session, is_new) = state.supervisor.create_once(&agent, &unique, prompt).await?;
    if is_new {
        state.note_webhook_run(&agent, &name, &session);
    }
    let status = if is_new { "started" } else { "duplicate" };
    Ok((StatusCode::ACCEPTED, Json(WebhookReceipt { status, session })))
}

/// Returns the webhook, or `None` if it does not accept requests without a token. A sender without a token does not learn
/// which webhooks exist.
fn find(state: &ApiState, caller: Option<&Caller>, (agent, name): (&str, &str)) -> Result<Option<Webhook>, Problem> {
    if let Some(caller) = caller {
        caller.require(Right::Talk)?;
        state.check_agent(caller, agent)?;
    }
    let found = state.supervisor.agents().get(agent);
    let found = found.and_then(|agent| agent.current().config().webhooks.get(name).cloned());
    match caller {
        Some(_) if found.is_none() => Err(Problem::not_found(format!("the agent `{agent}` has no webhook `{name}`"))),
        Some(_) => Ok(found),
        None => Ok(found.filter(|webhook| webhook.authentication != WebhookAuthentication::Token)),
    }
}

fn unauthenticated() -> Problem {
    let detail = "send a token in the header `Authorization: Bearer TOKEN`, or a valid signature";
    Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
}

/// Checks the signature of a request, unless the request has a token. Returns the id that the signature covers.
fn authenticate(
    webhook: &Webhook,
    caller: Option<&Caller>,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Option<String>, Problem> {
    if caller.is_some() {
        return Ok(single(headers, "webhook-id")?.map(|id| format!("webhook-id {id}")));
    }
    match &webhook.authentication {
        WebhookAuthentication::Token => Err(unauthenticated()),
        WebhookAuthentication::Standard(key) => standard_id(key, headers, body).map(Some),
        WebhookAuthentication::Hub(key) => {
            let signature = single(headers, "x-hub-signature-256")?.ok_or_else(unauthenticated)?;
            key.verify_hub(body, signature).map_err(|_| unauthenticated())?;
            // The header with the id of the delivery is not signed, so the body identifies the request.
            Ok(Some(format!("body {}", blake3::hash(body).to_hex())))
        }
    }
}

/// Checks a signature of the Standard Webhooks specification, and returns the id of the message.
fn standard_id(key: &SigningKey, headers: &HeaderMap, body: &[u8]) -> Result<String, Problem> {
    let required = |name| single(headers, name)?.ok_or_else(unauthenticated);
    let (id, signature) = (required("webhook-id")?, required("webhook-signature")?);
    let timestamp = required("webhook-timestamp")?.parse().map_err(|_| unauthenticated())?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    key.verify(SignedMessage { id, timestamp, body }, signature, now).map_err(|error| {
        let detail = format!("the signature is not accepted: {error}");
        Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
    })?;
    Ok(format!("webhook-id {id}"))
}

/// The content of a request.
struct WebhookRequest {
    data: Value,
    /// Id of a CloudEvent.
    id: Option<String>,
    trace: Option<TraceContext>,
}

fn read_request(headers: &HeaderMap, body: &[u8]) -> Result<WebhookRequest, Problem> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let trace_of =
        |traceparent: Option<String>, tracestate| Some(TraceContext { traceparent: traceparent?, tracestate });
    if essence == "application/cloudevents+json" {
        let event = CloudEvent::parse(body).map_err(Problem::invalid)?;
        let trace = trace_of(event.traceparent, event.tracestate);
        let id = Some(format!("event {}\0{}", event.source, event.id));
        return Ok(WebhookRequest { data: event.data.unwrap_or(Value::Null), id, trace });
    }
    if !(essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))) {
        let detail = "the body must be JSON, with the header `Content-Type: application/json`";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", detail));
    }
    let data = serde_json::from_slice(body).map_err(|error| {
        Problem::new(StatusCode::BAD_REQUEST, "bad_json", format!("the body cannot be read: {error}"))
    })?;
    let text = |name| Ok::<_, Problem>(single(headers, name)?.map(str::to_owned));
    let id = text("ce-id")?.zip(text("ce-source")?).map(|(id, source)| format!("event {source}\0{id}"));
    let traceparent = text("traceparent")?.or(text("ce-traceparent")?);
    Ok(WebhookRequest { data, id, trace: trace_of(traceparent, text("tracestate")?) })
}
