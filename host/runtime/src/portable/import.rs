//! A document into a new session. Each item is checked before it is stored, in the memory of a few items. The session is incomplete
//! until all of them are there, and it is removed where one of them is refused.

mod calls;
mod history;
mod media;
mod messages;
mod text;

use super::document::{Batch, DocumentSession, Head, Items, List, SessionDocument};
use super::staging::Staging;
use super::{PortableError, summary};
use crate::session::{TITLE_CHARACTERS, new_id_ending};
use crate::trace::{self, is_trace};
use crate::user::UserName;
use agent_core::message::{CallId, MessageId, Role};
use agent_core::run::{Dropped, ImportTerms, Mask, Run};
use agent_store::{INCOMPLETE, SessionMeta, Store, StoreError};
use calls::OpenCall;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::collections::{HashMap, HashSet};
use text::harmless;

/// Bytes of a session's, an agent's or a call's name.
const MAX_NAME: usize = 200;
/// Most turns of an imported session.
const MAX_TURNS: u32 = 100_000;
/// Characters of a text that stands for a masked medium.
const MASK_CHARACTERS: usize = 10_000;

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

/// What becomes of the document's claims about who ran the open calls, and with which arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claims {
    /// This host finds them out itself.
    Forgotten,
    /// They stay: nothing goes on where the session is imported to be replayed.
    Kept,
}

/// Imports what [`super::export`] wrote, under a subject that no session has. Its times are those of the import, and it
/// belongs to no user.
pub async fn import(
    store: &dyn Store,
    document: impl Into<SessionDocument>,
    subject: ImportAs,
) -> Result<Imported, PortableError> {
    import_for(store, document, ImportOptions { subject, user: None }).await
}

/// The same for a user.
pub async fn import_for(
    store: &dyn Store,
    document: impl Into<SessionDocument>,
    options: ImportOptions,
) -> Result<Imported, PortableError> {
    import_with(store, document.into(), options, Claims::Forgotten).await
}

/// The same under its own subject, to do again what it says that its plugins did. What it says of who ran a call that has no
/// result stays: nothing goes on there.
pub async fn import_to_replay(
    store: &dyn Store,
    document: impl Into<SessionDocument>,
) -> Result<Imported, PortableError> {
    let options = ImportOptions { subject: ImportAs::Itself, user: None };
    import_with(store, document.into(), options, Claims::Kept).await
}

async fn import_with(
    store: &dyn Store,
    document: SessionDocument,
    ImportOptions { subject, user }: ImportOptions,
    claims: Claims,
) -> Result<Imported, PortableError> {
    if let ImportAs::Subject(subject) = &subject {
        let refused = |problem| PortableError::Name { name: subject.escape_debug().to_string(), problem };
        check_name(subject).map_err(refused)?;
    }
    let (document, head) = document.head().await?;
    let checked = CheckedHead::read(&head)?;
    let session = match subject {
        ImportAs::Itself => checked.session.subject.clone(),
        ImportAs::Subject(subject) => subject,
    };
    refuse_existing(store, &session).await?;
    let agent = checked.session.agent.clone();
    let meta = SessionMeta { agent: agent.clone(), user: user.clone(), delegated_by: None };
    let mut staging = Staging::begin(store, &session, meta).await?;
    let mut import = Import::new(checked, &session, (user, claims));
    match import.read(document, &head, &mut staging).await {
        Ok(()) => {}
        Err(error) => {
            staging.abandon().await?;
            return Err(error);
        }
    }
    let title = import.session.title.take().map(|title| harmless(&title, TITLE_CHARACTERS));
    staging.complete(&import.run, title, Vec::new()).await?;
    Ok(Imported { session, agent, messages: import.messages, dropped: import.dropped })
}

/// Before anything is read: whether the name is free.
async fn refuse_existing(store: &dyn Store, session: &str) -> Result<(), StoreError> {
    match summary(store, session).await? {
        Some(there) if there.revision > 0 && there.state != INCOMPLETE => {
            Err(StoreError::SessionExists { session: session.to_owned() })
        }
        _ => Ok(()),
    }
}

/// The members that are no lists, checked.
struct CheckedHead {
    session: DocumentSession,
    run: Run,
}

