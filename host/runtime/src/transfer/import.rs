//! Imports a document into a new session. Each item is checked before it is stored, and only a few items are in memory
//! at a time. The session is incomplete until all items are stored, and is removed if an item is refused.

mod calls;
mod history;
mod media;
mod messages;
mod text;

use super::document::{Batch, DocumentSession, Head, Items, List, SessionDocument};
use super::staging::Staging;
use super::{TransferError, damaged, summary};
use crate::agent::UserName;
use crate::session::{TITLE_CHARACTERS, new_id_ending};
use agent_core::message::{CallId, MessageId, Role};
use agent_core::plugin::TraceContext;
use agent_core::run::{DroppedClaims, ImportTerms, Mask, Run};
use agent_core::trace::TurnName;
use agent_store::{SessionMeta, SessionState, Store, StoreError};
use calls::OpenCall;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::collections::{HashMap, HashSet};
use text::one_line;

/// Maximum number of bytes of the name of a session, of an agent or of a call.
const MAX_NAME_LENGTH: usize = 200;
/// Maximum number of turns of an imported session.
const MAX_TURNS: u32 = 100_000;
/// Maximum number of characters of the text that replaces a masked media item.
const MAX_MASK_CHARACTERS: usize = 10_000;

/// Subject under which a session is imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportAs {
    /// The session gets the subject that the document contains.
    OriginalSubject,
    /// The session gets this subject instead of the subject in the document.
    Subject(String),
}

/// Options for an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportOptions {
    /// The subject that the new session gets.
    pub subject: ImportAs,
    /// The user who imports the session and owns it afterwards. The user's name in the document is ignored, because
    /// anybody can write a name into a document.
    pub user: Option<String>,
}

/// The result of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// Subject of the new session.
    pub session: String,
    /// Name of the agent that the session belongs to.
    pub agent: String,
    /// Number of messages, including messages that are not in the session's view.
    pub messages: u64,
    /// Descriptions of the data that was not imported, as texts for users. Grants and approvals are never imported,
    /// because a document transfers only a conversation and not authority (P14).
    pub dropped: Vec<String>,
}

/// Whether an import keeps the document's claims about the source and the arguments of open calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claims {
    /// The claims are discarded. This host determines the source and the arguments of open calls itself, without using
    /// the document.
    Discarded,
    /// The document's claims are kept. The claims are harmless in a replay, because the imported session
    /// is not continued.
    Kept,
}

/// Imports a document that [`super::export`] wrote. Fails if a session with the same subject exists. The imported items
/// have the time of the import, and the session belongs to no user.
pub async fn import(
    store: &dyn Store,
    document: impl Into<SessionDocument>,
    subject: ImportAs,
) -> Result<Imported, TransferError> {
    import_for(store, document, ImportOptions { subject, user: None }).await
}

/// Imports a document in the same way as [`import`], but with the given options.
pub async fn import_for(
    store: &dyn Store,
    document: impl Into<SessionDocument>,
    options: ImportOptions,
) -> Result<Imported, TransferError> {
    import_with(store, document.into(), options, Claims::Discarded).await
}

/// Imports a document as a session with the subject of the exported session, so that the session's plugin calls can be
/// replayed. The document's claims about the source of unfinished calls are kept, because the session is not continued.
pub async fn import_to_replay(
    store: &dyn Store,
    document: impl Into<SessionDocument>,
) -> Result<Imported, TransferError> {
    let options = ImportOptions { subject: ImportAs::OriginalSubject, user: None };
    import_with(store, document.into(), options, Claims::Kept).await
}

