//! `trace export`: exports the traces of stored sessions (O1).

use super::stored_sessions;
use crate::arguments::{ContentArgument, TraceCommand, TraceExportArguments};
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::terminal::{Terminal, text};
use agent_config::settings::TelemetrySettings;
use agent_config::{AgentOptions, DataDirectory, Settings, assembly};
use agent_core::redaction::Redaction;
use agent_plugins::KnownSecrets;
use agent_store::{ExportPosition, MAX_PAGE, SessionFilter, Store};
use agent_telemetry::{Collector, CollectorConfig, ContentLevel, Scrubber, SendError, SessionTrace, Span, request_of};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of spans of a request.
const BATCH: usize = 512;
/// Maximum time of a request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Name of the project if no agent's file names one.
const PROJECT: &str = "agent-host";

/// Runs a subcommand of `trace`.
pub(crate) async fn run(command: TraceCommand, data: &DataDirectory, terminal: &Terminal) -> Result<Exit, Failure> {
    let TraceCommand::Export(arguments) = command;
    let store = assembly::open_store_to_read(data).await?;
    let session = stored_sessions::find(&*store, data, Some(&arguments.session)).await?.subject;
    let settings = settings(arguments.agent.as_deref())?;
    let mut target = Target::new(&arguments, settings.as_ref().map(|settings| &settings.telemetry))?;
    let scrubber = scrubber(&arguments, settings.as_ref())?;
    let sessions = with_delegated(&*store, session).await?;
    let mut count = 0;
    for session in &sessions {
        let mut trace = SessionTrace::new(store.clone(), session, scrubber.clone(), ExportPosition::default());
        while let Some(commits) = trace.next().await.map_err(Failure::failed)? {
            let spans: Vec<&Span> = commits.iter().flat_map(|commit| &commit.spans).collect();
            target.write(&spans, terminal).await?;
            count += spans.len();
        }
    }
    let (spans, sessions) = (text::count(count, "span"), text::count(sessions.len(), "session"));
    terminal.note(format!("{spans} of {sessions} exported to {}", target.name()));
    Ok(Exit::Done)
}

/// Reads the agent's file that was named.
fn settings(agent: Option<&Path>) -> Result<Option<Settings>, Failure> {
    let Some(agent) = agent else { return Ok(None) };
    let options = AgentOptions { agent: Some(agent.to_owned()), ..AgentOptions::default() };
    Ok(Some(Settings::read(&options, &environment::host())?))
}

/// Returns what may leave the host. The secrets of the session's agent were already removed when the session was stored.
/// The secrets of the agent whose file was named are removed again, because they may be in the sessions of its delegates.
fn scrubber(arguments: &TraceExportArguments, settings: Option<&Settings>) -> Result<Scrubber, Failure> {
    let level = arguments.content.map(|content| match content {
        ContentArgument::Off => ContentLevel::Off,
        ContentArgument::Shortened => ContentLevel::Shortened,
        ContentArgument::Complete => ContentLevel::Complete,
    });
    let scrubber = match settings {
        Some(settings) => {
            let granted = settings.grants.plugins.values().flat_map(|grants| &grants.secrets);
            settings.telemetry.scrubber(KnownSecrets::new(granted).redaction())
        }
        None => Scrubber::new(ContentLevel::default(), Redaction::default(), &[]).map_err(Failure::failed)?,
    };
    Ok(level.map_or_else(|| scrubber.clone(), |level| scrubber.with_level(level)))
}

/// Returns the session and all sessions to which it delegated work, at any depth.
async fn with_delegated(store: &dyn Store, session: String) -> Result<Vec<String>, Failure> {
    let mut sessions = vec![session];
    let mut next = 0;
    while let Some(parent) = sessions.get(next).cloned() {
        let filter = SessionFilter { delegated_by: Some(parent), ..SessionFilter::default() };
        let children = store.sessions(filter, MAX_PAGE).await.map_err(Failure::failed)?;
        sessions.extend(children.into_iter().map(|child| child.subject));
        next += 1;
    }
    Ok(sessions)
}

/// Where spans are exported to.
enum Target {
    Collector(Arc<Collector>),
    File { path: PathBuf, file: Option<std::fs::File>, project: String },
}

impl Target {
    fn new(arguments: &TraceExportArguments, settings: Option<&TelemetrySettings>) -> Result<Self, Failure> {
        let project = settings.map_or(PROJECT, TelemetrySettings::project).to_owned();
        match (&arguments.to, &arguments.out, settings.and_then(TelemetrySettings::collector)) {
            (_, Some(path), _) => {
                let file = (path != Path::new("-")).then(|| std::fs::File::create(path)).transpose();
                let file =
                    file.map_err(|error| Failure::refused(format!("cannot write `{}`: {error}", path.display())))?;
                Ok(Self::File { path: path.clone(), file, project })
            }
            (Some(url), None, _) => Ok(Self::Collector(collector(url, project)?)),
            (None, None, Some(collector)) => Ok(Self::Collector(collector.clone())),
            (None, None, None) => Err(Failure::refused(
                "there is no collector: name one with --to URL, write a file with --out FILE, or name an agent's file \
                 with `[telemetry] endpoint` with --agent FILE",
            )),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Collector(collector) => collector.url().to_string(),
            Self::File { path, .. } => path.display().to_string(),
        }
    }

    async fn write(&mut self, spans: &[&Span], terminal: &Terminal) -> Result<(), Failure> {
        match self {
            Self::Collector(collector) => send(collector, spans, terminal).await,
            Self::File { .. } if spans.is_empty() => Ok(()),
            Self::File { path, file, project } => {
                let request = request_of(project, spans.iter().copied());
                let line = serde_json::to_string(&request).map_err(Failure::failed)?;
                match file {
                    None => terminal.print(line).map_err(Failure::output),
                    Some(file) => writeln!(file, "{line}")
                        .map_err(|error| Failure::failed(format!("cannot write `{}`: {error}", path.display()))),
                }
            }
        }
    }
}

fn collector(url: &str, project: String) -> Result<Arc<Collector>, Failure> {
    let parsed = url.parse().map_err(|error| Failure::refused(format!("`{url}` is not an address: {error}")))?;
    let (headers, secret_headers) = (BTreeMap::new(), BTreeMap::new());
    let config = CollectorConfig { url: parsed, headers, secret_headers, project, timeout: TIMEOUT };
    Collector::new(config).map(Arc::new).map_err(Failure::refused)
}

/// Sends spans in batches, and in smaller batches if the collector refuses a batch as too large.
async fn send(collector: &Collector, spans: &[&Span], terminal: &Terminal) -> Result<(), Failure> {
    let mut batches: Vec<&[&Span]> = spans.chunks(BATCH).rev().collect();
    while let Some(batch) = batches.pop() {
        match collector.send(batch).await {
            Ok(None) => {}
            Ok(Some((refused, reason))) => {
                terminal.note(format!("the collector refused {refused} spans{reason}"));
            }
            Err(SendError::TooLarge { .. }) if batch.len() > 1 => {
                let (first, second) = batch.split_at(batch.len() / 2);
                batches.extend([second, first]);
            }
            Err(error) => return Err(Failure::failed(error)),
        }
    }
    Ok(())
}
