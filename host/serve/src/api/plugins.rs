//! Routes about the plugins of agents: their versions, and rollbacks (P10).

pub(super) mod details;

use crate::access::Caller;
use crate::body::{JsonBody, SMALL_BYTES};
use crate::problem::{ApiProblems, Problem};
use crate::state::ApiState;
use crate::tokens::Right;
use agent_core::run::PinnedPlugin;
use agent_runtime::swap::{RollbackError, RollbackRequest, RolledBack, roll_back, undo_rollback};
use agent_store::{MAX_PAGE, PluginVersion, VersionEndReason, VersionFilter};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use std::path::Path as FilePath;
use std::sync::Arc;
use utoipa::ToSchema;

/// Maximum number of versions of a plugin that a list contains.
const MAX_VERSIONS: usize = 100;

/// The versions of an agent's plugin, the version that was used last first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VersionList {
    /// Digest of the version that the agent's next turn uses.
    digest: String,
    /// If the plugin is rolled back, the digest of the version in the plugin's file, which is not used.
    instead_of: Option<String>,
    versions: Vec<VersionItem>,
}

/// A version of a plugin that is or was in use.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VersionItem {
    /// Digest of the plugin's component.
    digest: String,
    /// Time at which the version was used first, as RFC 3339.
    began: String,
    /// Time from which the version was not used any more, as RFC 3339. `null` if it is in use.
    ended: Option<String>,
    /// Why the version is not used any more: `replaced`, `removed`, `trapped` or `asked`.
    #[schema(value_type = Option<String>, example = "replaced")]
    why: Option<VersionEndReason>,
}

impl From<PluginVersion> for VersionItem {
    fn from(version: PluginVersion) -> Self {
        let PluginVersion { digest, began, ended, why, .. } = version;
        Self { digest: digest.to_string(), began, ended, why }
    }
}

/// Lists the versions of a plugin that the agents of this host have used.
#[utoipa::path(
    get, path = "/api/agents/{agent}/plugins/{plugin}/versions", tag = "plugins", security(("token" = [])),
    params(
        ("agent" = String, Path, description = "The name of the agent."),
        ("plugin" = String, Path, description = "The name of the plugin."),
    ),
    responses((status = 200, body = VersionList), ApiProblems)
)]
pub(crate) async fn list_versions(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path((agent, plugin)): Path<(String, String)>,
) -> Result<Json<VersionList>, Problem> {
    caller.require(Right::Read)?;
    let pin = pin_of(&state, &caller, (&agent, &plugin))?;
    let filter = VersionFilter { directory: None, plugin: Some(plugin) };
    let mut versions = state.store().versions(filter, MAX_PAGE).await?;
    // Another agent's folder may have a plugin with the same name. While a version changes, the version that is used now may not be
    // recorded as the latest of its folder.
    let is_same = |version: &PluginVersion| version.digest == pin.digest;
    let latest = versions.iter().find(|version| is_same(version) && version.ended.is_none());
    let folder = latest.or(versions.iter().find(|version| is_same(version))).map(|version| version.directory.clone());
    versions.retain(|version| folder.as_ref() == Some(&version.directory));
    let versions: Vec<_> = versions.into_iter().take(MAX_VERSIONS).map(Into::into).collect();
    Ok(Json(VersionList {
        digest: pin.digest.to_string(),
        instead_of: pin.instead_of.map(|digest| digest.to_string()),
        versions,
    }))
}

/// Finds the plugin among the plugins of an agent that the caller may use.
pub(super) fn pin_of(
    state: &ApiState,
    caller: &Caller,
    (agent, plugin): (&str, &str),
) -> Result<PinnedPlugin, Problem> {
    state.check_agent(caller, agent)?;
    let pins = state.supervisor.agents()[agent].current().pins();
    let found = pins.into_iter().find(|pin| pin.name == plugin);
    found.ok_or_else(|| Problem::not_found(format!("the agent `{agent}` has no plugin `{plugin}`")))
}

/// Selects the version that a plugin is rolled back to.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRollback {
    /// Digest of the version, or its beginning. Without a digest, the version before the current version is used.
    digest: Option<String>,
}

/// The versions before and after a rollback. A running host uses the new version within a few seconds.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RollbackResult {
    /// Digest of the version that was in use.
    from: String,
    /// Digest of the version that is used now.
    to: String,
}