async fn import_with(
    store: &dyn Store,
    document: SessionDocument,
    ImportOptions { subject, user }: ImportOptions,
    claims: Claims,
) -> Result<Imported, TransferError> {
    if let ImportAs::Subject(subject) = &subject {
        let refused = |problem| TransferError::InvalidName { name: subject.escape_debug().to_string(), problem };
        check_name(subject).map_err(refused)?;
    }
    let (document, head) = document.head().await?;
    let checked = CheckedHead::read(&head)?;
    let session = match subject {
        ImportAs::OriginalSubject => checked.session.subject.clone(),
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
    let title = import.session.title.take().map(|title| one_line(&title, TITLE_CHARACTERS));
    staging.complete(&import.run, title, Vec::new()).await?;
    Ok(Imported { session, agent, messages: import.messages, dropped: import.dropped })
}

/// Returns an error if a session with this name exists. The check runs before the document's lists are read.
async fn refuse_existing(store: &dyn Store, session: &str) -> Result<(), StoreError> {
    match summary(store, session).await? {
        Some(existing) if existing.revision > 0 && existing.state != SessionState::Incomplete => {
            Err(StoreError::SessionExists { session: session.to_owned() })
        }
        _ => Ok(()),
    }
}

/// The members of the document that are not lists, after they have been checked.
struct CheckedHead {
    session: DocumentSession,
    run: Run,
}

impl CheckedHead {
    fn read(head: &Head) -> Result<Self, TransferError> {
        let missing = |name: &str| damaged("its top level", format!("`{name}` is missing"));
        let session: DocumentSession =
            parse_item("session", head.session.as_deref().ok_or_else(|| missing("session"))?)?;
        let snapshot = head.snapshot.as_deref().ok_or_else(|| missing("snapshot"))?;
        let run = Run::restore(Some(snapshot.get().as_bytes())).map_err(|error| damaged("snapshot", error))?;
        if (&run.session, &run.agent) != (&session.subject, &session.agent) {
            return Err(damaged(
                "snapshot",
                "its session or agent is not the one that the document names in `session`",
            ));
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
        // The ids of new calls in the imported session have a different suffix than the ids in the original session,
        // because each of the two sessions may continue.
        Ok(Self { session, run: run.with_id_ending(new_id_ending()) })
    }
}

/// Checks the number of turns and the masks in the document's state.
fn check_turns(run: &Run) -> Result<(), TransferError> {
    let turns = run.turns;
    if turns > MAX_TURNS {
        return Err(damaged("snapshot", format!("it has {turns} turns, but at most {MAX_TURNS} can be imported")));
    }
    if run.turn.as_ref().is_some_and(|turn| turn.number != turns) {
        return Err(damaged("snapshot.turn.number", format!("the number of the last turn must be {turns}")));
    }
    let is_invalid = |mask: &Mask| {
        mask.message == 0 || mask.message >= run.next_message || mask.text.chars().nth(MAX_MASK_CHARACTERS).is_some()
    };
    match run.masks.iter().position(is_invalid) {
        Some(index) => Err(damaged(
            format!("snapshot.masks[{index}]"),
            "the mask refers to a message that does not exist, or the mask's text is too long",
        )),
        None => Ok(()),
    }
}

/// The progress of an import: the counts, and the facts about messages and calls that are compared with the
/// session's state.
struct Import {
    session: DocumentSession,
    /// The subject that the document contains.
    exported_as: String,
    run: Run,
    user: Option<String>,
    claims: Claims,
    /// Calls that the document's state lists in the open turn, by the ids of the calls.
    open: HashMap<CallId, OpenCall>,
    /// Calls of the open turn whose outcome is unknown.
    unknown: HashSet<CallId>,
    /// Maps each message in the session's view to the message's turn, role and number of tokens. The value of a message
    /// is `None` until the message has been read.
    view: HashMap<MessageId, Option<(u32, Role, u32)>>,
    /// Number of model replies in the last turn.
    replies: u32,
    messages: u64,
    /// Number of events in the document, and number of events that are imported.
    events: (u64, u64),
    /// Number of messages that have the role `system` in the document. Messages of the role `system` are imported with
    /// the role `user`.
    system_messages: u64,
    /// Number of texts of the document that a host had inserted and that no user saw. They become texts of the message.
    hidden_texts: u64,
    /// Number of messages that have data of a provider in the document. The data is not imported.
    replays: u64,
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
            system_messages: 0,
            hidden_texts: 0,
            replays: 0,
            dropped: Vec::new(),
        }
    }

    /// Reads the lists of the document. Media and calls are read before the messages that refer to them.
    async fn read(
        &mut self,
        mut document: SessionDocument,
        head: &Head,
        staging: &mut Staging<'_>,
    ) -> Result<(), TransferError> {
        let order = [List::Media, List::Calls, List::Messages, List::Hidden, List::Events, List::Texts, List::Records];
        for list in order {
            let mut items = document.items(head, list);
            let stored = self.read_list(&mut items, list, staging).await;
            // A read error takes precedence over the error about missing items, because the read error
            // explains why the items are missing.
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
    ) -> Result<(), TransferError> {
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

    /// Checks that the turn of an item has started.
    fn check_turn(&self, list: List, index: usize, turn: u32) -> Result<(), TransferError> {
        let turns = self.run.turns;
        if turn <= turns {
            return Ok(());
        }
        let problem = format!("its turn has not started; the session has {turns} turns");
        Err(damaged(format!("{}[{index}]", list.name()), problem))
    }

    /// Checks that the state agrees with the number of events and with the messages of the document. Replaces the
    /// values of the state that this host computes from other data, and the values that only this host may decide.
    fn finish(&mut self) -> Result<(), TransferError> {
        let (events, kept) = self.events;
        if self.run.sequence != events {
            let count = self.run.sequence;
            return Err(damaged("events", format!("the document has {events} events, but the state counts {count}")));
        }
        self.run.sequence = kept;
        if self.system_messages > 0 {
            let system = self.system_messages;
            let messages = if system == 1 { "1 message".to_owned() } else { format!("{system} messages") };
            self.dropped.push(format!(
                "the role `system` of {messages}: the model receives their content as messages of the user"
            ));
        }
        if self.hidden_texts > 0 {
            let count = self.hidden_texts;
            let texts = if count == 1 { "1 text".to_owned() } else { format!("{count} texts") };
            self.dropped.push(format!(
                "the mark that hid {texts} that a host had inserted, such as remembered facts: you now see the \
                 inserted text in the messages"
            ));
        }
        if self.replays > 0 {
            let count = self.replays;
            let replies = if count == 1 { "1 reply".to_owned() } else { format!("{count} replies") };
            self.dropped.push(format!(
                "the provider's data, such as encrypted reasoning, of {replies}: the model receives the text and the \
                 calls of these messages"
            ));
        }
        let view = &self.view;
        let derived = self.run.derive_view(|id| view.get(&id).copied().flatten());
        derived.map_err(|id| damaged("snapshot.view", format!("the message {id} does not exist")))?;
        self.replace_malformed_trace();
        self.drop_authority();
        if kept < events {
            let left_out = events - kept;
            self.dropped
                .push(format!("{left_out} events about denials and approvals that did not happen on this host"));
        }
        Ok(())
    }

    fn replace_malformed_trace(&mut self) {
        let Some(turn) = &mut self.run.turn else { return };
        if !turn.trace.is_valid() {
            let (session, id_ending) = (&self.run.session, &self.run.id_ending);
            turn.trace = TraceContext::of_turn(TurnName { session, id_ending, turn: turn.number }, None);
            self.dropped.push("the trace context of the last turn, which is malformed".to_owned());
        }
    }

    /// Removes the parts of the state that only the configuration and the users of this host may decide.
    fn drop_authority(&mut self) {
        let terms = ImportTerms { user: self.user.clone(), replies: self.replies };
        let run = std::mem::replace(&mut self.run, Run::new("", ""));
        let (run, dropped) = run.imported(&terms);
        self.run = run;
        let claimed = std::mem::replace(&mut self.session.user, self.user.clone());
        if claimed.is_some() && claimed != self.session.user {
            self.dropped.push("the user in the document, because the imported session belongs to you".to_owned());
        }
        self.dropped.extend(describe_dropped(&dropped));
    }
}

/// Returns texts that describe the data that was not imported, one for each kind of data.
fn describe_dropped(dropped: &DroppedClaims) -> Vec<String> {
    let DroppedClaims { approvals, pins, sections, builder_state, replay, calls, summary, prompts, delegated_by, user } =
        dropped;
    let mut texts = Vec::new();
    let mut add = |condition: bool, text: String| texts.extend(condition.then_some(text));
    let plural = if *approvals == 1 { "" } else { "s" };
    add(*approvals > 0, format!("{approvals} approval{plural}: the host asks again"));
    let pins_dropped = "the open turn's grants, validators, policies, context builder and tools, and all limits \
                        that are higher than yours: your configuration decides";
    add(*pins, pins_dropped.to_owned());
    add(*sections > 0, "the open turn's system sections: they come from your configuration".to_owned());
    add(*builder_state, "the state of the open turn's context builder".to_owned());
    add(*replay, "the provider's data, such as encrypted reasoning, of the open turn's answer".to_owned());
    let plural = if calls.len() == 1 { "" } else { "s" };
    let count = calls.len();
    let decide = "decide with `agent-host session resolve`";
    add(
        count > 0,
        format!("permission to run {count} call{plural} of the open turn without a user's decision: {decide}"),
    );
    add(
        *summary,
        "the summary of messages that were removed from the prompt, because the model would mistake it for a text \
         of the host; the messages themselves are imported and can be searched"
            .to_owned(),
    );
    let plural = if *prompts == 1 { "" } else { "s" };
    add(*prompts > 0, format!("{prompts} prompt{plural} that waited for the end of the open turn: enter them again"));
    add(delegated_by.is_some(), "the session that delegated the work".to_owned());
    add(user.is_some(), "the user for whom the open turn worked".to_owned());
    texts
}

/// Checks the name of a session, an agent or a call. The rules are strict, because names from a document are used on
/// command lines and in file names, and are shown on terminals.
fn check_name(name: &str) -> Result<(), &'static str> {
    let is_allowed = |character: char| character.is_ascii_alphanumeric() || "-_.:@+/".contains(character);
    if name.is_empty() || name.len() > MAX_NAME_LENGTH {
        return Err("it is empty or longer than 200 characters");
    }
    if !name.chars().all(is_allowed) {
        return Err("it contains characters other than letters, digits and -_.:@+/");
    }
    let edges = ['-', '/', '.'];
    if name.starts_with(edges) || name.ends_with('/') || name.contains("//") || name.contains("..") {
        return Err("it begins with -, / or ., ends with /, or contains // or ..");
    }
    Ok(())
}

/// Parses the items of a batch and pairs them with their indexes.
fn parse_items<T: DeserializeOwned>(list: List, batch: Batch) -> Result<Vec<(usize, T)>, TransferError> {
    let items = (batch.first..).zip(batch.items);
    items.map(|(index, item)| Ok((index, parse_item(&format!("{}[{index}]", list.name()), &item)?))).collect()
}

fn parse_item<'a, T: serde::Deserialize<'a>>(place: &str, item: &'a RawValue) -> Result<T, TransferError> {
    serde_json::from_str(item.get()).map_err(|error| damaged(place, error))
}
