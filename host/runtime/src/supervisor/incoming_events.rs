//! Events of other systems that come over NATS (I6). An event begins a session, as a request to a webhook does, or answers a request
//! to a service. Each event takes effect exactly once, because the name of its session contains its id.

mod content;
mod log_limit;
mod postponed;

use super::{Supervisor, mailbox};
use crate::agent::EventInput;
use crate::fleet::Fleet;
use crate::requests::{Prompt, RequestError, RequestProblem, SessionKind, SessionName, SessionRequest};
use crate::session::SessionError;
use agent_core::message::{CallId, Part, TurnInput};
use agent_fleet::{IncomingEvent, MAX_DELIVERIES};
use agent_store::{CallFilter, StoreError};
use content::{Content, read};
use log_limit::LogLimit;
use postponed::{MAX_POSTPONED, PostponedCount, SessionPlaces};
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Maximum number of events of one table that are handled at the same time.
const HANDLED: usize = 16;
/// Maximum number of further events of one table that wait in this process, because the host or their session is busy.
const WAITING: usize = 64;
/// Maximum number of answers to one session that are handled or wait at the same time.
const PER_SESSION: usize = 2;
/// Maximum time of one attempt to hand an answer to its session.
const ATTEMPT: Duration = Duration::from_secs(10);
/// Time until the next attempt if the host or the session is busy.
const LATER: Duration = Duration::from_secs(2);
/// Time for which an event waits in this process. Then it is handed back, probably to another process.
const HELD: Duration = Duration::from_secs(60);
/// Time between two messages to the server that this process still tries. Without them, it delivers an event again after 30 seconds.
const PROGRESS: Duration = Duration::from_secs(10);
/// Delay of the second delivery after a failure. Each further failure doubles the delay.
const FIRST_DELAY: Duration = Duration::from_secs(1);

/// Receives the events of one table `[events.NAME]` of an agent until the supervisor shuts down.
pub(super) async fn receive_events(
    supervisor: Supervisor,
    fleet: Fleet,
    (agent, name, input): (String, String, EventInput),
) {
    let mut events = fleet.nats.incoming_events((&agent, &name), &input.source, fleet.key.clone());
    let receiver = Arc::new(Receiver {
        supervisor: supervisor.clone(),
        permits: Arc::new(Semaphore::new(HANDLED)),
        waiting: Semaphore::new(WAITING),
        sessions: SessionPlaces::new(PER_SESSION),
        log_limit: LogLimit::new(Instant::now()),
        postponed: PostponedCount::new(supervisor.0.host.store.clone(), &agent, &name),
        fleet,
        agent,
        name,
        input,
    });
    loop {
        let received = async {
            let permit = receiver.permits.clone().acquire_owned().await.ok()?;
            Some((events.next().await, permit))
        };
        let (event, permit) = tokio::select! {
            () = supervisor.0.stop.cancelled() => return,
            received = received => match received {
                Some(received) => received,
                None => return,
            },
        };
        let receiver = receiver.clone();
        supervisor.0.tasks.spawn(async move { receiver.handle(event, permit).await });
    }
}

/// Handles the events of one table.
struct Receiver {
    supervisor: Supervisor,
    permits: Arc<Semaphore>,
    waiting: Semaphore,
    sessions: SessionPlaces,
    log_limit: LogLimit,
    postponed: PostponedCount,
    fleet: Fleet,
    agent: String,
    name: String,
    input: EventInput,
}

/// What happens to an event.
enum Outcome {
    /// It has taken effect.
    Done,
    /// It cannot be handled now, which is not its fault, for this reason.
    NotNow(String),
    /// This process shuts down.
    Leaving,
    /// It cannot be handled.
    Failed(RequestError),
}