impl From<RolledBack> for RollbackResult {
    fn from(RolledBack { from, to, .. }: RolledBack) -> Self {
        Self { from: from.to_string(), to: to.to_string() }
    }
}

/// Rolls a plugin back to an earlier version, until its file changes.
///
/// The rollback applies to all agents whose plugins come from the same folder, so a token for single agents cannot request
/// it.
#[utoipa::path(
    post, path = "/api/agents/{agent}/plugins/{plugin}/rollback", tag = "plugins", security(("token" = [])),
    params(
        ("agent" = String, Path, description = "The name of the agent."),
        ("plugin" = String, Path, description = "The name of the plugin."),
    ),
    request_body = NewRollback,
    responses((status = 200, body = RollbackResult), ApiProblems)
)]
pub(crate) async fn roll_back_plugin(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path((agent, plugin)): Path<(String, String)>,
    JsonBody(new): JsonBody<NewRollback, SMALL_BYTES>,
) -> Result<Json<RollbackResult>, Problem> {
    check_rights(&caller)?;
    let directory = directory_of(&state, &pin_of(&state, &caller, (&agent, &plugin))?).await?;
    let host = state.supervisor.host();
    let Some(components) = host.sandbox.store() else {
        return Err(Problem::new(StatusCode::CONFLICT, "conflict", "this host keeps no earlier versions of plugins"));
    };
    let selected = FilePath::new(&directory);
    let request = RollbackRequest { plugin: &plugin, directory: Some(selected), digest: new.digest.as_deref() };
    let rolled_back = roll_back(state.store(), components, request).await;
    let rolled_back = rolled_back.map_err(|error| problem_of(error, &directory))?;
    Ok(Json(rolled_back.into()))
}

/// Undoes the rollback of a plugin, so that the version in its file is used again.
#[utoipa::path(
    delete, path = "/api/agents/{agent}/plugins/{plugin}/rollback", tag = "plugins", security(("token" = [])),
    params(
        ("agent" = String, Path, description = "The name of the agent."),
        ("plugin" = String, Path, description = "The name of the plugin."),
    ),
    responses((status = 200, body = RollbackResult), ApiProblems)
)]
pub(crate) async fn undo_plugin_rollback(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path((agent, plugin)): Path<(String, String)>,
) -> Result<Json<RollbackResult>, Problem> {
    check_rights(&caller)?;
    let directory = directory_of(&state, &pin_of(&state, &caller, (&agent, &plugin))?).await?;
    let request = RollbackRequest { plugin: &plugin, directory: Some(FilePath::new(&directory)), digest: None };
    let undone = undo_rollback(state.store(), request).await.map_err(|error| problem_of(error, &directory))?;
    Ok(Json(undone.into()))
}

/// Checks that the caller may change the plugins of all agents.
fn check_rights(caller: &Caller) -> Result<(), Problem> {
    caller.require(Right::Administer)?;
    match caller.token.agents.is_empty() && caller.token.user.is_none() {
        true => Ok(()),
        false => {
            let detail = "a token for single agents or for one user cannot change plugins, because others use them too";
            Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail))
        }
    }
}

/// Returns the folder from which the agent's version of the plugin was loaded. Several folders of the host may have a plugin
/// with this name.
pub(super) async fn directory_of(state: &ApiState, pin: &PinnedPlugin) -> Result<String, Problem> {
    let filter = VersionFilter { directory: None, plugin: Some(pin.name.clone()) };
    let versions = state.store().versions(filter, MAX_PAGE).await?;
    let in_use = versions.into_iter().find(|version| version.ended.is_none() && version.digest == pin.digest);
    let detail = "the version of the plugin has just changed; try again";
    Ok(in_use.ok_or_else(|| Problem::new(StatusCode::CONFLICT, "conflict", detail))?.directory)
}

/// Converts an error. A client must not see the path of the folder.
fn problem_of(error: RollbackError, directory: &str) -> Problem {
    match error {
        RollbackError::Selection(problem) => {
            Problem::new(StatusCode::CONFLICT, "conflict", problem.replace(directory, "its folder"))
        }
        RollbackError::Component(error) => {
            tracing::warn!(%error, "a plugin cannot be rolled back");
            let detail = "the component of this version is not stored any more; choose another version";
            Problem::new(StatusCode::CONFLICT, "conflict", detail)
        }
        RollbackError::Store(error) => error.into(),
    }
}
