//! Converts the step records of a turn to the actions of plugins, with the recorded inputs and outputs of the plugins.

use super::recorded_model::RecordedAnswer;
use super::{PluginAction, PluginActionKind, RecordedBuilderCall, RecordedRequest, scope};
use crate::records::{
    BuilderCallRecord, BuilderQuestion, BuilderSurroundings, ContextRecord, MediaPolicyRecord, MessagePositions,
    Question, StepQuestion, StepRecordBody, UnreadableRecord, VerdictRecord,
};
use crate::turn_positions::last_event_before_turn;
use agent_core::change::CallRecord;
use agent_core::event::{Event, EventKind, WaitCause};
use agent_core::message::{CallId, Digest, Message};
use agent_core::plugin::{
    BuilderMemory, BuilderRequest, BuilderTool, Lifecycle, PolicyRequest, Recollection, StepRequest, ValidatorRequest,
};
use agent_core::tool::ToolSource;
use agent_core::view::shown_message;
use agent_plugins::HostCallLog;
use agent_store::{
    CallFilter, MAX_PAGE, MessageRange, RecordRange, SessionSummary, StepRecord, Store, StoreError, StoredRecord,
};
use serde::Deserialize;
use std::collections::{BTreeMap, VecDeque};

const NO_INPUT_RECORDED: &str = "an older host recorded the session without the plugin's input";
const TURN_CONTEXT: &str = "a turn's context";
const STEP_CONTEXT: &str = "a step's context";
const MEDIA_DECISION: &str = "a decision about media";
const VERDICT: &str = "a verdict";

/// The data that a replay of one turn needs.
#[derive(Default)]
pub(super) struct TurnRecords {
    /// The actions of plugins in the order in which the plugins performed them.
    pub(super) actions: Vec<PluginAction>,
    /// The model's answers to plugins, by the id of the call during which the plugin asked.
    pub(super) model: BTreeMap<String, VecDeque<RecordedAnswer>>,
    /// The host's answers to plugins, by the id of the call during which the plugin asked.
    pub(super) host: BTreeMap<String, HostCallLog>,
}

/// Identifies the stored turn whose records are read.
#[derive(Clone, Copy)]
struct TurnSource<'a> {
    store: &'a dyn Store,
    session: &'a SessionSummary,
    turn: u32,
}

/// Reads the turns of a session one after the other.
#[derive(Default)]
pub(super) struct TurnReader {
    /// Number of the last turn that was read.
    turn: u32,
    /// Sequence number of the last event that was read.
    event: u64,
    /// Events that have been read from the store but belong to later turns.
    later: VecDeque<Event>,
}

impl TurnReader {
    /// Continues with this turn.
    pub(super) async fn begin_at(
        &mut self,
        store: &dyn Store,
        session: &SessionSummary,
        turn: u32,
    ) -> Result<(), StoreError> {
        let event = last_event_before_turn(store, &session.subject, turn, 0).await?;
        *self = Self { turn: turn.saturating_sub(1), event, later: VecDeque::new() };
        Ok(())
    }

    /// Reads the records of the next turn. Returns `None` after the last turn of the session.
    pub(super) async fn next(
        &mut self,
        store: &dyn Store,
        session: &SessionSummary,
    ) -> Result<Option<TurnRecords>, StoreError> {
        if self.turn >= session.turns {
            return Ok(None);
        }
        self.turn += 1;
        let requests = self.requests(store, &session.subject).await?;
        read(TurnSource { store, session, turn: self.turn }, requests).await.map(Some)
    }

    /// Returns the event types of the turn's service requests, by the id of the call that waited for the answer.
    async fn requests(
        &mut self,
        store: &dyn Store,
        session: &str,
    ) -> Result<BTreeMap<CallId, RecordedRequest>, StoreError> {
        let mut found = BTreeMap::new();
        loop {
            while let Some(event) = self.later.pop_front_if(|event| event.turn <= self.turn) {
                let EventKind::Suspended { suspension } = event.kind else { continue };
                for wait in suspension.waits {
                    if let WaitCause::Service { event_type, .. } = wait.cause {
                        found.insert(wait.call, RecordedRequest::Type(event_type));
                    }
                }
            }
            if !self.later.is_empty() {
                return Ok(found);
            }
            let page = store.events(session, self.event, MAX_PAGE).await?;
            let Some(last) = page.last() else { return Ok(found) };
            self.event = last.event.sequence;
            self.later.extend(page.into_iter().map(|timed| timed.event));
        }
    }
}

