//! A document into a new session: everything in it is checked before anything is written, and then it is written in one
//! commit.

mod facts;

use super::document::{
    Document, DocumentEvent, DocumentMedium, DocumentRecord, DocumentSession, DocumentText, FORMAT, Kind, VERSION,
};
use super::{PortableError, summary};
use crate::media::describe;
use crate::session::{TITLE_CHARACTERS, new_id_ending, pieces, status};
use crate::user::UserName;
use agent_core::change::{Body, CallChange, CallRecord, Change, HiddenMessage, NewMessage};
use agent_core::event::Event;
use agent_core::message::{CallId, Digest, Media, Part};
use agent_core::run::Run;
use agent_memory::digest_of;
use agent_memory::{
    Commit, MediaDescription, OpenMode, OpenedSession, SessionMeta, StepRecord, Store, StoreError, StoredView,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use facts::harmless;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::collections::{HashMap, HashSet};

/// Bytes of a session's, an agent's or a call's name.
const MAX_NAME: usize = 200;

/// The subject under which a session is imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportAs {
    /// The one that it was exported under.
    Itself,
    /// This one.
    Subject(String),
}

/// How a session is imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportOptions {
    /// Under which subject.
    pub subject: ImportAs,
    /// Who imports it, and owns it from then on. What the document says of its user is a claim.
    pub user: Option<String>,
}

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The new session's subject.
    pub session: String,
    /// Whose sessions it belongs to.
    pub agent: String,
    /// Messages, hidden ones included.
    pub messages: u64,
    /// What the document says and this host did not take over, in words, since a document carries conversation and no
    /// authority (P14).
    pub dropped: Vec<String>,
}

/// A session as the document has it, checked.
struct Checked {
    head: DocumentSession,
    run: Run,
    change: Change,
    records: Vec<StepRecord>,
    texts: Vec<String>,
    media: Vec<(Media, Vec<u8>)>,
    dropped: Vec<String>,
}

/// Imports what [`super::export`] wrote, under a subject that no session has. Its times are those of the import, and it
/// belongs to no user.
pub async fn import(store: &dyn Store, document: &[u8], subject: ImportAs) -> Result<Imported, PortableError> {
    import_for(store, document, ImportOptions { subject, user: None }).await
}

/// The same for a user.
pub async fn import_for(store: &dyn Store, document: &[u8], options: ImportOptions) -> Result<Imported, PortableError> {
    import_checked(store, document, options, Checked::forget_claims).await
}

/// The same under its own subject, to do again what it says that its plugins did. What it says of who ran a call that has no
/// result stays: nothing goes on there.
pub async fn import_to_replay(store: &dyn Store, document: &[u8]) -> Result<Imported, PortableError> {
    let options = ImportOptions { subject: ImportAs::Itself, user: None };
    import_checked(store, document, options, |_| {}).await
}

async fn import_checked(
    store: &dyn Store,
    document: &[u8],
    ImportOptions { subject, user }: ImportOptions,
    forget: impl FnOnce(&mut Checked),
) -> Result<Imported, PortableError> {
    if let ImportAs::Subject(subject) = &subject {
        let refused = |problem| PortableError::Name { name: subject.escape_debug().to_string(), problem };
        check_name(subject).map_err(refused)?;
    }
    let mut checked = Checked::read(document)?.renamed(subject);
    forget(&mut checked);
    checked.drop_authority(user);
    let session = checked.head.subject.clone();
    let (agent, user) = (checked.head.agent.clone(), checked.head.user.clone());
    let opened = make(store, &session, SessionMeta { agent: agent.clone(), user, delegated_by: None }).await?;
    let (messages, dropped) = (checked.change.messages.len() as u64, std::mem::take(&mut checked.dropped));
    let written = write(store, &opened, checked).await;
    store.release(opened.lease).await?;
    if let Err(error) = written {
        store.delete(&session).await?;
        return Err(error.into());
    }
    Ok(Imported { session, agent, messages, dropped })
}

