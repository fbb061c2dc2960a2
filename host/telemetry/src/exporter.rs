//! Follows the sessions of a store and sends their spans to collectors. The export runs in tasks of its own, so that it
//! never slows a turn. What was not sent is still in the store, and is sent by this or by another process later.

mod batches;
mod changed_sessions;
mod follower;
mod sender;

use crate::content::Scrubber;
use crate::otlp::Collector;
use agent_store::Store;
use changed_sessions::ChangedSessions;
use follower::Follower;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// An agent whose sessions are exported to a collector, with the sessions of other agents that work for it.
pub struct AgentGroup {
    /// The configured name of the agent.
    pub agent: String,
    /// The agents that may work for the agent, and what may leave the host of their sessions. Only sessions to which a session of
    /// the agent has delegated work are exported, directly or over other agents.
    pub delegates: BTreeMap<String, Scrubber>,
    /// The collector.
    pub collector: Arc<Collector>,
    /// What may leave the host of the agent's own sessions.
    pub scrubber: Scrubber,
    /// Spans that ended longer ago are not sent any more. This limits what is sent after a long time without a collector
    /// or without export.
    pub max_age: Duration,
}

impl AgentGroup {
    /// The names of the agent and of the agents that may work for it.
    fn names(&self) -> Vec<String> {
        let delegates = self.delegates.keys().filter(|delegate| **delegate != self.agent);
        [&self.agent].into_iter().chain(delegates).cloned().collect()
    }
}

/// Times and sizes of the export.
#[derive(Clone, Copy, Debug)]
pub struct ExporterOptions {
    /// Time for which commits are collected before their spans are sent. Default: 1 s.
    pub interval: Duration,
    /// Time between two searches for sessions of other processes that ended before they had sent all spans. Default: 60 s.
    pub rescan_interval: Duration,
    /// Shortest and longest time between two attempts if the collector does not accept spans. Default: 1 s and 60 s.
    pub retry_interval: (Duration, Duration),
    /// Maximum number of spans of a request, which may belong to several sessions, unless one commit completes more.
    /// Default: 512.
    pub batch_spans: usize,
    /// Maximum size of the texts of a request in bytes, unless one commit completes more. Default: 2 MiB.
    pub batch_bytes: usize,
}

impl Default for ExporterOptions {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            rescan_interval: Duration::from_secs(60),
            retry_interval: (Duration::from_secs(1), Duration::from_secs(60)),
            batch_spans: 512,
            batch_bytes: 2 << 20,
        }
    }
}

/// Sends the spans of the sessions of a store. Dropping the exporter stops it without sending the latest spans.
pub struct TraceExporter {
    /// For each agent, the groups that may export its sessions, with the sessions that have changed.
    changed: BTreeMap<String, Vec<Arc<ChangedSessions>>>,
    stop: CancellationToken,
    tasks: JoinSet<bool>,
}

impl TraceExporter {
    /// Starts the export. Each session belongs to the group of the agent with which its work began, so that an agent that
    /// works for two others is exported to the collector of the one that has asked for the work. Events that were stored before
    /// an agent was exported for the first time are not exported. All later events are.
    pub async fn start(store: Arc<dyn Store>, groups: Vec<AgentGroup>, options: ExporterOptions) -> Self {
        let (mut tasks, stop) = (JoinSet::new(), CancellationToken::new());
        let mut changed: BTreeMap<String, Vec<Arc<ChangedSessions>>> = BTreeMap::new();
        for group in groups {
            let sessions = Arc::new(ChangedSessions::default());
            for agent in group.names() {
                changed.entry(agent).or_default().push(sessions.clone());
            }
            let mut follower = Follower::new(store.clone(), group, sessions, options);
            follower.begin().await;
            tasks.spawn(follower.run(stop.child_token()));
        }
        Self { changed, stop, tasks }
    }

    /// Notes that a session has changed. Returns immediately.
    pub fn committed(&self, agent: &str, session: &str) {
        for changed in self.changed.get(agent).into_iter().flatten() {
            changed.add(session);
        }
    }

    /// Sends the latest spans, and stops. Fails if a collector has not accepted all spans within `time`. The spans then stay
    /// in the store, and the next exporter sends them.
    pub async fn shutdown(mut self, time: Duration) -> Result<(), SpansLeft> {
        self.stop.cancel();
        let all = async {
            let mut sent = true;
            while let Some(ended) = self.tasks.join_next().await {
                sent &= ended.unwrap_or(false);
            }
            sent
        };
        match tokio::time::timeout(time, all).await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(SpansLeft),
        }
    }
}

/// Some spans were not sent before the exporter stopped. They are still in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("some spans were not sent; they stay in the store, and the next exporter sends them")]
pub struct SpansLeft;