impl CheckedHead {
    fn read(head: &Head) -> Result<Self, PortableError> {
        let missing = |name: &str| damaged("its members", format!("`{name}` is missing"));
        let session: DocumentSession = one("session", head.session.as_deref().ok_or_else(|| missing("session"))?)?;
        let snapshot = head.snapshot.as_deref().ok_or_else(|| missing("snapshot"))?;
        let run = Run::restore(Some(snapshot.get().as_bytes())).map_err(|error| damaged("snapshot", error))?;
        if (&run.session, &run.agent) != (&session.subject, &session.agent) {
            return Err(damaged("snapshot", "it is another session's or another agent's"));
        }
        let names = [("session.subject", &session.subject), ("session.agent", &session.agent)];
        for (place, name) in names {
            check_name(name).map_err(|problem| damaged(place, problem))?;
        }
        if let Some(user) = &session.user {
            UserName::new(user).map_err(|problem| damaged("session.user", problem))?;
        }
        if session.title.as_ref().is_some_and(|title| title.chars().count() > TITLE_CHARACTERS) {
            return Err(damaged("session.title", format!("it has more than {TITLE_CHARACTERS} characters")));
        }
        check_turns(&run)?;
        // The session that the document was written from may go on, too.
        Ok(Self { session, run: run.with_id_ending(new_id_ending()) })
    }
}

/// The state counts its own turns, and masks messages that it counts.
fn check_turns(run: &Run) -> Result<(), PortableError> {
    let turns = run.turns;
    if turns > MAX_TURNS {
        return Err(damaged("snapshot", format!("it counts {turns} turns; at most {MAX_TURNS} are imported")));
    }
    if run.turn.as_ref().is_some_and(|turn| turn.number != turns) {
        return Err(damaged("snapshot.turn.number", format!("the last turn is {turns}")));
    }
    let is_wrong = |mask: &Mask| {
        mask.message == 0 || mask.message >= run.next_message || mask.text.chars().nth(MASK_CHARACTERS).is_some()
    };
    match run.masks.iter().position(is_wrong) {
        Some(place) => Err(damaged(format!("snapshot.masks[{place}]"), "it masks nothing, or its text is too long")),
        None => Ok(()),
    }
}

/// What is known while a document is read: counts, and what the state says of a few messages and calls.
struct Import {
    session: DocumentSession,
    /// The subject in the document.
    exported_as: String,
    run: Run,
    user: Option<String>,
    claims: Claims,
    /// Calls of the open turn.
    open: HashMap<CallId, OpenCall>,
    /// Calls of the open turn of which nobody knows whether they ran.
    unknown: HashSet<CallId>,
    /// Turn, role and tokens of the messages that the state's view names.
    view: HashMap<MessageId, Option<(u32, Role, u32)>>,
    /// Replies of the model in the last turn.
    replies: u32,
    messages: u64,
    /// Events of the document, and those of them that are taken over.
    events: (u64, u64),
    /// Messages whose role was `system`.
    system: u64,
    dropped: Vec<String>,
}

impl Import {
    fn new(CheckedHead { session, run }: CheckedHead, subject: &str, (user, claims): (Option<String>, Claims)) -> Self {
        let open = run.claimed_calls().map(|(call, name, is_done)| (call.clone(), OpenCall::new(name, is_done)));
        let open = open.collect();
        let (_, dropped) = run.clone().imported(&ImportTerms::default());
        let view = run.view.iter().map(|entry| (entry.id, None)).collect();
        let exported_as = session.subject.clone();
        let run = if exported_as == subject { run } else { run.renamed(subject) };
        Self {
            session,
            exported_as,
            run,
            user,
            claims,
            open,
            unknown: dropped.calls.into_iter().collect(),
            view,
            replies: 0,
            messages: 0,
            events: (0, 0),
            system: 0,
            dropped: Vec::new(),
        }
    }

    /// Media before the results and messages that show them, and calls before the messages that contain their results.
    async fn read(
        &mut self,
        mut document: SessionDocument,
        head: &Head,
        staging: &mut Staging<'_>,
    ) -> Result<(), PortableError> {
        let order = [List::Media, List::Calls, List::Messages, List::Hidden, List::Events, List::Texts, List::Records];
        for list in order {
            let mut items = document.items(head, list);
            let stored = self.read_list(&mut items, list, staging).await;
            // What cannot be read explains what is missing.
            document = items.end().await?;
            stored?;
            match list {
                List::Calls => self.check_open_calls()?,
                List::Messages => self.check_messages()?,
                _ => {}
            }
        }
        self.finish()
    }

    async fn read_list(
        &mut self,
        items: &mut Items,
        list: List,
        staging: &mut Staging<'_>,
    ) -> Result<(), PortableError> {
        while let Some(batch) = items.next().await {
            match list {
                List::Media => media::store(batch, staging).await?,
                List::Calls => self.store_calls(batch, staging).await?,
                List::Messages => self.store_messages(batch, staging).await?,
                List::Hidden => self.store_hidden(batch, staging).await?,
                List::Events => self.store_events(batch, staging).await?,
                List::Texts => history::store_texts(batch, staging).await?,
                List::Records => self.store_records(batch, staging).await?,
            }
        }
        Ok(())
    }

