//! Shows the stored conversation of a session to the editor when the editor loads the session.

use crate::shared::{Shared, chunk, store_error};
use crate::tool_call::media_block;
use crate::updates::Updates;
use agent_client_protocol::Error;
use agent_client_protocol::v1::schema::{ContentChunk, SessionUpdate};
use agent_core::change::HideReason;
use agent_core::event::{Event, EventKind, Suspension};
use agent_core::message::{MessageId, Part, Role};
use agent_runtime::EventPosition;
use agent_store::{MAX_PAGE, MessageRange, StoreError};
use std::collections::{BTreeMap, HashSet};

/// Number of events and messages that are read at once.
const PAGE: usize = 256;

/// Whether the conversation is sent to the editor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sending {
    /// The editor receives the conversation.
    Everything,
    /// The editor already has the conversation.
    Nothing,
}

/// The end of a stored conversation, from which live events continue.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    /// The state of the conversion of events.
    pub(crate) updates: Updates,
    /// Number of the last turn that began.
    pub(crate) turn: u32,
    /// Whether this turn has not ended.
    pub(crate) is_open: bool,
    /// What this turn waits for, if it is suspended.
    pub(crate) suspension: Option<Suspension>,
    /// Position of the last event.
    pub(crate) position: EventPosition,
}

/// Reads the events of a session in order, and sends the conversation to the editor. Turns that were undone are left out.
pub(crate) async fn replay(shared: &Shared, session: &str, sending: Sending) -> Result<Replayed, Error> {
    let mut prompts = match sending {
        Sending::Everything => prompts(shared, session).await.map_err(store_error)?,
        Sending::Nothing => BTreeMap::new(),
    };
    let mut replayed = Replayed::default();
    // A text is sent when the events after it have shown that it was not rejected.
    let mut text = None;
    loop {
        let page = shared.store().events(session, replayed.position.sequence, PAGE).await.map_err(store_error)?;
        if page.is_empty() {
            break;
        }
        for stored in page {
            let event = stored.event;
            note(&mut replayed, &event);
            let is_shown =
                sending == Sending::Everything && prompts.get(&event.turn).is_none_or(|prompt| !prompt.is_undone);
            if event.kind == EventKind::StreamClear {
                text = None;
                continue;
            }
            if accepts_reply(&event.kind)
                && let Some(text) = text.take().filter(|_| is_shown)
            {
                let update = replayed.updates.text(text);
                shared.update(session, update).await?;
                replayed.updates.begin_paragraph();
            }
            if let (EventKind::LoopStart { .. }, Some(prompt)) = (&event.kind, prompts.get_mut(&event.turn))
                && is_shown
            {
                show_prompt(shared, session, std::mem::take(&mut prompt.parts)).await?;
            }
            if let EventKind::StreamComplete { text: reply, .. } = &event.kind {
                text = Some(reply.clone()).filter(|reply| !reply.is_empty());
                continue;
            }
            let updates = replayed.updates.event(shared, event).await;
            for update in updates.into_iter().filter(|_| is_shown) {
                shared.update(session, update).await?;
            }
        }
    }
    if let Some(text) = text.filter(|_| sending == Sending::Everything) {
        let update = replayed.updates.text(text);
        shared.update(session, update).await?;
    }
    Ok(replayed)
}

/// Whether the reply before this event was not rejected.
fn accepts_reply(event: &EventKind) -> bool {
    !matches!(
        event,
        EventKind::OutputRejected { .. }
            | EventKind::Nudge { .. }
            | EventKind::NoToolCall { .. }
            | EventKind::ContextBudget { .. }
            | EventKind::Error { .. }
    )
}

fn note(replayed: &mut Replayed, event: &Event) {
    replayed.position = EventPosition { sequence: event.sequence, provisional: 0 };
    match &event.kind {
        EventKind::LoopStart { .. } => {
            (replayed.turn, replayed.is_open, replayed.suspension) = (event.turn, true, None);
        }
        EventKind::Suspended { suspension } => replayed.suspension = Some(suspension.clone()),
        EventKind::Resumed => replayed.suspension = None,
        EventKind::LoopEnd { .. } => (replayed.is_open, replayed.suspension) = (false, None),
        _ => {}
    }
}

async fn show_prompt(shared: &Shared, session: &str, parts: Vec<Part>) -> Result<(), Error> {
    for part in parts {
        let shown = match part {
            Part::Text(text) => chunk(text),
            Part::Json(json) => chunk(json.to_string()),
            Part::Media(media) => ContentChunk::new(media_block(shared.store(), session, &media).await),
            Part::ToolCall(_) | Part::ToolResult(_) | Part::Preface(_) | Part::Replay(_) => continue,
        };
        shared.update(session, SessionUpdate::UserMessageChunk(shown)).await?;
    }
    Ok(())
}

/// The prompt with which a turn began.
struct StoredPrompt {
    parts: Vec<Part>,
    is_undone: bool,
}

/// Returns the prompts of a session by the number of the turn.
async fn prompts(shared: &Shared, session: &str) -> Result<BTreeMap<u32, StoredPrompt>, StoreError> {
    let undone = undone_messages(shared, session).await?;
    let (mut prompts, mut after) = (BTreeMap::new(), 0);
    loop {
        let page = shared.store().messages(session, MessageRange::After { id: after, limit: PAGE }).await?;
        let Some(last) = page.last() else { return Ok(prompts) };
        after = last.id;
        for message in page.into_iter().filter(|message| message.role == Role::User) {
            let is_undone = undone.contains(&message.id);
            // Later messages with this role are feedback of the host.
            prompts.entry(message.turn).or_insert(StoredPrompt { parts: message.parts, is_undone });
        }
    }
}

async fn undone_messages(shared: &Shared, session: &str) -> Result<HashSet<MessageId>, StoreError> {
    let (mut undone, mut after) = (HashSet::new(), 0);
    loop {
        let page = shared.store().hidden(session, after, MAX_PAGE).await?;
        let is_last = page.len() < MAX_PAGE;
        after = page.last().map_or(after, |hidden| hidden.id);
        undone.extend(page.into_iter().filter(|hidden| hidden.why == HideReason::Undone).map(|hidden| hidden.id));
        if is_last {
            return Ok(undone);
        }
    }
}
