//! Routes for operators: usage, and events that are not delivered yet (O4, D6).

use crate::access::Caller;
use crate::problem::{ApiProblems, Problem};
use crate::state::ApiState;
use crate::tokens::Right;
use agent_core::budget::Spending;
use agent_core::change::OutboxEffect;
use agent_runtime::day_starts;
use agent_store::{ChargeFilter, IntervalCharge, OutboxFilter, SessionFilter, StoredOutboxItem};
use axum::extract::{Query, State};
use axum::{Extension, Json};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};

/// Number of days before the last day with which a report begins by default.
const DEFAULT_DAYS: i32 = 30;
/// Number of items that one query reads from the store.
const PAGE: usize = 100;
/// Maximum number of items that are read for one answer. If more items belong to other tokens, the answer is shorter.
const MAX_READ: usize = 2_000;
/// Maximum number of items of one answer.
const MAX_ITEMS: usize = 100;

/// What the sessions of the agents have used.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UsageReport {
    /// One total for each agent and user.
    #[schema(value_type = Vec<Object>)]
    totals: Vec<Value>,
}

/// Adds up the model calls, tokens and costs of all sessions, for each agent and user.
#[utoipa::path(
    get, path = "/api/usage", tag = "operations", security(("token" = [])),
    responses((status = 200, body = UsageReport), ApiProblems)
)]
pub(crate) async fn report_usage(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<UsageReport>, Problem> {
    caller.require(Right::Read)?;
    let agents = caller.agents(state.supervisor.agents().keys());
    let agents: Vec<_> = agents.into_iter().map(str::to_owned).collect();
    let totals = state.store().usage(&agents, caller.token.user.as_deref()).await?;
    let totals = totals.into_iter().map(|total| serde_json::to_value(total).unwrap_or_default()).collect();
    Ok(Json(UsageReport { totals }))
}

/// Selects the days of a report.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DaysQuery {
    /// First day, as `YYYY-MM-DD`. Default: 30 days before `until`.
    #[param(format = Date)]
    since: Option<String>,
    /// Last day, as `YYYY-MM-DD`. Default: today.
    #[param(format = Date)]
    until: Option<String>,
    /// The IANA name of the time zone of the days, such as `Europe/Berlin`. Default: UTC.
    time_zone: Option<String>,
}

/// What was used on each day.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DailyUsage {
    /// One element for each day, agent and user with usage, in this order.
    days: Vec<UsageOfDay>,
}

/// What an agent has used on one day for one user.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UsageOfDay {
    /// The day, as `YYYY-MM-DD`.
    #[schema(example = "2026-01-31")]
    day: String,
    /// Name of the agent.
    agent: String,
    /// The user. `null` for work without a user.
    user: Option<String>,
    /// Tokens of prompts and replies.
    tokens: u64,
    /// Cost in nanodollars (10⁻⁹ US dollars), as far as prices are known.
    nanodollars: u64,
    /// Time of work in milliseconds.
    milliseconds: u64,
}

/// Adds up what was used on each day, for each agent and user, also in sessions that were deleted.
#[utoipa::path(
    get, path = "/api/usage/days", tag = "operations", security(("token" = [])), params(DaysQuery),
    responses((status = 200, body = DailyUsage), ApiProblems)
)]
pub(crate) async fn report_daily_usage(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    query: Result<Query<DaysQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<DailyUsage>, Problem> {
    caller.require(Right::Read)?;
    let Query(query) = query.map_err(|error| Problem::invalid(error.body_text()))?;
    let zone = match &query.time_zone {
        Some(name) => {
            TimeZone::get(name).map_err(|_| Problem::invalid("`time_zone` is not the name of a time zone"))?
        }
        None => TimeZone::UTC,
    };
    let until = day_of("until", query.until.as_deref())?;
    let until = until.unwrap_or_else(|| Timestamp::now().to_zoned(zone.clone()).date());
    let since = day_of("since", query.since.as_deref())?;
    let since = since.unwrap_or_else(|| until.saturating_sub(DEFAULT_DAYS.days()));
    // The day after the last one ends the last interval.
    let after = until.saturating_add(1.day());
    let days = day_starts(since, after, &zone).map_err(|error| Problem::invalid(format!("`since`: {error}")))?;
    let agents = caller.agents(state.supervisor.agents().keys()).into_iter().map(str::to_owned).collect();
    let filter = ChargeFilter { agents: Some(agents), user: caller.token.user.clone() };
    let bounds = days.iter().map(|(_, start)| *start).collect();
    let charges = state.store().charged_in_intervals(bounds, filter).await?;
    let of_day = |charge: IntervalCharge| {
        let (day, _) = days.get(charge.interval).filter(|(day, _)| *day <= until)?;
        let (agent, user, spending) = (charge.agent, charge.user, charge.spending);
        let Spending { tokens, nanodollars, milliseconds } = spending;
        Some(UsageOfDay { day: day.to_string(), agent, user, tokens, nanodollars, milliseconds })
    };
    Ok(Json(DailyUsage { days: charges.into_iter().filter_map(of_day).collect() }))
}

fn day_of(name: &str, text: Option<&str>) -> Result<Option<Date>, Problem> {
    let invalid = |_| Problem::invalid(format!("`{name}` must be a day such as `2026-01-31`"));
    text.map(|text| text.parse().map_err(invalid)).transpose()
}

/// Events that are not delivered yet.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PendingEvents {
    /// The events, oldest first.
    events: Vec<PendingEvent>,
    /// The value of `after` with which the next page begins. `null` if there are no more events.
    next: Option<u64>,
}