impl Receiver {
    async fn handle(&self, event: IncomingEvent, permit: OwnedSemaphorePermit) {
        let content = match read(&event) {
            Ok(content) => content,
            Err(error) => return self.bury(event, &error.message).await,
        };
        let deliveries = match self.counted_deliveries(&event).await {
            Ok(deliveries) => deliveries,
            Err(error) => {
                self.warn(&error, "an event cannot be handled now");
                return event.retry_after(LATER).await;
            }
        };
        if deliveries > MAX_DELIVERIES {
            let reason = "no process has confirmed it; processes may have stopped while they tried";
            return self.give_up(event, &content, reason).await;
        }
        let outcome = match &content {
            Content::Answer { session, .. } => match self.sessions.enter(session) {
                Some(_place) => self.try_while_busy(&event, &content, permit).await,
                None => Outcome::NotNow(format!("other answers to session `{session}` are being handled")),
            },
            Content::Input { .. } => self.try_while_busy(&event, &content, permit).await,
        };
        match outcome {
            Outcome::Done => self.confirm(event).await,
            Outcome::NotNow(reason) => self.postpone(event, &content, &reason).await,
            Outcome::Leaving => {
                // A process that shuts down leaves the event to the others.
                self.postponed.add(&event.origin.position).await;
                event.retry_after(Duration::ZERO).await;
            }
            Outcome::Failed(error) if error.kind == RequestProblem::Failed && deliveries < MAX_DELIVERIES => {
                self.warn(&error, "an event cannot be handled now; it is delivered again");
                event.retry_after(FIRST_DELAY * (1 << (deliveries.clamp(1, MAX_DELIVERIES) - 1))).await;
            }
            Outcome::Failed(error) => self.give_up(event, &content, &error.message).await,
        }
    }

    /// Tries to handle an event. While the host or the session is busy, the event waits in this process for a while, without a
    /// permit, so that it does not keep other events waiting.
    async fn try_while_busy(&self, event: &IncomingEvent, content: &Content, permit: OwnedSemaphorePermit) -> Outcome {
        let (until, mut permit) = (Instant::now() + HELD, Some(permit));
        loop {
            let error = match while_trying(event, self.accept(content)).await {
                Ok(()) => return Outcome::Done,
                Err(error) if error.kind == RequestProblem::Unavailable => error,
                Err(error) => return Outcome::Failed(error),
            };
            if self.supervisor.0.stop.is_cancelled() {
                return Outcome::Leaving;
            }
            if !is_busy(&error, content) || Instant::now() >= until {
                return Outcome::NotNow(error.message);
            }
            let Ok(_waiting) = self.waiting.try_acquire() else { return Outcome::NotNow(error.message) };
            drop(permit.take());
            let next = async {
                tokio::time::sleep(LATER).await;
                self.permits.clone().acquire_owned().await.ok()
            };
            tokio::select! {
                () = self.supervisor.0.stop.cancelled() => return Outcome::Leaving,
                next = while_trying(event, next) => permit = next,
            }
        }
    }

    /// Returns how often the event was delivered, without the deliveries after which it was only postponed.
    async fn counted_deliveries(&self, event: &IncomingEvent) -> Result<u32, StoreError> {
        let postponed = if event.deliveries > 1 { self.postponed.get(&event.origin.position).await? } else { 0 };
        Ok(event.deliveries.saturating_sub(postponed))
    }

    /// Hands back an event that cannot be handled now. This does not count as a failure of the event, but it is not repeated without
    /// end.
    async fn postpone(&self, event: IncomingEvent, content: &Content, reason: &str) {
        let count = self.postponed.add(&event.origin.position).await;
        if count > MAX_POSTPONED {
            return self.give_up(event, content, reason).await;
        }
        tracing::debug!(agent = self.agent, name = self.name, count, reason, "an event is postponed");
        event.retry_after(postponed::delay(count)).await;
    }

    async fn confirm(&self, event: IncomingEvent) {
        self.forget(&event).await;
        event.confirm().await;
    }

    /// Makes an event a dead letter, unless it has taken effect without being confirmed.
    async fn give_up(&self, event: IncomingEvent, content: &Content, reason: &str) {
        match self.has_taken_effect(content).await {
            Ok(true) => self.confirm(event).await,
            Ok(false) => self.bury(event, reason).await,
            Err(error) => {
                self.warn(&error, "an event cannot be handled now");
                event.retry_after(LATER).await;
            }
        }
    }

