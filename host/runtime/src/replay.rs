//! What plugins did in a stored session, to be done again (S6): each call, verdict and decision with what it was asked then.
//! Nothing is written, and nothing outside is reached but what was recorded or is granted for it.

use crate::agent::{Agent, AgentConfig, AgentError, PluginAllowance};
use crate::calls::{denials_in, result_of};
use crate::host_model::{RECORD_KIND, record_of};
use crate::media::StoredMedia;
use crate::trace;
use agent_core::change::{CallRecord, CallResult, Denial};
use agent_core::event::{EventKind, WaitCause};
use agent_core::message::{CallId, Digest, Media};
use agent_core::model::{MediaDecision, Model, StopReason, Usage};
use agent_core::plugin::{PluginFailure, PolicyItem, PolicyRequest, Scope, ValidatorRequest, Verdict};
use agent_core::tool::{ToolError, ToolOutcome, ToolSource};
use agent_core::view::shown_message;
use agent_memory::{CallFilter, MAX_PAGE, MessageRange, RecordRange, SessionSummary, Store, StoreError, StoredRecord};
use agent_models::Providers;
use agent_plugins::{
    CallReport, Generation, Grants, LoadedPlugin, MediaPort, MediaRange, MediumToStore, ModelAnswer, ModelAsker,
    ModelPort, ModelQuestion, ModelRefusal, PluginSetup, PortError, Ports, Sandbox, ToolCallContext, ToolCallRequest,
};
use async_trait::async_trait;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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
    /// Its call asked for a service, of this event type.
    Request(Box<CallRecord>, String),
    /// It judged an output.
    Verdict(Box<(ValidatorRequest, Verdict)>),
    /// It decided on media.
    Decision(Box<(PolicyRequest, Vec<MediaDecision>)>),
    /// Something that cannot be done again: what, and why not.
    Unrepeatable(&'static str, &'static str),
}

/// How a deed came out this time.
#[derive(Clone, Debug, PartialEq)]
pub enum Came {
    /// A result.
    Result(Box<CallResult>),
    /// A request to a service, of this event type.
    Request(String),
    /// A verdict.
    Verdict(Verdict),
    /// Decisions.
    Decision(Vec<MediaDecision>),
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
}

/// A session that is looked at.
pub struct Past {
    store: Arc<dyn Store>,
    sandbox: Sandbox,
    session: SessionSummary,
    model: Arc<RecordedModel>,
}

impl Past {
    /// Reads what is recorded of the session; it stays as it is.
    pub async fn read(
        store: Arc<dyn Store>,
        sandbox: Sandbox,
        session: SessionSummary,
    ) -> Result<(Self, Vec<Deed>), StoreError> {
        let records = records(&*store, &session.subject).await?;
        let requests = requests(&*store, &session.subject).await?;
        let mut deeds: Vec<(u32, Deed)> = Vec::new();
        let mut asked: BTreeMap<String, VecDeque<RecordedAnswer>> = BTreeMap::new();
        for StoredRecord { record, .. } in &records {
            if record.kind == RECORD_KIND
                && let Some(answer) = RecordedAnswer::of(&record.body)
            {
                asked.entry(answer.call.clone()).or_default().push_back(answer);
            }
        }
        let past = Self { store, sandbox, session, model: Arc::new(RecordedModel::new(asked)) };
        for StoredRecord { record, .. } in &records {
            let at = |phase, body: &Value, kind| (phase, deed((record.turn, record.step), body, kind));
            let deed = match record.kind.as_str() {
                "media_policy" => at(1, &record.body, past.decision(record.turn, &record.body)),
                "verdict" => at(3, &record.body, past.verdict(record.turn, &record.body).await?),
                "step_context" => at(0, &record.body, DeedKind::Unrepeatable("a step's context", NOT_RECORDED)),
                "context" if record.body["builder"].is_object() => {
                    at(0, &record.body["builder"], DeedKind::Unrepeatable("a turn's context", NOT_RECORDED))
                }
                _ => continue,
            };
            deeds.push(deed);
        }
        for turn in 1..=past.session.turns {
            for call in past.store.calls(&past.session.subject, CallFilter::Turn(turn)).await? {
                deeds.extend(of_call(call, &requests).map(|deed| (2, deed)));
            }
        }
        deeds.sort_by_key(|(phase, deed)| (deed.turn, deed.step, *phase));
        Ok((past, deeds.into_iter().map(|(_, deed)| deed).collect()))
    }

