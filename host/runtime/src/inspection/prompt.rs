//! The prompt of a recorded model call in blocks, compared with the prompt of the model call before it.

use super::blocks::{BlockKind, PromptBlock, RequestBlock, request_blocks};
use crate::replay::{SentRequest, SentRequestError, sent_request};
use crate::text_difference::unified_diff;
use agent_core::change::HideReason;
use agent_core::message::MessageId;
use agent_core::model::{Lifecycle, Model};
use agent_store::{Store, StoreError};
use std::collections::{HashMap, HashSet};

/// Maximum length of each of two texts whose difference is shown, in bytes.
const MAX_DIFF_BYTES: usize = 200 << 10;
/// Maximum number of blocks that were removed and are shown.
const MAX_REMOVED: usize = 100;
/// Maximum number of turns that are searched for the model call before a turn.
const MAX_EARLIER_TURNS: u32 = 5;
/// The labels of the previous and of the current text in a diff.
const LABELS: (&str, &str) = ("previous prompt", "this prompt");

/// Selects the blocks of a prompt that are returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPage {
    /// Index of the first block, from 0.
    pub first: usize,
    /// Maximum number of blocks.
    pub limit: usize,
}

/// An amount of text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Number of characters of the blocks as text.
    pub characters: u64,
    /// Estimated number of tokens.
    pub tokens: u64,
}

impl std::ops::AddAssign for Size {
    fn add_assign(&mut self, other: Self) {
        self.characters = self.characters.saturating_add(other.characters);
        self.tokens = self.tokens.saturating_add(other.tokens);
    }
}

/// How a block differs from the previous prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockChange {
    /// The previous prompt contains the same block.
    Same,
    /// The previous prompt does not contain the block.
    Added,
    /// The previous prompt contains another version of the block. The text is a unified diff. It is empty if only data
    /// differs that is not shown, or if the texts are too long to be compared.
    Changed(String),
}

/// How much of a block a cache of the provider can reuse. Providers reuse the longest beginning of a prompt that they have
/// received before, so nothing after the first difference is reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// The whole block.
    Whole,
    /// The beginning of the block, with this number of characters.
    Beginning(u64),
    /// Nothing.
    None,
}

/// A block of the previous prompt that is missing in this prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovedBlock {
    /// What the block contains.
    pub kind: BlockKind,
    /// What identifies the block.
    pub title: String,
    /// Estimated number of tokens.
    pub tokens: u32,
    /// Id of the stored message. `None` if the block is not a stored message.
    pub message: Option<MessageId>,
    /// Why the message is no longer in the prompt. `None` if it is not known.
    pub why: Option<HideReason>,
}

/// The body of a request in the provider's wire format, compared with the body before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptBody {
    /// Number of bytes.
    pub bytes: u64,
    /// Whether the rebuilt body is byte for byte the body that was sent.
    pub is_exact: bool,
    /// Number of bytes at the beginning that are equal to the previous body. `None` if that body cannot be rebuilt.
    pub reused_bytes: Option<u64>,
}

/// The prompt of a model call.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptView {
    /// The model to which the prompt was sent.
    pub model: Model,
    /// Maximum number of tokens of the reply.
    pub max_tokens: u32,
    /// Why the prompt was built.
    pub lifecycle: Lifecycle,
    /// The turn and the step of the previous prompt. `None` if this is the first prompt of the session.
    pub previous: Option<(u32, u32)>,
    /// The selected blocks.
    pub blocks: Vec<PromptBlock>,
    /// Number of all blocks.
    pub block_count: usize,
    /// Blocks of the previous prompt that are missing in this prompt, at most 100.
    pub removed: Vec<RemovedBlock>,
    /// Number of all blocks of the previous prompt that are missing in this prompt.
    pub removed_count: usize,
    /// Size of the whole prompt.
    pub size: Size,
    /// Size of the beginning that a cache of the provider can reuse. 0 if another model received the previous prompt.
    pub reused: Size,
    /// The body of the request. `None` if the model was not called over HTTP, or the call failed.
    pub body: Option<PromptBody>,
}

/// Returns the prompt of a model call, compared with the prompt of the model call before it in the session.
///
/// # Errors
///
/// Returns an error if the session contains no record of the model call, or if the store fails.
pub async fn prompt_view(
    store: &dyn Store,
    session: &str,
    (turn, step): (u32, u32),
    page: BlockPage,
) -> Result<PromptView, SentRequestError> {
    let sent = sent_request(store, session, turn, Some(step)).await?;
    let previous = previous_request(store, session, (turn, step)).await?;
    // A long prompt takes so long to compare that other tasks must not wait for it.
    let compared = tokio::task::spawn_blocking(move || compare(sent, previous, page)).await;
    let missing = "a prompt that can be compared";
    let mut view = compared.map_err(|_| SentRequestError::Incomplete { turn, step, missing })?;
    explain_removed(store, session, &mut view.removed).await?;
    Ok(view)
}

