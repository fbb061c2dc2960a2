//! Routes that describe the plugins of an agent: what each may do, where its grants come from, its health, its signature, and
//! what it has used (P6, P10).

use super::pin_of;
use crate::access::Caller;
use crate::problem::{ApiProblems, Problem};
use crate::state::ApiState;
use crate::tokens::Right;
use agent_config::grants::Receiver;
use agent_config::{MissingAccess, PluginAccess, Settings, plugin_lock_state};
use agent_core::change::CallRecord;
use agent_core::run::PinnedPlugin;
use agent_core::tool::{CallCost, ToolDefinition, ToolSource};
use agent_plugins::LoadedPlugin;
use agent_runtime::Agent;
use agent_store::{CallFilter, SessionFilter, SessionState};
use axum::extract::{Path, State};
use axum::{Extension, Json};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use utoipa::ToSchema;

/// Number of sessions whose calls are counted.
const COUNTED_SESSIONS: usize = 20;
/// Number of turns of a session whose calls are counted.
const COUNTED_TURNS: u32 = 5;
/// Maximum number of lines about what a plugin may do.
const MAX_LINES: usize = 200;

/// The plugins of an agent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PluginList {
    /// Digest of the generation of plugins that the agent's next turn uses.
    generation: String,
    plugins: Vec<PluginItem>,
    /// Number of sessions whose calls are counted: the 20 sessions that the token may see and that changed last, with at most
    /// the last 5 turns of each.
    counted_sessions: usize,
}

/// A plugin of an agent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PluginItem {
    /// Name of the plugin.
    name: String,
    /// Version in the plugin's manifest. `null` if it has none.
    version: Option<String>,
    /// Description in the plugin's manifest.
    description: String,
    /// Digest of the plugin's component.
    digest: String,
    /// Size of the component in bytes.
    size: u64,
    /// What the plugin offers, such as `tool` or `context-builder`.
    kinds: Vec<&'static str>,
    /// `in use`, `on trial` (a new version that is watched) or `rolled back` (an earlier version is used).
    #[schema(example = "in use")]
    health: &'static str,
    /// If a new version is on trial, its calls so far.
    trial: Option<TrialItem>,
    /// If the plugin is rolled back, the digest of the version in the plugin's file, which is not used.
    instead_of: Option<String>,
    /// The tools of the plugin.
    tools: Vec<PluginTool>,
    /// What the counted calls of the plugin have used.
    used: PluginUse,
}

/// The trial of a new version.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TrialItem {
    /// Digest of the version that was used before.
    before: String,
    /// Number of calls of the new version in this process.
    calls: u64,
    /// Number of these calls that trapped.
    traps: u64,
}

/// A tool of a plugin.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PluginTool {
    /// Name of the tool.
    name: String,
    /// Description for the model.
    description: String,
    /// JSON Schema of the arguments.
    #[schema(value_type = Object)]
    input_schema: Value,
    /// What the tool declares about itself, such as `read_only` and `needs_approval`.
    #[schema(value_type = Object)]
    traits: Value,
}

/// What the calls of a plugin have used.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct PluginUse {
    /// Number of finished calls.
    calls: u64,
    /// Number of calls that failed.
    failed: u64,
    /// Sum of the times from the beginning to the result, in microseconds.
    wall_us: u64,
    /// Longest of these times, in microseconds.
    longest_us: u64,
    /// Sum of the processor times, in microseconds.
    cpu_us: u64,
    /// Largest peak of the memory of a call, in bytes.
    memory_peak: u64,
    /// Number of network requests.
    requests: u64,
}

impl PluginUse {
    fn add(&mut self, cost: &CallCost, is_error: bool) {
        self.calls += 1;
        self.failed += u64::from(is_error);
        self.wall_us = self.wall_us.saturating_add(cost.wall_us);
        self.longest_us = self.longest_us.max(cost.wall_us);
        self.cpu_us = self.cpu_us.saturating_add(cost.cpu_us);
        self.memory_peak = self.memory_peak.max(cost.memory_bytes);
        self.requests = self.requests.saturating_add(cost.requests);
    }
}

impl From<&ToolDefinition> for PluginTool {
    fn from(tool: &ToolDefinition) -> Self {
        Self {
            name: tool.name.clone(),
            description: tool.description.clone(),
            input_schema: tool.input_schema.clone(),
            traits: json!(tool.traits),
        }
    }
}

