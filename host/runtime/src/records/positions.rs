//! References from step records to the messages that a model or a plugin was shown (D1). A reference contains the id of
//! a message. The references in a record stay small even if the history is long.

use agent_core::message::{Digest, MessageId};
use agent_store::{Store, StoreError, digest_of};
use serde::{Deserialize, Serialize};

/// The id of a message, and the number of model calls so far whose prompts included the message.
pub(crate) type MessagePosition = (MessageId, u32);
/// The id of a message, and the number of model calls that the session had made before a prompt first included the
/// message. Unlike the number in [`MessagePosition`], this number never changes.
type FirstSeen = (MessageId, i64);

/// Number of consecutive message ids that one block of references covers.
const BLOCK_MESSAGES: u64 = 128;
/// Maximum number of messages of one prompt.
const MAX_MESSAGES: usize = 1_000_000;

/// The references to messages that a step record contains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum MessagePositions {
    /// Every message is listed individually.
    Each(Vec<MessagePosition>),
    /// Most messages are listed in blocks. Each block is stored as a separate text, and later records refer to the
    /// same blocks.
    Blocks {
        /// Number of model calls in the session so far. If a message is listed with the number `since`, the prompts of
        /// the first `since` calls did not include the message.
        calls: u64,
        /// Digests of the blocks. Each block is a JSON array of pairs `[id, since]`, one for each message.
        blocks: Vec<String>,
        /// The messages after the last complete block, each listed as a pair `[id, since]`.
        rest: Vec<FirstSeen>,
    },
}

impl MessagePositions {
    /// Creates references to these messages. `calls` is the number of model calls in the session so far. The returned
    /// texts are blocks, each of which contains several references. The blocks must be stored with the record.
    pub(crate) fn new(seen: &[MessagePosition], calls: u64) -> (Self, Vec<String>) {
        let since = |(id, seen): &MessagePosition| -> FirstSeen { (*id, calls as i64 - i64::from(*seen)) };
        let mut blocks: Vec<&[MessagePosition]> =
            seen.chunk_by(|one, next| one.0 / BLOCK_MESSAGES == next.0 / BLOCK_MESSAGES).collect();
        let rest = blocks.pop().unwrap_or_default();
        if blocks.is_empty() {
            return (Self::Each(seen.to_vec()), Vec::new());
        }
        let text = |block: &[MessagePosition]| {
            let first_seen: Vec<FirstSeen> = block.iter().map(since).collect();
            serde_json::to_string(&first_seen).expect("numbers are JSON")
        };
        let texts: Vec<String> = blocks.into_iter().map(text).collect();
        let blocks = texts.iter().map(|text| digest_of(text.as_bytes()).to_string()).collect();
        (Self::Blocks { calls, blocks, rest: rest.iter().map(since).collect() }, texts)
    }

    /// Returns the positions of the referenced messages. Returns `None` if a block is not in the format that this
    /// host can read, if the positions are not in the order of the messages, or if there are more than
    /// [`MAX_MESSAGES`].
    pub(crate) async fn resolve(
        &self,
        store: &dyn Store,
        session: &str,
    ) -> Result<Option<Vec<MessagePosition>>, StoreError> {
        let (calls, blocks, rest) = match self {
            Self::Each(seen) => return Ok(is_in_order(seen).then(|| seen.clone())),
            Self::Blocks { calls, blocks, rest } => (*calls, blocks, rest),
        };
        let mut first_seen: Vec<FirstSeen> = Vec::new();
        for block in blocks {
            let Ok(digest) = Digest::parse(block) else { return Ok(None) };
            let Ok(block) = serde_json::from_str::<Vec<FirstSeen>>(&store.text(session, &digest).await?) else {
                return Ok(None);
            };
            // An imported record may refer to the same block many times.
            let follows = first_seen.last().is_none_or(|last| block.first().is_some_and(|next| last.0 < next.0));
            if !follows || first_seen.len() + block.len() > MAX_MESSAGES {
                return Ok(None);
            }
            first_seen.extend(block);
        }
        first_seen.extend(rest);
        if !is_in_order(&first_seen) {
            return Ok(None);
        }
        let seen =
            |(id, since): FirstSeen| (id, u32::try_from((calls as i64).saturating_sub(since)).unwrap_or_default());
        Ok(Some(first_seen.into_iter().map(seen).collect()))
    }
}

/// Whether each message comes after the message before it.
fn is_in_order<T>(positions: &[(MessageId, T)]) -> bool {
    positions.is_sorted_by(|(one, _), (next, _)| one < next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_store::{Blobs, Commit, OpenMode, SessionLog, SessionMeta, SqliteStore};

    fn seen(messages: u64, calls: u64) -> Vec<MessagePosition> {
        (1..=messages).map(|id| (id, u32::try_from(calls - id / 2).expect("small"))).collect()
    }

    // D1: a record stays small even if the history is long, and its references resolve to the recorded messages.
    #[tokio::test]
    async fn d1_records_do_not_grow_with_the_history() {
        let store = SqliteStore::open_in_memory().expect("a store");
        let opened = store.open("a/1", OpenMode::CreateNew, SessionMeta::default()).await.expect("opened");
        let mut revision = 0;
        for messages in [0, 1, 127, 128, 129, 1_000, 10_000] {
            let (positions, texts) = MessagePositions::new(&seen(messages, 6_000), 6_000);
            revision =
                store.commit(&opened.lease, revision, Commit { texts, ..Commit::default() }).await.expect("committed");
            let stored: MessagePositions = serde_json::from_str(&serde_json::to_string(&positions).expect("JSON"))
                .expect("the JSON that was just written");
            assert_eq!(stored.resolve(&store, "a/1").await.expect("read"), Some(seen(messages, 6_000)), "{messages}");
        }
        let length = |messages| {
            serde_json::to_string(&MessagePositions::new(&seen(messages, 6_000), 6_000).0).expect("JSON").len()
        };
        assert!(length(10_000) < 10_000, "{} bytes", length(10_000));
        // The record of the next model call refers to the same blocks as the record of this model call.
        let texts = |calls| MessagePositions::new(&seen(1_000, calls), calls).1;
        assert_eq!(texts(6_000), texts(6_001));
        assert!(store.text("a/1", &digest_of(texts(6_000)[0].as_bytes())).await.is_ok());
    }
}
