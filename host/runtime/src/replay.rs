//! Replays what plugins did in a stored session, with the recorded inputs of the plugins (S6). An action of a plugin is
//! a tool call, a built context, a verdict on an output, or a decision about media. A replay does not write to the
//! store. During a replay, plugins can access only recorded data and the resources that are granted for the replay.

mod comparison;
mod recorded_host;
mod recorded_model;
mod sent_request;
mod turns;

pub use self::comparison::{ComparisonError, Difference, Replay, ReplayReport, StopAt};
use self::recorded_host::{Differences, RecordedHost, recorded_environment, recorded_grants};
use self::recorded_model::RecordedModel;
pub use self::sent_request::{RebuiltBody, SentRequest, SentRequestError, sent_request};
use self::turns::TurnReader;
use crate::agent::{Agent, AgentConfig, AgentError, PluginAllowance};
use crate::media::{StoredMedia, describe_without_storing};
use crate::tools::results::{denials_in, result_of};
use crate::transfer::Origins;
use agent_core::change::{CallRecord, CallResult, Denial};
use agent_core::message::{Digest, Media};
use agent_core::model::MediaDecision;
use agent_core::plugin::{
    BuilderRequest, PluginFailure, PolicyRequest, Scope, StepRequest, TraceContext, ValidatorRequest, Verdict,
};
use agent_core::tool::{ServiceRequest, ToolError, ToolOutcome};
use agent_core::trace::TurnName;
use agent_core::view::result_text;
use agent_models::Providers;
use agent_plugins::{
    CallReport, Generation, Grants, HostCallLog, LoadedPlugin, MEDIA_DESCRIPTION, MediaPort, MediaRange, NewMediaItem,
    PluginSetup, PortError, Ports, ReplayTreeError, ReplayTrees, Sandbox, ToolCallContext, ToolCallRequest,
};
use agent_store::{SessionSummary, Store, StoreError};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Maximum wall time of a replayed call. If the time limit that is configured for the plugin is shorter, the
/// configured limit applies.
const CALL_TIME_LIMIT: Duration = Duration::from_secs(120);
/// Number of model tokens that a plugin may use during a replay, if answers of the model to the plugin are recorded.
const REPLAY_MODEL_TOKENS: u64 = 1_000_000;

/// An action of a plugin in a recorded turn.
#[derive(Clone, Debug)]
pub struct PluginAction {
    /// Number of the turn in which the plugin acted, from 1.
    pub turn: u32,
    /// Number of the model call that the action belongs to, counted within the turn from 1.
    pub step: u32,
    /// Name of the plugin that performed the action.
    pub plugin: String,
    /// Digest of the plugin version that performed the action, or the first digits of this digest.
    pub digest: String,
    /// What the plugin did, with the plugin's input and output.
    pub kind: PluginActionKind,
}

/// What a plugin did in an action, with the plugin's input and output.
#[derive(Clone, Debug)]
pub enum PluginActionKind {
    /// The plugin ran a tool call that ended with a result.
    Call(Box<CallRecord>),
    /// The plugin ran a tool call that requested a service.
    Request(Box<(CallRecord, RecordedRequest)>),
    /// The plugin is an output validator and judged an output.
    Verdict(Box<(ValidatorRequest, Verdict)>),
    /// The plugin is a media policy and decided which media the prompt contains.
    Decision(Box<(PolicyRequest, Vec<MediaDecision>)>),
    /// The plugin is a context builder and built the context of a turn.
    Context(Box<RecordedBuilderCall<BuilderRequest>>),
    /// The plugin is a context builder and added sections to the prompt of a step.
    Step(Box<RecordedBuilderCall<StepRequest>>),
    /// The action cannot be replayed. The first text describes the action, and the second text states the reason.
    NotReplayable(&'static str, &'static str),
}

/// The stored part of a service request that a plugin made during a tool call.
#[derive(Clone, Debug)]
pub enum RecordedRequest {
    /// The session contains the complete request.
    Whole(ServiceRequest),
    /// The session contains only the event type of the request, because an older host recorded the session.
    Type(String),
}