/// Lists the plugins of an agent with their tools, their health, and what their latest calls have used.
#[utoipa::path(
    get, path = "/api/agents/{agent}/plugins", tag = "plugins", security(("token" = [])),
    params(("agent" = String, Path, description = "The name of the agent.")),
    responses((status = 200, body = PluginList), ApiProblems)
)]
pub(crate) async fn list_plugins(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Result<Json<PluginList>, Problem> {
    caller.require(Right::Read)?;
    state.check_agent(&caller, &name)?;
    let agent = state.supervisor.agents()[&name].current();
    let (mut used, counted_sessions) = uses(&state, &caller, &name).await?;
    let pins = agent.pins();
    let plugins = agent.generation().plugins().map(|plugin| {
        let pin = pins.iter().find(|pin| pin.name == plugin.name());
        item((plugin, pin), &agent, used.remove(plugin.name()).unwrap_or_default())
    });
    let plugins = plugins.collect();
    Ok(Json(PluginList { generation: agent.generation().digest().to_string(), plugins, counted_sessions }))
}

fn item((plugin, pin): (&Arc<LoadedPlugin>, Option<&PinnedPlugin>), agent: &Agent, used: PluginUse) -> PluginItem {
    let trial = agent.versions().trials.get(plugin.name()).filter(|trial| trial.digest == *plugin.digest());
    let instead_of = pin.and_then(|pin| pin.instead_of.as_ref()).map(ToString::to_string);
    let health = match (trial, &instead_of) {
        (Some(_), _) => "on trial",
        (None, Some(_)) => "rolled back",
        (None, None) => "in use",
    };
    let trial = trial.map(|trial| {
        let counts = trial.calls.counts();
        TrialItem { before: trial.before.to_string(), calls: counts.calls.into(), traps: counts.traps.into() }
    });
    PluginItem {
        name: plugin.name().to_owned(),
        version: plugin.manifest().map(|manifest| manifest.version.clone()).filter(|version| !version.is_empty()),
        description: plugin.manifest().map(|manifest| manifest.description.clone()).unwrap_or_default(),
        digest: plugin.digest().to_string(),
        size: plugin.size(),
        kinds: plugin.kind_labels(),
        health,
        trial,
        instead_of,
        tools: plugin.tools().iter().map(Into::into).collect(),
        used,
    }
}

/// Adds up what the latest calls of each plugin have used. Returns the sums by plugin, and the number of counted sessions. Only
/// sessions that the caller may see are counted.
async fn uses(state: &ApiState, caller: &Caller, agent: &str) -> Result<(BTreeMap<String, PluginUse>, usize), Problem> {
    let filter =
        SessionFilter { agent: Some(agent.to_owned()), user: caller.token.user.clone(), ..SessionFilter::default() };
    let mut sessions = state.store().sessions(filter, COUNTED_SESSIONS).await?;
    sessions.retain(|session| session.state != SessionState::Incomplete);
    let mut used: BTreeMap<String, PluginUse> = BTreeMap::new();
    for session in &sessions {
        let first = session.turns.saturating_sub(COUNTED_TURNS) + 1;
        for turn in first..=session.turns {
            for call in state.store().calls(&session.subject, CallFilter::Turn(turn)).await? {
                let CallRecord { source: Some(ToolSource::Plugin { plugin, .. }), result: Some(result), .. } = call
                else {
                    continue;
                };
                // A call that was denied or never ran has used nothing.
                if result.cost.wall_us > 0 {
                    used.entry(plugin).or_default().add(&result.cost, result.is_error);
                }
            }
        }
    }
    Ok((used, sessions.len()))
}

/// What a plugin may do, and why.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PluginAuthority {
    /// Name of the plugin.
    name: String,
    /// Digest of the plugin's component.
    digest: String,
    /// Whether the plugin has a manifest. A plugin without a manifest gets everything that it is granted.
    has_manifest: bool,
    /// What the plugin can use without a grant.
    always: Vec<String>,
    /// What the plugin gets.
    gets: Vec<String>,
    /// What the plugin asks for and gets only in part.
    partly: Vec<MissingItem>,
    /// What the plugin asks for and does not get.
    denied: Vec<MissingItem>,
    /// The grants that have no effect or only a partial effect. Each text continues a sentence that begins with the name of the
    /// plugin.
    unused: Vec<String>,
    /// The lines of the configuration that grant something to the plugin.
    grants: Vec<GrantItem>,
    /// Why the configuration file could not be read. `null` if it could.
    problem: Option<String>,
    /// Whether the lock file of the plugin folder lists the plugin, and who has signed it.
    lock: Option<LockItem>,
}

/// Access that a plugin asks for and does not get completely.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MissingItem {
    /// What the plugin asks for.
    thing: String,
    /// The part that the plugin gets. `null` if it gets nothing of it.
    part: Option<String>,
    /// The table of the configuration file to which the line belongs.
    #[schema(example = "[plugins.files.grants]")]
    table: String,
    /// The line that would grant the access.
    line: String,
}

