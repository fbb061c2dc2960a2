//! Sends the traces of turns to the collectors that the agents' files name, while a command runs turns (O1).

use crate::logging;
use crate::terminal::Terminal;
use agent_config::assembly::AssembledAgents;
use agent_core::redaction::Redaction;
use agent_runtime::{Observation, Observer};
use agent_store::Store;
use agent_telemetry::{AgentGroup, ExporterOptions, TraceExporter};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Time for which a command waits at its end until the collector has the latest spans. What is not sent then, the next
/// command sends.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);

/// The running export of traces. Without a collector, nothing runs.
pub(crate) struct TraceExport(Option<Arc<TraceExporter>>);

impl TraceExport {
    /// Starts the export for agents and their delegates.
    pub(crate) async fn start(store: &Arc<dyn Store>, agents: &[&AssembledAgents]) -> Self {
        let groups: Vec<AgentGroup> = agents.iter().filter_map(|agents| group(agents)).collect();
        if groups.is_empty() {
            return Self(None);
        }
        let exporter = TraceExporter::start(store.clone(), groups, ExporterOptions::default()).await;
        Self(Some(Arc::new(exporter)))
    }

    /// Returns the function to which the commits of sessions are reported, with the names of the agent and of the session.
    pub(crate) fn committed(&self) -> impl Fn(&str, &str) + Send + Sync + 'static {
        let exporter = self.0.as_ref().map(Arc::downgrade);
        move |agent, session| {
            if let Some(exporter) = exporter.as_ref().and_then(Weak::upgrade) {
                exporter.committed(agent, session);
            }
        }
    }

    /// Returns the observer of a command that counts no metrics.
    pub(crate) fn observer(&self) -> Observer {
        let committed = self.committed();
        Observer::new(move |observation| {
            if let Observation::Committed(commit) = observation {
                logging::log_events(commit);
                committed(commit.agent, commit.session);
            }
        })
    }

    /// Sends the latest spans, and stops.
    pub(crate) async fn finish(self, terminal: &Terminal) {
        let Some(exporter) = self.0.and_then(Arc::into_inner) else { return };
        if exporter.shutdown(FINISH_TIMEOUT).await.is_err() {
            terminal.note("the collector does not have the latest spans yet; the next command or server sends them");
        }
    }
}

/// Returns the agents whose turns are exported together: an agent and its delegates. The secrets of all of them are
/// removed from the spans.
fn group(agents: &AssembledAgents) -> Option<AgentGroup> {
    let served = agents.agent.current();
    let settings = agents.all.iter().find(|agent| agent.settings.name == served.config().name)?;
    let secrets = agents.all.iter().fold(Redaction::default(), |secrets, agent| {
        let current = agent.live.current();
        secrets.and(current.redaction())
    });
    let name = settings.settings.name.clone();
    let others = agents.all.iter().filter(|agent| agent.settings.name != name);
    let delegates: Vec<_> = others.map(|agent| (agent.settings.name.clone(), &agent.settings.telemetry)).collect();
    settings.settings.telemetry.group(name, &delegates, &secrets)
}
