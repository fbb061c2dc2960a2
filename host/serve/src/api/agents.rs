//! Routes about the agents of the server.

use crate::access::Caller;
use crate::problem::{ApiProblems, Problem};
use crate::state::ApiState;
use crate::tokens::Right;
use agent_runtime::{Agent, LiveAgent, Schedule, WebhookAuthentication};
use axum::extract::{Path, State};
use axum::{Extension, Json};
use jiff::Timestamp;
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// The agents that the token may use.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AgentList {
    agents: Vec<AgentSummary>,
}

/// An agent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AgentSummary {
    /// The name of the agent.
    #[schema(example = "clerk")]
    name: String,
    /// The model that the agent calls first, as `provider/model`.
    #[schema(example = "openai/gpt-4.1-mini")]
    model: String,
    /// Number of tools that the model may call.
    tools: usize,
}

/// An agent with its tools and plugins.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AgentDetails {
    /// The name of the agent.
    name: String,
    /// The model that the agent calls first, as `provider/model`.
    model: String,
    /// The plugins that the agent's next turn uses.
    plugins: Vec<PluginSummary>,
    /// The tools that the model may call.
    tools: Vec<ToolSummary>,
    /// Digest of the generation of plugins. It changes when a plugin changes.
    generation: String,
    /// The schedules that begin sessions of the agent.
    schedules: Vec<ScheduleSummary>,
    /// The webhooks through which other programs begin sessions of the agent.
    webhooks: Vec<WebhookSummary>,
}

/// A schedule of an agent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ScheduleSummary {
    /// Name of the schedule.
    name: String,
    /// The times of the schedule, as they are configured.
    #[schema(example = "0 7 * * mon-fri Europe/Berlin")]
    times: String,
    /// Next time at which the schedule runs, as RFC 3339. `null` if it is not known yet.
    next: Option<String>,
    /// Last time for which the schedule ran, as RFC 3339. `null` if it never ran.
    last: Option<String>,
    /// The session of the last run.
    last_session: Option<String>,
}

/// A webhook of an agent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookSummary {
    /// Name of the webhook.
    name: String,
    /// Path to which requests are sent.
    #[schema(example = "/webhooks/clerk/tickets")]
    path: String,
    /// Whether requests may have a signature instead of a token.
    signed: bool,
    /// Time of the last request that began a session, since the server started, as RFC 3339. `null` if there was none.
    last: Option<String>,
    /// The session of that request. `null` for a token that works for one user.
    last_session: Option<String>,
}

/// A plugin of an agent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PluginSummary {
    /// Name of the plugin.
    name: String,
    /// Digest of the plugin's component.
    digest: String,
}

/// A tool of an agent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ToolSummary {
    /// Name of the tool.
    name: String,
    /// Description for the model.
    description: String,
    /// JSON Schema of the arguments.
    #[schema(value_type = Object)]
    input_schema: serde_json::Value,
}

fn summary(name: &str, agent: &LiveAgent) -> AgentSummary {
    let agent = agent.current();
    let model = agent.models().first().info().model.to_string();
    AgentSummary { name: name.to_owned(), model, tools: agent.registry().offered().len() }
}

/// Lists the agents.
#[utoipa::path(
    get, path = "/api/agents", tag = "agents", security(("token" = [])),
    responses(
        (status = 200, body = AgentList),
        ApiProblems,
    )
)]
pub(crate) async fn list_agents(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<AgentList>, Problem> {
    caller.require(Right::Read)?;
    let allowed = state.supervisor.agents().iter().filter(|(name, _)| caller.token.allows_agent(name));
    Ok(Json(AgentList { agents: allowed.map(|(name, agent)| summary(name, agent)).collect() }))
}

/// Shows an agent with its tools and plugins.
#[utoipa::path(
    get, path = "/api/agents/{agent}", tag = "agents", security(("token" = [])),
    params(("agent" = String, Path, description = "The name of the agent.")),
    responses(
        (status = 200, body = AgentDetails),
        ApiProblems,
    )
)]
pub(crate) async fn show_agent(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Result<Json<AgentDetails>, Problem> {
    caller.require(Right::Read)?;
    state.check_agent(&caller, &name)?;
    let agent = state.supervisor.agents()[&name].current();
    let plugin =
        |(name, digest): (String, agent_core::message::Digest)| PluginSummary { name, digest: digest.to_string() };
    let tools = agent.registry().offered().iter().map(|tool| ToolSummary {
        name: tool.author_name.clone(),
        description: tool.description.clone(),
        input_schema: tool.input_schema.clone(),
    });
    let schedules = schedules_of(&state, &caller, &name, &agent).await?;
    let webhooks = agent.config().webhooks.iter().map(|(webhook, configured)| {
        let run = state.last_webhook_run(&name, webhook);
        WebhookSummary {
            name: webhook.clone(),
            path: format!("{}{name}/{webhook}", super::webhooks::WEBHOOK_PATH),
            signed: configured.authentication != WebhookAuthentication::Token,
            last: run.as_ref().map(|run| run.time.clone()),
            last_session: run.map(|run| run.session).filter(|_| caller.token.user.is_none()),
        }
    });
    Ok(Json(AgentDetails {
        webhooks: webhooks.collect(),
        schedules,
        model: agent.models().first().info().model.to_string(),
        plugins: agent.generation().pinned().into_iter().map(plugin).collect(),
        tools: tools.collect(),
        generation: agent.generation().digest().to_string(),
        name,
    }))
}

/// Returns the schedules of an agent. A token for one user does not see the sessions of the runs, because they may belong to
/// another user.
async fn schedules_of(
    state: &ApiState,
    caller: &Caller,
    name: &str,
    agent: &Agent,
) -> Result<Vec<ScheduleSummary>, Problem> {
    let states = state.store().schedules(name).await?;
    let time = |milliseconds: i64| Timestamp::from_millisecond(milliseconds).ok().map(|time| time.to_string());
    let summary = |(schedule, configured): (&String, &Schedule)| {
        let times = configured.times.definition().to_owned();
        let state = states.iter().find(|state| state.name == *schedule);
        let current = state.filter(|state| state.definition == times);
        ScheduleSummary {
            name: schedule.clone(),
            next: current.and_then(|state| time(state.due)),
            last: state.and_then(|state| time(state.last_run?)),
            last_session: state.and_then(|state| state.last_session.clone()).filter(|_| caller.token.user.is_none()),
            times,
        }
    };
    Ok(agent.config().schedules.iter().map(summary).collect())
}