/// A recorded call to a context builder.
#[derive(Clone, Debug)]
pub struct RecordedBuilderCall<Q> {
    /// The recorded input of the context builder.
    pub request: Q,
    /// The recorded output of the context builder, as JSON.
    pub answer: Value,
    /// The recorded answers of the host to the plugin's host calls.
    pub host: HostCallLog,
    /// The accesses that the host denied to the plugin during the recorded call.
    pub denials: Vec<Denial>,
}

/// What a plugin returned when one of its actions was replayed.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplayedOutcome {
    /// The replayed tool call ended with this result.
    Result(Box<CallResult>),
    /// The replayed tool call made this service request.
    Request(Box<ServiceRequest>),
    /// The output validator returned this verdict on an output.
    Verdict(Verdict),
    /// The media policy returned these decisions about media.
    Decision(Vec<MediaDecision>),
    /// The context builder returned this part of a prompt, as JSON.
    Built(Value),
    /// The plugin failed. The text states the reason, and can be shown to users.
    Failed(String),
}

/// The outcome of a replayed action, and how the action's requests and side effects differ from the recorded ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    /// What the plugin returned in the replay, or why it failed.
    pub outcome: ReplayedOutcome,
    /// Requests that the plugin made to the host and that were denied, because the record does not contain answers
    /// to these requests.
    pub unrecorded: Vec<Denial>,
    /// Descriptions of the differences between the side effects of the replayed action and the recorded side effects.
    pub effects: Vec<String>,
}

/// The reason why an action cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// No agent can be built with the plugin.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The recorded files cannot be recreated on disk.
    #[error(transparent)]
    Files(#[from] ReplayTreeError),
}

/// A stored session whose turns are read one after the other for a replay.
pub struct RecordedSession {
    store: Arc<dyn Store>,
    sandbox: Sandbox,
    session: SessionSummary,
    origins: Origins,
    records: TurnReader,
}

/// The actions of plugins in one turn, and the answers that the host and the model gave to these plugins.
pub struct RecordedTurn {
    /// The actions in the order in which they were performed.
    pub actions: Vec<PluginAction>,
    model: Arc<RecordedModel>,
    /// The host's answers to plugins, by the id of the tool call during which the plugin asked.
    host: BTreeMap<String, HostCallLog>,
}

impl RecordedSession {
    /// Prepares to read the turns of a stored session. The session is not changed.
    pub async fn read(store: Arc<dyn Store>, sandbox: Sandbox, session: SessionSummary) -> Result<Self, StoreError> {
        let origins = Origins::read(&*store, &session.subject).await?;
        Ok(Self { store, sandbox, session, origins, records: TurnReader::default() })
    }

    /// Continues with this turn, so that the turns before it are not read.
    pub async fn begin_at(&mut self, turn: u32) -> Result<(), StoreError> {
        self.records.begin_at(&*self.store, &self.session, turn).await
    }

    /// Reads the actions of the next turn. Returns `None` after the last turn of the session.
    pub async fn next_turn(&mut self) -> Result<Option<RecordedTurn>, StoreError> {
        let Some(records) = self.records.next(&*self.store, &self.session).await? else { return Ok(None) };
        let model = Arc::new(RecordedModel::new(records.model));
        Ok(Some(RecordedTurn { actions: records.actions, model, host: records.host }))
    }

    /// Returns the summary of the session, including the name of its agent.
    pub fn session(&self) -> &SessionSummary {
        &self.session
    }

