//! What plugins did in a stored session, to be done again (S6): each call, verdict and decision with what it was asked then.
//! Nothing is written, and nothing outside is reached but what was recorded or is granted for it.

mod answers;
mod model;
mod record;

use self::answers::{Otherwise, RecordedHost, allowed, then};
use self::model::RecordedModel;
use self::record::RecordedTurns;
use crate::agent::{Agent, AgentConfig, AgentError, PluginAllowance};
use crate::calls::{denials_in, result_of};
use crate::media::StoredMedia;
use crate::portable::fork::Origins;
use crate::trace;
use agent_core::change::{CallRecord, CallResult, Denial};
use agent_core::message::{Digest, Media};
use agent_core::model::MediaDecision;
use agent_core::plugin::{BuilderRequest, PluginFailure, PolicyRequest, Scope, StepRequest, ValidatorRequest, Verdict};
use agent_core::tool::{ServiceRequest, ToolError, ToolOutcome};
use agent_core::view::result_text;
use agent_models::Providers;
use agent_plugins::{
    CallReport, Generation, Grants, HostAnswers, LoadedPlugin, MEDIA_THING, MediaPort, MediaRange, MediumToStore,
    NotLaidOut, PluginSetup, PortError, Ports, RecordedTrees, Sandbox, ToolCallContext, ToolCallRequest,
};
use agent_store::{SessionSummary, Store, StoreError};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Wall time of any call; the plugin's own limit is shorter.
const LONGEST_CALL: Duration = Duration::from_secs(120);
/// Tokens that a plugin may ask for where its answers are recorded.
const RECORDED_TOKENS: u64 = 1_000_000;

/// Something that a plugin did.
#[derive(Clone, Debug)]
pub struct Deed {
    /// From 1.
    pub turn: u32,
    /// Model call of the turn, from 1.
    pub step: u32,
    /// The plugin's name.
    pub plugin: String,
    /// The version that did it, or the beginning of its digest.
    pub digest: String,
    /// What.
    pub kind: DeedKind,
}

/// What a plugin did.
#[derive(Clone, Debug)]
pub enum DeedKind {
    /// It ran a call to its end.
    Call(Box<CallRecord>),
    /// Its call asked for a service.
    Request(Box<(CallRecord, AskedFor)>),
    /// It judged an output.
    Verdict(Box<(ValidatorRequest, Verdict)>),
    /// It decided on media.
    Decision(Box<(PolicyRequest, Vec<MediaDecision>)>),
    /// It built what a turn begins with.
    Context(Box<Built<BuilderRequest>>),
    /// It added to a step.
    Step(Box<Built<StepRequest>>),
    /// Something that cannot be done again: what, and why not.
    Unrepeatable(&'static str, &'static str),
}

/// What a call has asked of a service, as far as it is recorded.
#[derive(Clone, Debug)]
pub enum AskedFor {
    /// All of it.
    Whole(ServiceRequest),
    /// The event's type: an older host has recorded no more.
    Type(String),
}

/// What a context builder was asked and answered.
#[derive(Clone, Debug)]
pub struct Built<Q> {
    /// What it was asked.
    pub request: Q,
    /// Its answer, as JSON.
    pub answer: Value,
    /// What the host answered it.
    pub host: HostAnswers,
    /// What it was refused.
    pub denials: Vec<Denial>,
}

/// How a deed came out this time.
#[derive(Clone, Debug, PartialEq)]
pub enum Came {
    /// A result.
    Result(Box<CallResult>),
    /// A request to a service.
    Request(Box<ServiceRequest>),
    /// A verdict.
    Verdict(Verdict),
    /// Decisions.
    Decision(Vec<MediaDecision>),
    /// A part of a prompt, as JSON.
    Built(Value),
    /// The plugin failed.
    Failed(String),
}

/// What came of doing it again.
#[derive(Clone, Debug, PartialEq)]
pub struct Again {
    /// What the plugin answered.
    pub came: Came,
    /// What it wanted that nobody recorded: it was refused.
    pub unrecorded: Vec<Denial>,
    /// What it changes otherwise than then, whatever it answers.
    pub effects: Vec<String>,
}

