//! Forks a session: copies all visible messages up to a given message into a new session, page by page. The original
//! session is not changed.

use super::export::{answered_calls, as_new};
use super::staging::Staging;
use super::{TransferError, lease};
use crate::records::{FORK_KIND, ForkOrigin, ForkRecord, StepRecordBody};
use crate::session::{Session, new_id_ending, new_subject};
use agent_core::change::{Body, CallChange, Change};
use agent_core::message::{CallId, Content, Digest, MessageId, Part, StoredMessage};
use agent_core::run::{CutPoints, Run};
use agent_store::{CallFilter, MAX_PAGE, MessageRange, RecordRange, SessionMeta, Store, StoreError};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of visible messages that one query reads.
const PAGE_SIZE: usize = 100;

/// The message after which a session is forked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkAt {
    /// Fork after the last message at which the session can be forked, which is the last message whose calls all
    /// have results.
    Last,
    /// Fork after this message or, if the message contains calls, after the results of these calls.
    Message(MessageId),
}

/// The session that a fork created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forked {
    /// Subject of the new session.
    pub session: String,
    /// The last message of the original that was copied.
    pub at: MessageId,
    /// Number of messages that were copied to the new session.
    pub messages: u64,
}

/// The parts of the original session that a fork needs.
struct Original<'a> {
    run: &'a Run,
    user: Option<String>,
    title: Option<String>,
}

/// Forks a session that is not open. If the session is open, the error is [`StoreError::Busy`]. The new session has no
/// open turn, and does not contain the memories and approvals of the original. Media are shared with the original,
/// not copied.
pub async fn fork(store: &dyn Store, session: &str, at: ForkAt) -> Result<Forked, TransferError> {
    let leased = lease(store, session).await?;
    let original = Original { run: &leased.run, user: leased.summary.user, title: leased.summary.title };
    let forked = fork_original(store, &original, at).await;
    store.release(leased.opened.lease).await?;
    forked
}

impl Session {
    /// Forks this session in its current state. The open turn, if there is one, is not copied, and this session
    /// stays open.
    pub async fn fork(&self, at: ForkAt) -> Result<Forked, TransferError> {
        let store = &*self.services.store;
        let summary = super::summary(store, self.subject()).await?;
        let (user, title) = summary.map(|summary| (summary.user, summary.title)).unwrap_or_default();
        fork_original(store, &Original { run: &self.run, user, title }, at).await
    }
}

async fn fork_original(store: &dyn Store, original: &Original<'_>, at: ForkAt) -> Result<Forked, TransferError> {
    let from = &original.run.session;
    let points = cut_points(store, original.run).await?;
    let at = match at {
        ForkAt::Last => points.last().ok_or_else(|| TransferError::Empty { session: from.clone() })?,
        ForkAt::Message(_) if points.is_empty() => return Err(TransferError::Empty { session: from.clone() }),
        ForkAt::Message(id) => {
            points.after(id).map_err(|place| TransferError::CannotCut { session: from.clone(), place })?
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
            let Origins { by_turn, by_call } = origins;
            let record = ForkRecord { from: from.clone(), at, messages, origins: by_turn, ran_in: by_call };
            StepRecordBody::Fork(Box::new(record)).into_record(run.turns, 0)
        }
        Err(error) => {
            staging.abandon().await?;
            return Err(error.into());
        }
    };
    staging.complete(&run, original.title.clone(), vec![origin]).await?;
    Ok(Forked { session, at, messages })
}

async fn cut_points(store: &dyn Store, run: &Run) -> Result<CutPoints, StoreError> {
    let mut points = CutPoints::default();
    for page in run.view.chunks(PAGE_SIZE) {
        let ids = page.iter().map(|entry| entry.id).collect();
        let messages = store.messages(&run.session, MessageRange::Ids(ids)).await?;
        messages.iter().for_each(|message| points.add(message));
    }
    Ok(points)
}

