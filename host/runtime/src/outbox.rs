//! The outbox stores the effects that a session has on the outside, such as events. An effect is stored in the same
//! commit as the change that causes the effect.
//! The effects are delivered after the commit, and the delivery is retried until it succeeds (D2, D6).

mod events;
mod memories;
mod service_requests;

pub(crate) use events::{announce_end, attributes};
pub(crate) use memories::{ResultOrigin, add_memories};
pub(crate) use service_requests::{ForwardedCall, ServiceContract, forward};

use crate::agent::OutboxConfig;
use crate::host::{Checkpoint, SessionServices};
use crate::http_sink::HttpSinkError;
use agent_core::change::{OutboxEffect, OutboxItem};
use agent_core::outgoing_event::OutgoingEvent;
use agent_core::run::{Action, Run};
use agent_fleet::{FleetError, Nats};
use agent_store::{OutboxFilter, Store, StoreError, StoredOutboxItem, digest_of};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uuid::Uuid;

/// Maximum number of outbox items that one query reads.
const PAGE_SIZE: usize = 100;
/// The file name of an event begins with this number of hexadecimal digits from the digest of the session's subject.
const DIGEST_DIGITS: usize = 32;

/// The reason why an outbox item could not be delivered. The item stays in the outbox. The delivery is retried when the
/// session is opened, after the next commit that adds an item, and by the [`Supervisor`](crate::Supervisor).
#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    /// The store could not read the item, or could not store its effect.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file for an event cannot be written.
    #[error("the event cannot be written to `{path}`: {error}; it stays in the outbox")]
    File {
        /// Path of the event's file.
        path: PathBuf,
        /// The error that the file system returned.
        error: io::Error,
    },
    /// The server did not accept an event.
    #[error("{0}; the event stays in the outbox")]
    Server(#[from] HttpSinkError),
    /// NATS did not store an event.
    #[error("{0}; the event stays in the outbox")]
    Nats(#[from] FleetError),
    /// An event must be published to a subject, but the process does not use NATS.
    #[error("the event must be published to `{0}`: start the host with --nats; the event stays in the outbox")]
    NoNats(Arc<str>),
}

impl OutboxError {
    /// Returns whether only this event cannot be delivered. Later events of the same session need not wait for it.
    pub(crate) fn concerns_only_this_event(&self) -> bool {
        matches!(self, Self::Server(error) if error.is_rejected)
    }
}

/// Which receivers of events a delivery uses.
#[derive(Clone, Copy)]
pub enum Receivers<'n> {
    /// Only the folder. An event that must also be sent to a server or published stays pending. A session uses this, because it
    /// must not wait for a server.
    Folder,
    /// The folder, the server, and the subject of NATS, if the process uses NATS.
    All(Option<&'n Nats>),
}

/// Delivers the pending items of one session, or of all sessions if `session` is `None`. It does no harm if an
/// item is delivered twice, even by two processes at the same time: the file for an event always has the same
/// name and content, and is written completely or not at all, and a server recognises the id of the event. After a server
/// has not accepted an event, no further event is sent to it. `on_delivered` is called with the id of each delivered item.
pub async fn deliver(
    store: &dyn Store,
    (config, receivers): (&OutboxConfig, Receivers<'_>),
    session: Option<&str>,
    on_delivered: &(dyn Fn(&str) + Send + Sync),
) -> Result<(), OutboxError> {
    let (mut after, mut result, mut receivers) = (0, Ok(()), receivers);
    loop {
        let items = store.outbox(session, OutboxFilter::Pending, after, PAGE_SIZE).await?;
        let is_last = items.len() < PAGE_SIZE;
        after = items.last().map_or(after, |last| last.number);
        for item in items {
            match deliver_one(store, (config, receivers), &item).await {
                Ok(Delivery::Done) => {
                    on_delivered(&item.item.id);
                    store.mark_delivered(item.number).await?;
                }
                Ok(Delivery::Recorded) => on_delivered(&item.item.id),
                Ok(Delivery::Pending) => {}
                Err(error) => {
                    if matches!(error, OutboxError::Server(_) | OutboxError::Nats(_) | OutboxError::NoNats(_)) {
                        store.note_failed_delivery(item.number, &error.to_string()).await?;
                        receivers = if error.concerns_only_this_event() { receivers } else { Receivers::Folder };
                    }
                    result = Err(error);
                }
            }
        }
        if is_last {
            return result;
        }
    }
}

/// Returns the file name of an event. If the event's id contains characters that are unsafe in a file name, the file
/// name contains a digest of the id instead of the id.
pub fn file_name(session: &str, id: &str) -> String {
    let digest = digest_of(session.as_bytes()).to_string();
    let digest = digest.rsplit(':').next().unwrap_or_default();
    let is_safe = id.chars().all(|character| character.is_ascii_alphanumeric() || "-_.".contains(character));
    let id = if is_safe { id.to_owned() } else { digest_of(id.as_bytes()).short().to_string() };
    format!("{}-{id}.json", digest.get(..DIGEST_DIGITS).unwrap_or(digest))
}

/// The result of an attempt to deliver an outbox item.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The effect has happened, and the caller must record the delivery.
    Done,
    /// The store has recorded the delivery together with the effect.
    Recorded,
    /// The item could not be delivered yet, and stays in the outbox.
    Pending,
}

/// Delivers one item, and records the delivery only if the store can do both at once.
pub(crate) async fn deliver_one(
    store: &dyn Store,
    (config, receivers): (&OutboxConfig, Receivers<'_>),
    item: &StoredOutboxItem,
) -> Result<Delivery, OutboxError> {
    match &item.item.effect {
        OutboxEffect::Allow(grant) => {
            store.allow(grant.clone()).await?;
            Ok(Delivery::Done)
        }
        OutboxEffect::Remember { id, .. } => {
            // If the memory cannot be written, the item stays in the outbox, and the delivery of the other
            // items continues (D4).
            let Err(error) = store.remember(item).await else { return Ok(Delivery::Recorded) };
            tracing::warn!(session = item.session, %error, "could not store the memory `{id}`; it stays in the outbox");
            Ok(Delivery::Pending)
        }
        OutboxEffect::Forget { turn } => {
            store.forget_turn(&item.session, *turn).await?;
            Ok(Delivery::Done)
        }
        // An event that a plugin has forged is dropped. The current version of the host does not store forged events,
        // so an older version must have stored this event.
        OutboxEffect::Event(event) if event.is_forged() => {
            let (session, event_type) = (&item.session, &event.event_type);
            tracing::warn!(
                %session,
                "did not send the event `{event_type}`: a plugin created it, but its type is reserved for the host"
            );
            Ok(Delivery::Done)
        }
        OutboxEffect::Event(event) => {
            if let Some(directory) = &config.directory {
                write_event(directory.join(file_name(&item.session, &item.item.id)), event).await?;
            }
            match (config.is_sent(), receivers) {
                (true, Receivers::Folder) => Ok(Delivery::Pending),
                (true, Receivers::All(nats)) => {
                    send(config, nats, item, event).await?;
                    Ok(Delivery::Done)
                }
                (false, _) if config.directory.is_some() => Ok(Delivery::Done),
                (false, _) => Ok(Delivery::Pending),
            }
        }
    }
}

/// Sends an event to the server, and publishes it to the subject. If one of them fails, both are repeated, with the same id.
async fn send(
    config: &OutboxConfig,
    nats: Option<&Nats>,
    item: &StoredOutboxItem,
    event: &OutgoingEvent,
) -> Result<(), OutboxError> {
    if let Some(server) = &config.server {
        server.send(event).await?;
    }
    let Some(subject) = &config.subject else { return Ok(()) };
    let nats = nats.ok_or_else(|| OutboxError::NoNats(subject.clone()))?;
    // The id of an event is unique only in its session.
    let id = file_name(&item.session, &item.item.id);
    let body = serde_json::to_vec(event).unwrap_or_default();
    Ok(nats.publish_event(subject, (&id, "application/cloudevents+json; charset=UTF-8"), body).await?)
}

async fn write_event(path: PathBuf, event: &OutgoingEvent) -> Result<(), OutboxError> {
    let text = serde_json::to_string_pretty(event).map(|text| text + "\n");
    let target = path.clone();
    let written = tokio::task::spawn_blocking(move || write_atomically(&target, text?.as_bytes())).await;
    written.map_err(io::Error::other).and_then(|written| written).map_err(|error| OutboxError::File { path, error })
}

/// Writes a file atomically, so that readers of the directory see either the complete file or no file, even after
/// a power failure.
fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|existing| existing == bytes) {
        return Ok(());
    }
    let directory = path.parent().unwrap_or(Path::new("."));
    let temporary = directory.join(format!(".{}.tmp", Uuid::new_v4().simple()));
    let written = write_durably(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // No process reads the temporary file, so a failure to remove it does not matter.
        let _ = fs::remove_file(&temporary);
        return written;
    }
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
}

fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Delivers the pending outbox items of a session. Items that cannot be delivered stay in the outbox, and
/// the turn continues.
pub(crate) async fn deliver_session(services: &SessionServices) {
    let on_delivered = |id: &str| services.reach_checkpoint(Checkpoint::Delivered(id));
    let config = &services.agent.config().outbox;
    let receivers = (config, Receivers::Folder);
    if let Err(error) = deliver(&*services.store, receivers, Some(&services.subject), &on_delivered).await {
        tracing::warn!(session = %services.subject, %error, "could not deliver all items of the outbox");
    }
    if config.is_sent() {
        services.outbox_changed.notify_one();
    }
}

/// Which outbox effects of a commit are delivered during the next model call instead of directly after the commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeferredDelivery {
    /// All effects have been delivered.
    Nothing,
    /// Memories are waiting for delivery during the next model call.
    Memories,
}

/// Delivers the effects of a commit, unless all of them are memories and the next action is a model call. In this case,
/// the function returns [`DeferredDelivery::Memories`], and the caller must deliver the memories during the model call.
/// `run` is the state after the commit.
pub(crate) async fn deliver_after_commit(
    services: &SessionServices,
    run: &Run,
    outbox: &[OutboxItem],
    deferred: DeferredDelivery,
) -> DeferredDelivery {
    let is_memory = |item: &OutboxItem| matches!(item.effect, OutboxEffect::Remember { .. });
    if outbox.is_empty() && deferred == DeferredDelivery::Nothing {
        return deferred;
    }
    if outbox.iter().all(is_memory) && matches!(run.action(), Action::CallModel(_)) {
        return DeferredDelivery::Memories;
    }
    deliver_session(services).await;
    DeferredDelivery::Nothing
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D6: if the same event file is written twice, the second write changes nothing, and no temporary file remains.
    #[test]
    fn d6_writing_a_file_is_atomic_and_idempotent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(file_name("agent/1", "call_1_1_1"));
        for _ in 0..2 {
            write_atomically(&path, b"{}\n").unwrap();
        }
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(names, [path], "no temporary file remains");
        let missing_folder = folder.path().join("gone").join("a.json");
        assert!(write_atomically(&missing_folder, b"{}").is_err());
    }

    #[test]
    fn file_names_are_safe_and_differ_by_session_and_id() {
        let name = file_name("agent/1", "call_1_1_1");
        assert!(name.len() == DIGEST_DIGITS + "-call_1_1_1.json".len() && name.ends_with("-call_1_1_1.json"), "{name}");
        assert_ne!(name, file_name("agent/2", "call_1_1_1"));
        let hostile = file_name("agent/1", "../../x");
        assert!(!hostile.contains('/') && !hostile.contains(".."), "{hostile}");
    }
}
