//! Route that replays a turn with another version of a plugin (S6).

use super::shortened::beginning;
use crate::access::Caller;
use crate::api::plugins::{directory_of, pin_of};
use crate::body::{JsonBody, SMALL_BYTES};
use crate::problem::{ApiProblems, Problem};
use crate::state::ApiState;
use crate::tokens::Right;
use agent_core::message::Digest;
use agent_core::redaction::Redaction;
use agent_plugins::{Generation, Grants, LoadedPlugin};
use agent_runtime::replay::{ComparisonError, Difference, Replay, ReplayReport, StopAt};
use agent_runtime::{Agent, PluginAllowance};
use agent_store::{MAX_PAGE, PluginVersion, VersionFilter};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use utoipa::ToSchema;

/// Maximum time of a replay. Calls that have not been replayed then are not shown.
const MAX_TIME: Duration = Duration::from_secs(60);
/// Maximum number of differences that are shown.
const MAX_DIFFERENCES: usize = 100;
/// Maximum length of a text about a difference, in characters.
const MAX_CHARACTERS: usize = 20_000;

/// Selects the version of a plugin with which a turn is replayed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewReplay {
    /// Name of the plugin. Only the calls of this plugin are replayed.
    #[schema(example = "files")]
    plugin: String,
    /// Digest of the version, or its beginning: a version that this agent's plugin folder has used. Default: the version that
    /// the agent uses now.
    digest: Option<String>,
}

/// The result of a replay. Nothing that the session contains was changed, and no plugin had an effect.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReplayResult {
    /// Name of the plugin.
    plugin: String,
    /// Digest of the version with which the turn was replayed.
    digest: String,
    /// Number of calls whose result is equal to the recorded result.
    same: usize,
    /// The calls whose result differs, at most 100. Each call was replayed with the inputs that were recorded for it.
    differences: Vec<ReplayDifference>,
    /// Number of all differences.
    difference_count: usize,
    /// Why calls were not replayed or not compared.
    skipped: Vec<String>,
}

/// A call whose replayed result differs from the recorded result.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReplayDifference {
    /// The turn, the step and the call.
    place: String,
    /// The recorded and the replayed version of the plugin.
    plugin: String,
    /// A unified diff of the recorded and the replayed result. Empty if only the accesses or the effects differ.
    diff: String,
    /// What the plugin asked for in the replay, but not in the recorded turn. It was denied.
    unrecorded: Vec<String>,
    /// How the effects of the plugin differ. No effect was carried out.
    effects: Vec<String>,
}

/// Replays the calls of a plugin in a turn with another version of the plugin, and compares the results.
///
/// The plugin gets the recorded answers of the host, and no other access: no files, requests, variables or secrets, and no
/// model is called. The right `administer` is needed, because the results may show what the recorded inputs contain.
#[utoipa::path(
    post, path = "/api/sessions/{session}/turns/{turn}/replays", tag = "turns", security(("token" = [])),
    params(
        ("session" = String, Path, description = "Id of the session, with `/` written as `%2F`."),
        ("turn" = u32, Path, description = "Number of the turn, from 1."),
    ),
    request_body = NewReplay,
    responses((status = 200, body = ReplayResult), ApiProblems)
)]
pub(crate) async fn replay_turn(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<(String, u32)>, PathRejection>,
    JsonBody(new): JsonBody<NewReplay, SMALL_BYTES>,
) -> Result<Json<ReplayResult>, Problem> {
    caller.require(Right::Administer)?;
    let Path((session, turn)) = path.map_err(|error| Problem::invalid(error.body_text()))?;
    let session = state.session(&caller, &session).await?;
    if turn == 0 || turn > session.turns {
        return Err(Problem::not_found(format!("the session has no turn {turn}")));
    }
    let digest = version_of(&state, &caller, (&session.agent, &new)).await?;
    let _place = state.replays.open(&caller)?;
    let agent = state.supervisor.agents()[&session.agent].current();
    let sandbox = state.supervisor.host().sandbox.clone();
    let plugin = load(&state, &new.plugin, &digest).await?;
    let allowance = replayed_allowance(&agent, &new.plugin);
    let replay = Replay {
        store: state.supervisor.host().store.clone(),
        sandbox,
        session,
        with: BTreeMap::from([(new.plugin.clone(), plugin)]),
        allowances: BTreeMap::from([(new.plugin.clone(), allowance)]),
        otherwise: PluginAllowance::default(),
        turn: Some(turn),
    };
    let report = tokio::time::timeout(MAX_TIME, replay.run(StopAt::End)).await.map_err(|_| {
        let detail = format!("the replay was stopped after {} s", MAX_TIME.as_secs());
        Problem::new(StatusCode::CONFLICT, "conflict", detail)
    })?;
    let report = report.map_err(problem_of)?;
    Ok(Json(result_of((new.plugin, digest), report, agent.redaction())))
}