    /// Its agent's name, and of which session.
    pub fn session(&self) -> &SessionSummary {
        &self.session
    }

    /// Has a plugin do it again, with these grants beside what was recorded.
    pub async fn again(
        &self,
        plugin: &Arc<LoadedPlugin>,
        deed: &Deed,
        grants: &Grants,
    ) -> Result<Option<Again>, AgentError> {
        let setup = PluginSetup::new(plugin.clone(), grants.clone(), Default::default());
        Ok(match &deed.kind {
            DeedKind::Call(record) | DeedKind::Request(record, _) => {
                Some(self.call(plugin, (record, deed.turn), grants).await?)
            }
            DeedKind::Verdict(verdict) => Some(of_pure(self.sandbox.validate(&setup, &verdict.0).await, Came::Verdict)),
            DeedKind::Decision(decision) => {
                Some(of_pure(self.sandbox.decide(&setup, &decision.0).await, Came::Decision))
            }
            DeedKind::Unrepeatable(..) => None,
        })
    }

    async fn call(
        &self,
        plugin: &Arc<LoadedPlugin>,
        (record, turn): (&CallRecord, u32),
        grants: &Grants,
    ) -> Result<Again, AgentError> {
        let is_answered = self.model.has(&record.id);
        let model_tokens = is_answered.then_some(RECORDED_TOKENS);
        let allowance = PluginAllowance { grants: Grants { model_tokens, ..grants.clone() }, ..Default::default() };
        let mut config = AgentConfig::new(&self.session.agent);
        config.plugins.insert(plugin.name().to_owned(), allowance);
        // It is asked nothing: the agent is there for its registry of tools.
        let nobody = Providers::new(Vec::new()).model("offline", Path::new("")).expect("it is built in");
        let agent = Agent::new(config, nobody, Generation::new([plugin.clone()]))?;
        let refused =
            |error: ToolError| Again { came: Came::Result(Box::new(result_of(Err(error)))), unrecorded: Vec::new() };
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
        let arguments = tool.outgoing(record.effective_arguments(), &self.session.subject).to_string();
        let context = ToolCallContext {
            id: record.id.clone(),
            attempt: record.attempt.max(1),
            time_limit: LONGEST_CALL,
            scope: self.scope(turn),
        };
        let media: Arc<dyn MediaPort> = Arc::new(PastMedia(StoredMedia(self.store.clone())));
        let model: Arc<dyn ModelPort> = self.model.clone();
        let ports = Ports { media: Some(media), model: Some(model), ..Ports::default() };
        let request = ToolCallRequest { name: &record.name, args: arguments, context };
        let report = self.sandbox.call_tool(setup, request, &ports).await;
        let mut unrecorded = denials_in(&report.denials);
        if self.model.missed.swap(0, Ordering::Relaxed) > 0 {
            let (plugin, thing) =
                (plugin.identity().to_string(), "asking the model something else than it did then".to_owned());
            unrecorded.push(Denial { plugin, thing, grant: String::new() });
        }
        let came = match report.result {
            Ok(Ok(ToolOutcome::Pending(request))) => Came::Request(request.event_type),
            Ok(Ok(ToolOutcome::Done(done))) => {
                let outcome = tool.check_structured(done.structured.as_ref()).map(|()| done);
                Came::Result(Box::new(result_of(outcome)))
            }
            Ok(Err(error)) => Came::Result(Box::new(result_of(Err(error)))),
            Err(failure) => Came::Result(Box::new(result_of(Err(failure.for_model())))),
        };
        Ok(Again { came, unrecorded })
    }

