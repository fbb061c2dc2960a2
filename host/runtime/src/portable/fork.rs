//! A new session with everything visible up to a message of another one, which stays as it is.

use super::export::{answered, as_new};
use super::{PortableError, hold};
use crate::host_model::RECORD_KIND;
use crate::session::{ANSWERS_KIND, REQUEST_KIND, Session, new_id_ending, new_subject, pieces, status};
use agent_core::change::{Body, CallChange, Change};
use agent_core::message::{Content, Digest, MessageId, Part, StoredMessage};
use agent_core::run::{Run, last_place, whole_until};
use agent_memory::{
    Commit, MAX_PAGE, MessageRange, OpenMode, RecordRange, SessionMeta, StepRecord, Store, StoreError, StoredRecord,
    StoredView,
};
use serde::Deserialize;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Of the step record that says where a fork comes from.
pub(crate) const FORK_KIND: &str = "fork";

/// What comes along with calls.
struct Along {
    /// The session that each ran in, by call.
    ran_in: BTreeMap<String, String>,
    records: Vec<StepRecord>,
}

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
    let visible = visible(store, original.run).await?;
    let at = match at {
        ForkAt::Last => last_place(&visible).ok_or_else(|| PortableError::Empty { session: from.clone() })?,
        ForkAt::Message(_) if visible.is_empty() => return Err(PortableError::Empty { session: from.clone() }),
        ForkAt::Message(id) => {
            whole_until(&visible, id).map_err(|place| PortableError::NoPlace { session: from.clone(), place })?
        }
    };
    let kept: Vec<StoredMessage> = visible.into_iter().take_while(|message| message.id <= at).collect();
    let session = new_subject(&original.run.agent);
    let run = original.run.fork(&session, at).with_id_ending(new_id_ending());
    let media = media(&kept);
    let (messages, change) = (kept.len() as u64, copied(store, from, kept).await?);
    let Along { ran_in, mut records } = along(store, from, &change).await?;
    let body = json!({"from": from, "at": at, "messages": messages, "ran_in": ran_in});
    records.push(StepRecord { turn: run.turns, step: 0, kind: FORK_KIND.to_owned(), body });
    let status = status(&run, original.title.clone());
    let view = StoredView::Whole(pieces(&run, None));
    let commit = Commit { snapshot: run.snapshot_without_view(), view, change, records, texts: Vec::new(), status };
    let meta = SessionMeta { agent: run.agent.clone(), user: original.user.clone(), delegated_by: None };
    let opened = store.open(&session, OpenMode::CreateNew, meta).await?;
    let written = async {
        store.share(from, &session, &seen(store, from, media).await?).await?;
        store.commit(&opened.lease, opened.revision, commit).await
    };
    let written = written.await;
    store.release(opened.lease).await?;
    if let Err(error) = written {
        store.delete(&session).await?;
        return Err(error.into());
    }
    Ok(Forked { session, at, messages })
}

async fn visible(store: &dyn Store, run: &Run) -> Result<Vec<StoredMessage>, StoreError> {
    let ids: Vec<MessageId> = run.view.iter().map(|entry| entry.id).collect();
    let mut messages = Vec::with_capacity(ids.len());
    for page in ids.chunks(MAX_PAGE) {
        messages.extend(store.messages(&run.session, MessageRange::Ids(page.to_vec())).await?);
    }
    Ok(messages)
}

/// The messages numbered from 1, with the records of the calls whose results they hold.
async fn copied(store: &dyn Store, from: &str, kept: Vec<StoredMessage>) -> Result<Change, StoreError> {
    let mut calls = answered(store, from, &kept).await?;
    let mut change = Change::default();
    for (id, message) in (1..).zip(kept) {
        let message = as_new(StoredMessage { id, ..message }, &calls);
        if let Body::ResultOf(call) = &message.body {
            change.calls.extend(calls.remove(call).map(CallChange::Requested));
        }
        change.messages.push(message);
    }
    Ok(change)
}

/// What a later look at the calls needs (S6): what their plugins were answered and have asked for, and as which session.
async fn along(store: &dyn Store, from: &str, change: &Change) -> Result<Along, StoreError> {
    let mut ran_in: BTreeMap<String, String> = BTreeMap::new();
    for call in &change.calls {
        if let CallChange::Requested(call) = call {
            ran_in.insert(call.id.0.clone(), from.to_owned());
        }
    }
    let (mut records, mut number) = (Vec::new(), 0);
    loop {
        let page = store.records(from, RecordRange::After { number, limit: MAX_PAGE }).await?;
        let Some(last) = page.last() else { return Ok(Along { ran_in, records }) };
        number = last.number;
        for StoredRecord { record, .. } in page {
            if record.kind == FORK_KIND {
                let earlier = BTreeMap::<String, String>::deserialize(&record.body["ran_in"]).unwrap_or_default();
                ran_in.extend(earlier.into_iter().filter(|(call, _)| ran_in.contains_key(call)).collect::<Vec<_>>());
            }
            let of_call = [ANSWERS_KIND, REQUEST_KIND, RECORD_KIND].contains(&record.kind.as_str());
            if of_call && record.body["call"].as_str().is_some_and(|call| ran_in.contains_key(call)) {
                records.push(record);
            }
        }
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
