//! The outbox: what commits have asked to be done outside their session is done after them, as often as it takes (D2, D6).

use crate::checkpoint::Checkpoint;
use crate::history::in_event;
use crate::remember::remember;
use crate::services;
use crate::session::{Session, Shared};
use agent_core::change::{Change, OutboxEffect, OutboxItem};
use agent_core::event_type::HostEventType;
use agent_core::outgoing_event::OutgoingEvent;
use agent_core::run::{Action, Announced, Emission, Run, TurnCost, TurnEnd};
use agent_store::{OutboxFilter, Store, StoreError, StoredOutboxItem, digest_of};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Items that are read at once.
const PAGE: usize = 100;
/// Hexadecimal digits of a session's digest in a file's name.
const DIGITS: usize = 32;

/// Where events go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutboxConfig {
    /// The folder in which each event becomes a file. None: events stay in the store.
    pub directory: Option<PathBuf>,
    /// Of a turn that begins: whether an event says how it has ended, and whether one asks for the approval of calls; an answer
    /// may then come as an event, too (I6).
    pub announced: Announced,
}

/// An item that could not be delivered. It stays in the outbox, and is tried again after the next commit that adds one and
/// when its session is opened.
#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The folder cannot be written.
    #[error("the event cannot be written to `{path}`: {error}; it stays in the outbox")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// Does what is pending in a session's outbox, or in all. Doing an item again changes nothing: a file is written whole or
/// not at all, always with the same name and content. Two processes may do this at once.
pub async fn deliver(
    store: &dyn Store,
    config: &OutboxConfig,
    session: Option<&str>,
    done: &(dyn Fn(&str) + Send + Sync),
) -> Result<(), OutboxError> {
    let (mut after, mut failed) = (0, Ok(()));
    loop {
        let items = store.outbox(session, OutboxFilter::Pending, after, PAGE).await?;
        let Some(last) = items.last() else { return failed };
        after = last.number;
        for item in items {
            match deliver_one(store, config, &item).await {
                Ok(Deed::Done) => {
                    done(&item.item.id);
                    store.delivered(item.number).await?;
                }
                Ok(Deed::Left) => {}
                Err(error) => failed = Err(error),
            }
        }
    }
}

/// The name of an event's file.
pub fn file_name(session: &str, id: &str) -> String {
    let digest = digest_of(session.as_bytes()).to_string();
    let digest = digest.rsplit(':').next().unwrap_or_default();
    let plain = id.chars().all(|character| character.is_ascii_alphanumeric() || "-_.".contains(character));
    let id = if plain { id.to_owned() } else { digest_of(id.as_bytes()).short().to_string() };
    format!("{}-{id}.json", digest.get(..DIGITS).unwrap_or(digest))
}

enum Deed {
    Done,
    Left,
}

async fn deliver_one(store: &dyn Store, config: &OutboxConfig, item: &StoredOutboxItem) -> Result<Deed, OutboxError> {
    match (&item.item.effect, &config.directory) {
        (OutboxEffect::Allow(grant), _) => {
            store.allow(grant.clone()).await?;
            Ok(Deed::Done)
        }
        (OutboxEffect::Remember { id, memory }, _) => {
            // It waits, and fails nothing that asks for the outbox to be emptied (D4).
            let Err(error) = remember(store, item, (id, memory)).await else { return Ok(Deed::Done) };
            tracing::warn!(session = item.session, %error, "`{id}` was not remembered");
            Ok(Deed::Left)
        }
        (OutboxEffect::Forget { turn }, _) => {
            store.forget_turn(&item.session, *turn).await?;
            Ok(Deed::Done)
        }
        // Only an earlier version stored it. It is not sent, and not tried again.
        (OutboxEffect::Event(event), _) if event.is_forged() => {
            let (session, event_type) = (&item.session, &event.event_type);
            tracing::warn!(%session, "`{event_type}`, which a plugin made with a type of the host, was not sent");
            Ok(Deed::Done)
        }
        (OutboxEffect::Event(_), None) => Ok(Deed::Left),
        (OutboxEffect::Event(event), Some(directory)) => {
            let path = directory.join(file_name(&item.session, &item.item.id));
            write_event(path, event).await?;
            Ok(Deed::Done)
        }
    }
}