    fn scope(&self, turn: u32) -> Scope {
        let SessionSummary { agent, subject, delegated_by, user, .. } = self.session.clone();
        Scope { agent, session: subject, delegated_by, user, turn, trace: trace::root() }
    }

    fn decision(&self, turn: u32, body: &Value) -> DeedKind {
        #[derive(Deserialize)]
        struct Body {
            asked: Asked,
            items: Vec<PolicyItem>,
            answer: Vec<MediaDecision>,
        }
        #[derive(Deserialize)]
        struct Asked {
            model: Model,
            messages: u32,
        }
        let Ok(Body { asked, items, answer }) = Body::deserialize(body) else {
            return DeedKind::Unrepeatable("a decision on media", OLDER);
        };
        let request = PolicyRequest { scope: self.scope(turn), model: asked.model, messages: asked.messages, items };
        DeedKind::Decision(Box::new((request, answer)))
    }

    async fn verdict(&self, turn: u32, body: &Value) -> Result<DeedKind, StoreError> {
        #[derive(Deserialize)]
        struct Body {
            asked: Asked,
            answer: Verdict,
        }
        #[derive(Deserialize)]
        struct Asked {
            text: String,
            structured: Option<Value>,
            output_schema: Option<Value>,
            attempt: u32,
            corrections_left: u32,
            messages: Vec<(u64, u32)>,
            result_characters: usize,
        }
        let Ok(Body { asked, answer }) = Body::deserialize(body) else {
            return Ok(DeedKind::Unrepeatable("a verdict", OLDER));
        };
        let ids = asked.messages.iter().map(|(id, _)| *id).collect();
        let messages = self.store.messages(&self.session.subject, MessageRange::Ids(ids)).await?;
        let shown = messages.iter().zip(&asked.messages);
        let turn_messages = shown.map(|(message, (_, seen))| shown_message(message, *seen, asked.result_characters));
        let request = ValidatorRequest {
            scope: self.scope(turn),
            text: asked.text,
            structured: asked.structured,
            output_schema: asked.output_schema,
            attempt: asked.attempt,
            corrections_left: asked.corrections_left,
            turn: turn_messages.collect(),
        };
        Ok(DeedKind::Verdict(Box::new((request, answer))))
    }
}

const NOT_RECORDED: &str = "what the builder was asked is not recorded whole, so its recorded answer stands";
const OLDER: &str = "an older host recorded the session, without what the plugin was asked";

fn deed((turn, step): (u32, u32), body: &Value, kind: DeedKind) -> Deed {
    let identity = body["plugin"].as_str().unwrap_or_default();
    let (plugin, digest) = identity.rsplit_once('@').unwrap_or((identity, ""));
    Deed { turn, step, plugin: plugin.to_owned(), digest: digest.to_owned(), kind }
}

/// A call that a plugin ran: it ended by itself, and nobody else decided what came of it.
fn of_call(call: CallRecord, requests: &BTreeMap<CallId, String>) -> Option<Deed> {
    let Some(ToolSource::Plugin { plugin, digest }) = call.source.clone() else { return None };
    let (turn, step) = (call.turn, call.step);
    let result = call.result.as_ref();
    let kind = match requests.get(&call.id).cloned() {
        Some(event_type) => DeedKind::Request(Box::new(call), event_type),
        // One that never ran, or was stopped, has cost nothing.
        None if call.attempt > 0 && result.is_some_and(|result| result.cost.wall_us > 0) => {
            DeedKind::Call(Box::new(call))
        }
        None => return None,
    };
    Some(Deed { turn, step, plugin, digest: digest.to_string(), kind })
}