/// Returns the request of the model call before this one. Returns `None` if there is none, or if it cannot be rebuilt.
async fn previous_request(
    store: &dyn Store,
    session: &str,
    (turn, step): (u32, u32),
) -> Result<Option<SentRequest>, SentRequestError> {
    let in_turn = (1..step).rev().map(|step| (turn, Some(step)));
    let earlier = (1..turn).rev().take(MAX_EARLIER_TURNS as usize).map(|turn| (turn, None));
    for (turn, step) in in_turn.chain(earlier) {
        match sent_request(store, session, turn, step).await {
            Ok(found) => return Ok(Some(found)),
            Err(SentRequestError::Store(error)) => return Err(error.into()),
            Err(SentRequestError::NoRecord { .. }) => {}
            Err(_) => return Ok(None),
        }
    }
    Ok(None)
}

fn compare(sent: SentRequest, previous: Option<SentRequest>, page: BlockPage) -> PromptView {
    let (blocks, earlier) = (request_blocks(&sent), previous.as_ref().map(request_blocks).unwrap_or_default());
    let same_model = previous.as_ref().is_some_and(|previous| previous.request.model == sent.request.model);
    let (size, reused, reuse) = reuse_of(&blocks, if same_model { &earlier } else { &[] });
    let known: HashMap<Key<'_>, &RequestBlock> = earlier.iter().map(|block| (key_of(block), block)).collect();
    let selected = blocks.iter().zip(reuse).skip(page.first).take(page.limit);
    let shown = selected.map(|(block, reuse)| {
        let change = match known.get(&key_of(block)) {
            None => BlockChange::Added,
            Some(before) if before.content == block.content => BlockChange::Same,
            Some(before) => BlockChange::Changed(difference(&before.text, &block.text)),
        };
        PromptBlock { block: block.clone(), change, reuse }
    });
    let current: HashSet<Key<'_>> = blocks.iter().map(key_of).collect();
    let missing = earlier.iter().filter(|block| !current.contains(&key_of(block)));
    let removed = missing.clone().take(MAX_REMOVED).map(|block| RemovedBlock {
        kind: block.kind,
        title: block.title.clone(),
        tokens: block.tokens,
        message: block.message,
        why: None,
    });
    PromptView {
        model: sent.request.model.clone(),
        max_tokens: sent.request.max_tokens,
        lifecycle: sent.request.lifecycle,
        previous: previous.as_ref().map(|previous| (previous.turn, previous.step)),
        blocks: shown.collect(),
        block_count: blocks.len(),
        removed: removed.collect(),
        removed_count: missing.count(),
        size,
        reused,
        body: body_of(&sent, previous.as_ref().filter(|_| same_model)),
    }
}

/// What identifies a block in the prompts of different model calls.
type Key<'b> = (bool, &'b str, Option<MessageId>);

fn key_of(block: &RequestBlock) -> Key<'_> {
    (block.kind == BlockKind::Tool, &block.title, block.message)
}

fn difference(before: &str, now: &str) -> String {
    match before.len().max(now.len()) <= MAX_DIFF_BYTES {
        true => unified_diff(LABELS, before, now),
        false => String::new(),
    }
}

/// Returns the size of the prompt, the size of the beginning that is equal in the previous prompt, and how much of each
/// block belongs to this beginning.
fn reuse_of(blocks: &[RequestBlock], earlier: &[RequestBlock]) -> (Size, Size, Vec<Reuse>) {
    let (mut size, mut reused, mut is_equal) = (Size::default(), Size::default(), true);
    let mut earlier = earlier.iter();
    let reuse = blocks.iter().map(|block| {
        let whole = Size { characters: characters(&block.text), tokens: block.tokens.into() };
        size += whole;
        let before = earlier.next().filter(|before| is_equal && before.kind == block.kind);
        let Some(before) = before else {
            is_equal = false;
            return Reuse::None;
        };
        if before.content == block.content {
            reused += whole;
            return Reuse::Whole;
        }
        is_equal = false;
        let beginning = common_characters(&before.text, &block.text);
        if beginning == 0 {
            return Reuse::None;
        }
        let tokens = whole.tokens.saturating_mul(beginning) / whole.characters.max(1);
        reused += Size { characters: beginning, tokens };
        Reuse::Beginning(beginning)
    });
    let reuse = reuse.collect();
    (size, reused, reuse)
}

fn characters(text: &str) -> u64 {
    text.chars().count() as u64
}

fn common_characters(one: &str, other: &str) -> u64 {
    one.chars().zip(other.chars()).take_while(|(one, other)| one == other).count() as u64
}

fn body_of(sent: &SentRequest, previous: Option<&SentRequest>) -> Option<PromptBody> {
    let body = sent.body.as_ref()?;
    let before = previous.and_then(|previous| previous.body.as_ref());
    let common = |before: &[u8]| before.iter().zip(&body.bytes).take_while(|(one, other)| one == other).count() as u64;
    Some(PromptBody {
        bytes: body.bytes.len() as u64,
        is_exact: body.is_exact,
        reused_bytes: before.map(|before| common(&before.bytes)),
    })
}

/// Adds the reasons why messages are no longer in the prompt.
async fn explain_removed(store: &dyn Store, session: &str, removed: &mut [RemovedBlock]) -> Result<(), StoreError> {
    for block in removed {
        let Some(id) = block.message else { continue };
        let hidden = store.hidden(session, id.saturating_sub(1), 1).await?.pop();
        block.why = hidden.filter(|hidden| hidden.id == id).map(|hidden| hidden.why);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
