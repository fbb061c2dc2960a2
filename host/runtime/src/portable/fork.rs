//! A new session with everything visible up to a message of another one, which stays as it is. It is copied page by page.

use super::export::{answered, as_new};
use super::staging::Staging;
use super::{PortableError, hold};
use crate::host_model::RECORD_KIND;
use crate::session::{ANSWERS_KIND, REQUEST_KIND, Session, new_id_ending, new_subject};
use agent_core::change::{Body, CallChange, Change};
use agent_core::message::{CallId, Content, Digest, MessageId, Part, StoredMessage};
use agent_core::run::{CutPlaces, Run};
use agent_store::{CallFilter, MAX_PAGE, MessageRange, RecordRange, SessionMeta, StepRecord, Store, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Of the step record that says where a fork comes from.
const FORK_KIND: &str = "fork";

/// Visible messages that are read at once.
const PAGE: usize = 100;

/// Where to cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkAt {
    /// Behind the last message that is whole with its results.
    Last,
    /// Behind this message, or behind the results of its calls.
    Message(MessageId),
}

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forked {
    /// The new session's subject.
    pub session: String,
    /// The last message of the original that it has.
    pub at: MessageId,
    /// How many it has.
    pub messages: u64,
}

/// What is forked.
struct Original<'a> {
    run: &'a Run,
    user: Option<String>,
    title: Option<String>,
}

/// Forks a session that nobody has open; one that is open in a living process is [`StoreError::Busy`]. The new one has
/// no open turn, no memory of its own, and nothing that was allowed for the session; media are shared, not copied.
pub async fn fork(store: &dyn Store, session: &str, at: ForkAt) -> Result<Forked, PortableError> {
    let held = hold(store, session).await?;
    let original = Original { run: &held.run, user: held.summary.user, title: held.summary.title };
    let forked = fork_original(store, &original, at).await;
    store.release(held.opened.lease).await?;
    forked
}

impl Session {
    /// Forks this session as it is now, an open turn left out, and leaves it open.
    pub async fn fork(&self, at: ForkAt) -> Result<Forked, PortableError> {
        let store = &*self.shared.store;
        let summary = super::summary(store, self.subject()).await?;
        let (user, title) = summary.map(|summary| (summary.user, summary.title)).unwrap_or_default();
        fork_original(store, &Original { run: &self.run, user, title }, at).await
    }
}

async fn fork_original(store: &dyn Store, original: &Original<'_>, at: ForkAt) -> Result<Forked, PortableError> {
    let from = &original.run.session;
    let places = places(store, original.run).await?;
    let at = match at {
        ForkAt::Last => places.last().ok_or_else(|| PortableError::Empty { session: from.clone() })?,
        ForkAt::Message(_) if places.is_empty() => return Err(PortableError::Empty { session: from.clone() }),
        ForkAt::Message(id) => {
            places.behind(id).map_err(|place| PortableError::NoPlace { session: from.clone(), place })?
        }
    };
    let session = new_subject(&original.run.agent);
    let run = original.run.fork(&session, at).with_id_ending(new_id_ending());
    let meta = SessionMeta { agent: run.agent.clone(), user: original.user.clone(), delegated_by: None };
    let mut staging = Staging::begin(store, &session, meta).await?;
    let kept: Vec<MessageId> = original.run.view.iter().map(|entry| entry.id).filter(|id| *id <= at).collect();
    let messages = kept.len() as u64;
    let origin = match copy(&mut staging, from, &kept, run.turns).await {
        Ok(origins) => {
            let body = json!({"from": from, "at": at, "messages": messages, "origins": origins.by_turn, "ran_in": origins.by_call});
            StepRecord { turn: run.turns, step: 0, kind: FORK_KIND.to_owned(), body }
        }
        Err(error) => {
            staging.abandon().await?;
            return Err(error.into());
        }
    };
    staging.complete(&run, original.title.clone(), vec![origin]).await?;
    Ok(Forked { session, at, messages })
}

async fn places(store: &dyn Store, run: &Run) -> Result<CutPlaces, StoreError> {
    let mut places = CutPlaces::default();
    for page in run.view.chunks(PAGE) {
        let ids = page.iter().map(|entry| entry.id).collect();
        let messages = store.messages(&run.session, MessageRange::Ids(ids)).await?;
        messages.iter().for_each(|message| places.add(message));
    }
    Ok(places)
}

/// Copies the messages, numbered from 1, with the calls whose results they contain and with what a replay of these calls needs.
async fn copy(staging: &mut Staging<'_>, from: &str, kept: &[MessageId], turns: u32) -> Result<Origins, StoreError> {
    let mut id = 0;
    for page in kept.chunks(PAGE) {
        let messages = staging.store.messages(from, MessageRange::Ids(page.to_vec())).await?;
        let media = seen(staging.store, from, media(&messages)).await?;
        staging.store.share(from, staging.session(), &media).await?;
        let mut calls = answered(staging.store, from, &messages).await?;
        let mut change = Change::default();
        for message in messages {
            id += 1;
            let message = as_new(StoredMessage { id, ..message }, &calls);
            if let Body::ResultOf(call) = &message.body {
                change.calls.extend(calls.remove(call).map(CallChange::Requested));
            }
            change.messages.push(message);
        }
        staging.add(change, Vec::new(), Vec::new()).await?;
    }
    copy_records(staging, from).await?;
    let origins = Origins::read(staging.store, from).await?;
    origins.forked(staging, from, turns).await
}

