//! The route that lists everything that waits for a person, in all sessions of all agents.

use super::configuration::check_rights;
use crate::access::Caller;
use crate::first_uses::{DeniedFirstUse, MissingGrant, OfferedGrant, OpenFirstUse, Reader, SessionOfQuestion};
use crate::problem::{ApiProblems, Problem};
use crate::state::ApiState;
use crate::tokens::Right;
use agent_core::event::{ApprovalDetails, EventKind, Wait, WaitCause};
use agent_core::run::Run;
use agent_store::{CallFilter, ListPosition, SessionSummary, Store, StoreError, TimedEvent};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::{Extension, Json};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};

/// Number of waiting sessions of one answer if the request does not say how many.
const DEFAULT_LIMIT: usize = 100;
/// Maximum number of waiting sessions of one answer.
const MAX_LIMIT: usize = 200;
/// Maximum size of the arguments of an item, in bytes of JSON.
const ARGUMENT_BYTES: usize = 64 << 10;
/// Number of the last events of a session that are searched for the requests.
const RECENT_EVENTS: u64 = 64;
/// Time after which a service that has not answered is in the inbox.
const OVERDUE_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// Selects a part of the inbox.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct InboxQuery {
    /// Only what comes after the part whose `next` had this value.
    after: Option<String>,
    /// Maximum number of sessions, 1 to 200. A session can have several items. Default: 100.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<usize>,
    /// `true` says that a person looks at the inbox now, and will answer questions about grants. A program that reads the inbox
    /// without a person leaves it out. Default: `false`.
    #[serde(default)]
    #[param(required = false)]
    present: bool,
}

/// Everything that waits for a person.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Inbox {
    /// The items. Each part begins with the item that waits longest, and the sessions of the first part wait longest.
    items: Vec<InboxItem>,
    /// If more sessions wait, the value of `after` for the next part. Otherwise `null`.
    #[schema(example = "118.7")]
    next: Option<String>,
}

/// Something that waits for a person.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InboxItem {
    /// `approval`, `question`, `outcome_unknown`, `overdue_service`, `first_use` or `denied_grants`. An item of the kind
    /// `denied_grants` does not wait: a plugin has run without grants, because nobody was there to give them.
    #[schema(example = "approval")]
    kind: &'static str,
    /// The session.
    session: String,
    /// Name of the agent.
    agent: String,
    /// The user for whom the session works.
    user: Option<String>,
    /// Beginning of the session's first prompt.
    title: Option<String>,
    /// Id of the call that waits. Empty for the kinds `first_use` and `denied_grants`, which come before a call begins.
    call: String,
    /// Name of the tool as its author wrote it.
    tool: String,
    /// Time at which the turn began to wait, as RFC 3339.
    since: String,
    /// Time at which the host stops waiting, as RFC 3339. `null` if it waits without a limit.
    expires: Option<String>,
    /// The question of the model.
    question: Option<String>,
    /// The type of the event that the service was sent.
    event_type: Option<String>,
    /// Id of the event to which the answer of a service belongs: its `parentid`.
    event: Option<String>,
    /// The arguments with which the call would run. `null` if they have more than 64 KiB.
    #[schema(value_type = Object)]
    arguments: Value,
    /// Size of the arguments as JSON in bytes, if they are left out. 0 if they are complete.
    omitted_bytes: usize,
    /// Whether a person can change the arguments with an approval.
    editable: bool,
    /// Where the tool comes from, with the digest that an approval is bound to.
    #[schema(value_type = Option<Object>)]
    source: Option<Value>,
    /// What the tool declares about itself.
    #[schema(value_type = Option<Object>)]
    traits: Option<Value>,
    /// What requires the approval: a key of the configuration, or `the tool itself`.
    because: Option<String>,
    /// The grants that a plugin lacks, for the kinds `first_use` and `denied_grants`.
    first_use: Option<FirstUseItem>,
}

/// A question about the grants that a plugin lacks when it is used for the first time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FirstUseItem {
    /// Id of the question, with which it is answered.
    question: String,
    /// Name of the plugin.
    plugin: String,
    /// Digest of the plugin's component.
    digest: String,
    /// What the plugin gets if a person allows it.
    offered: Vec<OfferedGrant>,
    /// What the plugin also requests, and no answer can grant.
    not_offered: Vec<MissingGrant>,
    /// Whether the answers `always` and `never` are possible, because the agent has a file and the token may change it.
    can_be_kept: bool,
}