async fn write_event(path: PathBuf, event: &OutgoingEvent) -> Result<(), OutboxError> {
    let text = serde_json::to_string_pretty(event).map(|text| text + "\n");
    let to = path.clone();
    let written = tokio::task::spawn_blocking(move || write_whole(&to, text?.as_bytes())).await;
    written.map_err(io::Error::other).and_then(|written| written).map_err(|error| OutboxError::File { path, error })
}

/// Whoever reads the folder sees the whole file or none, also after a loss of power.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|found| found == bytes) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    let temporary = folder.join(format!(".{}.tmp", Uuid::new_v4().simple()));
    let written = write_durably(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // What is left of it is nothing to anybody.
        let _ = fs::remove_file(&temporary);
        return written;
    }
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Does what is pending of a session. What fails stays pending, and the turn goes on.
pub(crate) async fn deliver_of(shared: &Shared) {
    let done = |id: &str| shared.pass(Checkpoint::Delivered(id));
    let config = &shared.agent.config().outbox;
    if let Err(error) = deliver(&*shared.store, config, Some(&shared.subject), &done).await {
        tracing::warn!(session = %shared.subject, %error, "the outbox was not emptied");
    }
}

/// Effects of the outbox that wait for the next model call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owing {
    /// None do.
    Nothing,
    /// Memories.
    Memories,
}

impl Session {
    /// Does what the commit asks for. What is only to be remembered is written while the model is asked.
    pub(crate) async fn follow(&mut self, outbox: &[OutboxItem]) {
        let is_memory = |item: &OutboxItem| matches!(item.effect, OutboxEffect::Remember { .. });
        if outbox.is_empty() && self.owing == Owing::Nothing {
            return;
        }
        if outbox.iter().all(is_memory) && matches!(self.run.action(), Action::CallModel(_)) {
            self.owing = Owing::Memories;
            return;
        }
        self.owing = Owing::Nothing;
        self.deliver().await;
    }

    /// Does what is pending of this session. What fails stays pending, and the turn goes on.
    pub(crate) async fn deliver(&self) {
        deliver_of(&self.shared).await;
    }

    /// Adds the event that says how a turn has ended, where the agent wants one.
    pub(crate) async fn announce_end(&mut self, after: &Run, change: &mut Change) -> Result<(), StoreError> {
        let Some(turn) = after.turn.as_ref().filter(|turn| turn.config.announced.completions == Emission::Emitted)
        else {
            return Ok(());
        };
        let Some(end) = turn.end().filter(|_| self.run.is_open()) else { return Ok(()) };
        let (event_type, data) = match end {
            TurnEnd::Finished(output) => {
                let mut output = output.clone();
                if self.shared.agent.config().include_history {
                    output.messages = Some(self.conversation(after, change).await?);
                }
                (HostEventType::TurnFinished, in_event(&output))
            }
            TurnEnd::Failed(error) => (HostEventType::TurnFailed, with_cost(error.details(), turn.cost())),
            TurnEnd::Cancelled => (HostEventType::TurnCancelled, with_cost(json!({}), turn.cost())),
        };
        let id = self.run.unique_id(&format!("turn_{}", after.turns));
        let event = OutgoingEvent::of_host(event_type, services::attributes(&self.scope(), id.clone()), data);
        change.outbox.push(OutboxItem { id, effect: OutboxEffect::Event(event) });
        Ok(())
    }
}

/// What a turn that brought no output has cost stands beside why.
fn with_cost(mut data: Value, cost: TurnCost) -> Value {
    if let (Value::Object(data), Value::Object(cost)) = (&mut data, json!(cost)) {
        data.extend(cost);
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D6: doing it again changes nothing, and no reader sees half of it.
    #[test]
    fn d6_a_file_is_written_whole_and_again_without_effect() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(file_name("agent/1", "call_1_1_1"));
        for _ in 0..2 {
            write_whole(&path, b"{}\n").unwrap();
        }
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(names, [path], "nothing temporary is left");
        let gone = folder.path().join("gone").join("a.json");
        assert!(write_whole(&gone, b"{}").is_err());
    }

    #[test]
    fn names_of_files_are_plain_and_differ_by_session_and_id() {
        let name = file_name("agent/1", "call_1_1_1");
        assert!(name.len() == DIGITS + "-call_1_1_1.json".len() && name.ends_with("-call_1_1_1.json"), "{name}");
        assert_ne!(name, file_name("agent/2", "call_1_1_1"));
        let hostile = file_name("agent/1", "../../x");
        assert!(!hostile.contains('/') && !hostile.contains(".."), "{hostile}");
    }
}