    /// Replays an action with the plugin version `plugin`. The plugin has the limits and grants in `allowance`, and
    /// can also access the resources whose content was recorded in the turn. Returns `None` for an action that
    /// cannot be replayed.
    pub async fn replay(
        &self,
        turn: &RecordedTurn,
        plugin: &Arc<LoadedPlugin>,
        action: &PluginAction,
        allowance: &PluginAllowance,
    ) -> Result<Option<Replayed>, ReplayError> {
        let setup = PluginSetup::new(plugin.clone(), allowance.grants.clone(), allowance.limits);
        Ok(Some(match &action.kind {
            PluginActionKind::Call(record) => {
                self.replay_call(
                    (turn, plugin),
                    (record, action.turn),
                    &with_recorded_grants(allowance, media_access_of_call(record), None),
                )
                .await?
            }
            PluginActionKind::Request(request) => {
                let allowance = with_recorded_grants(allowance, media_access_of_call(&request.0), Some(&request.1));
                self.replay_call((turn, plugin), (&request.0, action.turn), &allowance).await?
            }
            PluginActionKind::Verdict(verdict) => {
                replayed(self.sandbox.validate(&setup, &verdict.0).await, ReplayedOutcome::Verdict)
            }
            PluginActionKind::Decision(decision) => {
                replayed(self.sandbox.decide(&setup, &decision.0).await, ReplayedOutcome::Decision)
            }
            PluginActionKind::Context(built) => {
                let allowance = with_recorded_grants(allowance, media_access_in(&built.denials), None);
                let surroundings = self.surroundings((turn, &built.host), &built.request.scope, &allowance).await?;
                let setup = surroundings.setup(plugin);
                let report = self.sandbox.build_context(&setup, &built.request, &surroundings.ports).await;
                self.with_differences(
                    replayed(report, |answer| ReplayedOutcome::Built(json!(answer))),
                    &surroundings,
                    &built.denials,
                )
            }
            PluginActionKind::Step(built) => {
                let allowance = with_recorded_grants(allowance, media_access_in(&built.denials), None);
                let surroundings = self.surroundings((turn, &built.host), &built.request.scope, &allowance).await?;
                let setup = surroundings.setup(plugin);
                let report = self.sandbox.build_step(&setup, &built.request, &surroundings.ports).await;
                self.with_differences(
                    replayed(report, |answer| ReplayedOutcome::Built(json!(answer))),
                    &surroundings,
                    &built.denials,
                )
            }
            PluginActionKind::NotReplayable(..) => return Ok(None),
        }))
    }

    /// Prepares the recorded answers and grants with which a context builder is replayed.
    async fn surroundings(
        &self,
        (turn, recorded): (&RecordedTurn, &HostCallLog),
        scope: &Scope,
        allowance: &PluginAllowance,
    ) -> Result<Surroundings, ReplayError> {
        let asker = format!("turn {}", scope.turn);
        self.surroundings_of(&asker, (turn, recorded), allowance).await
    }

    async fn surroundings_of(
        &self,
        call: &str,
        (turn, recorded): (&RecordedTurn, &HostCallLog),
        allowance: &PluginAllowance,
    ) -> Result<Surroundings, ReplayError> {
        let (files, granted, sandbox) = (recorded.clone(), allowance.grants.trees.clone(), self.sandbox.clone());
        let trees = tokio::task::spawn_blocking(move || ReplayTrees::create(&files, &granted, &sandbox)).await;
        // Waiting for the task can fail only if the process shuts down.
        let trees = trees
            .map_err(|error| ReplayError::Files(ReplayTreeError::from(std::io::Error::other(error))))??
            .map(Arc::new);
        let host = Arc::new(RecordedHost::new(recorded));
        let model_tokens = turn.model.has(call).then_some(REPLAY_MODEL_TOKENS);
        let grants = Grants { model_tokens, ..recorded_grants(recorded, trees.as_deref(), &allowance.grants) };
        let ports = Ports {
            media: Some(Arc::new(RecordedMedia {
                stored: StoredMedia(self.store.clone()),
                session: self.session.subject.clone(),
            })),
            model: Some(turn.model.clone()),
            key_value: Some(host.clone()),
            http: Some(host.clone()),
            replay: Some(Arc::new(recorded_environment(recorded, trees))),
            grants: None,
            stopped: None,
        };
        let allowance = PluginAllowance { grants, limits: allowance.limits, ..PluginAllowance::default() };
        Ok(Surroundings { host, model: turn.model.clone(), allowance, ports })
    }

