//! Sends a request to a session that another process has open, from a process without a supervisor (F2).

use super::stored::{answer_from_json, request_to_json};
use super::{Accepted, RequestError, RequestProblem, SessionRequest};
use agent_store::{RequestKey, RequestState, SessionFilter, Store, StoreError};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// Time between two checks for an answer.
const INTERVAL: Duration = Duration::from_millis(100);
/// Time that the sender waits longer for a request that a process has begun to handle.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// What became of a request that the sender has stored for another process.
pub(crate) enum Outcome {
    /// The session has answered.
    Answered(Result<Accepted, RequestError>),
    /// No process has taken the request, and none will, because it was withdrawn.
    Withdrawn,
    /// A process may have carried the request out.
    Unknown,
}

/// Looks at a stored request once. Returns `None` if the sender waits longer. A sender that gives up, or that has waited until
/// `until`, withdraws the request.
pub(crate) async fn outcome_of(
    store: &dyn Store,
    key: &RequestKey,
    until: Instant,
    gives_up: bool,
) -> Result<Option<Outcome>, StoreError> {
    let gives_up = gives_up || Instant::now() >= until;
    let state = match gives_up {
        true => store.withdraw_request(key).await?,
        false => store.request_state(key).await?,
    };
    Ok(match state {
        RequestState::Answered(answer) => Some(Outcome::Answered(answer_from_json(&answer))),
        // Without the request, nobody knows whether it was carried out.
        RequestState::Gone => Some(Outcome::Unknown),
        RequestState::Waiting => gives_up.then_some(Outcome::Withdrawn),
        RequestState::Claimed => (Instant::now() >= until + GRACE).then_some(Outcome::Unknown),
    })
}

/// Sends a request to the session's process, and waits for the answer. A server and a worker take requests; a session in a
/// terminal does not.
///
/// Returns `None` if the request had no effect: no process has taken it within `patience`, or the other process has closed the
/// session. If this future is dropped, the request stays until `patience` has passed.
///
/// # Errors
///
/// Fails as the session answers, for example if the session does not wait for what the request contains. Fails with
/// [`RequestProblem::Unavailable`] if the request may have an effect, but its answer is not known.
pub async fn send_to_holder(
    store: &dyn Store,
    session: &str,
    request: &SessionRequest,
    patience: Duration,
) -> Result<Option<Accepted>, RequestError> {
    let key = RequestKey { session: session.to_owned(), id: Uuid::new_v4().to_string() };
    let until = Instant::now() + patience;
    store.post_request(&key, &request_to_json(request)?, patience).await?;
    match wait_for_outcome(store, &key, until).await {
        Err(error) => match store.withdraw_request(&key).await {
            // Nobody has taken the request.
            Ok(RequestState::Waiting) => Err(error.into()),
            _ => Err(not_answered(session)),
        },
        Ok(Outcome::Answered(answer)) => {
            // The answer is deleted later if this fails.
            let _ = store.remove_request(&key).await;
            answer.map(Some)
        }
        Ok(Outcome::Withdrawn) => Ok(None),
        Ok(Outcome::Unknown) => Err(not_answered(session)),
    }
}

async fn wait_for_outcome(store: &dyn Store, key: &RequestKey, until: Instant) -> Result<Outcome, StoreError> {
    loop {
        let is_closed = !is_open_elsewhere(store, &key.session).await?;
        if let Some(outcome) = outcome_of(store, key, until, is_closed).await? {
            return Ok(outcome);
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn is_open_elsewhere(store: &dyn Store, session: &str) -> Result<bool, StoreError> {
    let filter = SessionFilter { subject: Some(session.to_owned()), ..SessionFilter::default() };
    Ok(store.sessions(filter, 1).await?.iter().any(|found| found.open_in.is_some()))
}

/// The error for a request that another process has taken and may have handled.
pub(crate) fn not_answered(session: &str) -> RequestError {
    let message = format!(
        "another process has taken the request to session `{session}` and has not answered; look at the session before you \
         send the request again"
    );
    RequestError::new(RequestProblem::Unavailable, message)
}