/// Lists everything that waits for a person: approvals, questions, calls whose outcome is unknown, services that have not
/// answered for 10 minutes, and grants that a plugin lacks.
///
/// A turn waits for the grants that a plugin lacks only if a request with a token that has the right `administer` said
/// `present=true` in the last 30 s, and if neither a schedule nor a webhook has begun the turn. Otherwise, the plugin runs
/// without the grants, and the first part contains an item of the kind `denied_grants` until the plugin has the grants, somebody
/// dismisses the item, or the server stops.
#[utoipa::path(
    get, path = "/api/inbox", tag = "answers", security(("token" = [])), params(InboxQuery),
    responses((status = 200, body = Inbox), ApiProblems)
)]
pub(crate) async fn list_inbox(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    query: Result<Query<InboxQuery>, QueryRejection>,
) -> Result<Json<Inbox>, Problem> {
    caller.require(Right::Read)?;
    let Query(InboxQuery { after, limit, present }) = query.map_err(|error| Problem::invalid(error.body_text()))?;
    let limit = match limit.unwrap_or(DEFAULT_LIMIT) {
        limit @ 1..=MAX_LIMIT => limit,
        limit => return Err(Problem::invalid(format!("`limit` is {limit}, but must be 1 to {MAX_LIMIT}"))),
    };
    let after = after.as_deref().map(position_of).transpose()?;
    let agents: Vec<String> = caller.agents(state.supervisor.agents().keys()).into_iter().map(str::to_owned).collect();
    let reader = Reader { agents: agents.clone(), user: caller.token.user.clone() };
    if present && caller.token.rights.contains(&Right::Administer) {
        state.first_uses.note_reader(reader.clone());
    }
    let mut sessions = state.store().suspended(&agents, caller.token.user.as_deref(), after, limit + 1).await?;
    let has_more = sessions.len() > limit;
    sessions.truncate(limit);
    let next = sessions.last().filter(|_| has_more).map(|(position, _)| cursor_of(*position));
    let mut items = Vec::new();
    for (_, session) in sessions {
        match items_of(state.store(), session).await {
            Ok(found) => items.extend(found),
            // The session was deleted a moment ago.
            Err(StoreError::NoSession { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if after.is_none() {
        items.extend(first_uses(&state, &caller, &reader));
    }
    items.sort_by(|one, other| one.since.cmp(&other.since));
    Ok(Json(Inbox { items, next }))
}

/// Returns the text with which a client continues a list after this position.
fn cursor_of(position: ListPosition) -> String {
    format!("{}.{}", position.place, position.number)
}

fn position_of(cursor: &str) -> Result<ListPosition, Problem> {
    let parts = cursor.split_once('.').and_then(|(place, number)| Some((place.parse().ok()?, number.parse().ok()?)));
    let (place, number) = parts.ok_or_else(|| Problem::invalid("`after` is not the `next` of an earlier answer"))?;
    Ok(ListPosition { place, number })
}

/// Returns the questions about grants, and what plugins did without.
fn first_uses(state: &ApiState, caller: &Caller, reader: &Reader) -> Vec<InboxItem> {
    let waiting = state.first_uses.waiting_for(reader).into_iter();
    let waiting = waiting.map(|(id, question)| item_of_first_use("first_use", id, question));
    let denied = state.first_uses.denied_for(reader, |denied| is_outdated(state, denied)).into_iter();
    let denied = denied.map(|denied| item_of_first_use("denied_grants", denied.id, denied.question));
    let mut items: Vec<_> = waiting.chain(denied).collect();
    let may_change_file = check_rights(caller).is_ok();
    for asked in items.iter_mut().filter_map(|item| item.first_use.as_mut()) {
        asked.can_be_kept &= may_change_file;
    }
    items
}

/// Whether the plugin has the grants now, or whether the agent uses another version of it.
fn is_outdated(state: &ApiState, denied: &DeniedFirstUse) -> bool {
    let Some(agent) = state.supervisor.agents().get(&denied.question.session.agent) else { return true };
    let agent = agent.current();
    let setup = agent.setups().get(&denied.question.plugin);
    let lacks = setup.is_some_and(|setup| {
        let is_same = setup.plugin().identity().digest.to_string() == denied.question.digest;
        let still_lacking = setup.plugin().needed(setup.grants(), &denied.call);
        is_same && denied.lacked.iter().any(|lacked| still_lacking.contains(lacked))
    });
    !lacks
}

fn item_of_first_use(kind: &'static str, id: String, question: OpenFirstUse) -> InboxItem {
    let SessionOfQuestion { session, agent, user, title, .. } = question.session;
    InboxItem {
        kind,
        session,
        agent,
        user,
        title,
        call: String::new(),
        tool: question.tool.unwrap_or_default(),
        since: question.since,
        expires: question.expires,
        question: None,
        event_type: None,
        event: None,
        arguments: Value::Null,
        omitted_bytes: 0,
        editable: false,
        source: None,
        traits: None,
        because: None,
        first_use: Some(FirstUseItem {
            question: id,
            plugin: question.plugin,
            digest: question.digest,
            offered: question.offered,
            not_offered: question.not_offered,
            can_be_kept: question.can_be_kept,
        }),
    }
}

async fn items_of(store: &dyn Store, session: SessionSummary) -> Result<Vec<InboxItem>, StoreError> {
    let subject = &session.subject;
    let run = store.snapshot(subject).await?.and_then(|snapshot| Run::restore(Some(&snapshot)).ok());
    let Some(run) = run else { return Ok(Vec::new()) };
    let waits = run.waits();
    let wanted: Vec<&Wait> = waits.iter().filter(|wait| kind_of(&wait.cause).is_some()).collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let after = run.sequence.saturating_sub(RECENT_EVENTS);
    let events = store.events(subject, after, usize::try_from(RECENT_EVENTS).unwrap_or(usize::MAX)).await?;
    let ids = wanted.iter().map(|wait| wait.call.clone()).collect();
    let calls = store.calls(subject, CallFilter::Ids(ids)).await?;
    let now = Timestamp::from_microsecond(store.now()).unwrap_or_else(|_| Timestamp::now());
    let mut items = Vec::new();
    for wait in wanted {
        let Some(kind) = kind_of(&wait.cause) else { continue };
        let since = since(&events, wait).unwrap_or_else(|| session.updated.clone());
        let is_recent = since.parse::<Timestamp>().is_ok_and(|since| now.duration_since(since) < OVERDUE_AFTER);
        if kind == "overdue_service" && is_recent {
            continue;
        }
        let call = calls.iter().find(|call| call.id == wait.call);
        let details = approval_details(&events, wait);
        let source = details.map(|details| &details.source).or(call.and_then(|call| call.source.as_ref()));
        let arguments = details.map(|details| &details.arguments).or(call.map(|call| call.effective_arguments()));
        let (arguments, omitted_bytes) = shown_arguments(arguments);
        items.push(InboxItem {
            kind,
            agent: session.agent.clone(),
            user: session.user.clone(),
            title: session.title.clone(),
            call: wait.call.0.clone(),
            tool: wait.name.clone(),
            since,
            expires: wait.cause.expires_at().and_then(time_of),
            question: if let WaitCause::Answer { question, .. } = &wait.cause { Some(question.clone()) } else { None },
            event_type: if let WaitCause::Service { event_type, .. } = &wait.cause {
                Some(event_type.clone())
            } else {
                None
            },
            event: (kind == "overdue_service").then(|| wait.call.0.clone()),
            // The data of a service request that a plugin made cannot be changed, because its tool has run already.
            editable: kind == "approval" && call.is_none_or(|call| call.attempt == 0),
            source: source.map(|source| serde_json::to_value(source).unwrap_or_default()),
            traits: details.map(|details| serde_json::to_value(details.traits).unwrap_or_default()),
            because: details.map(|details| details.because.clone()),
            first_use: None,
            arguments,
            omitted_bytes,
            session: subject.clone(),
        });
    }
    Ok(items)
}

/// Returns the arguments of a call, and 0; or nothing and their size, if they are too large for a list.
fn shown_arguments(arguments: Option<&Value>) -> (Value, usize) {
    let Some(arguments) = arguments else { return (Value::Null, 0) };
    match arguments.to_string().len() {
        size if size > ARGUMENT_BYTES => (Value::Null, size),
        _ => (arguments.clone(), 0),
    }
}

/// Returns the kind of an item, or `None` if the turn does not wait for a person.
fn kind_of(cause: &WaitCause) -> Option<&'static str> {
    match cause {
        WaitCause::Approval { .. } => Some("approval"),
        WaitCause::Answer { .. } => Some("question"),
        WaitCause::OutcomeUnknown => Some("outcome_unknown"),
        WaitCause::Service { .. } => Some("overdue_service"),
        WaitCause::Agent { .. } | WaitCause::Client => None,
    }
}

/// Returns the time of the first event since the last prompt of the host that says that the turn waits for this call.
fn since(events: &[TimedEvent], wait: &Wait) -> Option<String> {
    let waits = |event: &&TimedEvent| match &event.event.kind {
        EventKind::Suspended { suspension } => suspension.waits.iter().any(|known| known.call == wait.call),
        EventKind::ApprovalRequested { calls, .. } => calls.iter().any(|item| item.call == wait.call),
        EventKind::OutcomeUnknown { call, .. } => *call == wait.call,
        _ => false,
    };
    events.iter().find(waits).map(|event| event.time.clone())
}

/// Returns the details of the last request for an approval of this call.
fn approval_details<'e>(events: &'e [TimedEvent], wait: &Wait) -> Option<&'e ApprovalDetails> {
    events.iter().rev().find_map(|event| match &event.event.kind {
        EventKind::ApprovalRequested { calls, .. } => {
            calls.iter().find(|item| item.call == wait.call).and_then(|item| item.details.as_ref())
        }
        _ => None,
    })
}

fn time_of(milliseconds: u64) -> Option<String> {
    let milliseconds = i64::try_from(milliseconds).ok()?;
    Timestamp::from_millisecond(milliseconds).ok().map(|time| time.to_string())
}