impl From<MissingAccess> for MissingItem {
    fn from(MissingAccess { thing, part, table, line }: MissingAccess) -> Self {
        Self { thing, part, table, line }
    }
}

/// A line of the configuration that grants something.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GrantItem {
    /// The key of the grant, such as `read` or `http`.
    kind: String,
    /// What is granted. Configuration values and secrets are named, but their values are left out.
    value: String,
    /// The file, the line and the key, or the option of the command line.
    #[schema(example = "agent.toml:12: plugins.files.grants.read[0]")]
    origin: String,
}

/// What the lock file of the plugin folder says about a plugin.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LockItem {
    /// Whether the lock file lists the plugin.
    locked: bool,
    /// Version in the lock file.
    version: Option<String>,
    /// Where the plugin came from.
    reference: Option<String>,
    /// Whether the file may be used.
    valid: bool,
    /// The state as a sentence, such as who has signed the plugin.
    state: String,
}

/// Shows what a plugin may do, and where each grant comes from.
///
/// The grants name folders, servers and variables of the host, so the right `administer` is needed.
#[utoipa::path(
    get, path = "/api/agents/{agent}/plugins/{plugin}/authority", tag = "plugins", security(("token" = [])),
    params(
        ("agent" = String, Path, description = "The name of the agent."),
        ("plugin" = String, Path, description = "The name of the plugin."),
    ),
    responses((status = 200, body = PluginAuthority), ApiProblems)
)]
pub(crate) async fn show_authority(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path((agent, plugin)): Path<(String, String)>,
) -> Result<Json<PluginAuthority>, Problem> {
    caller.require(Right::Administer)?;
    let pin = pin_of(&state, &caller, (&agent, &plugin))?;
    let current = state.supervisor.agents()[&agent].current();
    let loaded = current.generation().plugins().find(|loaded| loaded.name() == plugin).cloned();
    let Some(loaded) = loaded else {
        return Err(Problem::not_found(format!("the agent `{agent}` has no plugin `{plugin}`")));
    };
    let granted = current.config().plugins.get(&plugin).map(|allowance| allowance.grants.clone()).unwrap_or_default();
    let access = PluginAccess::of(&loaded, granted);
    let (settings, problem) = match state.settings_now(&agent).await {
        Some((settings, problem)) => (Some(settings), problem),
        None => (None, None),
    };
    let lock = match settings.clone() {
        Some(settings) => lock_item(settings, plugin.clone()).await,
        None => None,
    };
    let lines = |texts: Vec<String>| texts.into_iter().take(MAX_LINES).collect::<Vec<_>>();
    let missing =
        |list: Vec<MissingAccess>| list.into_iter().take(MAX_LINES).map(MissingItem::from).collect::<Vec<_>>();
    Ok(Json(PluginAuthority {
        digest: pin.digest.to_string(),
        has_manifest: access.has_manifest,
        always: access.always,
        gets: lines(access.gets),
        partly: missing(access.partly),
        denied: missing(access.denied),
        unused: lines(access.unused),
        grants: settings.as_ref().map(|settings| grants_of(settings, &plugin)).unwrap_or_default(),
        problem,
        lock,
        name: plugin,
    }))
}

/// Returns the lines of the configuration that grant something to the plugin.
fn grants_of(settings: &Settings, plugin: &str) -> Vec<GrantItem> {
    let receiver = Receiver::Plugin(plugin.to_owned());
    let all = settings.file.grants.iter().chain(&settings.options.grants);
    let grants = all.filter(|grant| grant.receiver == receiver).map(|grant| {
        let is_value = grant.kind == agent_config::grants::Kind::Config;
        let value = if is_value { grant.value.split('=').next().unwrap_or_default() } else { &grant.value };
        let (value, origin) = (value.to_owned(), grant.origin.clone());
        GrantItem { kind: grant.kind.key().to_owned(), value, origin }
    });
    let secrets = settings.file.secrets.iter().filter(|secret| secret.plugin == plugin).map(|secret| GrantItem {
        kind: "secret".to_owned(),
        value: secret.env.clone(),
        origin: secret.origin.clone(),
    });
    grants.chain(secrets).take(MAX_LINES).collect()
}

/// Checks the lock file and the signature of a plugin. The check reads the whole component.
async fn lock_item(settings: Settings, plugin: String) -> Option<LockItem> {
    let state = tokio::task::spawn_blocking(move || plugin_lock_state(&settings, &plugin)).await.ok()??;
    Some(LockItem {
        locked: state.locked,
        version: state.version,
        reference: state.reference,
        valid: state.is_valid,
        state: state.description,
    })
}
