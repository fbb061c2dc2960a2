//! Routes about the configuration files of agents: read, check while typing, and save (I2, I3).

use crate::access::{Caller, single};
use crate::body::JsonBody;
use crate::problem::{ApiProblems, Problem};
use crate::state::ApiState;
use crate::tokens::Right;
use agent_config::agent_file::{Draft, EditError, LocatedProblem, MAX_BYTES, json_schema};
use agent_config::{ProposedFile, Settings, save_agent_file, text_digest};
use agent_runtime::unified_diff;
use agent_store::AuditAction;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::{Arc, LazyLock};
use utoipa::ToSchema;

/// Maximum size of a request with the text of a file, in bytes. JSON may need two bytes for one byte of the text.
const BODY_BYTES: usize = 2 * MAX_BYTES as usize + (16 << 10);
/// Maximum number of lines about what a text allows.
const MAX_LINES: usize = 200;
/// Maximum length of a difference, in bytes.
const MAX_DIFF_BYTES: usize = 256 << 10;

/// The configuration file of an agent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ConfigurationFile {
    /// Path of the file on the host.
    path: String,
    /// The text of the file.
    text: String,
    /// Digest of the text. A request that saves the file sends it in the header `If-Match`, in quotation marks.
    digest: String,
}

/// A proposed text of a configuration file.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProposedText {
    /// The whole text of the file.
    text: String,
    /// Whether the text may allow more than the text before. A text that allows more is saved only with `true`. Default:
    /// `false`.
    #[serde(default)]
    adds: bool,
}

/// What a proposed text would mean.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ConfigurationCheck {
    /// The problems of the text, in the order of its lines. A text with problems cannot be saved.
    problems: Vec<ProblemPlace>,
    /// A unified diff from the file to the text. Empty if they are equal.
    diff: String,
    /// Names of the changed keys whose new values apply only after the host is restarted.
    later: Vec<&'static str>,
    /// What the text allows and the file does not.
    adds: Vec<String>,
    /// What the file allows and the text does not.
    removes: Vec<String>,
    /// Digest of the file with which the text was compared.
    digest: String,
}

/// A problem of a text with its place.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProblemPlace {
    /// Line, from 1. `null` if the problem does not belong to a line.
    line: Option<usize>,
    /// Column of the line in characters, from 1. `null` if it is not known.
    column: Option<usize>,
    /// The key and what is wrong with it.
    message: String,
    /// The allowed values, or what to do. It may be empty.
    advice: String,
}

impl From<LocatedProblem> for ProblemPlace {
    fn from(LocatedProblem { line, column, message, advice }: LocatedProblem) -> Self {
        Self { line, column, message, advice }
    }
}

/// The result of saving a file.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SavedConfiguration {
    /// Digest of the new text.
    digest: String,
    /// Names of the changed keys whose new values apply only after the host is restarted. All other changes apply to the next
    /// turn.
    later: Vec<&'static str>,
}

/// Returns the JSON Schema of `agent.toml`.
#[utoipa::path(
    get, path = "/api/configuration-schema", tag = "configuration", security(("token" = [])),
    responses((status = 200, body = Object), ApiProblems)
)]
pub(crate) async fn configuration_schema(
    Extension(caller): Extension<Caller>,
) -> Result<Json<&'static Value>, Problem> {
    static SCHEMA: LazyLock<Value> = LazyLock::new(json_schema);
    caller.require(Right::Read)?;
    Ok(Json(&*SCHEMA))
}

/// Returns the text of an agent's configuration file.
#[utoipa::path(
    get, path = "/api/agents/{agent}/configuration", tag = "configuration", security(("token" = [])),
    params(("agent" = String, Path, description = "The name of the agent.")),
    responses((status = 200, body = ConfigurationFile), ApiProblems)
)]
pub(crate) async fn read_configuration(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(agent): Path<String>,
) -> Result<Response, Problem> {
    check_rights(&caller)?;
    let (_, draft) = file_of(&state, &caller, &agent).await?;
    let digest = text_digest(draft.text());
    let tag = HeaderValue::try_from(format!("\"{digest}\"")).map_err(Problem::invalid)?;
    let path = draft.path().display().to_string();
    let file = ConfigurationFile { path, text: draft.text().to_owned(), digest };
    Ok(([(header::ETAG, tag)], Json(file)).into_response())
}