async fn read(
    source: TurnSource<'_>,
    mut requests: BTreeMap<CallId, RecordedRequest>,
) -> Result<TurnRecords, StoreError> {
    let TurnSource { store, session, turn } = source;
    let mut records = TurnRecords::default();
    let mut actions: Vec<(Phase, PluginAction)> = Vec::new();
    // The state that the context builder returned at the beginning of the turn, and receives before each step.
    let mut state: Option<Vec<u8>> = None;
    for StoredRecord { record, .. } in store.records(&session.subject, RecordRange::Turn(turn)).await? {
        let at = (turn, record.step);
        match StepRecordBody::read(&record) {
            Ok(StepRecordBody::PluginModel(question)) => {
                if let Some((call, answer)) = RecordedAnswer::of(*question) {
                    records.model.entry(call).or_default().push_back(answer);
                }
            }
            // If the host ran a call again, for example after a crash, the record of the last attempt replaces
            // the earlier records.
            Ok(StepRecordBody::HostCallLog(record)) => {
                records.host.insert(record.call.0, *record.host);
            }
            Ok(StepRecordBody::ServiceRequest(record)) => {
                requests.insert(record.call, RecordedRequest::Whole(record.request));
            }
            Ok(StepRecordBody::Context(record)) => {
                let ContextRecord { builder: Some(builder), recollections, .. } = *record else { continue };
                state = Option::deserialize(&builder.answer["state"]).unwrap_or_default();
                let plugin = builder.plugin.clone();
                actions.push((
                    Phase::Context,
                    plugin_action(at, &plugin, context_action(source, builder, recollections).await?),
                ));
            }
            Ok(StepRecordBody::StepContext(record)) => {
                let plugin = record.plugin.clone();
                actions.push((
                    Phase::Context,
                    plugin_action(at, &plugin, step_action(source, *record, state.clone()).await?),
                ));
            }
            Ok(StepRecordBody::MediaPolicy(record)) => {
                let plugin = record.plugin.clone();
                actions.push((Phase::Media, plugin_action(at, &plugin, decision_action(source, *record))));
            }
            Ok(StepRecordBody::Verdict(record)) => {
                let plugin = record.plugin.clone();
                actions.push((Phase::Verdict, plugin_action(at, &plugin, verdict_action(source, *record).await?)));
            }
            Ok(_) => {}
            Err(UnreadableRecord) => actions.extend(unreadable_action(at, &record)),
        }
    }
    for call in store.calls(&session.subject, CallFilter::Turn(turn)).await? {
        actions.extend(call_action(call, &requests).map(|action| (Phase::Call, action)));
    }
    actions.sort_by_key(|(phase, action)| (action.step, *phase));
    records.actions = actions.into_iter().map(|(_, action)| action).collect();
    Ok(records)
}

/// The kinds of plugin actions, in the order in which they happen within a step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Context,
    Media,
    Call,
    Verdict,
}

/// Returns an action that cannot be replayed, because this host cannot read its record. Returns `None` if the record
/// does not describe an action of a plugin in a step.
fn unreadable_action(at: (u32, u32), record: &StepRecord) -> Option<(Phase, PluginAction)> {
    let (phase, what) = match record.kind.as_str() {
        "step_context" => (Phase::Context, STEP_CONTEXT),
        "media_policy" => (Phase::Media, MEDIA_DECISION),
        "verdict" => (Phase::Verdict, VERDICT),
        _ => return None,
    };
    let plugin = record.body["plugin"].as_str().unwrap_or_default();
    Some((phase, plugin_action(at, plugin, PluginActionKind::NotReplayable(what, NO_INPUT_RECORDED))))
}

impl TurnSource<'_> {
    /// Loads the messages at the recorded positions, in the form in which the plugin received the messages.
    async fn messages(&self, positions: &MessagePositions, characters: usize) -> Result<Vec<Message>, StoreError> {
        let positions = positions.resolve(self.store, &self.session.subject).await?.unwrap_or_default();
        let ids = positions.iter().map(|(id, _)| *id).collect();
        let messages = self.store.messages(&self.session.subject, MessageRange::Ids(ids)).await?;
        let shown = messages.iter().zip(&positions);
        Ok(shown.map(|(message, (_, seen))| shown_message(message, *seen, characters)).collect())
    }

    /// Loads a text to which a record refers by digest. Returns an empty text if the digest is invalid.
    async fn text(&self, digest: &str) -> Result<String, StoreError> {
        match Digest::parse(digest) {
            Ok(digest) => self.store.text(&self.session.subject, &digest).await,
            Err(_) => Ok(String::new()),
        }
    }
}

fn builder_action<Q, R>(request: R, record: BuilderCallRecord<Q>) -> Box<RecordedBuilderCall<R>> {
    let BuilderSurroundings { answers, denials } = record.host;
    let host = answers.map(|answers| *answers).unwrap_or_default();
    Box::new(RecordedBuilderCall { request, answer: record.answer, host, denials })
}

