//! The task of one open session: it handles requests, and runs the turns of the session.

use super::{Opened, OpenedFor, Shared};
use crate::agent::UserName;
use crate::requests::{Accepted, PendingRequest, Prompt, RequestError, RequestProblem, SessionRequest};
use crate::session::{Session, SessionError, TurnResult};
use crate::waiting::{check_delegation, check_turn, with_attachments};
use agent_core::message::TurnInput;
use futures::FutureExt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// What the task of a session does next.
enum Next {
    /// Continue the open turn.
    Continue,
    /// Wait for a request.
    Wait,
    /// Close the session.
    Close,
}

/// Runs a session until it is idle, cannot continue, or the process shuts down. Then closes the session.
pub(super) async fn run(shared: Arc<Shared>, mut session: Session, (first, opened): OpenedFor) {
    let (subject, opened_at) = (session.subject().to_owned(), session.revision());
    let parent = session.state().delegated_by.clone();
    let mut actor = Actor { shared: &shared, session: &mut session };
    let result = actor.run(first).await;
    let (revision, is_open) = (session.revision(), session.state().is_open());
    let is_due = session.state().continues_at().is_some_and(|time| time <= session.services.now_ms());
    let epoch = session.lease().epoch;
    let closed = close(&shared, session).await;
    let (result, has_progressed) = (result.and(closed), revision != opened_at);
    announce(&shared, &subject, Closed { revision, epoch, is_open, has_progressed });
    let is_by_request = matches!(opened, Opened::Request);
    if let Opened::Announcement { outcome } = opened {
        let failed = result.as_ref().err().filter(|_| !has_progressed);
        // If nobody waits for the outcome, the announcement is confirmed already.
        let _ = outcome.send(failed.map_or(Ok(()), |error| Err(super::work_queue::describe(error))));
    }
    match result {
        // The session could continue, but made no progress. Without a delay, it would be opened again immediately.
        Ok(()) if !has_progressed && (is_due || !is_by_request) => {
            let delay = shared.backoff.failed(&subject, Instant::now());
            tracing::debug!(session = subject, ?delay, "the session did not continue, and is opened again later");
        }
        Ok(()) => shared.backoff.succeeded(&subject),
        Err(error) => {
            let delay = shared.backoff.failed(&subject, Instant::now());
            tracing::warn!(session = subject, %error, ?delay, "the session cannot continue now");
        }
    }
    // The parent has asked for the work of this session, and continues with its result (L16).
    if let Some(parent) = parent.filter(|_| !is_open) {
        match shared.host.sessions.requests_to(&parent) {
            Some(requests) => drop(super::deliver(&requests, SessionRequest::Continue).await),
            // The parent is open in another process, or the scan finds it.
            None => shared.host.news.add_work(&parent, format!("{parent} {subject} {revision}")),
        }
    }
    shared.changed.notify_one();
}

/// A session that was closed, with the number of its last commit and the epoch of its lease.
struct Closed {
    revision: u64,
    epoch: u64,
    is_open: bool,
    has_progressed: bool,
}

/// Announces that other processes may continue a session, if its turn is open. A session that cannot continue here is not
/// announced, because processes would hand it to each other without end; they find it by searching. The id of an announcement is
/// that of the commit, or of the lease if the process shuts down.
fn announce(shared: &Shared, subject: &str, closed: Closed) {
    let Closed { revision, epoch, is_open, has_progressed } = closed;
    match (is_open, shared.stop.is_cancelled()) {
        (true, true) => shared.host.news.add_work(subject, format!("{subject} {revision} {epoch}")),
        (true, false) if has_progressed => shared.host.news.add_work(subject, format!("{subject} {revision}")),
        _ => {}
    }
}

/// Closes a session. A session in which no turn ever started is deleted.
async fn close(shared: &Shared, session: Session) -> Result<(), SessionError> {
    let (subject, is_empty) = (session.subject().to_owned(), session.revision() == 0);
    session.close().await?;
    if is_empty {
        shared.host.store.delete(&subject).await?;
    }
    Ok(())
}