    /// Compares the requests and effects of the replayed action with those of the recorded action, and adds the
    /// differences to `replayed`. A denial that is also in `recorded_denials` is not a difference.
    fn with_differences(
        &self,
        mut replayed: Replayed,
        surroundings: &Surroundings,
        recorded_denials: &[Denial],
    ) -> Replayed {
        replayed.unrecorded.retain(|denial| !recorded_denials.iter().any(|recorded| recorded.thing == denial.thing));
        let other_question =
            (surroundings.model.missed() > 0).then(|| "asking the model a different question".to_owned());
        let Differences { unrecorded, effects } = surroundings.host.differences();
        let missed = unrecorded.into_iter().chain(other_question);
        let missed = missed.map(|thing| Denial { plugin: String::new(), thing, grant: String::new() });
        replayed.unrecorded.extend(missed);
        replayed.effects.extend(effects);
        replayed
    }

    async fn replay_call(
        &self,
        (recorded_turn, plugin): (&RecordedTurn, &Arc<LoadedPlugin>),
        (record, turn): (&CallRecord, u32),
        allowance: &PluginAllowance,
    ) -> Result<Replayed, ReplayError> {
        let nothing = HostCallLog::default();
        let recorded = recorded_turn.host.get(&record.id.0).unwrap_or(&nothing);
        let surroundings = self.surroundings_of(&record.id.0, (recorded_turn, recorded), allowance).await?;
        let mut config = AgentConfig::new(&self.session.agent);
        config.plugins.insert(plugin.name().to_owned(), surroundings.allowance.clone());
        // This agent is needed only for its tool registry. The model of the agent is never called.
        let offline_model =
            Providers::new(Vec::new()).model("offline", Path::new("")).expect("the offline model is built in");
        let agent = Agent::new(config, offline_model, Generation::new([plugin.clone()]))?;
        let refused = |error: ToolError| {
            let outcome = ReplayedOutcome::Result(Box::new(result_of(Err(error))));
            Replayed { outcome, unrecorded: Vec::new(), effects: Vec::new() }
        };
        let Some(tool) = agent.registry().get(&record.name) else {
            let message = format!("the tool `{}` no longer exists", record.name);
            return Ok(refused(ToolError::NotFound { message }));
        };
        if let Err(violations) = tool.check_arguments(record.effective_arguments()) {
            return Ok(refused(ToolError::InvalidArguments { violations }));
        }
        let Some(setup) = agent.setups().get(plugin.name()) else {
            return Ok(refused(ToolError::NotFound {
                message: format!("the plugin `{}` is not loaded", plugin.name()),
            }));
        };
        let session = self.origins.of(&record.id, record.turn).unwrap_or(&self.session.subject);
        let arguments = tool.outgoing(record.effective_arguments(), session).to_string();
        let context = ToolCallContext {
            id: record.id.clone(),
            attempt: record.attempt.max(1),
            time_limit: CALL_TIME_LIMIT,
            scope: Scope { session: session.to_owned(), ..scope(&self.session, turn) },
        };
        let request = ToolCallRequest { name: &record.name, args: arguments, context };
        let report = self.sandbox.call_tool(setup, request, &surroundings.ports).await;
        let (unrecorded, effects) = (denials_in(&report.denials), report.effects);
        let outcome = match report.result {
            Ok(Ok(ToolOutcome::Pending(request))) => ReplayedOutcome::Request(Box::new(request)),
            Ok(Ok(ToolOutcome::Done(done))) => {
                let outcome = tool.check_structured(done.structured.as_ref()).map(|()| done);
                ReplayedOutcome::Result(Box::new(result_of(outcome)))
            }
            Ok(Err(error)) => ReplayedOutcome::Result(Box::new(result_of(Err(error)))),
            Err(failure) => ReplayedOutcome::Result(Box::new(result_of(Err(failure.for_model())))),
        };
        Ok(self.with_differences(Replayed { outcome, unrecorded, effects }, &surroundings, denials_of(record)))
    }
}