/// Checks a text for an agent's configuration file, and compares it with the file. Nothing is saved.
#[utoipa::path(
    post, path = "/api/agents/{agent}/configuration/check", tag = "configuration", security(("token" = [])),
    params(("agent" = String, Path, description = "The name of the agent.")),
    request_body = ProposedText,
    responses((status = 200, body = ConfigurationCheck), ApiProblems)
)]
pub(crate) async fn check_configuration(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(agent): Path<String>,
    JsonBody(proposed): JsonBody<ProposedText, BODY_BYTES>,
) -> Result<Json<ConfigurationCheck>, Problem> {
    check_rights(&caller)?;
    let (settings, draft) = file_of(&state, &caller, &agent).await?;
    let _place = state.checked_files.open(&caller)?;
    let live = state.supervisor.agents()[&agent].current();
    // The check builds the agent, and compares two texts.
    let checked = tokio::task::spawn_blocking(move || {
        let found = ProposedFile::check(&proposed.text, (&settings, &live), draft.text());
        let mut diff = unified_diff(("saved", "edited"), draft.text(), &proposed.text);
        diff.truncate(diff.floor_char_boundary(MAX_DIFF_BYTES));
        (found, diff, text_digest(draft.text()))
    });
    let (found, diff, digest) = checked.await.map_err(failed)?;
    let ProposedFile { problems, later, adds, removes } = found;
    let lines = |lines: Vec<String>| lines.into_iter().take(MAX_LINES).collect::<Vec<_>>();
    let problems = problems.into_iter().take(MAX_LINES).map(Into::into).collect();
    Ok(Json(ConfigurationCheck { problems, diff, later, adds: lines(adds), removes: lines(removes), digest }))
}

/// Saves the text of an agent's configuration file, exactly as it is.
///
/// The header `If-Match` has the digest of the text from which the new text was made: if the file has changed in the meantime,
/// nothing is saved. A text with problems is refused. The change is recorded in the audit log, and applies to the next turn.
#[utoipa::path(
    put, path = "/api/agents/{agent}/configuration", tag = "configuration", security(("token" = [])),
    params(
        ("agent" = String, Path, description = "The name of the agent."),
        ("If-Match" = String, Header, description = "The digest of the text before, in quotation marks."),
    ),
    request_body = ProposedText,
    responses((status = 200, body = SavedConfiguration), ApiProblems)
)]
pub(crate) async fn save_configuration(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(agent): Path<String>,
    headers: HeaderMap,
    JsonBody(proposed): JsonBody<ProposedText, BODY_BYTES>,
) -> Result<Json<SavedConfiguration>, Problem> {
    check_rights(&caller)?;
    let expected = expected_digest(&headers)?;
    let (settings, draft) = file_of(&state, &caller, &agent).await?;
    let _place = state.checked_files.open(&caller)?;
    let from = text_digest(draft.text());
    if expected != from {
        return Err(changed());
    }
    let live = state.supervisor.agents()[&agent].current();
    let ProposedText { text, adds } = proposed;
    let checked = tokio::task::spawn_blocking(move || {
        let found = ProposedFile::check(&text, (&settings, &live), draft.text());
        let outcome = match (found.problems.is_empty(), adds || found.adds.is_empty()) {
            (true, true) => Some(save_agent_file(&settings, &draft, &text)),
            _ => None,
        };
        (found, outcome, (text_digest(&text), draft.path().display().to_string()))
    });
    let (found, outcome, (to, path)) = checked.await.map_err(failed)?;
    match outcome {
        None => return Err(refusal(&found)),
        Some(Err(EditError::Changed(_))) => return Err(changed()),
        Some(Err(error)) => {
            tracing::error!(%error, "an agent's file could not be saved");
            let detail = "the file cannot be written; the host's log contains the reason";
            return Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", detail));
        }
        Some(Ok(())) => {}
    }
    let lines = |lines: Vec<String>| lines.into_iter().take(MAX_LINES).collect::<Vec<_>>();
    let (adds, removes) = (lines(found.adds), lines(found.removes));
    let action =
        AuditAction::FileSaved { agent, path, token: caller.token.name.clone(), from, to: to.clone(), adds, removes };
    state.store().audit(vec![action]).await?;
    Ok(Json(SavedConfiguration { digest: to, later: found.later }))
}