/// Copies the messages, the calls whose results are in these messages, and the records that a replay of these calls
/// needs. The copied messages are numbered from 1.
async fn copy(staging: &mut Staging<'_>, from: &str, kept: &[MessageId], turns: u32) -> Result<Origins, StoreError> {
    let mut id = 0;
    for page in kept.chunks(PAGE_SIZE) {
        let messages = staging.store.messages(from, MessageRange::Ids(page.to_vec())).await?;
        let media = visible_media(staging.store, from, media_of(&messages)).await?;
        staging.store.share(from, staging.session(), &media).await?;
        let mut calls = answered_calls(staging.store, from, &messages).await?;
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

/// Copies the records that a replay of the copied calls needs (S6): the host's answers to the plugins, and the plugins'
/// service requests.
async fn copy_records(staging: &mut Staging<'_>, from: &str) -> Result<(), StoreError> {
    let mut number = 0;
    loop {
        let page = staging.store.records(from, RecordRange::After { number, limit: MAX_PAGE }).await?;
        let Some(last) = page.last() else { return Ok(()) };
        number = last.number;
        let records = page.into_iter().map(|stored| stored.record);
        let of_calls: Vec<_> = records.filter_map(|record| Some((StepRecordBody::call_of(&record)?, record))).collect();
        let ids = of_calls.iter().map(|(call, _)| call.clone()).collect();
        let copied = copied_calls(staging, ids).await?;
        let records: Vec<_> =
            of_calls.into_iter().filter_map(|(call, record)| copied.contains(&call).then_some(record)).collect();
        if !records.is_empty() {
            staging.add(Change::default(), records, Vec::new()).await?;
        }
    }
}

/// Filters `calls`: returns only the calls that the fork contains.
async fn copied_calls(staging: &Staging<'_>, calls: BTreeSet<CallId>) -> Result<BTreeSet<CallId>, StoreError> {
    let calls: Vec<CallId> = calls.into_iter().collect();
    let mut copied = BTreeSet::new();
    for calls in calls.chunks(PAGE_SIZE) {
        let found = staging.store.calls(staging.session(), CallFilter::Ids(calls.to_vec())).await?;
        copied.extend(found.into_iter().map(|call| call.id));
    }
    Ok(copied)
}

/// States, for each call that was copied into a fork, the session in which the call originally ran. The replay of a
/// copied call needs the subject of the original session, because the plugin received this subject when the call ran.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins {
    /// The sessions in which the copied turns originally ran, each with the number of its last copied turn. The
    /// earliest session is first.
    by_turn: Vec<ForkOrigin>,
    /// The session in which each copied call originally ran, by the id of the call. Only older versions of the host
    /// stored this map.
    by_call: BTreeMap<CallId, String>,
}

impl Origins {
    /// Reads the origins of a stored session.
    pub(crate) async fn read(store: &dyn Store, session: &str) -> Result<Self, StoreError> {
        let forks = store.records(session, RecordRange::Kind(FORK_KIND)).await?;
        let Some(last) = forks.last() else { return Ok(Self::default()) };
        Ok(match StepRecordBody::read(&last.record) {
            Ok(StepRecordBody::Fork(record)) => Self { by_turn: record.origins, by_call: record.ran_in },
            _ => Self::default(),
        })
    }

    /// Returns the session in which this call ran, or `None` if the call ran in the session that stores these origins.
    pub(crate) fn of(&self, call: &CallId, turn: u32) -> Option<&str> {
        let by_turn = || self.by_turn.iter().find(|origin| turn <= origin.until_turn).map(|origin| &origin.session);
        self.by_call.get(call).or_else(by_turn).map(String::as_str)
    }

    /// Returns the origins of the calls in a fork that contains the first `turns` turns of the session `from`.
    async fn forked(mut self, staging: &Staging<'_>, from: &str, turns: u32) -> Result<Self, StoreError> {
        let copied = copied_calls(staging, self.by_call.keys().cloned().collect()).await?;
        self.by_call.retain(|call, _| copied.contains(call));
        self.by_turn.push(ForkOrigin { session: from.to_owned(), until_turn: turns });
        Ok(self)
    }
}

/// Returns the digests of the media in the messages.
fn media_of(messages: &[StoredMessage]) -> BTreeSet<Digest> {
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

/// Filters `media`: returns only the media that the original session contains.
async fn visible_media(store: &dyn Store, from: &str, media: BTreeSet<Digest>) -> Result<Vec<Digest>, StoreError> {
    let mut visible = Vec::with_capacity(media.len());
    for digest in media {
        if store.media(from, &digest).await?.is_some() {
            visible.push(digest);
        }
    }
    Ok(visible)
}