/// Something that cannot be done again.
#[derive(Debug, thiserror::Error)]
pub enum PastError {
    /// A plugin is no agent's.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The files that it met have no room.
    #[error(transparent)]
    Files(#[from] NotLaidOut),
}

/// A session that is looked at, turn by turn.
pub struct Past {
    store: Arc<dyn Store>,
    sandbox: Sandbox,
    session: SessionSummary,
    origins: Origins,
    records: RecordedTurns,
}

/// What plugins did in a turn, and what they were answered.
pub struct PastTurn {
    /// In the order in which it was done.
    pub deeds: Vec<Deed>,
    model: Arc<RecordedModel>,
    /// What calls were answered, by their ids.
    host: BTreeMap<String, HostAnswers>,
}

impl Past {
    /// Begins to read what is recorded of the session; it stays as it is.
    pub async fn read(store: Arc<dyn Store>, sandbox: Sandbox, session: SessionSummary) -> Result<Self, StoreError> {
        let origins = Origins::read(&*store, &session.subject).await?;
        Ok(Self { store, sandbox, session, origins, records: RecordedTurns::default() })
    }

    /// Reads the next turn, the first at first; none behind the last one.
    pub async fn next_turn(&mut self) -> Result<Option<PastTurn>, StoreError> {
        let Some(found) = self.records.next(&*self.store, &self.session).await? else { return Ok(None) };
        let model = Arc::new(RecordedModel::new(found.model));
        Ok(Some(PastTurn { deeds: found.deeds, model, host: found.host }))
    }

    /// Its agent's name, and of which session.
    pub fn session(&self) -> &SessionSummary {
        &self.session
    }

    /// Has a plugin do it again, within these limits, and with these grants beside what was recorded of the turn.
    pub async fn again(
        &self,
        turn: &PastTurn,
        plugin: &Arc<LoadedPlugin>,
        deed: &Deed,
        allowance: &PluginAllowance,
    ) -> Result<Option<Again>, PastError> {
        let setup = PluginSetup::new(plugin.clone(), allowance.grants.clone(), allowance.limits);
        Ok(Some(match &deed.kind {
            DeedKind::Call(record) => {
                self.call((turn, plugin), (record, deed.turn), &as_then(allowance, media_then(record), None)).await?
            }
            DeedKind::Request(asked) => {
                let allowance = as_then(allowance, media_then(&asked.0), Some(&asked.1));
                self.call((turn, plugin), (&asked.0, deed.turn), &allowance).await?
            }
            DeedKind::Verdict(verdict) => of_plugin(self.sandbox.validate(&setup, &verdict.0).await, Came::Verdict),
            DeedKind::Decision(decision) => of_plugin(self.sandbox.decide(&setup, &decision.0).await, Came::Decision),
            DeedKind::Context(built) => {
                let allowance = as_then(allowance, media_of(&built.denials), None);
                let circumstances = self.circumstances((turn, &built.host), &built.request.scope, &allowance).await?;
                let setup = circumstances.setup(plugin);
                let report = self.sandbox.build_context(&setup, &built.request, &circumstances.ports).await;
                self.judged(of_plugin(report, |answer| Came::Built(json!(answer))), &circumstances, &built.denials)
            }
            DeedKind::Step(built) => {
                let allowance = as_then(allowance, media_of(&built.denials), None);
                let circumstances = self.circumstances((turn, &built.host), &built.request.scope, &allowance).await?;
                let setup = circumstances.setup(plugin);
                let report = self.sandbox.build_step(&setup, &built.request, &circumstances.ports).await;
                self.judged(of_plugin(report, |answer| Came::Built(json!(answer))), &circumstances, &built.denials)
            }
            DeedKind::Unrepeatable(..) => return Ok(None),
        }))
    }

    /// Has the host answer what it answered then.
    async fn circumstances(
        &self,
        (turn, recorded): (&PastTurn, &HostAnswers),
        scope: &Scope,
        allowance: &PluginAllowance,
    ) -> Result<Circumstances, PastError> {
        let asker = format!("turn {}", scope.turn);
        self.circumstances_of(&asker, (turn, recorded), allowance).await
    }