/// Checks that the caller may see and change configuration files. A file decides what the host runs and which servers receive
/// its keys, so a token for single agents or for one user cannot use it.
pub(super) fn check_rights(caller: &Caller) -> Result<(), Problem> {
    caller.require(Right::Administer)?;
    match caller.token.agents.is_empty() && caller.token.user.is_none() {
        true => Ok(()),
        false => {
            let detail = "a token for single agents or for one user cannot use configuration files, because they decide what \
                          the host runs";
            Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail))
        }
    }
}

/// Reads the file of an agent, and returns it with the settings that are used now.
async fn file_of(state: &ApiState, caller: &Caller, agent: &str) -> Result<(Settings, Draft), Problem> {
    state.check_agent(caller, agent)?;
    let settings = state.settings_now(agent).await.map(|(settings, _)| settings);
    let settings = settings.filter(|settings| settings.path.is_some() && !settings.is_user_wide());
    let missing = || Problem::not_found(format!("the agent `{agent}` has no configuration file of its own"));
    let settings = settings.ok_or_else(missing)?;
    let path = settings.path.clone().ok_or_else(missing)?;
    let draft = tokio::task::spawn_blocking(move || Draft::read(&path)).await.map_err(failed)?;
    let draft = draft.map_err(|error| {
        tracing::warn!(%error, "an agent's file cannot be read");
        let detail = "the file cannot be read; the host's log contains the reason";
        Problem::new(StatusCode::CONFLICT, "conflict", detail)
    })?;
    Ok((settings, draft))
}

/// Returns the digest in the header `If-Match`.
fn expected_digest(headers: &HeaderMap) -> Result<String, Problem> {
    let missing = "send the digest of the text before in the header `If-Match: \"DIGEST\"`";
    let value = single(headers, header::IF_MATCH.as_str())?;
    let value =
        value.ok_or_else(|| Problem::new(StatusCode::PRECONDITION_REQUIRED, "precondition_required", missing))?;
    let digest = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    digest.map(str::to_owned).ok_or_else(|| Problem::new(StatusCode::BAD_REQUEST, "bad_request", missing))
}

fn changed() -> Problem {
    let detail = "the file was changed in the meantime; read it again, and add your changes to the new text";
    Problem::new(StatusCode::PRECONDITION_FAILED, "changed", detail)
}

/// Explains why a text was not saved.
fn refusal(found: &ProposedFile) -> Problem {
    let Some(first) = found.problems.first() else {
        let lines = found.adds.iter().take(MAX_LINES).map(String::as_str).collect::<Vec<_>>().join("; ");
        let detail = format!("the text allows more than the file; to save it, send `\"adds\": true`. It adds: {lines}");
        return Problem::new(StatusCode::CONFLICT, "adds_authority", detail);
    };
    let place = first.line.map(|line| format!("line {line}: ")).unwrap_or_default();
    let more = found.problems.len() - 1;
    let more = if more > 0 { format!(", and {more} more problems") } else { String::new() };
    let advice = if first.advice.is_empty() { String::new() } else { format!(" ({})", first.advice) };
    Problem::invalid(format!("the text cannot be used: {place}{}{advice}{more}", first.message))
}

fn failed(error: tokio::task::JoinError) -> Problem {
    tracing::error!(%error, "an agent's file was not processed");
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", "the host failed; its log contains the reason")
}
