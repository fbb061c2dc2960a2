//! The task that sends the spans of a group of agents.

use super::batches::{Batch, Limits, SessionCommit, Share, positions};
use super::changed_sessions::{ChangedSessions, TakenSessions};
use super::sender::Sender;
use super::{AgentGroup, ExporterOptions};
use crate::content::Scrubber;
use crate::otlp::SendError;
use crate::session_trace::SessionTrace;
use agent_store::{SessionFilter, Store, StoreError};
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Number of sessions that one query of the store returns.
const PAGE: usize = 200;
/// Maximum number of sessions that are claimed together. The transaction for them delays commits of turns only briefly.
const GROUP: usize = 64;
/// Maximum number of sessions from a session to the session with which the work began. The depth of delegation is limited to a
/// smaller number.
const MAX_DELEGATIONS: usize = 32;
/// Maximum number of sessions of other groups that are remembered, so that they are not looked up at each search.
const MAX_FOREIGN_SESSIONS: usize = 10_000;

/// Follows the sessions of a group of agents.
pub(super) struct Follower {
    store: Arc<dyn Store>,
    group: AgentGroup,
    sender: Sender,
    changed: Arc<ChangedSessions>,
    options: ExporterOptions,
    /// Maximum number of spans of a request. It becomes smaller if the collector refuses requests as too large.
    batch_spans: usize,
    backoff: ExponentialBackoff,
    /// Sessions of the group's agents that work for other agents or for users directly, so that this group does not export them.
    foreign: HashSet<String>,
    /// Whether the beginning of the export is stored.
    has_begun: bool,
    /// Whether the last attempt has failed, so that a failure is reported only once.
    has_failed: bool,
}

/// What happens to the position of a session whose latest commits complete no span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WithoutSpans {
    /// The position is stored, so that the next search does not find the session again.
    Store,
    /// The position is not stored, because a later commit soon completes a span.
    Skip,
}

/// Why the export cannot continue now.
enum Obstacle {
    Store(StoreError),
    Collector(SendError),
}

impl From<StoreError> for Obstacle {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Follower {
    pub(super) fn new(
        store: Arc<dyn Store>,
        group: AgentGroup,
        changed: Arc<ChangedSessions>,
        options: ExporterOptions,
    ) -> Self {
        let backoff = new_backoff(options);
        let batch_spans = options.batch_spans.max(1);
        let (foreign, sender) = (HashSet::new(), Sender::new(group.collector.clone()));
        Self {
            store,
            group,
            sender,
            changed,
            options,
            batch_spans,
            backoff,
            foreign,
            has_begun: false,
            has_failed: false,
        }
    }

    /// Sends spans until `stop` is cancelled, and once more after that. Returns whether all spans were sent.
    pub(super) async fn run(mut self, stop: CancellationToken) -> bool {
        let mut scan_due = Instant::now();
        loop {
            let is_last = stop.is_cancelled();
            let round = async {
                if !self.has_begun {
                    self.try_to_begin().await?;
                }
                let scan = Instant::now() >= scan_due;
                self.export_changed(scan).await.map(|()| scan)
            };
            let pause = match round.await {
                Ok(scanned) => {
                    scan_due = if scanned { Instant::now() + self.options.rescan_interval } else { scan_due };
                    self.succeeded();
                    None
                }
                Err(obstacle) => Some(self.failed(&obstacle)),
            };
            if is_last {
                return pause.is_none();
            }
            self.pause(pause, scan_due, &stop).await;
        }
    }

    /// Marks the events that are stored now as exported, if the agents were never exported before. If the store fails, this
    /// is tried again later.
    pub(super) async fn begin(&mut self) {
        if let Err(error) = self.try_to_begin().await {
            self.failed(&Obstacle::Store(error));
        }
    }

    async fn try_to_begin(&mut self) -> Result<(), StoreError> {
        for agent in self.group.names() {
            self.store.begin_trace_export(&agent).await?;
        }
        self.has_begun = true;
        Ok(())
    }