/// A new session, or one that an import left empty when its process died.
async fn make(store: &dyn Store, session: &str, meta: SessionMeta) -> Result<OpenedSession, StoreError> {
    match summary(store, session).await? {
        None => store.open(session, OpenMode::CreateNew, meta).await,
        Some(there) if there.revision == 0 => {
            store.delete(session).await?;
            store.open(session, OpenMode::CreateNew, meta).await
        }
        Some(_) => Err(StoreError::SessionExists { session: session.to_owned() }),
    }
}

/// Media before the commit that refers to them; the reader sees nothing of the session before it.
async fn write(store: &dyn Store, opened: &OpenedSession, checked: Checked) -> Result<(), StoreError> {
    for (media, bytes) in checked.media {
        let Media { mime_type, dimensions, name, .. } = media;
        store.put(&opened.lease.session, bytes, MediaDescription { mime_type, dimensions, name }).await?;
    }
    let commit = Commit {
        snapshot: checked.run.snapshot_without_view(),
        view: StoredView::Whole(pieces(&checked.run, None)),
        status: status(&checked.run, checked.head.title),
        change: checked.change,
        records: checked.records,
        texts: checked.texts,
    };
    store.commit(&opened.lease, opened.revision, commit).await.map(|_| ())
}

impl Checked {
    fn read(document: &[u8]) -> Result<Self, PortableError> {
        let kind: Kind = serde_json::from_slice(document).map_err(foreign)?;
        if kind.format != FORMAT {
            return Err(PortableError::Foreign { problem: format!("its format is `{}`", kind.format) });
        }
        if kind.version > VERSION {
            return Err(PortableError::Newer { found: kind.version, supported: VERSION });
        }
        let document: Document<'_> = serde_json::from_slice(document).map_err(|error| damaged("its members", error))?;
        let head: DocumentSession = one("session", document.session)?;
        let run = Run::restore(Some(document.snapshot.get().as_bytes())).map_err(|error| damaged("snapshot", error))?;
        // The session that the document was written from may go on, too.
        let run = run.with_id_ending(new_id_ending());
        if (&run.session, &run.agent) != (&head.subject, &head.agent) {
            return Err(damaged("snapshot", "it is another session's or another agent's"));
        }
        let names = [("session.subject", &head.subject), ("session.agent", &head.agent)];
        for (place, name) in names {
            check_name(name).map_err(|problem| damaged(place, problem))?;
        }
        if let Some(user) = &head.user {
            UserName::new(user).map_err(|problem| damaged("session.user", problem))?;
        }
        if head.title.as_ref().is_some_and(|title| title.chars().count() > TITLE_CHARACTERS) {
            return Err(damaged("session.title", format!("it has more than {TITLE_CHARACTERS} characters")));
        }
        let change = change(&document)?;
        let mut checked = Self {
            records: records(&document.records)?,
            texts: texts(&document.texts)?,
            media: media(&document.media)?,
            change,
            head,
            run,
            dropped: Vec::new(),
        };
        checked.check_numbers()?;
        checked.check_turns()?;
        checked.check_calls()?;
        checked.check_roles()?;
        checked.check_media()?;
        checked.derive_facts()?;
        Ok(checked)
    }

    /// The state counts what is there, and nothing is missing in between.
    fn check_numbers(&self) -> Result<(), PortableError> {
        let (messages, events) = (&self.change.messages, &self.change.events);
        if let Some(place) = (1..).zip(messages).position(|(id, message)| message.id != id) {
            return Err(damaged(format!("messages[{place}]"), format!("the message {} is missing", place + 1)));
        }
        if let Some(place) = (1..).zip(events).position(|(number, event)| event.sequence != number) {
            return Err(damaged(format!("events[{place}]"), format!("the event {} is missing", place + 1)));
        }
        if let Some(place) = events.iter().position(|event| event.session != self.head.subject) {
            return Err(damaged(format!("events[{place}]"), "it is another session's"));
        }
        if self.run.next_message != messages.len() as u64 + 1 {
            let count = self.run.next_message - 1;
            return Err(damaged("messages", format!("there are {}, and the state counts {count}", messages.len())));
        }
        if self.run.sequence != events.len() as u64 {
            let count = self.run.sequence;
            return Err(damaged("events", format!("there are {}, and the state counts {count}", events.len())));
        }
        let last = messages.len() as u64;
        match self.change.hidden.iter().position(|hidden| hidden.id == 0 || hidden.id > last) {
            Some(place) => Err(damaged(format!("hidden[{place}]"), "there is no such message")),
            None => Ok(()),
        }
    }