    async fn circumstances_of(
        &self,
        call: &str,
        (turn, recorded): (&PastTurn, &HostAnswers),
        allowance: &PluginAllowance,
    ) -> Result<Circumstances, PastError> {
        let (files, granted, sandbox) = (recorded.clone(), allowance.grants.trees.clone(), self.sandbox.clone());
        let trees = tokio::task::spawn_blocking(move || RecordedTrees::lay_out(&files, &granted, &sandbox)).await;
        // It fails only when the process ends.
        let trees =
            trees.map_err(|error| PastError::Files(NotLaidOut::from(std::io::Error::other(error))))??.map(Arc::new);
        let host = Arc::new(RecordedHost::new(recorded));
        let model_tokens = turn.model.has(call).then_some(RECORDED_TOKENS);
        let grants = Grants { model_tokens, ..allowed(recorded, trees.as_deref(), &allowance.grants) };
        let ports = Ports {
            media: Some(Arc::new(PastMedia {
                stored: StoredMedia(self.store.clone()),
                session: self.session.subject.clone(),
            })),
            model: Some(turn.model.clone()),
            key_value: Some(host.clone()),
            http: Some(host.clone()),
            then: Some(Arc::new(then(recorded, trees))),
            grants: None,
            stopped: None,
        };
        let allowance = PluginAllowance { grants, limits: allowance.limits, ..PluginAllowance::default() };
        Ok(Circumstances { host, model: turn.model.clone(), allowance, ports })
    }

    /// With what the plugin wanted otherwise than then.
    fn judged(&self, mut again: Again, circumstances: &Circumstances, then: &[Denial]) -> Again {
        again.unrecorded.retain(|denial| !then.iter().any(|before| before.thing == denial.thing));
        let asked_otherwise =
            (circumstances.model.missed() > 0).then(|| "asking the model something else than it did then".to_owned());
        let Otherwise { unrecorded, effects } = circumstances.host.otherwise();
        let missed = unrecorded.into_iter().chain(asked_otherwise);
        let missed = missed.map(|thing| Denial { plugin: String::new(), thing, grant: String::new() });
        again.unrecorded.extend(missed);
        again.effects.extend(effects);
        again
    }

    async fn call(
        &self,
        (past, plugin): (&PastTurn, &Arc<LoadedPlugin>),
        (record, turn): (&CallRecord, u32),
        allowance: &PluginAllowance,
    ) -> Result<Again, PastError> {
        let nothing = HostAnswers::default();
        let recorded = past.host.get(&record.id.0).unwrap_or(&nothing);
        let circumstances = self.circumstances_of(&record.id.0, (past, recorded), allowance).await?;
        let mut config = AgentConfig::new(&self.session.agent);
        config.plugins.insert(plugin.name().to_owned(), circumstances.allowance.clone());
        // It is asked nothing: the agent is there for its registry of tools.
        let nobody = Providers::new(Vec::new()).model("offline", Path::new("")).expect("it is built in");
        let agent = Agent::new(config, nobody, Generation::new([plugin.clone()]))?;
        let refused = |error: ToolError| {
            let came = Came::Result(Box::new(result_of(Err(error))));
            Again { came, unrecorded: Vec::new(), effects: Vec::new() }
        };
        let Some(tool) = agent.registry().get(&record.name) else {
            let message = format!("there is no tool `{}` any more", record.name);
            return Ok(refused(ToolError::NotFound { message }));
        };
        if let Err(violations) = tool.check_arguments(record.effective_arguments()) {
            return Ok(refused(ToolError::InvalidArguments { violations }));
        }
        let Some(setup) = agent.setups().get(plugin.name()) else {
            return Ok(refused(ToolError::NotFound { message: format!("`{}` is not loaded", plugin.name()) }));
        };
        let then = self.origins.of(&record.id, record.turn).unwrap_or(&self.session.subject);
        let arguments = tool.outgoing(record.effective_arguments(), then).to_string();
        let context = ToolCallContext {
            id: record.id.clone(),
            attempt: record.attempt.max(1),
            time_limit: LONGEST_CALL,
            scope: Scope { session: then.to_owned(), ..scope(&self.session, turn) },
        };
        let request = ToolCallRequest { name: &record.name, args: arguments, context };
        let report = self.sandbox.call_tool(setup, request, &circumstances.ports).await;
        let (unrecorded, effects) = (denials_in(&report.denials), report.effects);
        let came = match report.result {
            Ok(Ok(ToolOutcome::Pending(request))) => Came::Request(Box::new(request)),
            Ok(Ok(ToolOutcome::Done(done))) => {
                let outcome = tool.check_structured(done.structured.as_ref()).map(|()| done);
                Came::Result(Box::new(result_of(outcome)))
            }
            Ok(Err(error)) => Came::Result(Box::new(result_of(Err(error)))),
            Err(failure) => Came::Result(Box::new(result_of(Err(failure.for_model())))),
        };
        Ok(self.judged(Again { came, unrecorded, effects }, &circumstances, of_result(record)))
    }
}

fn of_result(record: &CallRecord) -> &[Denial] {
    record.result.as_ref().map_or(&[], |result| &result.denials)
}

/// Whether a plugin could read the media of the conversation when it did this first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MediaThen {
    /// As far as the record tells.
    Readable,
    /// The record says that they were not granted.
    NotGranted,
}