    /// An item of a turn must not be of one that has not begun.
    fn check_turn(&self, list: List, place: usize, turn: u32) -> Result<(), PortableError> {
        let turns = self.run.turns;
        if turn <= turns {
            return Ok(());
        }
        let problem = format!("it is of a turn that has not begun: there are {turns}");
        Err(damaged(format!("{}[{place}]", list.name()), problem))
    }

    /// Makes the state one that this host has derived and decided on.
    fn finish(&mut self) -> Result<(), PortableError> {
        let (events, kept) = self.events;
        if self.run.sequence != events {
            let count = self.run.sequence;
            return Err(damaged("events", format!("there are {events}, and the state counts {count}")));
        }
        self.run.sequence = kept;
        if self.system > 0 {
            let system = self.system;
            let which = if system == 1 { "1 message".to_owned() } else { format!("{system} messages") };
            self.dropped.push(format!("the role `system` of {which}, which the model is given as the user's words"));
        }
        let view = &self.view;
        let derived = self.run.derive_view(|id| view.get(&id).copied().flatten());
        derived.map_err(|id| damaged("snapshot.view", format!("there is no message {id}")))?;
        self.correct_trace();
        self.drop_authority();
        if kept < events {
            let left_out = events - kept;
            self.dropped.push(format!("{left_out} of its events, denials and approvals that this host has not seen"));
        }
        Ok(())
    }

    fn correct_trace(&mut self) {
        let Some(turn) = &mut self.run.turn else { return };
        if !is_trace(&turn.trace) {
            turn.trace = trace::root();
            self.dropped.push("the trace context of the last turn, which is malformed".to_owned());
        }
    }

    /// Takes out of the state what only the configuration and this host's people decide.
    fn drop_authority(&mut self) {
        let terms = ImportTerms { user: self.user.clone(), replies: self.replies };
        let run = std::mem::replace(&mut self.run, Run::new("", ""));
        let (run, dropped) = run.imported(&terms);
        self.run = run;
        let claimed = std::mem::replace(&mut self.session.user, self.user.clone());
        if claimed.is_some() && claimed != self.session.user {
            self.dropped.push("its user: the session is yours".to_owned());
        }
        self.dropped.extend(in_words(&dropped));
    }
}

/// What was dropped, one line each.
fn in_words(dropped: &Dropped) -> Vec<String> {
    let Dropped { approvals, pins, sections, builder_state, calls, summary, prompts, delegated_by, user } = dropped;
    let mut words = Vec::new();
    let mut say = |is: bool, text: String| words.extend(is.then_some(text));
    let plural = if *approvals == 1 { "" } else { "s" };
    say(*approvals > 0, format!("{approvals} approval{plural}: somebody is asked again"));
    let pins_dropped = "the open turn's grants, validators, policies, context builder and tools, and whatever its bounds \
                        allow beyond yours: your configuration decides";
    say(*pins, pins_dropped.to_owned());
    say(*sections > 0, "the open turn's system sections: they come from your configuration".to_owned());
    say(*builder_state, "the state of the open turn's context builder".to_owned());
    let plural = if calls.len() == 1 { "" } else { "s" };
    let count = calls.len();
    let decide = "decide about it with `agent-host session resolve`";
    say(count > 0, format!("that {count} call{plural} of the open turn may run without a person's decision: {decide}"));
    say(
        *summary,
        "the summary of messages that had left the prompt, since the model would read it as the host's own words; the messages \
         themselves are there and can be searched"
            .to_owned(),
    );
    let plural = if *prompts == 1 { "" } else { "s" };
    say(*prompts > 0, format!("{prompts} prompt{plural} that waited for the end of the open turn: ask again"));
    say(delegated_by.is_some(), "the session that delegated the work".to_owned());
    say(user.is_some(), "the user for whom the open turn worked".to_owned());
    words
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

/// The items with their places.
fn all<T: DeserializeOwned>(list: List, batch: Batch) -> Result<Vec<(usize, T)>, PortableError> {
    let items = (batch.first..).zip(batch.items);
    items.map(|(place, item)| Ok((place, one(&format!("{}[{place}]", list.name()), &item)?))).collect()
}

fn one<'a, T: serde::Deserialize<'a>>(place: &str, item: &'a RawValue) -> Result<T, PortableError> {
    serde_json::from_str(item.get()).map_err(|error| damaged(place, error))
}

pub(super) fn damaged(place: impl Into<String>, problem: impl ToString) -> PortableError {
    PortableError::Damaged { place: place.into(), problem: problem.to_string() }
}
