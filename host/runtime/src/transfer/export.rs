//! Exports a session to a document, page by page, so that the document is never in memory as a whole.

use super::document::{DocumentEvent, DocumentRecord, DocumentSession, DocumentText, FORMAT, VERSION};
use super::{LeasedSession, TransferError, lease};
use agent_core::change::{Body, CallRecord, NewMessage};
use agent_core::message::{CallId, Digest, Media, Part, StoredMessage, ToolResult};
use agent_store::{BlobReference, CallFilter, MessageRange, RecordRange, Store, StoreError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::to_raw_value;
use std::collections::HashMap;
use tokio::io::{AsyncWrite, AsyncWriteExt, BufWriter};

/// Maximum number of items that one query reads.
const PAGE_SIZE: usize = 200;

/// Number of bytes of a media item that are read from the store at once. The number is a multiple of three, so that the
/// base64 texts of the chunks can be joined without padding between them.
const CHUNK_BYTES: u32 = 3 << 20;

/// How many messages and media items were exported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Number of messages, including messages that are not in the session's view.
    pub messages: u64,
    /// Number of exported media items.
    pub media: u64,
}

/// Exports a session: its state, messages, calls, events and step records, and all texts and media to which
/// these refer.
///
/// Memories and the outbox are not exported, because memories belong to the user and the outbox belongs to
/// this store. During the export, this process has the session's lease. If the session is already open, the
/// error is [`StoreError::Busy`].
pub async fn export(
    store: &dyn Store,
    session: &str,
    output: &mut (dyn AsyncWrite + Send + Unpin),
) -> Result<Exported, TransferError> {
    let leased = lease(store, session).await?;
    let mut writer = Writer { output: BufWriter::new(output), is_first: true };
    let exported = write(store, &leased, &mut writer).await;
    store.release(leased.opened.lease).await?;
    exported
}

async fn write(store: &dyn Store, leased: &LeasedSession, writer: &mut Writer<'_>) -> Result<Exported, TransferError> {
    let summary = &leased.summary;
    let head = DocumentSession {
        subject: summary.subject.clone(),
        agent: summary.agent.clone(),
        user: summary.user.clone(),
        delegated_by: summary.delegated_by.clone(),
        title: summary.title.clone(),
        created: summary.created.clone(),
        updated: summary.updated.clone(),
    };
    writer.raw("{").await?;
    writer.member("format", &FORMAT).await?;
    writer.member("version", &VERSION).await?;
    writer.member("session", &head).await?;
    writer.member("snapshot", &leased.run).await?;
    let messages = write_messages(store, &summary.subject, writer).await?;
    write_calls_and_hidden(store, leased, writer).await?;
    write_events(store, &summary.subject, writer).await?;
    write_records(store, &summary.subject, writer).await?;
    let media = write_texts_and_media(store, &summary.subject, writer).await?;
    writer.raw("\n}\n").await?;
    writer.output.flush().await?;
    Ok(Exported { messages, media })
}

async fn write_messages(store: &dyn Store, session: &str, writer: &mut Writer<'_>) -> Result<u64, TransferError> {
    let mut after = 0;
    writer.begin("messages").await?;
    loop {
        let page = store.messages(session, MessageRange::After { id: after, limit: PAGE_SIZE }).await?;
        let Some(last) = page.last() else { break };
        after = last.id;
        let calls = answered_calls(store, session, &page).await?;
        for message in page {
            writer.item(&as_new(message, &calls)).await?;
        }
    }
    writer.end().await?;
    Ok(after)
}

/// Loads the records of those calls whose results are in these messages.
pub(super) async fn answered_calls(
    store: &dyn Store,
    session: &str,
    messages: &[StoredMessage],
) -> Result<HashMap<CallId, CallRecord>, StoreError> {
    let results = messages.iter().filter_map(|message| Some(only_result(message)?.call_id.clone()));
    let ids: Vec<CallId> = results.collect();
    let mut found = HashMap::new();
    for ids in ids.chunks(PAGE_SIZE) {
        let calls = store.calls(session, CallFilter::Ids(ids.to_vec())).await?;
        found.extend(calls.into_iter().map(|call| (call.id.clone(), call)));
    }
    Ok(found)
}

/// Converts a stored message to the form in which messages are appended to a session. If the message contains a tool
/// result that equals the result in the call's record, the result is replaced by a reference to the call.
pub(super) fn as_new(message: StoredMessage, calls: &HashMap<CallId, CallRecord>) -> NewMessage {
    let from_record = only_result(&message).filter(|result| {
        let call = calls.get(&result.call_id);
        call.is_some_and(|call| {
            let stored = call.result.as_ref().map(|stored| (&stored.content, stored.is_error));
            call.name == result.name && stored == Some((&result.content, result.is_error))
        })
    });
    let call = from_record.map(|result| result.call_id.clone());
    let (id, turn, role, tokens) = (message.id, message.turn, message.role, message.tokens);
    let body = call.map_or(Body::Parts(message.parts), Body::ResultOf);
    NewMessage { id, turn, role, body, tokens }
}

fn only_result(message: &StoredMessage) -> Option<&ToolResult> {
    match message.parts.as_slice() {
        [Part::ToolResult(result)] => Some(result),
        _ => None,
    }
}