async fn context_action(
    source: TurnSource<'_>,
    mut record: BuilderCallRecord<BuilderQuestion>,
    recollections: Vec<Recollection>,
) -> Result<PluginActionKind, StoreError> {
    let Question::Recorded(question) = std::mem::take(&mut record.asked) else {
        return Ok(PluginActionKind::NotReplayable(TURN_CONTEXT, NO_INPUT_RECORDED));
    };
    let tools: Option<Vec<BuilderTool>> = serde_json::from_str(&source.text(&question.tools).await?).ok();
    let Some(tools) = tools else { return Ok(PluginActionKind::NotReplayable(TURN_CONTEXT, NO_INPUT_RECORDED)) };
    let summary = match &question.summary {
        Some(digest) => Some(source.text(digest).await?),
        None => None,
    };
    let history = source.messages(&question.messages, question.result_characters).await?;
    let request = BuilderRequest {
        lifecycle: Lifecycle::Init,
        scope: scope(source.session, source.turn),
        model: question.model,
        input: question.input,
        tools,
        memory: BuilderMemory { history, hidden: question.hidden, summary, recollections },
        budget: question.budget,
    };
    Ok(PluginActionKind::Context(builder_action(request, record)))
}

async fn step_action(
    source: TurnSource<'_>,
    mut record: BuilderCallRecord<StepQuestion>,
    state: Option<Vec<u8>>,
) -> Result<PluginActionKind, StoreError> {
    let Question::Recorded(question) = std::mem::take(&mut record.asked) else {
        return Ok(PluginActionKind::NotReplayable(STEP_CONTEXT, NO_INPUT_RECORDED));
    };
    let request = StepRequest {
        lifecycle: question.lifecycle,
        scope: scope(source.session, source.turn),
        model: question.model,
        step: question.step,
        steps_left: question.steps_left,
        latest: source.messages(&question.messages, question.result_characters).await?,
        budget: question.budget,
        state,
    };
    Ok(PluginActionKind::Step(builder_action(request, record)))
}

fn decision_action(source: TurnSource<'_>, record: MediaPolicyRecord) -> PluginActionKind {
    let MediaPolicyRecord { asked, items, answer, .. } = record;
    let Question::Recorded(question) = asked else {
        return PluginActionKind::NotReplayable(MEDIA_DECISION, NO_INPUT_RECORDED);
    };
    let scope = scope(source.session, source.turn);
    let request = PolicyRequest { scope, model: question.model, messages: question.messages, items };
    PluginActionKind::Decision(Box::new((request, answer)))
}

async fn verdict_action(source: TurnSource<'_>, record: VerdictRecord) -> Result<PluginActionKind, StoreError> {
    let VerdictRecord { asked, answer, .. } = record;
    let Question::Recorded(question) = asked else {
        return Ok(PluginActionKind::NotReplayable(VERDICT, NO_INPUT_RECORDED));
    };
    let turn = source.messages(&question.messages, question.result_characters).await?;
    let request = ValidatorRequest {
        scope: scope(source.session, source.turn),
        text: question.text,
        structured: question.structured,
        output_schema: question.output_schema,
        attempt: question.attempt,
        corrections_left: question.corrections_left,
        turn,
    };
    Ok(PluginActionKind::Verdict(Box::new((request, answer))))
}

fn plugin_action((turn, step): (u32, u32), identity: &str, kind: PluginActionKind) -> PluginAction {
    let (plugin, digest) = identity.rsplit_once('@').unwrap_or((identity, ""));
    PluginAction { turn, step, plugin: plugin.to_owned(), digest: digest.to_owned(), kind }
}

/// Returns the action of the plugin that executed this call, or `None` if the call never ran or was stopped.
fn call_action(call: CallRecord, requests: &BTreeMap<CallId, RecordedRequest>) -> Option<PluginAction> {
    let Some(ToolSource::Plugin { plugin, digest }) = call.source.clone() else { return None };
    let (turn, step) = (call.turn, call.step);
    let result = call.result.as_ref();
    let kind = match requests.get(&call.id).cloned() {
        Some(request) => PluginActionKind::Request(Box::new((call, request))),
        // A call that never ran, or that was stopped, has a recorded run time of 0.
        None if call.attempt > 0 && result.is_some_and(|result| result.cost.wall_us > 0) => {
            PluginActionKind::Call(Box::new(call))
        }
        None => return None,
    };
    Some(PluginAction { turn, step, plugin, digest: digest.to_string(), kind })
}