    /// What messages and the open turn say about calls stands in their records.
    fn check_calls(&self) -> Result<(), PortableError> {
        let mut calls: HashMap<&CallId, &CallRecord> = HashMap::new();
        for (place, call) in self.change.calls.iter().enumerate() {
            let CallChange::Requested(record) = call else { continue };
            check_name(&record.id.0).map_err(|problem| damaged(format!("calls[{place}].id"), problem))?;
            if calls.insert(&record.id, record).is_some() {
                return Err(damaged(format!("calls[{place}]"), format!("call `{}` is there twice", record.id)));
            }
        }
        for (place, message) in self.change.messages.iter().enumerate() {
            if let Body::ResultOf(call) = &message.body
                && calls.get(call).is_none_or(|record| record.result.is_none())
            {
                return Err(damaged(format!("messages[{place}]"), format!("call `{call}` has no result")));
            }
        }
        for (call, name, is_done) in self.run.claimed_calls() {
            let Some(record) = calls.get(call) else {
                return Err(damaged("calls", format!("the open call `{call}` is missing")));
            };
            if record.name != name || record.turn != self.run.turns || record.result.is_some() != is_done {
                return Err(damaged("calls", format!("the record of the open call `{call}` is another call's")));
            }
        }
        self.check_written_calls(&calls)?;
        match calls.values().find(|call| call.turn == 0 || call.turn > self.run.turns) {
            Some(call) => Err(damaged("calls", format!("the call `{}` is of a turn that has not begun", call.id))),
            None => Ok(()),
        }
    }

    /// A call is what the model wrote: somebody who is asked about it must see what will run. A call without a result is one of
    /// the open turn.
    fn check_written_calls(&self, calls: &HashMap<&CallId, &CallRecord>) -> Result<(), PortableError> {
        let mut written: HashSet<&CallId> = HashSet::new();
        for message in &self.change.messages {
            let Body::Parts(parts) = &message.body else { continue };
            for call in parts.iter().filter_map(|part| if let Part::ToolCall(call) = part { Some(call) } else { None })
            {
                written.insert(&call.id);
                let differs = |record: &&CallRecord| record.name != call.name || record.arguments != call.arguments;
                if calls.get(&call.id).is_some_and(differs) {
                    return Err(damaged(
                        "calls",
                        format!("the record of `{}` is not the call that the model wrote", call.id),
                    ));
                }
            }
        }
        let open: HashSet<&CallId> = self.run.claimed_calls().map(|(call, ..)| call).collect();
        if let Some(call) = open.iter().find(|call| !written.contains(*call)) {
            return Err(damaged("calls", format!("no message of the model has the open call `{call}`")));
        }
        match calls.values().find(|call| call.result.is_none() && !open.contains(&call.id)) {
            Some(call) => {
                Err(damaged("calls", format!("`{}` has no result, and its turn does not wait for one", call.id)))
            }
            None => Ok(()),
        }
    }

    /// Who runs an open call, and with which arguments somebody has changed it, this host finds out itself.
    fn forget_claims(&mut self) {
        let open: HashSet<CallId> = self.run.claimed_calls().map(|(call, ..)| call.clone()).collect();
        for change in &mut self.change.calls {
            if let CallChange::Requested(record) = change
                && open.contains(&record.id)
                && record.result.is_none()
            {
                (record.source, record.edited) = (None, None);
            }
        }
    }

    fn renamed(mut self, subject: ImportAs) -> Self {
        if let ImportAs::Subject(subject) = subject {
            self.run = self.run.renamed(&subject);
            for event in &mut self.change.events {
                event.session.clone_from(&subject);
            }
            self.head.subject = subject;
        }
        self
    }
}

