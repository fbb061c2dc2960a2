//! Rebuilds the request of a recorded model call from the step record, and from the texts, messages and media of the
//! session (D1).

use crate::media::{Downscaler, OutgoingMedia, with_labels};
use crate::prompts::{self, outgoing_media, replace_media_item};
use crate::records::{PromptRecord, StepRecordBody, UnscaledPicture};
use crate::tools::commands;
use crate::tools::tool_list::{RecordedTools, ToolDigests};
use agent_core::message::{Digest, Message, MessageId, Part, Role, StoredMessage};
use agent_core::model::ModelRequest;
use agent_core::plugin::Section;
use agent_core::prompt;
use agent_core::run::Mask;
use agent_core::text_dialect::ToolDialect;
use agent_core::tokens;
use agent_core::view::{shown_message, without_calls};
use agent_core::visible::visible_request;
use agent_models::{ModelError, SentBody};
use agent_store::{MAX_PAGE, MessageRange, RecordRange, Store, StoreError};
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The request of a recorded model call.
#[derive(Clone, Debug)]
pub struct SentRequest {
    /// Number of the turn in its session, starting at 1.
    pub turn: u32,
    /// Number of the model call in its turn, starting at 1.
    pub step: u32,
    /// The request in the host's own format.
    pub request: ModelRequest,
    /// The body of the request and its recorded digest. `None` if the model was not called over HTTP, if the call failed,
    /// or if an earlier version of the host recorded it.
    pub body: Option<RebuiltBody>,
    /// Ids of the stored messages from which the first messages of the request were made, in order. If a message contains
    /// several stored messages, this is the id of the first of them. The request can contain further messages, which the
    /// host added for this model call only.
    pub stored_messages: Vec<MessageId>,
    /// The media items that a text replaces in the request (P4).
    pub masked: Vec<Mask>,
}

/// The body of a request in the provider's wire format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebuiltBody {
    /// The JSON body.
    pub bytes: Vec<u8>,
    /// Whether the body is byte for byte the body that was sent, according to the recorded digest. In an imported session,
    /// this is only what the document states. The body may differ if
    /// another version of the host encoded it, if a secret was removed from the stored messages, or if the session was
    /// imported.
    pub is_exact: bool,
}

/// The reason why the request of a model call cannot be rebuilt.
#[derive(Debug, thiserror::Error)]
pub enum SentRequestError {
    /// The session contains no record of this model call.
    #[error("the session has no record of {} turn {turn}", call_in(*.step))]
    NoRecord {
        /// Number of the turn.
        turn: u32,
        /// Number of the model call in the turn. `None` stands for any model call.
        step: Option<u32>,
    },
    /// An earlier version of the host recorded the model call without some of the data, or the record is damaged.
    #[error("the record of model call {step} of turn {turn} does not contain {missing}")]
    Incomplete {
        /// Number of the turn.
        turn: u32,
        /// Number of the model call in the turn.
        step: u32,
        /// The data that is missing.
        missing: &'static str,
    },
    /// The body cannot be encoded, for example because a media item is missing.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Maximum number of bytes of the texts and messages of one request. A request body can have at most half
/// as many bytes.
const MAX_BYTES: usize = 128 << 20;

/// The session from which a request is rebuilt.
#[derive(Clone, Copy)]
struct Source<'s> {
    store: &'s dyn Store,
    session: &'s str,
    /// Number of bytes that were read so far.
    read: &'s AtomicUsize,
}

/// Returns the approximate size of a part in memory, in bytes.
fn size_of_part(part: &Part) -> usize {
    // A token has about four bytes.
    tokens::of_parts(std::slice::from_ref(part)) as usize * 4
}

fn call_in(step: Option<u32>) -> String {
    step.map_or_else(|| "a model call in".to_owned(), |step| format!("model call {step} of"))
}

/// Kinds of records without which a request would not be complete.
const PARTS_OF_REQUESTS: [&str; 4] = ["prompt", "step_context", "plan_prompt", "media_not_scaled"];

/// The records of one model call.
struct CallRecords {
    turn: u32,
    step: u32,
    prompt: Box<PromptRecord>,
    /// The sections that the context builder added to this step.
    sections: Vec<Section>,
    /// The text about the current part of the plan.
    plan: Option<String>,
    unscaled: Vec<UnscaledPicture>,
    body: Option<SentBody>,
}