fn media_of(denials: &[Denial]) -> MediaThen {
    match denials.iter().any(|denial| denial.thing == MEDIA_THING) {
        true => MediaThen::NotGranted,
        false => MediaThen::Readable,
    }
}

/// The error of a call also names grants that were missing and may not have been tried.
fn media_then(record: &CallRecord) -> MediaThen {
    let Some(result) = &record.result else { return MediaThen::Readable };
    match result.is_error && result_text(&result.content).contains(MEDIA_THING) {
        true => MediaThen::NotGranted,
        false => media_of(&result.denials),
    }
}

/// The same with what the plugin was granted then, as far as that changes nothing: to read the session's media, and to ask
/// for the event that it asked for.
fn as_then(allowance: &PluginAllowance, media: MediaThen, asked: Option<&AskedFor>) -> PluginAllowance {
    let mut allowance = allowance.clone();
    allowance.grants.media |= media == MediaThen::Readable;
    let event_type = match asked {
        Some(AskedFor::Whole(request)) => Some(request.event_type.clone()),
        Some(AskedFor::Type(event_type)) => event_type.parse().ok(),
        None => None,
    };
    allowance.grants.events.extend(event_type);
    allowance
}

/// What a plugin meets that does something again.
struct Circumstances {
    host: Arc<RecordedHost>,
    model: Arc<RecordedModel>,
    allowance: PluginAllowance,
    ports: Ports,
}

impl Circumstances {
    fn setup(&self, plugin: &Arc<LoadedPlugin>) -> PluginSetup {
        PluginSetup::new(plugin.clone(), self.allowance.grants.clone(), self.allowance.limits)
    }
}

fn scope(session: &SessionSummary, turn: u32) -> Scope {
    let SessionSummary { agent, subject, delegated_by, user, .. } = session.clone();
    Scope { agent, session: subject, delegated_by, user, turn, trace: trace::root() }
}

fn of_plugin<T>(report: CallReport<Result<T, PluginFailure>>, came: impl Fn(T) -> Came) -> Again {
    let came = match report.result {
        Ok(Ok(answer)) => came(answer),
        Ok(Err(failure)) => Came::Failed(failure.to_string()),
        Err(failure) => Came::Failed(failure.to_string()),
    };
    Again { came, unrecorded: denials_in(&report.denials), effects: report.effects }
}

/// The session's media, to be read. What a plugin makes is described as it would be, and kept nowhere.
struct PastMedia {
    stored: StoredMedia,
    /// Whose they are now.
    session: String,
}

#[async_trait]
impl MediaPort for PastMedia {
    async fn describe(&self, _: &str, digest: &Digest) -> Result<Option<Media>, PortError> {
        self.stored.describe(&self.session, digest).await
    }

    async fn read(&self, _: &str, digest: &Digest, range: MediaRange) -> Result<Vec<u8>, PortError> {
        self.stored.read(&self.session, digest, range).await
    }

    async fn put(&self, _: &str, medium: MediumToStore) -> Result<Media, PortError> {
        crate::media::described(medium)
    }
}