fn of_pure<T>(report: CallReport<Result<T, PluginFailure>>, came: impl Fn(T) -> Came) -> Again {
    let came = match report.result {
        Ok(Ok(answer)) => came(answer),
        Ok(Err(failure)) => Came::Failed(failure.to_string()),
        Err(failure) => Came::Failed(failure.to_string()),
    };
    Again { came, unrecorded: denials_in(&report.denials) }
}

async fn records(store: &dyn Store, session: &str) -> Result<Vec<StoredRecord>, StoreError> {
    let (mut all, mut number) = (Vec::new(), 0);
    loop {
        let page = store.records(session, RecordRange::After { number, limit: MAX_PAGE }).await?;
        let Some(last) = page.last() else { return Ok(all) };
        number = last.number;
        all.extend(page);
    }
}

/// The event types of what calls have asked of services.
async fn requests(store: &dyn Store, session: &str) -> Result<BTreeMap<CallId, String>, StoreError> {
    let (mut found, mut last) = (BTreeMap::new(), 0);
    loop {
        let page = store.events(session, last, MAX_PAGE).await?;
        let Some(event) = page.last() else { return Ok(found) };
        last = event.event.sequence;
        for timed in page {
            let EventKind::Suspended { suspension } = timed.event.kind else { continue };
            for wait in suspension.waits {
                if let WaitCause::Service { event_type, .. } = wait.cause {
                    found.insert(wait.call, event_type);
                }
            }
        }
    }
}

/// What the agent's model once answered a plugin.
#[derive(Clone, Debug, Deserialize)]
struct RecordedAnswer {
    call: String,
    question: Value,
    reply: RecordedReply,
}

#[derive(Clone, Debug, Deserialize)]
struct RecordedReply {
    text: String,
    stop: StopReason,
    usage: Usage,
    model: String,
}

impl RecordedAnswer {
    fn of(body: &Value) -> Option<Self> {
        Self::deserialize(body).ok()
    }
}

/// Answers plugins with what they were answered then, by call and in order.
struct RecordedModel {
    answers: Mutex<BTreeMap<String, VecDeque<RecordedAnswer>>>,
    /// Questions that nobody asked then.
    missed: AtomicUsize,
}

impl RecordedModel {
    fn new(answers: BTreeMap<String, VecDeque<RecordedAnswer>>) -> Self {
        Self { answers: Mutex::new(answers), missed: AtomicUsize::new(0) }
    }

    fn has(&self, call: &CallId) -> bool {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&call.0)
    }
}

#[async_trait]
impl ModelPort for RecordedModel {
    async fn ask(&self, asker: &ModelAsker, question: ModelQuestion) -> Result<ModelAnswer, ModelRefusal> {
        let mut recorded = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let answers = recorded.get_mut(&asker.call);
        let asked = record_of(&question);
        let first =
            answers.and_then(|answers| (answers.front()?.question == asked).then(|| answers.pop_front()).flatten());
        let Some(RecordedAnswer { reply, .. }) = first else {
            self.missed.fetch_add(1, Ordering::Relaxed);
            let text = "this question was not asked when the session was recorded, so no answer to it is recorded";
            return Err(ModelRefusal::Failed(text.to_owned()));
        };
        let RecordedReply { text, stop, usage, model } = reply;
        Ok(ModelAnswer { text, stop, usage, left: asker.budget, model })
    }
}

/// The session's media, to be read. What a plugin makes is described as it would be, and kept nowhere.
struct PastMedia(StoredMedia);

#[async_trait]
impl MediaPort for PastMedia {
    async fn describe(&self, session: &str, digest: &Digest) -> Result<Option<Media>, PortError> {
        self.0.describe(session, digest).await
    }

    async fn read(&self, session: &str, digest: &Digest, range: MediaRange) -> Result<Vec<u8>, PortError> {
        self.0.read(session, digest, range).await
    }

    async fn put(&self, _: &str, medium: MediumToStore) -> Result<Media, PortError> {
        crate::media::described(medium)
    }
}