/// Finds the version among the versions that the plugin folder of the agent has used.
async fn version_of(state: &ApiState, caller: &Caller, (agent, new): (&str, &NewReplay)) -> Result<Digest, Problem> {
    let pin = pin_of(state, caller, (agent, &new.plugin))?;
    let Some(prefix) = &new.digest else { return Ok(pin.digest) };
    let filter = VersionFilter { directory: Some(directory_of(state, &pin).await?), plugin: Some(new.plugin.clone()) };
    let versions = state.store().versions(filter, MAX_PAGE).await?;
    selected(&versions, prefix)
}

fn selected(versions: &[PluginVersion], prefix: &str) -> Result<Digest, Problem> {
    let digits = prefix.strip_prefix("sha256:").unwrap_or(prefix);
    let found: BTreeSet<&Digest> =
        versions.iter().map(|version| &version.digest).filter(|digest| digest.hex().starts_with(digits)).collect();
    match (digits.is_empty(), found.into_iter().collect::<Vec<_>>().as_slice()) {
        (false, [digest]) => Ok((*digest).clone()),
        (false, []) => Err(Problem::not_found("this plugin folder has used no version with this digest")),
        _ => Err(Problem::invalid("the digests of several versions begin with these characters; send more of them")),
    }
}

/// Loads a version from the plugin store, where the host keeps the versions that it has used.
async fn load(state: &ApiState, plugin: &str, digest: &Digest) -> Result<Arc<LoadedPlugin>, Problem> {
    let pinned = [(plugin.to_owned(), digest.clone())];
    let loaded = Generation::from_digests(&state.supervisor.host().sandbox, &pinned).await;
    let generation = loaded.map_err(|error| {
        tracing::warn!(%error, "a version of a plugin cannot be replayed");
        let detail = "this version is not stored any more, or cannot be loaded; choose another version";
        Problem::new(StatusCode::CONFLICT, "conflict", detail)
    })?;
    let plugin = generation.plugins().next().cloned();
    plugin.ok_or_else(|| Problem::not_found("this version is not stored any more; choose another version"))
}

/// Returns what the plugin may use in the replay: the limits and the configuration values of the agent, which sessions do not
/// record. The replay itself adds the recorded answers of the host.
fn replayed_allowance(agent: &Agent, plugin: &str) -> PluginAllowance {
    let Some(allowance) = agent.config().plugins.get(plugin) else { return PluginAllowance::default() };
    let grants = Grants { config: allowance.grants.config.clone(), ..Grants::default() };
    PluginAllowance { grants, limits: allowance.limits, ..PluginAllowance::default() }
}

fn result_of((plugin, digest): (String, Digest), report: ReplayReport, redaction: &Redaction) -> ReplayResult {
    let shown = |text: String| beginning(&redaction.text(text), MAX_CHARACTERS).0;
    let list = |texts: Vec<String>| texts.into_iter().take(MAX_DIFFERENCES).map(shown).collect::<Vec<_>>();
    let difference_count = report.differences.len();
    let difference = |difference: Difference| ReplayDifference {
        place: shown(difference.place),
        plugin: difference.plugin,
        diff: shown(difference.diff),
        unrecorded: list(difference.unrecorded),
        effects: list(difference.effects),
    };
    ReplayResult {
        plugin,
        digest: digest.to_string(),
        same: report.same,
        differences: report.differences.into_iter().take(MAX_DIFFERENCES).map(difference).collect(),
        difference_count,
        skipped: list(report.skipped),
    }
}

fn problem_of(error: ComparisonError) -> Problem {
    match error {
        ComparisonError::Store(error) => error.into(),
        ComparisonError::Action(error) => {
            tracing::warn!(%error, "a turn cannot be replayed");
            let detail = "the turn cannot be replayed with this version; the host's log contains the reason";
            Problem::new(StatusCode::CONFLICT, "conflict", detail)
        }
    }
}