fn denials_of(record: &CallRecord) -> &[Denial] {
    record.result.as_ref().map_or(&[], |result| &result.denials)
}

/// Whether the plugin could read the media of the session when the action was recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MediaAccess {
    /// The plugin could read media, or the record does not show whether it could.
    Readable,
    /// The record shows that the plugin had no grant to read media.
    NotGranted,
}

fn media_access_in(denials: &[Denial]) -> MediaAccess {
    match denials.iter().any(|denial| denial.thing == MEDIA_DESCRIPTION) {
        true => MediaAccess::NotGranted,
        false => MediaAccess::Readable,
    }
}

/// Returns whether the plugin that executed a call could read media. The text of a failed call lists all missing
/// grants, including those that the plugin did not try to use, so this text is searched for the grant to read media.
fn media_access_of_call(record: &CallRecord) -> MediaAccess {
    let Some(result) = &record.result else { return MediaAccess::Readable };
    match result.is_error && result_text(&result.content).contains(MEDIA_DESCRIPTION) {
        true => MediaAccess::NotGranted,
        false => media_access_in(&result.denials),
    }
}

/// Adds two kinds of grants to a copy of `allowance` if the record shows that the plugin had them: access to the
/// session's media, and the event type of the recorded service request. The use of these grants has no side effects
/// during a replay.
fn with_recorded_grants(
    allowance: &PluginAllowance,
    media: MediaAccess,
    request: Option<&RecordedRequest>,
) -> PluginAllowance {
    let mut allowance = allowance.clone();
    allowance.grants.media |= media == MediaAccess::Readable;
    let event_type = match request {
        Some(RecordedRequest::Whole(request)) => Some(request.event_type.clone()),
        Some(RecordedRequest::Type(event_type)) => event_type.parse().ok(),
        None => None,
    };
    allowance.grants.events.extend(event_type);
    allowance
}

/// The recorded answers and the grants with which a plugin's action is replayed.
struct Surroundings {
    host: Arc<RecordedHost>,
    model: Arc<RecordedModel>,
    allowance: PluginAllowance,
    ports: Ports,
}

impl Surroundings {
    fn setup(&self, plugin: &Arc<LoadedPlugin>) -> PluginSetup {
        PluginSetup::new(plugin.clone(), self.allowance.grants.clone(), self.allowance.limits)
    }
}

fn scope(session: &SessionSummary, turn: u32) -> Scope {
    let SessionSummary { agent, subject, delegated_by, user, .. } = session.clone();
    let trace = TraceContext::of_turn(TurnName { session: &subject, id_ending: "", turn }, None);
    Scope { agent, session: subject, delegated_by, user, turn, trace }
}

fn replayed<T>(report: CallReport<Result<T, PluginFailure>>, outcome: impl Fn(T) -> ReplayedOutcome) -> Replayed {
    let outcome = match report.result {
        Ok(Ok(answer)) => outcome(answer),
        Ok(Err(failure)) => ReplayedOutcome::Failed(failure.to_string()),
        Err(failure) => ReplayedOutcome::Failed(failure.to_string()),
    };
    Replayed { outcome, unrecorded: denials_in(&report.denials), effects: report.effects }
}

/// Gives replayed plugins read-only access to the session's media. If a plugin creates a media item, the plugin gets a
/// description of the item, but the item is not stored.
struct RecordedMedia {
    stored: StoredMedia,
    /// Id (subject) of the session that contains the media.
    session: String,
}

#[async_trait]
impl MediaPort for RecordedMedia {
    async fn describe(&self, _: &str, digest: &Digest) -> Result<Option<Media>, PortError> {
        self.stored.describe(&self.session, digest).await
    }

    async fn read(&self, _: &str, digest: &Digest, range: MediaRange) -> Result<Vec<u8>, PortError> {
        self.stored.read(&self.session, digest, range).await
    }

    async fn put(&self, _: &str, medium: NewMediaItem) -> Result<Media, PortError> {
        describe_without_storing(medium)
    }
}