/// Names that somebody else has made stand on command lines and in file names, and are read on terminals.
fn check_name(name: &str) -> Result<(), &'static str> {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_.:@+/".contains(character);
    if name.is_empty() || name.len() > MAX_NAME {
        return Err("it has no characters, or more than 200");
    }
    if !name.chars().all(is_plain) {
        return Err("it has other characters than letters, digits and -_.:@+/");
    }
    let edges = ['-', '/', '.'];
    if name.starts_with(edges) || name.ends_with('/') || name.contains("//") || name.contains("..") {
        return Err("it begins with -, / or ., ends with /, or has // or .. in it");
    }
    Ok(())
}

fn change(document: &Document<'_>) -> Result<Change, PortableError> {
    let events: Vec<DocumentEvent> = all("events", &document.events)?;
    let calls: Vec<CallRecord> = all("calls", &document.calls)?;
    Ok(Change {
        messages: all::<NewMessage>("messages", &document.messages)?,
        hidden: all::<HiddenMessage>("hidden", &document.hidden)?,
        calls: calls.into_iter().map(CallChange::Requested).collect(),
        events: events.into_iter().map(|timed| -> Event { timed.event }).collect(),
        outbox: Vec::new(),
    })
}

fn records(items: &[&RawValue]) -> Result<Vec<StepRecord>, PortableError> {
    let records: Vec<DocumentRecord> = all("records", items)?;
    let read = records.into_iter().enumerate().map(|(place, record)| {
        let body = serde_json::from_str(record.body.get());
        let body = body.map_err(|error| damaged(format!("records[{place}].body"), error))?;
        Ok(StepRecord { turn: record.turn, step: record.step, kind: record.kind, body })
    });
    read.collect()
}

fn texts(items: &[&RawValue]) -> Result<Vec<String>, PortableError> {
    let texts: Vec<DocumentText> = all("texts", items)?;
    for (place, DocumentText { digest, text }) in texts.iter().enumerate() {
        check_digest(&format!("texts[{place}]"), digest, text.as_bytes())?;
    }
    Ok(texts.into_iter().map(|text| text.text).collect())
}

/// The bytes decide what a medium is: its digest and type must be those that the document gives, and its size and
/// dimensions are read again.
fn media(items: &[&RawValue]) -> Result<Vec<(Media, Vec<u8>)>, PortableError> {
    let mut media = Vec::with_capacity(items.len());
    for (place, item) in items.iter().enumerate() {
        let place = format!("media[{place}]");
        let DocumentMedium { media: described, base64 } = one(&place, item)?;
        let bytes = STANDARD.decode(base64).map_err(|error| damaged(&place, error))?;
        check_digest(&place, &described.digest, &bytes)?;
        let name = described.name.map(|name| harmless(&name, MAX_NAME));
        let MediaDescription { mime_type, dimensions, name } =
            describe(&bytes, &described.mime_type, name).map_err(|problem| damaged(&place, problem))?;
        let described = Media { digest: described.digest, mime_type, size: bytes.len() as u64, dimensions, name };
        media.push((described, bytes));
    }
    Ok(media)
}

fn check_digest(place: &str, expected: &Digest, bytes: &[u8]) -> Result<(), PortableError> {
    match digest_of(bytes) == *expected {
        true => Ok(()),
        false => Err(damaged(place, format!("its bytes are not those of {expected}"))),
    }
}

fn all<T: DeserializeOwned>(list: &str, items: &[&RawValue]) -> Result<Vec<T>, PortableError> {
    items.iter().enumerate().map(|(place, item)| one(&format!("{list}[{place}]"), item)).collect()
}

fn one<T: DeserializeOwned>(place: &str, item: &RawValue) -> Result<T, PortableError> {
    serde_json::from_str(item.get()).map_err(|error| damaged(place, error))
}

fn damaged(place: impl Into<String>, problem: impl ToString) -> PortableError {
    PortableError::Damaged { place: place.into(), problem: problem.to_string() }
}

/// Not even the beginning can be read: cut off, or no document of ours.
fn foreign(error: serde_json::Error) -> PortableError {
    match error.is_data() {
        true => PortableError::Foreign { problem: error.to_string() },
        false => damaged("its JSON", error),
    }
}
