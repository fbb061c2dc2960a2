//! Step records, read as what plugins did and what they were asked and answered.

use super::model::RecordedAnswer;
use super::{AskedFor, Built, Deed, DeedKind, scope};
use crate::host_model::RECORD_KIND;
use crate::places::Places;
use crate::session::{ANSWERS_KIND, REQUEST_KIND};
use agent_core::change::{CallRecord, Denial};
use agent_core::event::{Event, EventKind, WaitCause};
use agent_core::message::{CallId, Digest, Message, TurnInput};
use agent_core::model::{MediaDecision, Model};
use agent_core::plugin::{
    Budget, BuilderMemory, BuilderRequest, BuilderTool, Lifecycle, PolicyItem, PolicyRequest, Recollection,
    StepRequest, ValidatorRequest, Verdict,
};
use agent_core::tool::{ServiceRequest, ToolSource};
use agent_core::view::shown_message;
use agent_plugins::HostAnswers;
use agent_store::{CallFilter, MAX_PAGE, MessageRange, RecordRange, SessionSummary, Store, StoreError, StoredRecord};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};

const OLDER: &str = "an older host recorded the session, without what the plugin was asked";

/// What is recorded of a turn.
#[derive(Default)]
pub(super) struct Recorded {
    /// In the order in which it was done.
    pub(super) deeds: Vec<Deed>,
    /// What the agent's model answered plugins, by call.
    pub(super) model: BTreeMap<String, VecDeque<RecordedAnswer>>,
    /// What the host answered calls, by their ids.
    pub(super) host: BTreeMap<String, HostAnswers>,
}

/// Where a record stands.
#[derive(Clone, Copy)]
struct Place<'a> {
    store: &'a dyn Store,
    session: &'a SessionSummary,
    turn: u32,
}

/// The turns of a session, read one after the other.
#[derive(Default)]
pub(super) struct RecordedTurns {
    /// The last that was read.
    turn: u32,
    /// The last event that was read.
    event: u64,
    /// Events that were read and are of later turns.
    later: VecDeque<Event>,
}

impl RecordedTurns {
    /// Reads the next turn.
    pub(super) async fn next(
        &mut self,
        store: &dyn Store,
        session: &SessionSummary,
    ) -> Result<Option<Recorded>, StoreError> {
        if self.turn >= session.turns {
            return Ok(None);
        }
        self.turn += 1;
        let requests = self.requests(store, &session.subject).await?;
        read(Place { store, session, turn: self.turn }, requests).await.map(Some)
    }

