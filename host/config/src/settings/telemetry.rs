//! Builds the collector of an agent's traces from `agent.toml` and the environment. Values of environment variables are
//! never shown.

use super::Variables;
use super::events::{DEFAULT_TIMEOUT_MS, required_variable};
use crate::agent_file::{AgentFile, Located, TelemetryTable};
use agent_core::redaction::Redaction;
use agent_telemetry::{AgentGroup, Collector, CollectorConfig, ContentLevel, Scrubber};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Default of `max_age_hours`.
pub(crate) const DEFAULT_MAX_AGE_HOURS: u32 = 168;
/// Default of `project`.
pub(crate) const DEFAULT_PROJECT: &str = "agent-host";

/// What an agent exports as traces, and the collector that receives it (O1).
#[derive(Clone)]
pub struct TelemetrySettings {
    /// The collector. `None` means that nothing is exported while turns run.
    collector: Option<Arc<Collector>>,
    /// What may leave the host. The secrets of the agent are added later.
    scrubber: Scrubber,
    project: String,
    max_age: Duration,
    sends_metrics: bool,
    /// How much content the file allows, if it says so.
    own_level: Option<ContentLevel>,
}

impl std::fmt::Debug for TelemetrySettings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let url = self.collector.as_ref().map(|collector| collector.url());
        formatter.debug_struct("TelemetrySettings").field("url", &url).finish_non_exhaustive()
    }
}

impl TelemetrySettings {
    /// Returns the group whose traces are exported to the collector: the agent, and the agents that may work for it with their
    /// own settings. `secrets` are removed from the spans. Returns `None` if nothing is exported.
    ///
    /// What a delegate's own file does not allow to leave the host does not leave it, even if the agent's file allows it.
    pub fn group(&self, agent: String, delegates: &[(String, &Self)], secrets: &Redaction) -> Option<AgentGroup> {
        let (collector, scrubber) = (self.collector.clone()?, self.scrubber(secrets));
        let narrowed = |(name, own): &(String, &Self)| {
            let level = own.own_level.map_or(scrubber.level(), |level| level.min(scrubber.level()));
            (name.clone(), scrubber.with_level(level).with_patterns_of(&own.scrubber))
        };
        let delegates = delegates.iter().map(narrowed).collect();
        Some(AgentGroup { agent, delegates, collector, scrubber, max_age: self.max_age })
    }

    /// Returns what may leave the host. `secrets` are removed from the spans.
    pub fn scrubber(&self, secrets: &Redaction) -> Scrubber {
        let own = self.collector.as_ref().map(|collector| collector.secrets().clone()).unwrap_or_default();
        self.scrubber.with_secrets(&secrets.and(&own))
    }

    /// The collector in the file.
    pub fn collector(&self) -> Option<&Arc<Collector>> {
        self.collector.as_ref()
    }

    /// The collector that receives the metrics of the process. `None` if it receives none.
    pub fn metrics_collector(&self) -> Option<Arc<Collector>> {
        self.collector.clone().filter(|_| self.sends_metrics)
    }

    /// The name under which viewers group the traces.
    pub fn project(&self) -> &str {
        &self.project
    }
}

/// Returns the settings. Problems are added to `problems`, each with its location, and what has problems is left out.
pub(super) fn telemetry(file: &AgentFile, variable: Variables<'_>, problems: &mut Vec<String>) -> TelemetrySettings {
    let table = &file.telemetry;
    let project = table.project.clone().unwrap_or_else(|| DEFAULT_PROJECT.to_owned());
    let hours = table.max_age_hours.unwrap_or(DEFAULT_MAX_AGE_HOURS);
    TelemetrySettings {
        collector: table.endpoint.as_ref().and_then(|url| collector(url, (table, &project), variable, problems)),
        scrubber: scrubber(table, problems),
        project,
        sends_metrics: table.metrics,
        own_level: table.content,
        max_age: Duration::from_secs(u64::from(hours) * 3_600),
    }
}

fn scrubber(table: &TelemetryTable, problems: &mut Vec<String>) -> Scrubber {
    let level = table.content.unwrap_or_default();
    let mut patterns = Vec::new();
    for Located { value, location } in &table.redact {
        match Scrubber::new(level, Redaction::default(), std::slice::from_ref(value)) {
            Ok(_) => patterns.push(value.clone()),
            Err(error) => problems.push(format!("{location}: {error}")),
        }
    }
    // Each pattern was checked above.
    let scrubber = Scrubber::new(level, Redaction::default(), &patterns);
    scrubber.unwrap_or_else(|error| {
        problems.push(error.to_string());
        // Without the patterns, no content may leave.
        let off = Scrubber::new(ContentLevel::Off, Redaction::default(), &[]);
        off.unwrap_or_default()
    })
}

fn collector(
    url: &Located,
    (table, project): (&TelemetryTable, &str),
    variable: Variables<'_>,
    problems: &mut Vec<String>,
) -> Option<Arc<Collector>> {
    let mut secret_headers = BTreeMap::new();
    for (name, located) in &table.header_env {
        secret_headers.insert(name.clone(), required_variable(located, variable, problems)?);
    }
    let config = url.value.parse().map_err(|error| format!("`{}` is not an address: {error}", url.value)).map(|url| {
        let timeout = Duration::from_millis(u64::from(table.request_timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS)));
        CollectorConfig { url, headers: table.headers.clone(), secret_headers, project: project.to_owned(), timeout }
    });
    match config.and_then(|config| Collector::new(config).map_err(|error| error.to_string())) {
        Ok(collector) => Some(Arc::new(collector)),
        Err(error) => {
            problems.push(format!("{}: {error}", url.location));
            None
        }
    }
}