/// What a later look at the copied calls needs (S6): what their plugins were answered and have asked for.
async fn copy_records(staging: &mut Staging<'_>, from: &str) -> Result<(), StoreError> {
    let mut number = 0;
    loop {
        let page = staging.store.records(from, RecordRange::After { number, limit: MAX_PAGE }).await?;
        let Some(last) = page.last() else { return Ok(()) };
        number = last.number;
        let is_of_call =
            |record: &StepRecord| [ANSWERS_KIND, REQUEST_KIND, RECORD_KIND].contains(&record.kind.as_str());
        let records = page.into_iter().map(|stored| stored.record).filter(is_of_call);
        let of_calls: Vec<_> = records.filter_map(|record| Some((call_of(&record)?, record))).collect();
        let ids = of_calls.iter().map(|(call, _)| call.clone()).collect();
        let copied = copied(staging, ids).await?;
        let records: Vec<_> =
            of_calls.into_iter().filter_map(|(call, record)| copied.contains(&call).then_some(record)).collect();
        if !records.is_empty() {
            staging.add(Change::default(), records, Vec::new()).await?;
        }
    }
}

fn call_of(record: &StepRecord) -> Option<CallId> {
    record.body["call"].as_str().map(|call| CallId(call.to_owned()))
}

/// Those of the calls that the fork has.
async fn copied(staging: &Staging<'_>, calls: BTreeSet<CallId>) -> Result<BTreeSet<CallId>, StoreError> {
    let calls: Vec<CallId> = calls.into_iter().collect();
    let mut copied = BTreeSet::new();
    for calls in calls.chunks(PAGE) {
        let found = staging.store.calls(staging.session(), CallFilter::Ids(calls.to_vec())).await?;
        copied.extend(found.into_iter().map(|call| call.id));
    }
    Ok(copied)
}

/// In which sessions the calls of a session ran that came along with forks. Their plugins were told that session's name.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Origins {
    /// Earlier sessions, the earliest first.
    #[serde(default, rename = "origins")]
    by_turn: Vec<Origin>,
    /// As older versions wrote it.
    #[serde(default, rename = "ran_in")]
    by_call: BTreeMap<CallId, String>,
}

/// A session in which the turns of a fork ran.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Origin {
    session: String,
    /// The last of them; those before it that no earlier session ran are its own, too.
    until_turn: u32,
}

impl Origins {
    /// Of a stored session.
    pub(crate) async fn read(store: &dyn Store, session: &str) -> Result<Self, StoreError> {
        let forks = store.records(session, RecordRange::Kind(FORK_KIND)).await?;
        Ok(forks.last().and_then(|stored| Self::deserialize(&stored.record.body).ok()).unwrap_or_default())
    }

    /// The session in which this call ran, where it was another one.
    pub(crate) fn of(&self, call: &CallId, turn: u32) -> Option<&str> {
        let by_turn = || self.by_turn.iter().find(|origin| turn <= origin.until_turn).map(|origin| &origin.session);
        self.by_call.get(call).or_else(by_turn).map(String::as_str)
    }

    /// The same for a fork with so many turns.
    async fn forked(mut self, staging: &Staging<'_>, from: &str, turns: u32) -> Result<Self, StoreError> {
        let known = copied(staging, self.by_call.keys().cloned().collect()).await?;
        self.by_call.retain(|call, _| known.contains(call));
        self.by_turn.push(Origin { session: from.to_owned(), until_turn: turns });
        Ok(self)
    }
}

/// Media that the messages show.
fn media(messages: &[StoredMessage]) -> BTreeSet<Digest> {
    let mut found = BTreeSet::new();
    for part in messages.iter().flat_map(|message| &message.parts) {
        match part {
            Part::Media(media) => {
                found.insert(media.digest.clone());
            }
            Part::ToolResult(result) => found.extend(result.content.iter().filter_map(|content| match content {
                Content::Media(media) => Some(media.digest.clone()),
                Content::Text(_) | Content::Json(_) => None,
            })),
            Part::Text(_) | Part::Json(_) | Part::ToolCall(_) | Part::Preface(_) | Part::Replay(_) => {}
        }
    }
    found
}

/// Those that the original itself can show.
async fn seen(store: &dyn Store, from: &str, media: BTreeSet<Digest>) -> Result<Vec<Digest>, StoreError> {
    let mut seen = Vec::with_capacity(media.len());
    for digest in media {
        if store.media(from, &digest).await?.is_some() {
            seen.push(digest);
        }
    }
    Ok(seen)
}
