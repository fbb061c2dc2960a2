//! Routes for what a turn waits for: approvals, questions, calls with an unknown outcome, and services.

use crate::access::Caller;
use crate::body::{JsonBody, PROMPT_BYTES, SMALL_BYTES, read};
use crate::problem::{ApiProblems, Problem};
use crate::state::ApiState;
use crate::tokens::Right;
use agent_core::approval::GrantScope;
use agent_core::cloud_event::{CloudEvent, EventError};
use agent_core::message::CallId;
use agent_core::run::Decision;
use agent_runtime::approvals::APPROVAL_RESOLVED;
use agent_runtime::{Accepted, ApprovalDecision, ProposedChange, SessionRequest, Verdict};
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use utoipa::ToSchema;

/// What the turn still waits for after an answer was stored.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StoredAnswer {
    /// `stored`, `duplicate` if the call already had this answer, or `late` if the call already had another result.
    #[schema(example = "stored")]
    status: &'static str,
    /// Violations of the answer's schema. If the list is not empty, the model receives an error instead of the answer.
    #[schema(value_type = Vec<Object>)]
    violations: Vec<Value>,
    /// What the turn still waits for.
    #[schema(value_type = Vec<Object>)]
    waits: Vec<Value>,
}

impl From<Accepted> for StoredAnswer {
    fn from(accepted: Accepted) -> Self {
        let (status, violations, waits) = match accepted {
            Accepted::Duplicate => ("duplicate", Vec::new(), Vec::new()),
            Accepted::Late => ("late", Vec::new(), Vec::new()),
            Accepted::Stored { violations, waits } => ("stored", as_json(&violations), as_json(&waits)),
            _ => ("stored", Vec::new(), Vec::new()),
        };
        Self { status, violations, waits }
    }
}

fn as_json(values: &[impl Serialize]) -> Vec<Value> {
    values.iter().map(|value| serde_json::to_value(value).unwrap_or_default()).collect()
}

/// Decisions about calls that wait for an approval.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApprovalDecisions {
    /// The decisions. Either all of them are stored, or none.
    #[schema(min_items = 1)]
    decisions: Vec<CallDecision>,
}

/// A decision about one call.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "verdict", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum CallDecision {
    /// The call may run.
    Granted {
        /// Id of the call.
        call: String,
        /// For how long the approval is valid: `once`, `session` or `always`. Default: `once`.
        #[serde(default)]
        #[schema(value_type = String, example = "once")]
        scope: GrantScope,
        /// Changed arguments, which are used instead of the arguments of the model.
        #[serde(default)]
        #[schema(value_type = Option<Object>)]
        arguments: Option<Value>,
    },
    /// The call must not run.
    Denied {
        /// Id of the call.
        call: String,
        /// The reason, which the model receives.
        #[serde(default)]
        reason: Option<String>,
    },
}

impl From<CallDecision> for ApprovalDecision {
    fn from(decision: CallDecision) -> Self {
        match decision {
            CallDecision::Granted { call, scope, arguments } => {
                Self { call: CallId(call), verdict: Verdict::Allow { scope, edited: arguments } }
            }
            CallDecision::Denied { call, reason } => Self { call: CallId(call), verdict: Verdict::Deny { reason } },
        }
    }
}

/// Decides about calls that wait for an approval.
#[utoipa::path(
    post, path = "/api/sessions/{session}/approvals", tag = "answers", security(("token" = [])),
    params(("session" = String, Path, description = "Id of the session, with `/` written as `%2F`.")),
    request_body = ApprovalDecisions,
    responses(
        (status = 200, body = StoredAnswer),
        ApiProblems,
    )
)]
pub(crate) async fn decide_approvals(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(session): Path<String>,
    JsonBody(ApprovalDecisions { decisions }): JsonBody<ApprovalDecisions, SMALL_BYTES>,
) -> Result<Json<StoredAnswer>, Problem> {
    caller.require(Right::Approve)?;
    state.session(&caller, &session).await?;
    if decisions.is_empty() {
        return Err(Problem::invalid("the list of decisions is empty"));
    }
    let request = SessionRequest::Approve(decisions.into_iter().map(Into::into).collect());
    Ok(Json(state.supervisor.send(&session, request).await?.into()))
}

/// The call to rehearse.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RehearsedCall {
    /// Id of a call that waits for an approval.
    call: String,
}

/// The changes to files that a call would make.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProposedChanges {
    /// The changes, in the order of the files' paths. The list is empty if the call changes no text files, or if it cannot be
    /// run on copies of its files.
    changes: Vec<ProposedFileChange>,
}

/// A change to a text file.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProposedFileChange {
    /// Path of the file on the host.
    #[schema(example = "/srv/docs/poem.md")]
    path: String,
    /// The present content, or null if the file does not exist.
    old: Option<String>,
    /// The content after the call, or null if the call removes the file.
    new: Option<String>,
}

impl From<ProposedChange> for ProposedFileChange {
    fn from(ProposedChange { path, old, new }: ProposedChange) -> Self {
        Self { path: path.to_string_lossy().into_owned(), old, new }
    }
}

/// Shows the changes to files that a call would make, before it is approved.
///
/// The host runs the call on copies of its files, without network, stored values or model. Nothing is changed.
#[utoipa::path(
    post, path = "/api/sessions/{session}/rehearsals", tag = "answers", security(("token" = [])),
    params(("session" = String, Path, description = "Id of the session, with `/` written as `%2F`.")),
    request_body = RehearsedCall,
    responses(
        (status = 200, body = ProposedChanges),
        ApiProblems,
    )
)]
pub(crate) async fn rehearse_call(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(session): Path<String>,
    JsonBody(RehearsedCall { call }): JsonBody<RehearsedCall, SMALL_BYTES>,
) -> Result<Json<ProposedChanges>, Problem> {
    caller.require(Right::Approve)?;
    state.session(&caller, &session).await?;
    let changes = match state.supervisor.send(&session, SessionRequest::Rehearse { call: CallId(call) }).await? {
        Accepted::Rehearsed { changes } => changes,
        _ => Vec::new(),
    };
    Ok(Json(ProposedChanges { changes: changes.into_iter().map(Into::into).collect() }))
}

