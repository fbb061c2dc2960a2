//! Route that calls one tool of an agent, without a model (I4).

use crate::access::Caller;
use crate::body::{JsonBody, PROMPT_BYTES};
use crate::problem::{ApiProblems, Problem};
use crate::state::ApiState;
use crate::tokens::Right;
use agent_core::message::TurnInput;
use agent_core::schema::Schema;
use agent_core::tool::Violation;
use agent_runtime::Prompt;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::Arc;
use utoipa::ToSchema;

use super::sessions::{CreatedSession, events_path, user_of};

/// Maximum number of problems of the arguments that are listed.
const MAX_VIOLATIONS: usize = 20;
/// Maximum nesting depth of the arguments. The store could not store much deeper values.
const MAX_DEPTH: usize = 64;

/// A call of a tool.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewCall {
    /// Name of the tool.
    #[schema(example = "files.read")]
    tool: String,
    /// The arguments, which must match the tool's schema.
    #[schema(value_type = Object)]
    arguments: Map<String, Value>,
    /// The user for whom the call works. Only tokens without a user may set this field.
    user: Option<String>,
}

/// Calls a tool in a new session.
///
/// The call is the only turn of the session. It has the agent's grants, approvals and limits, as a call of the model: a tool that
/// needs an approval waits for one. The session shows its arguments, its result, and what it was denied.
#[utoipa::path(
    post, path = "/api/agents/{agent}/calls", tag = "agents", security(("token" = [])),
    params(("agent" = String, Path, description = "The name of the agent.")),
    request_body = NewCall,
    responses((status = 201, body = CreatedSession, description = "The session exists, and the call is stored."), ApiProblems)
)]
pub(crate) async fn call_tool(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(agent): Path<String>,
    JsonBody(new): JsonBody<NewCall, PROMPT_BYTES>,
) -> Result<(StatusCode, Json<CreatedSession>), Problem> {
    caller.require(Right::Talk)?;
    state.check_agent(&caller, &agent)?;
    let user = user_of(&caller, new.user)?;
    let arguments = Value::Object(new.arguments);
    if depth_of(&arguments) > MAX_DEPTH {
        return Err(Problem::invalid(format!("the arguments are nested more than {MAX_DEPTH} levels deep")));
    }
    check_call(&state, &agent, (&new.tool, &arguments))?;
    let input = TurnInput::Call { tool: new.tool, arguments };
    let prompt = Prompt { user, trace: caller.trace, ..Prompt::new(input) };
    let session = state.supervisor.create(&agent, prompt).await?;
    Ok((StatusCode::CREATED, Json(CreatedSession { events: events_path(&session), session })))
}

/// Checks that programs may call the tool, and that the arguments match its schema.
fn check_call(state: &ApiState, agent: &str, (tool, arguments): (&str, &Value)) -> Result<(), Problem> {
    let current = state.supervisor.agents()[agent].current();
    let found = current.direct_tools().into_iter().find(|(offered, _)| offered.author_name == tool);
    let Some((_, definition)) = found else {
        return Err(Problem::not_found(format!("the agent `{agent}` has no tool `{tool}` that programs may call")));
    };
    let schema = Schema::compile(&definition.input_schema)
        .map_err(|error| Problem::invalid(format!("the schema of the tool `{tool}` is not valid: {error}")))?;
    schema.check(arguments).map_err(|violations| {
        let listed = violations.iter().take(MAX_VIOLATIONS).map(violation_text);
        Problem::invalid(format!("the arguments do not match the schema: {}", listed.collect::<Vec<_>>().join("; ")))
    })
}

/// Returns the nesting depth of a value, which the parser of the request has limited.
fn depth_of(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth_of).max().unwrap_or_default(),
        Value::Object(fields) => 1 + fields.values().map(depth_of).max().unwrap_or_default(),
        _ => 0,
    }
}

fn violation_text(Violation { pointer, message, .. }: &Violation) -> String {
    if pointer.is_empty() { message.clone() } else { format!("`{pointer}`: {message}") }
}