/// An event that is not delivered yet.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PendingEvent {
    /// Id of the event.
    id: String,
    /// Type of the event.
    #[schema(example = "com.example.payment.requested")]
    event_type: String,
    /// The session that sent the event.
    session: String,
    /// Time at which the event was stored, as RFC 3339.
    created: String,
    /// Number of attempts that have failed.
    failed_attempts: u32,
    /// Why the last attempt failed.
    problem: Option<String>,
}

/// Selects events.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct PendingQuery {
    /// The value `next` of the page before. Default: 0, which means the first page.
    after: Option<u64>,
}

/// Lists the events that are not delivered yet, and why.
#[utoipa::path(
    get, path = "/api/outbox", tag = "operations", security(("token" = [])), params(PendingQuery),
    responses((status = 200, body = PendingEvents), ApiProblems)
)]
pub(crate) async fn list_pending_events(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    query: Result<Query<PendingQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<PendingEvents>, Problem> {
    caller.require(Right::Read)?;
    let Query(query) = query.map_err(|error| Problem::invalid(error.body_text()))?;
    let mut after = query.after.unwrap_or_default();
    if i64::try_from(after).is_err() {
        return Err(Problem::invalid("`after` is too large"));
    }
    let (mut events, mut owners) = (Vec::new(), HashMap::new());
    for _ in 0..MAX_READ / PAGE {
        let items = state.store().outbox(None, OutboxFilter::Pending, after, PAGE).await?;
        let is_last = items.len() < PAGE;
        for item in items {
            after = item.number;
            if is_visible(&state, &caller, &item, &mut owners).await?
                && let OutboxEffect::Event(event) = item.item.effect
            {
                events.push(PendingEvent {
                    id: item.item.id,
                    event_type: event.event_type.clone(),
                    session: item.session,
                    created: item.created,
                    failed_attempts: item.failed_attempts,
                    problem: item.problem,
                });
            }
            if events.len() == MAX_ITEMS {
                return Ok(Json(PendingEvents { events, next: Some(after) }));
            }
        }
        if is_last {
            return Ok(Json(PendingEvents { events, next: None }));
        }
    }
    Ok(Json(PendingEvents { events, next: Some(after) }))
}

/// Returns whether the caller may see an item. `owners` contains the users of the sessions that were looked up already.
async fn is_visible(
    state: &ApiState,
    caller: &Caller,
    item: &StoredOutboxItem,
    owners: &mut HashMap<String, Option<String>>,
) -> Result<bool, Problem> {
    if !state.may_use_agent(caller, &item.agent) {
        return Ok(false);
    }
    let Some(user) = &caller.token.user else { return Ok(true) };
    if !owners.contains_key(&item.session) {
        let filter = SessionFilter { subject: Some(item.session.clone()), ..SessionFilter::default() };
        let found = state.store().sessions(filter, 1).await?.pop();
        owners.insert(item.session.clone(), found.and_then(|session| session.user));
    }
    Ok(owners[&item.session].as_ref() == Some(user))
}
