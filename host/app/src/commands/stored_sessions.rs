//! Finds the user's sessions in the store, and formats them for lists.

use crate::exit::Failure;
use crate::terminal::text::{self, shell_word};
use crate::terminal::{BOLD, DIM};
use agent_config::DataDirectory;
use agent_store::{MAX_PAGE, SessionFilter, SessionState, SessionSummary, Store};

/// Minimum number of characters of a part that is not the beginning of an id.
const MIN_PART_CHARACTERS: usize = 4;

/// Finds one of the user's sessions by its id or by a part of it that no other session has. Without an id, returns the latest
/// session.
///
/// A part that is the beginning of an id takes precedence over a part in its middle or at its end.
pub(crate) async fn find(store: &dyn Store, data: &DataDirectory, id: Option<&str>) -> Result<SessionSummary, Failure> {
    let Some(id) = id else {
        let latest = sessions(store, data, SessionFilter::default(), MAX_PAGE).await?;
        let latest = latest.into_iter().find(|session| session.state != SessionState::Incomplete);
        return latest.ok_or_else(|| Failure::refused("there are no sessions yet"));
    };
    let mut all = sessions(store, data, SessionFilter::default(), MAX_PAGE).await?;
    if let Some(exact) = all.iter().position(|session| session.subject == id) {
        return Ok(all.swap_remove(exact));
    }
    all.retain(|session| has_part(session, id));
    if all.iter().any(|session| session.subject.starts_with(id)) {
        all.retain(|session| session.subject.starts_with(id));
    }
    // If `id` is the full name of an agent, it selects only that agent's sessions, even if the names of other agents
    // begin with this name.
    if all.iter().any(|session| session.agent == id) {
        all.retain(|session| session.agent == id);
    }
    match all.len() {
        1 => Ok(all.swap_remove(0)),
        0 => Err(missing(store, id).await?),
        number => Err(Failure::refused(format!(
            "the ids of {number} sessions contain `{id}`; write more characters of the id"
        ))),
    }
}

/// Returns whether this text is the beginning of the session's id, or another part of it that is long enough.
fn has_part(session: &SessionSummary, text: &str) -> bool {
    let is_long_enough = text.chars().count() >= MIN_PART_CHARACTERS;
    session.subject.starts_with(text) || (is_long_enough && session.subject.contains(text))
}

/// Returns the error for a session that does not exist or that belongs to another user (row 56
/// of `host/docs/threats.md`).
async fn missing(store: &dyn Store, id: &str) -> Result<Failure, Failure> {
    let all = store.sessions(SessionFilter::default(), MAX_PAGE).await.map_err(Failure::refused)?;
    let other = all.into_iter().find(|session| has_part(session, id));
    Ok(Failure::refused(match other.and_then(|other| other.user) {
        Some(owner) => {
            let owner = text::one_line(&owner, 128);
            format!("session `{id}` belongs to the user `{owner}`; `--user {}` selects that user", shell_word(&owner))
        }
        None => format!("there is no session `{id}`; `agent-host session list` shows all sessions"),
    }))
}

/// Finds a session as [`find`] does. If the part is ambiguous but exactly one of the matching sessions has an open
/// turn, returns that session.
pub(crate) async fn find_open(store: &dyn Store, data: &DataDirectory, id: &str) -> Result<SessionSummary, Failure> {
    let mut open = sessions(store, data, SessionFilter::default(), MAX_PAGE).await?;
    open.retain(|session| has_part(session, id) && session.state.is_open());
    if open.iter().any(|session| session.subject.starts_with(id)) {
        open.retain(|session| session.subject.starts_with(id));
    }
    match open.as_slice() {
        [_] => Ok(open.remove(0)),
        _ => find(store, data, Some(id)).await,
    }
}

/// Returns the user's sessions that match the filter, in the order of their last change, latest first. Sessions whose
/// process died get the state [`SessionState::Interrupted`].
pub(crate) async fn sessions(
    store: &dyn Store,
    data: &DataDirectory,
    filter: SessionFilter,
    limit: usize,
) -> Result<Vec<SessionSummary>, Failure> {
    let mut found = store.sessions(data.sessions_of_user(filter), limit).await.map_err(Failure::refused)?;
    for session in
        found.iter_mut().filter(|session| session.state == SessionState::Running && session.open_in.is_none())
    {
        session.state = SessionState::Interrupted;
    }
    Ok(found)
}

/// Formats a session as an entry of a list.
pub(crate) fn summary(session: &SessionSummary) -> String {
    let title = session.title.as_deref().map(|title| text::one_line(title, 80)).unwrap_or_default();
    let turns = text::count(session.turns as usize, "turn");
    let (id, state) = (text::one_line(&session.subject, 250), &session.state);
    let updated = text::local_time(&session.updated);
    let title = if title.is_empty() { title } else { format!("\n  {DIM}{title}{DIM:#}") };
    let cost = session.usage.usage.cost.map(|cost| format!("{cost}, ")).unwrap_or_default();
    format!("{BOLD}{id}{BOLD:#}  {state}, {turns}, {cost}{updated}{title}")
}