impl CallRecords {
    /// Reads the records of the last attempt of a model call. Without a step, reads the last model call of the turn.
    async fn read(store: &dyn Store, session: &str, turn: u32, step: Option<u32>) -> Result<Self, SentRequestError> {
        let mut found: Option<Self> = None;
        let (mut sections, mut plan, mut unscaled) = (Vec::new(), None, Vec::new());
        for stored in store.records(session, RecordRange::Turn(turn)).await? {
            if step.is_some_and(|step| step != stored.record.step) {
                continue;
            }
            let incomplete = |missing| SentRequestError::Incomplete { turn, step: stored.record.step, missing };
            match StepRecordBody::read(&stored.record) {
                Ok(StepRecordBody::StepContext(record)) => {
                    let read = Vec::<Section>::deserialize(&record.answer);
                    sections = read.map_err(|_| incomplete("readable sections of the context builder"))?;
                }
                Ok(StepRecordBody::PlanPrompt(record)) => plan = Some(record.text),
                Ok(StepRecordBody::MediaNotScaled(pictures)) => unscaled = pictures,
                Ok(StepRecordBody::Prompt(prompt)) => {
                    let (sections, plan) = (std::mem::take(&mut sections), plan.take());
                    let unscaled = std::mem::take(&mut unscaled);
                    let step = stored.record.step;
                    found = Some(Self { turn, step, prompt, sections, plan, unscaled, body: None });
                }
                Ok(StepRecordBody::Reply(reply)) => {
                    if let Some(found) = found.as_mut().filter(|found| found.step == stored.record.step) {
                        found.body = SentBody::of_raw_reply(&reply.raw);
                    }
                }
                Err(_) if PARTS_OF_REQUESTS.contains(&stored.record.kind.as_str()) => {
                    return Err(incomplete("a readable part of the request"));
                }
                _ => {}
            }
        }
        found.ok_or(SentRequestError::NoRecord { turn, step })
    }

    fn incomplete(&self, missing: &'static str) -> SentRequestError {
        SentRequestError::Incomplete { turn: self.turn, step: self.step, missing }
    }

    async fn text(&self, source: Source<'_>, digest: &str) -> Result<String, SentRequestError> {
        let digest = Digest::parse(digest).map_err(|_| self.incomplete("a valid digest of a text"))?;
        let text = source.store.text(source.session, &digest).await?;
        // An imported record may refer to the same text many times.
        self.count(source, text.len())?;
        Ok(text)
    }

    async fn texts(&self, source: Source<'_>, digests: &[String]) -> Result<Vec<String>, SentRequestError> {
        let mut texts = Vec::new();
        for digest in digests {
            texts.push(self.text(source, digest).await?);
        }
        Ok(texts)
    }

    /// Counts bytes that were read, and returns an error if there are too many.
    fn count(&self, source: Source<'_>, bytes: usize) -> Result<(), SentRequestError> {
        let read = source.read.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if read > MAX_BYTES { Err(self.incomplete("a request of a size that can be sent")) } else { Ok(()) }
    }

    /// Reads the list of tools, and the texts to which the list refers.
    async fn tools(&self, source: Source<'_>) -> Result<RecordedTools, SentRequestError> {
        let list = self.prompt.tool_list.as_deref().ok_or_else(|| self.incomplete("the definitions of the tools"))?;
        let unreadable = || self.incomplete("a readable list of tools");
        let list = ToolDigests::parse(&self.text(source, list).await?).ok_or_else(unreadable)?;
        let names = self.text(source, &list.names).await?;
        let definitions = self.texts(source, &list.definitions).await?;
        RecordedTools::parse(&names, &definitions).ok_or_else(unreadable)
    }

    /// Returns the stored messages of the prompt, each with the number of model calls in which it had been sent.
    async fn messages(&self, source: Source<'_>) -> Result<Vec<(StoredMessage, u32)>, SentRequestError> {
        let Source { store, session, .. } = source;
        let positions = self.prompt.messages.resolve(store, session).await?;
        let positions = positions.ok_or_else(|| self.incomplete("readable positions of messages"))?;
        let mut found: HashMap<MessageId, StoredMessage> = HashMap::new();
        for positions in positions.chunks(MAX_PAGE) {
            let mut ids: Vec<MessageId> = positions.iter().map(|(id, _)| *id).collect();
            // One read may return only a part of the messages.
            while !ids.is_empty() {
                let page = store.messages(session, MessageRange::Ids(ids.clone())).await?;
                self.count(source, page.iter().flat_map(|message| &message.parts).map(size_of_part).sum())?;
                if page.is_empty() {
                    return Err(self.incomplete("all messages, because some are no longer stored"));
                }
                found.extend(page.into_iter().map(|message| (message.id, message)));
                ids.retain(|id| !found.contains_key(id));
            }
        }
        Ok(positions.into_iter().filter_map(|(id, seen)| Some((found.remove(&id)?, seen))).collect())
    }
}