    /// Waits until there is something to do: the time of the next attempt, a changed session or the next search.
    async fn pause(&self, pause: Option<Duration>, scan_due: Instant, stop: &CancellationToken) {
        let next = async {
            match pause {
                Some(pause) => tokio::time::sleep(pause).await,
                None => tokio::select! {
                    () = self.changed.added() => tokio::time::sleep(self.options.interval).await,
                    () = tokio::time::sleep_until(scan_due) => {}
                },
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = next => {}
        }
    }

    /// Sends the spans of all sessions that have changed. With `scan`, all sessions of the agents in the store are
    /// considered.
    async fn export_changed(&mut self, scan: bool) -> Result<(), Obstacle> {
        let TakenSessions { sessions, are_more } = self.changed.take();
        if (scan || are_more)
            && let Err(obstacle) = self.export_stored().await
        {
            self.changed.put_back(sessions);
            return Err(obstacle);
        }
        self.export_all(sessions, WithoutSpans::Skip).await
    }

    /// Sends the spans of all sessions in the store that have unexported events. The sessions of a page are exported before
    /// the next page is read, so that memory stays bounded.
    async fn export_stored(&mut self) -> Result<(), Obstacle> {
        let mut after = String::new();
        loop {
            let page = self.store.unexported_sessions(&self.group.names(), &after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after.clone_from(last);
            self.export_all(page.into_iter().collect(), WithoutSpans::Store).await?;
        }
    }

    /// Sends the spans of these sessions. Several sessions share a request and the transactions that claim them and store their
    /// positions, because a host with many short sessions would otherwise spend more time on the export than on the spans.
    async fn export_all(&mut self, mut sessions: BTreeSet<String>, without: WithoutSpans) -> Result<(), Obstacle> {
        let exported = self.export_groups(&mut sessions, without).await;
        if exported.is_err() {
            self.changed.put_back(sessions);
        }
        exported
    }

    /// Sends the spans of sessions, and removes those whose spans were sent.
    async fn export_groups(&mut self, left: &mut BTreeSet<String>, without: WithoutSpans) -> Result<(), Obstacle> {
        let mut batch = Batch::default();
        while !left.is_empty() {
            let group: Vec<String> = left.iter().take(GROUP).cloned().collect();
            let mut scrubbers = BTreeMap::new();
            for session in &group {
                if let Some(scrubber) = self.scrubber_of(session).await? {
                    scrubbers.insert(session.clone(), scrubber);
                }
            }
            let own: Vec<String> = scrubbers.keys().cloned().collect();
            for (session, position) in self.store.claim_trace_exports(&own).await? {
                let Some(scrubber) = scrubbers.remove(&session) else { continue };
                let trace = SessionTrace::new(self.store.clone(), &session, scrubber, position);
                match self.add_session(&session, trace, &mut batch, without).await {
                    // The other sessions can still be exported. This session is tried again at the next search.
                    Err(Obstacle::Store(error)) if concerns_one_session(&error) => {
                        tracing::warn!(session, %error, "the session cannot be exported now");
                    }
                    added => added?,
                }
            }
            self.send_batch(&mut batch, without).await?;
            for session in &group {
                left.remove(session);
            }
        }
        Ok(())
    }

    /// Adds the spans of a session that were not sent before. Sends the batch each time when it is full.
    async fn add_session(
        &mut self,
        session: &str,
        mut trace: SessionTrace,
        batch: &mut Batch,
        without: WithoutSpans,
    ) -> Result<(), Obstacle> {
        let session: Arc<str> = session.into();
        while let Some(commits) = trace.next().await? {
            for commit in commits {
                let commit = SessionCommit::new(&session, commit);
                if !batch.has_room_for(&commit, self.limits()) {
                    self.send_batch(batch, without).await?;
                }
                batch.push(commit);
            }
        }
        Ok(())
    }

    /// Sends a batch and stores the positions after it. The batch is empty afterwards, unless this fails.
    async fn send_batch(&mut self, batch: &mut Batch, without: WithoutSpans) -> Result<(), Obstacle> {
        let mut share = Share::AllSessions;
        while !batch.is_empty() {
            let first = batch.first(self.limits(), share);
            match self.sender.send(first, self.group.max_age).await {
                Ok(()) => {}
                Err(SendError::TooLarge { .. }) => {
                    let spans = first.iter().map(|commit| commit.commit.spans.len()).sum::<usize>();
                    self.batch_spans = (spans / 2).max(1);
                    continue;
                }
                // Perhaps only the spans of one session are invalid.
                Err(SendError::Rejected { .. }) => {
                    share = Share::OneSession;
                    continue;
                }
                Err(error) => return Err(Obstacle::Collector(error)),
            }
            let positions = positions(first, without == WithoutSpans::Skip);
            let count = first.len();
            if !positions.is_empty() {
                for session in self.store.set_export_positions(&positions).await? {
                    tracing::warn!(session, "the session was deleted, or another process has begun to export it");
                }
            }
            batch.remove_first(count);
        }
        Ok(())
    }

    fn limits(&self) -> Limits {
        (self.batch_spans, self.options.batch_bytes)
    }

    /// Returns what may leave the host of a session. Returns `None` if the session does not belong to the group, because its work
    /// did not begin with a session of the group's agent.
    async fn scrubber_of(&mut self, session: &str) -> Result<Option<Scrubber>, Obstacle> {
        if self.foreign.contains(session) {
            return Ok(None);
        }
        let (mut subject, mut agents) = (session.to_owned(), Vec::new());
        while agents.len() < MAX_DELEGATIONS {
            let filter = SessionFilter { subject: Some(subject.clone()), ..SessionFilter::default() };
            let Some(found) = self.store.sessions(filter, 1).await?.pop() else { return Ok(None) };
            agents.push(found.agent);
            match found.delegated_by {
                Some(delegator) => subject = delegator,
                None => break,
            }
        }
        let (Some(own), Some(first)) = (agents.first(), agents.last()) else { return Ok(None) };
        if *first != self.group.agent {
            if self.foreign.len() >= MAX_FOREIGN_SESSIONS {
                self.foreign.clear();
            }
            self.foreign.insert(session.to_owned());
            return Ok(None);
        }
        let own = if agents.len() == 1 { None } else { self.group.delegates.get(own) };
        Ok(Some(own.unwrap_or(&self.group.scrubber).clone()))
    }

    fn succeeded(&mut self) {
        if std::mem::take(&mut self.has_failed) {
            tracing::info!(collector = %self.group.collector.url(), "spans are sent again");
        }
        self.backoff = new_backoff(self.options);
    }

    /// Reports a failure, and returns the time until the next attempt.
    fn failed(&mut self, obstacle: &Obstacle) -> Duration {
        let delay = self.backoff.next().unwrap_or(self.options.retry_interval.1);
        let (message, asked) = match obstacle {
            Obstacle::Store(error) => (error.to_string(), None),
            Obstacle::Collector(SendError::Retryable { message, retry_after }) => (message.clone(), *retry_after),
            Obstacle::Collector(error) => (error.to_string(), None),
        };
        if !std::mem::replace(&mut self.has_failed, true) {
            tracing::warn!(message, "spans cannot be sent now; they stay in the store and are sent later");
        }
        delay.max(asked.unwrap_or_default())
    }
}

/// Whether an error concerns only the session that was read, for example because the session was deleted or is damaged.
fn concerns_one_session(error: &StoreError) -> bool {
    !matches!(
        error,
        StoreError::Locked { .. }
            | StoreError::DiskFull { .. }
            | StoreError::ReadOnly { .. }
            | StoreError::Newer { .. }
            | StoreError::Failed { .. }
            | StoreError::OutcomeUnknown { .. }
            | StoreError::ObjectStore { .. }
            | StoreError::Closed
    )
}

fn new_backoff(options: ExporterOptions) -> ExponentialBackoff {
    let (min, max) = options.retry_interval;
    ExponentialBuilder::new().with_min_delay(min).with_max_delay(max).with_jitter().without_max_times().build()
}