    async fn bury(&self, event: IncomingEvent, reason: &str) {
        self.warn(&reason, "an event cannot be handled; see `agent-host dead-letter list`");
        self.forget(&event).await;
        event.give_up(reason, &self.fleet.process).await;
    }

    /// Writes a line about an event to the log, unless there are many such lines.
    fn warn(&self, error: &dyn Display, what: &str) {
        let (agent, name) = (&self.agent, &self.name);
        match self.log_limit.next(Instant::now()) {
            Some(0) => tracing::warn!(agent, name, %error, "{what}"),
            Some(left_out) => tracing::warn!(agent, name, left_out, %error, "{what}"),
            None => {}
        }
    }

    async fn forget(&self, event: &IncomingEvent) {
        if event.deliveries > 1 {
            self.postponed.remove(&event.origin.position).await;
        }
    }

    /// Returns whether the session of an event exists, or whether the call that it answers has a result.
    async fn has_taken_effect(&self, content: &Content) -> Result<bool, StoreError> {
        let shared = &self.supervisor.0;
        match content {
            Content::Input { id, .. } => {
                let subject = format!("{}/{}", self.agent, self.session_of(id));
                Ok(shared.stored(&subject).await?.is_some_and(|found| found.revision > 0))
            }
            Content::Answer { session, event } => {
                let call = event.parentid.clone().unwrap_or_default();
                if shared.stored(session).await?.is_none_or(|found| found.agent != self.agent) {
                    return Ok(false);
                }
                let calls = shared.host.store.calls(session, CallFilter::Ids(vec![CallId(call)])).await?;
                Ok(calls.iter().any(|call| call.result.is_some()))
            }
        }
    }

    /// Returns the name of the session that begins with the event of this id.
    fn session_of(&self, id: &str) -> SessionName {
        SessionName::new(SessionKind::Event, &format!("{}\0{id}", self.name))
    }

    /// Begins a session with an event, or hands an answer to its session. Returns after this was committed.
    async fn accept(&self, content: &Content) -> Result<(), RequestError> {
        match content {
            Content::Answer { session, event } => {
                let found = self.supervisor.0.stored(session).await?;
                // An event may answer only requests of the agent that receives it.
                if found.is_none_or(|found| found.agent != self.agent) {
                    let message =
                        format!("the agent `{}` has no session `{session}`, which the event answers", self.agent);
                    return Err(RequestError::new(RequestProblem::NotFound, message));
                }
                let (request, until) = (SessionRequest::Respond(event.clone()), Instant::now() + ATTEMPT);
                self.supervisor.send_until(session, request, until).await.map(drop)
            }
            Content::Input { data, id, trace } => {
                let data = data.clone();
                let input = match &self.input.prompt {
                    None => TurnInput::Json(data),
                    Some(prompt) => TurnInput::Message(vec![Part::Text(prompt.to_string()), Part::Json(data)]),
                };
                let prompt = Prompt { user: self.input.user.clone(), trace: trace.clone(), ..Prompt::new(input) };
                self.supervisor.create_once(&self.agent, &self.session_of(id), prompt).await.map(drop)
            }
        }
    }
}

/// Returns whether an event can be handled as soon as the host has a place, or as soon as its session is no longer busy. Other
/// obstacles may last, or may be absent at another process.
fn is_busy(error: &RequestError, content: &Content) -> bool {
    let has_no_place = *error == RequestError::from(SessionError::NoPlace);
    has_no_place || matches!(content, Content::Answer { session, .. } if *error == mailbox::busy(session))
}

/// Tells the server again and again that this process still tries, so that it does not deliver the event to others.
async fn while_trying<T>(event: &IncomingEvent, attempt: impl Future<Output = T>) -> T {
    let mut attempt = std::pin::pin!(attempt);
    loop {
        tokio::select! {
            result = &mut attempt => return result,
            () = tokio::time::sleep(PROGRESS) => event.still_trying().await,
        }
    }
}