/// Rebuilds the request of a model call. Without a step, rebuilds the request of the last model call of the turn.
///
/// # Errors
///
/// Returns an error if the session contains no record of the model call, or if the store fails.
pub async fn sent_request(
    store: &dyn Store,
    session: &str,
    turn: u32,
    step: Option<u32>,
) -> Result<SentRequest, SentRequestError> {
    let records = CallRecords::read(store, session, turn, step).await?;
    let read = AtomicUsize::new(0);
    let (request, stored_messages) = rebuild(&records, Source { store, session, read: &read }).await?;
    let body = match &records.body {
        None => None,
        Some(sent) => {
            let downscaler = Downscaler::default();
            let media = OutgoingMedia { store, session, downscaler: &downscaler, downscaled: &request.downscaled };
            let bytes = sent.encode_again(&request, &media).await?;
            let is_exact = sent.is_digest_of(&bytes);
            Some(RebuiltBody { bytes, is_exact })
        }
    };
    let CallRecords { turn, step, prompt, .. } = records;
    Ok(SentRequest { turn, step, request, body, stored_messages, masked: prompt.masked })
}

/// Rebuilds the request, and returns it with the ids of its stored messages.
async fn rebuild(
    records: &CallRecords,
    source: Source<'_>,
) -> Result<(ModelRequest, Vec<MessageId>), SentRequestError> {
    let prompt = &records.prompt;
    let tools = records.tools(source).await?;
    let stored = records.messages(source).await?;
    let ids: Vec<MessageId> = stored.iter().map(|(message, _)| message.id).collect();
    let begins_turn = stored.iter().position(|(message, _)| message.turn == records.turn);
    let messages = stored.into_iter().map(|(message, seen)| {
        let message = shown_message(&message, seen, prompt.result_characters as usize);
        let message = without_calls(message, &prompt.left_out);
        let message = commands::as_calls_of_one_tool(message, |name| tools.is_run_by_name(name));
        prompts::for_provider(message, |name| tools.provider_name(name))
    });
    let mut request = ModelRequest {
        model: prompt.model.clone(),
        lifecycle: prompt.lifecycle,
        system: records.texts(source, &prompt.system).await?,
        messages: messages.collect::<Vec<Message>>(),
        downscaled: prompt.downscaled.clone(),
        tools: tools.offered.clone(),
        output_schema: prompt.output_schema.clone(),
        max_tokens: prompt.max_tokens,
    };
    let last = prompt::texts(&records.sections).into_iter().chain(records.plan.clone()).chain(prompt.last_call.clone());
    for text in last {
        prompts::add_last(&mut request, ids.len(), vec![Part::Text(text)]);
    }
    mask_media(records, &ids, &mut request);
    let mut stored_messages = ids.clone();
    if prompt.tool_dialect == ToolDialect::Text {
        // The results of several calls become one message, which has the id of the first result.
        let roles: Vec<Role> = request.messages.iter().map(|message| message.role).collect();
        let is_merged = |index: usize| index > 0 && roles[index] == Role::Tool && roles[index - 1] == Role::Tool;
        stored_messages = ids.iter().enumerate().filter(|(index, _)| !is_merged(*index)).map(|(_, id)| *id).collect();
        let sections = records.texts(source, &prompt.tool_sections).await?;
        prompts::write_as_text(&mut request, begins_turn, sections, &|name| tools.address_of(name));
    }
    visible_request(&mut request);
    Ok((request, stored_messages))
}

/// Replaces the media that were masked or could not be scaled down, and adds labels to the others.
fn mask_media(records: &CallRecords, ids: &[MessageId], request: &mut ModelRequest) {
    // If a media item has several masks, the first mask applies, as in the session.
    let masks = records.prompt.masked.iter().rev().map(|mask| ((mask.message, mask.part, mask.item), &mask.text));
    let masks: HashMap<_, _> = masks.collect();
    for media_item in &outgoing_media(request, ids, |_| false) {
        let unscaled = records.unscaled.iter().find(|picture| picture.position == media_item.item.position);
        let text = masks.get(&media_item.stored_position).copied().or(unscaled.map(|picture| &picture.text));
        if let Some(text) = text {
            replace_media_item(request, media_item.item.position, text.clone());
        }
    }
    if records.prompt.labels {
        with_labels(&mut request.messages);
    }
}