    /// The event types of what the turn's calls have asked of services.
    async fn requests(&mut self, store: &dyn Store, session: &str) -> Result<BTreeMap<CallId, AskedFor>, StoreError> {
        let mut found = BTreeMap::new();
        loop {
            while let Some(event) = self.later.pop_front_if(|event| event.turn <= self.turn) {
                let EventKind::Suspended { suspension } = event.kind else { continue };
                for wait in suspension.waits {
                    if let WaitCause::Service { event_type, .. } = wait.cause {
                        found.insert(wait.call, AskedFor::Type(event_type));
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

async fn read(place: Place<'_>, mut requests: BTreeMap<CallId, AskedFor>) -> Result<Recorded, StoreError> {
    let Place { store, session, turn } = place;
    let mut found = Recorded::default();
    let mut deeds: Vec<(u32, Deed)> = Vec::new();
    // What `init` returned.
    let mut state: Option<Vec<u8>> = None;
    for StoredRecord { record, .. } in store.records(&session.subject, RecordRange::Turn(turn)).await? {
        let body = &record.body;
        let at = |phase, body: &Value, kind| (phase, deed((turn, record.step), body, kind));
        match record.kind.as_str() {
            RECORD_KIND => {
                if let Some(answer) = RecordedAnswer::of(body) {
                    found.model.entry(answer.call.clone()).or_default().push_back(answer);
                }
            }
            // Of a call that was tried again, the last try is the one that counts.
            ANSWERS_KIND => {
                if let (Some(call), Ok(answers)) = (body["call"].as_str(), HostAnswers::deserialize(&body["host"])) {
                    found.host.insert(call.to_owned(), answers);
                }
            }
            REQUEST_KIND => {
                let request = ServiceRequest::deserialize(&body["request"]);
                if let (Ok(call), Ok(request)) = (CallId::deserialize(&body["call"]), request) {
                    requests.insert(call, AskedFor::Whole(request));
                }
            }
            "context" if body["builder"].is_object() => {
                let body = &body["builder"];
                state = Option::deserialize(&body["answer"]["state"]).unwrap_or_default();
                let recollections = Vec::deserialize(&record.body["recollections"]).unwrap_or_default();
                deeds.push(at(0, body, context(place, body, recollections).await?));
            }
            "step_context" => deeds.push(at(0, body, step(place, body, state.clone()).await?)),
            "media_policy" => deeds.push(at(1, body, decision(session, turn, body))),
            "verdict" => deeds.push(at(3, body, verdict(place, body).await?)),
            _ => {}
        }
    }
    for call in store.calls(&session.subject, CallFilter::Turn(turn)).await? {
        deeds.extend(of_call(call, &requests).map(|deed| (2, deed)));
    }
    deeds.sort_by_key(|(phase, deed)| (deed.step, *phase));
    found.deeds = deeds.into_iter().map(|(_, deed)| deed).collect();
    Ok(found)
}

impl Place<'_> {
    /// Messages by id, and in how many model calls they had been seen.
    async fn messages(&self, places: &Places, characters: usize) -> Result<Vec<Message>, StoreError> {
        let places = places.each(self.store).await?.unwrap_or_default();
        let ids = places.iter().map(|(id, _)| *id).collect();
        let messages = self.store.messages(&self.session.subject, MessageRange::Ids(ids)).await?;
        let shown = messages.iter().zip(&places);
        Ok(shown.map(|(message, (_, seen))| shown_message(message, *seen, characters)).collect())
    }

    /// A text that a record names.
    async fn text(&self, digest: &str) -> Result<String, StoreError> {
        match Digest::parse(digest) {
            Ok(digest) => self.store.text(&digest).await,
            Err(_) => Ok(String::new()),
        }
    }
}

/// What was beside a builder's question.
#[derive(Default, Deserialize)]
struct Beside {
    answers: Option<HostAnswers>,
    #[serde(default)]
    denials: Vec<Denial>,
}

fn built<Q>(request: Q, body: &Value) -> Box<Built<Q>> {
    let Beside { answers, denials } = Beside::deserialize(&body["host"]).unwrap_or_default();
    Box::new(Built { request, answer: body["answer"].clone(), host: answers.unwrap_or_default(), denials })
}

async fn context(place: Place<'_>, body: &Value, recollections: Vec<Recollection>) -> Result<DeedKind, StoreError> {
    #[derive(Deserialize)]
    struct Asked {
        model: Model,
        input: TurnInput,
        tools: String,
        messages: Places,
        result_characters: usize,
        hidden: u32,
        summary: Option<String>,
        budget: Budget,
    }
    let Ok(asked) = Asked::deserialize(&body["asked"]) else {
        return Ok(DeedKind::Unrepeatable("a turn's context", OLDER));
    };
    let tools: Option<Vec<BuilderTool>> = serde_json::from_str(&place.text(&asked.tools).await?).ok();
    let Some(tools) = tools else { return Ok(DeedKind::Unrepeatable("a turn's context", OLDER)) };
    let summary = match &asked.summary {
        Some(digest) => Some(place.text(digest).await?),
        None => None,
    };
    let history = place.messages(&asked.messages, asked.result_characters).await?;
    let request = BuilderRequest {
        lifecycle: Lifecycle::Init,
        scope: scope(place.session, place.turn),
        model: asked.model,
        input: asked.input,
        tools,
        memory: BuilderMemory { history, hidden: asked.hidden, summary, recollections },
        budget: asked.budget,
    };
    Ok(DeedKind::Context(built(request, body)))
}

async fn step(place: Place<'_>, body: &Value, state: Option<Vec<u8>>) -> Result<DeedKind, StoreError> {
    #[derive(Deserialize)]
    struct Asked {
        lifecycle: Lifecycle,
        model: Model,
        step: u32,
        steps_left: u32,
        messages: Places,
        result_characters: usize,
        budget: Budget,
    }
    let Ok(asked) = Asked::deserialize(&body["asked"]) else {
        return Ok(DeedKind::Unrepeatable("a step's context", OLDER));
    };
    let request = StepRequest {
        lifecycle: asked.lifecycle,
        scope: scope(place.session, place.turn),
        model: asked.model,
        step: asked.step,
        steps_left: asked.steps_left,
        latest: place.messages(&asked.messages, asked.result_characters).await?,
        budget: asked.budget,
        state,
    };
    Ok(DeedKind::Step(built(request, body)))
}

fn decision(session: &SessionSummary, turn: u32, body: &Value) -> DeedKind {
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
    let request = PolicyRequest { scope: scope(session, turn), model: asked.model, messages: asked.messages, items };
    DeedKind::Decision(Box::new((request, answer)))
}

async fn verdict(place: Place<'_>, body: &Value) -> Result<DeedKind, StoreError> {
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
        messages: Places,
        result_characters: usize,
    }
    let Ok(Body { asked, answer }) = Body::deserialize(body) else {
        return Ok(DeedKind::Unrepeatable("a verdict", OLDER));
    };
    let turn = place.messages(&asked.messages, asked.result_characters).await?;
    let request = ValidatorRequest {
        scope: scope(place.session, place.turn),
        text: asked.text,
        structured: asked.structured,
        output_schema: asked.output_schema,
        attempt: asked.attempt,
        corrections_left: asked.corrections_left,
        turn,
    };
    Ok(DeedKind::Verdict(Box::new((request, answer))))
}

fn deed((turn, step): (u32, u32), body: &Value, kind: DeedKind) -> Deed {
    let identity = body["plugin"].as_str().unwrap_or_default();
    let (plugin, digest) = identity.rsplit_once('@').unwrap_or((identity, ""));
    Deed { turn, step, plugin: plugin.to_owned(), digest: digest.to_owned(), kind }
}

/// A call that a plugin ran: it ended by itself, and nobody else decided what came of it.
fn of_call(call: CallRecord, requests: &BTreeMap<CallId, AskedFor>) -> Option<Deed> {
    let Some(ToolSource::Plugin { plugin, digest }) = call.source.clone() else { return None };
    let (turn, step) = (call.turn, call.step);
    let result = call.result.as_ref();
    let kind = match requests.get(&call.id).cloned() {
        Some(asked) => DeedKind::Request(Box::new((call, asked))),
        // One that never ran, or was stopped, has cost nothing.
        None if call.attempt > 0 && result.is_some_and(|result| result.cost.wall_us > 0) => {
            DeedKind::Call(Box::new(call))
        }
        None => return None,
    };
    Some(Deed { turn, step, plugin, digest: digest.to_string(), kind })
}