async fn write_calls_and_hidden(
    store: &dyn Store,
    leased: &LeasedSession,
    writer: &mut Writer<'_>,
) -> Result<(), TransferError> {
    let session = &leased.summary.subject;
    writer.begin("hidden").await?;
    let mut after = 0;
    loop {
        let page = store.hidden(session, after, PAGE_SIZE).await?;
        let Some(last) = page.last() else { break };
        after = last.id;
        for hidden in &page {
            writer.item(hidden).await?;
        }
    }
    writer.end().await?;
    writer.begin("calls").await?;
    for turn in 1..=leased.run.turns {
        for call in store.calls(session, CallFilter::Turn(turn)).await? {
            writer.item(&call).await?;
        }
    }
    Ok(writer.end().await?)
}

async fn write_events(store: &dyn Store, session: &str, writer: &mut Writer<'_>) -> Result<(), TransferError> {
    writer.begin("events").await?;
    let mut after = 0;
    loop {
        let page = store.events(session, after, PAGE_SIZE).await?;
        let Some(last) = page.last() else { break };
        after = last.event.sequence;
        for timed in page {
            writer.item(&DocumentEvent { time: timed.time, event: timed.event }).await?;
        }
    }
    Ok(writer.end().await?)
}

async fn write_records(store: &dyn Store, session: &str, writer: &mut Writer<'_>) -> Result<(), TransferError> {
    writer.begin("records").await?;
    let mut after = 0;
    loop {
        let page = store.records(session, RecordRange::After { number: after, limit: PAGE_SIZE }).await?;
        let Some(last) = page.last() else { break };
        after = last.number;
        for stored in page {
            let (turn, step, kind) = (stored.record.turn, stored.record.step, stored.record.kind);
            let body = to_raw_value(&stored.record.body).map_err(std::io::Error::from)?;
            writer.item(&DocumentRecord { time: stored.time, turn, step, kind, body }).await?;
        }
    }
    Ok(writer.end().await?)
}

async fn write_texts_and_media(
    store: &dyn Store,
    session: &str,
    writer: &mut Writer<'_>,
) -> Result<u64, TransferError> {
    let (mut media, mut after): (Vec<Media>, Option<Digest>) = (Vec::new(), None);
    writer.begin("texts").await?;
    loop {
        let page = store.references(session, after.as_ref(), PAGE_SIZE).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.digest().clone());
        for reference in page {
            match reference {
                BlobReference::Text { digest, .. } => {
                    let text = store.text(session, &digest).await?;
                    writer.item(&DocumentText { digest, text }).await?;
                }
                BlobReference::Media(item) => media.push(item),
            }
        }
    }
    writer.end().await?;
    writer.begin("media").await?;
    for item in &media {
        write_media_item(store, session, item, writer).await?;
    }
    writer.end().await?;
    Ok(media.len() as u64)
}

/// Writes a media item in chunks. Base64 needs no escapes in JSON.
async fn write_media_item(
    store: &dyn Store,
    session: &str,
    media: &Media,
    writer: &mut Writer<'_>,
) -> Result<(), TransferError> {
    let description = serde_json::to_string(media).map_err(std::io::Error::from)?;
    writer.next_line().await?;
    writer.raw(&format!("{{\"media\":{description},\"base64\":\"")).await?;
    let mut offset = 0;
    while offset < media.size {
        let bytes = store.read(session, &media.digest, offset, CHUNK_BYTES).await?;
        if bytes.is_empty() {
            return Err(StoreError::NoBlob { digest: media.digest.clone() }.into());
        }
        offset += bytes.len() as u64;
        writer.raw(&STANDARD.encode(bytes)).await?;
    }
    Ok(writer.raw("\"}").await?)
}

/// Writes one JSON object whose members are values and lists.
struct Writer<'a> {
    output: BufWriter<&'a mut (dyn AsyncWrite + Send + Unpin)>,
    /// Whether the next item is the first item of the current list or object.
    is_first: bool,
}

impl Writer<'_> {
    async fn raw(&mut self, text: &str) -> std::io::Result<()> {
        self.output.write_all(text.as_bytes()).await
    }

    /// Starts the line of the next item.
    async fn next_line(&mut self) -> std::io::Result<()> {
        let separator = if std::mem::take(&mut self.is_first) { "\n" } else { ",\n" };
        self.raw(separator).await
    }

    async fn item(&mut self, value: &impl Serialize) -> std::io::Result<()> {
        let json = serde_json::to_string(value)?;
        self.next_line().await?;
        self.raw(&json).await
    }

    async fn member(&mut self, name: &str, value: &impl Serialize) -> std::io::Result<()> {
        let json = serde_json::to_string(value)?;
        self.next_line().await?;
        self.raw(&format!("\"{name}\":{json}")).await
    }

    async fn begin(&mut self, name: &str) -> std::io::Result<()> {
        self.next_line().await?;
        self.is_first = true;
        self.raw(&format!("\"{name}\":[")).await
    }

    async fn end(&mut self) -> std::io::Result<()> {
        self.is_first = false;
        self.raw("]").await
    }
}