/// A session, and the supervisor that runs it.
struct Actor<'s> {
    shared: &'s Shared,
    session: &'s mut Session,
}

impl Actor<'_> {
    async fn run(&mut self, first: Option<PendingRequest>) -> Result<(), SessionError> {
        let mut next = if self.session.state().is_open() { Next::Continue } else { Next::Wait };
        if let Some(first) = first {
            next = self.handle(first).await?;
        }
        loop {
            next = match next {
                Next::Close => return Ok(()),
                Next::Continue => self.run_turn(None, CancellationToken::new()).await?,
                Next::Wait => match self.next_queued_prompt() {
                    Some(prompt) => self.begin_turn(prompt).await?,
                    None => self.wait().await?,
                },
            };
        }
    }

    /// Returns the queued prompt with which the next turn begins. A delegated session works only for its parent, so it runs
    /// no further turn.
    fn next_queued_prompt(&self) -> Option<TurnInput> {
        self.session.next_queued_prompt().filter(|_| self.session.state().delegated_by.is_none())
    }

    /// Waits for a request or for the deadline of the open turn. Decides to close the session if it is idle.
    async fn wait(&mut self) -> Result<Next, SessionError> {
        let is_finished_child = self.session.state().delegated_by.is_some() && !self.session.state().is_open();
        if is_finished_child && self.session.state().turns > 0 {
            return Ok(Next::Close);
        }
        let now = self.session.services.now_ms();
        let until_due = self.session.state().continues_at().map(|time| time.saturating_sub(now));
        let timeout = self.shared.options.idle_timeout;
        let is_due = until_due.map(Duration::from_millis).filter(|until_due| *until_due <= timeout);
        tokio::select! {
            biased;
            () = self.shared.stop.cancelled() => Ok(Next::Close),
            // Another process has taken the session over.
            () = self.session.services.leaving.cancelled() => Ok(Next::Close),
            pending = self.session.inbox.next() => self.handle(pending).await,
            () = tokio::time::sleep(is_due.unwrap_or(timeout)) => {
                Ok(if is_due.is_some() { Next::Continue } else { Next::Close })
            }
        }
    }

    /// Handles a request while no turn runs.
    async fn handle(
        &mut self,
        PendingRequest { request, reply, stored }: PendingRequest,
    ) -> Result<Next, SessionError> {
        let is_open = self.session.state().is_open();
        // A process that stopped may have left prompts that wait. A new prompt is queued behind them: it must not overtake them, and
        // a turn that begins with the text of a queued prompt would take that prompt from the queue.
        let has_queued = self.next_queued_prompt().is_some();
        let is_internal = matches!(request, SessionRequest::Continue | SessionRequest::Cancel);
        if reply.is_closed() && !is_internal {
            // The sender was told that the session is busy, and may send the request again.
            return Ok(if is_open { Next::Continue } else { Next::Wait });
        }
        let answer = match request {
            SessionRequest::FirstPrompt(_) if self.session.state().turns > 0 => Ok(Accepted::Duplicate),
            SessionRequest::Prompt(prompt) | SessionRequest::FirstPrompt(prompt) if !is_open && !has_queued => {
                match self.input_of(prompt).await {
                    Ok(input) => {
                        self.session.start_reply = Some(reply);
                        self.session.log.answer_with_commit(stored);
                        return self.begin_turn(input).await;
                    }
                    Err(error) => Err(error),
                }
            }
            SessionRequest::Cancel if is_open => {
                self.session.cancel_replies.push(reply);
                let cancelled = CancellationToken::new();
                cancelled.cancel();
                return self.run_turn(None, cancelled).await;
            }
            SessionRequest::Cancel => Ok(Accepted::Cancelled),
            SessionRequest::Close => {
                // The sender may have stopped waiting for the answer.
                let _ = reply.send(Ok(Accepted::Closed));
                return Ok(Next::Close);
            }
            SessionRequest::Continue => Ok(Accepted::Continued),
            request => self.session.accept_stored(request, stored).boxed().await,
        };
        let continues = is_open && !matches!(answer, Err(_) | Ok(Accepted::Queued | Accepted::Rehearsed { .. }));
        // The sender may have stopped waiting for the answer.
        let _ = reply.send(answer);
        Ok(if continues { Next::Continue } else { Next::Wait })
    }

    /// Checks a prompt with which a turn begins, and stores its attachments. Returns the input of the turn.
    async fn input_of(&mut self, prompt: Prompt) -> Result<TurnInput, RequestError> {
        self.check_owner(&prompt)?;
        check_turn(self.session.state(), &prompt)?;
        let input = with_attachments(&self.session.services, prompt.input, prompt.attachments).await?;
        if let Some(trace) = prompt.trace {
            self.session.continue_trace(trace);
        }
        self.session.client_tools = prompt.client_tools;
        Ok(input)
    }

    /// Checks that a prompt comes from the user to whom the session belongs.
    fn check_owner(&self, prompt: &Prompt) -> Result<(), RequestError> {
        check_delegation(self.session.state(), prompt)?;
        let (user, owner) = (prompt.user.as_ref().map(UserName::as_str), self.session.owner.as_deref());
        match user.is_none() || user == owner {
            true => Ok(()),
            false => {
                let message = "the session belongs to another user; begin a session of your own";
                Err(RequestError::new(RequestProblem::Conflict, message))
            }
        }
    }

    /// Begins a turn for the user to whom the session belongs.
    async fn begin_turn(&mut self, input: TurnInput) -> Result<Next, SessionError> {
        let configured = self.session.agent().config().user.clone();
        let owner = self.session.owner.clone().filter(|owner| Some(owner) != configured.as_ref());
        match owner.map(|owner| UserName::new(&owner)) {
            None => self.run_turn(Some(input), CancellationToken::new()).await,
            Some(Ok(owner)) => {
                self.session.keep_events_for_readers();
                let ended = self.session.run_for(owner, input, CancellationToken::new()).boxed().await;
                self.after_turn(ended)
            }
            Some(Err(error)) => {
                if let Some(reply) = self.session.start_reply.take() {
                    let _ = reply.send(Err(RequestError::new(RequestProblem::Failed, error)));
                }
                Ok(Next::Close)
            }
        }
    }

    async fn run_turn(&mut self, input: Option<TurnInput>, cancel: CancellationToken) -> Result<Next, SessionError> {
        self.session.keep_events_for_readers();
        let ended = self.session.run(input, cancel).boxed().await;
        self.after_turn(ended)
    }

    /// Answers the requests that the turn did not answer, and decides what the session does next.
    #[expect(clippy::result_large_err, reason = "every session operation returns this type, which is rarely moved")]
    fn after_turn(&mut self, ended: Result<TurnResult, SessionError>) -> Result<Next, SessionError> {
        let is_open = self.session.state().is_open();
        self.session.log.answer_with_commit(None);
        for reply in self.session.cancel_replies.drain(..) {
            let _ = reply.send(match is_open {
                // The turn ended before it could be cancelled.
                false => Ok(Accepted::Cancelled),
                true => {
                    Err(RequestError::new(RequestProblem::Unavailable, "the turn cannot be cancelled now; try again"))
                }
            });
        }
        match (self.session.start_reply.take(), ended) {
            // The turn could not begin, so only the sender of the prompt needs the error.
            (Some(reply), Err(error)) => {
                let _ = reply.send(Err(error.into()));
                Ok(Next::Wait)
            }
            (_, Ok(TurnResult::Interrupted)) => Ok(Next::Close),
            (_, Ok(_)) => Ok(Next::Wait),
            (None, Err(error)) => Err(error),
        }
    }
}