/// The answer to a question of the model.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuestionAnswer {
    /// Id of the call that asked the question.
    call: String,
    /// The answer.
    text: String,
}

/// Answers a question of the model.
#[utoipa::path(
    post, path = "/api/sessions/{session}/answers", tag = "answers", security(("token" = [])),
    params(("session" = String, Path, description = "Id of the session, with `/` written as `%2F`.")),
    request_body = QuestionAnswer,
    responses(
        (status = 200, body = StoredAnswer),
        ApiProblems,
    )
)]
pub(crate) async fn answer_question(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(session): Path<String>,
    JsonBody(QuestionAnswer { call, text }): JsonBody<QuestionAnswer, SMALL_BYTES>,
) -> Result<Json<StoredAnswer>, Problem> {
    caller.require(Right::Talk)?;
    state.session(&caller, &session).await?;
    let request = SessionRequest::Answer { call: CallId(call), text };
    Ok(Json(state.supervisor.send(&session, request).await?.into()))
}

/// A decision about a call whose outcome is unknown, because the host stopped while the call was running.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "decision", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum CallResolution {
    /// Run the call again.
    Retry {
        /// Id of the call.
        call: String,
    },
    /// The call has failed with this message.
    Failed {
        /// Id of the call.
        call: String,
        /// The error, which the model receives.
        text: String,
    },
    /// The call has this result.
    Result {
        /// Id of the call.
        call: String,
        /// The result, which the model receives.
        text: String,
    },
}

/// Decides about a call whose outcome is unknown.
#[utoipa::path(
    post, path = "/api/sessions/{session}/resolutions", tag = "answers", security(("token" = [])),
    params(("session" = String, Path, description = "Id of the session, with `/` written as `%2F`.")),
    request_body = CallResolution,
    responses(
        (status = 200, body = StoredAnswer),
        ApiProblems,
    )
)]
pub(crate) async fn resolve_call(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(session): Path<String>,
    JsonBody(resolution): JsonBody<CallResolution, SMALL_BYTES>,
) -> Result<Json<StoredAnswer>, Problem> {
    caller.require(Right::Approve)?;
    state.session(&caller, &session).await?;
    let (call, decision) = match resolution {
        CallResolution::Retry { call } => (call, Decision::Retry),
        CallResolution::Failed { call, text } => (call, Decision::Failed(text)),
        CallResolution::Result { call, text } => (call, Decision::Result(text)),
    };
    let request = SessionRequest::Resolve { call: CallId(call), decision };
    Ok(Json(state.supervisor.send(&session, request).await?.into()))
}

/// Receives a CloudEvent: the answer of a service, or the answer to an approval request.
///
/// The event has the JSON format (`application/cloudevents+json`) or the binary format (headers that begin with `ce-`).
/// Its `subject` names the session, and its `parentid` is the id of the request that it answers.
#[utoipa::path(
    post, path = "/api/events", tag = "answers", security(("token" = [])),
    request_body(content = Object, content_type = "application/cloudevents+json"),
    responses(
        (status = 200, body = StoredAnswer),
        ApiProblems,
    )
)]
pub(crate) async fn receive_event(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<StoredAnswer>, Problem> {
    let event = event_of(&headers, &read(body, PROMPT_BYTES).await?)?;
    let is_approval = event.event_type == APPROVAL_RESOLVED.as_str();
    caller.require(if is_approval { Right::Approve } else { Right::Talk })?;
    let session =
        event.subject.clone().ok_or_else(|| Problem::invalid("the event has no `subject`; set it to the session"))?;
    state.session(&caller, &session).await?;
    let answer = state.supervisor.send(&session, SessionRequest::Respond(Box::new(event))).await?;
    Ok(Json(answer.into()))
}

/// Reads an event in the JSON format or in the binary format of CloudEvents over HTTP.
fn event_of(headers: &HeaderMap, body: &[u8]) -> Result<CloudEvent, Problem> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let content_type = text(header::CONTENT_TYPE.as_str()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let invalid = |error: EventError| Problem::invalid(error);
    if essence == "application/cloudevents+json" {
        return CloudEvent::parse(body).map_err(invalid);
    }
    if text("ce-specversion").is_none() {
        let detail = "send a CloudEvent: `Content-Type: application/cloudevents+json`, or headers such as `ce-type`";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_an_event", detail));
    }
    let mut event = Map::new();
    for (name, value) in headers {
        let Some(attribute) = name.as_str().strip_prefix("ce-") else { continue };
        let value = value.to_str().map_err(|_| Problem::invalid(format!("the header `{name}` is not text")))?;
        event.insert(attribute.to_owned(), Value::String(value.to_owned()));
    }
    if !body.is_empty() {
        let data = match essence.as_str() {
            "application/json" => serde_json::from_slice(body)
                .map_err(|error| Problem::invalid(format!("the data of the event is not JSON: {error}")))?,
            _ => {
                let text = String::from_utf8(body.to_vec());
                Value::String(text.map_err(|_| Problem::invalid("the data of the event is neither JSON nor text"))?)
            }
        };
        event.insert("data".to_owned(), data);
    }
    CloudEvent::parse(Value::Object(event).to_string().as_bytes()).map_err(invalid)
}
