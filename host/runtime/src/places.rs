//! Which messages a model or a plugin was shown, as step records say it (D1): by place, and without growing with the history.

use agent_core::message::{Digest, MessageId};
use agent_store::{Store, StoreError, digest_of};
use serde::{Deserialize, Serialize};

/// A message, and in how many model calls it had been seen.
pub(crate) type Seen = (MessageId, u32);
/// A message, and the model calls of the session before it was seen first, which stay the same.
type Since = (MessageId, i64);

/// Ids of messages in a block.
const BLOCK: u64 = 128;

/// Messages as a record names them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Places {
    /// Each by itself.
    Each(Vec<Seen>),
    /// Most of them in blocks, which are stored as texts once, since later records name the same ones.
    Blocks {
        /// Model calls of the session so far: of these, a message has not seen the first `since`.
        calls: u64,
        /// Digests of JSON arrays of `[id, since]`.
        blocks: Vec<String>,
        /// Messages behind the last whole block.
        rest: Vec<Since>,
    },
}

impl Places {
    /// As a record names them, after so many model calls; and the texts that are stored beside it.
    pub(crate) fn new(seen: &[Seen], calls: u64) -> (Self, Vec<String>) {
        let since = |(id, seen): &Seen| -> Since { (*id, calls as i64 - i64::from(*seen)) };
        let mut blocks: Vec<&[Seen]> = seen.chunk_by(|one, next| one.0 / BLOCK == next.0 / BLOCK).collect();
        let rest = blocks.pop().unwrap_or_default();
        if blocks.is_empty() {
            return (Self::Each(seen.to_vec()), Vec::new());
        }
        let text = |block: &[Seen]| {
            let each: Vec<Since> = block.iter().map(since).collect();
            serde_json::to_string(&each).expect("numbers are JSON")
        };
        let texts: Vec<String> = blocks.into_iter().map(text).collect();
        let blocks = texts.iter().map(|text| digest_of(text.as_bytes()).to_string()).collect();
        (Self::Blocks { calls, blocks, rest: rest.iter().map(since).collect() }, texts)
    }

    /// Each message again. None: a block is not what this host writes.
    pub(crate) async fn each(&self, store: &dyn Store) -> Result<Option<Vec<Seen>>, StoreError> {
        let (calls, blocks, rest) = match self {
            Self::Each(seen) => return Ok(Some(seen.clone())),
            Self::Blocks { calls, blocks, rest } => (*calls, blocks, rest),
        };
        let mut each: Vec<Since> = Vec::new();
        for block in blocks {
            let Ok(digest) = Digest::parse(block) else { return Ok(None) };
            let Ok(block) = serde_json::from_str::<Vec<Since>>(&store.text(&digest).await?) else { return Ok(None) };
            each.extend(block);
        }
        each.extend(rest);
        let seen = |(id, since): Since| (id, u32::try_from((calls as i64).saturating_sub(since)).unwrap_or_default());
        Ok(Some(each.into_iter().map(seen).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_store::{Blobs, Commit, OpenMode, SessionLog, SessionMeta, SqliteStore};

    fn seen(messages: u64, calls: u64) -> Vec<Seen> {
        (1..=messages).map(|id| (id, u32::try_from(calls - id / 2).expect("small"))).collect()
    }

    // D1: what a record says is small however long the history is, and means the same.
    #[tokio::test]
    async fn d1_records_do_not_grow_with_the_history() {
        let store = SqliteStore::open_in_memory().expect("a store");
        let opened = store.open("a/1", OpenMode::CreateNew, SessionMeta::default()).await.expect("opened");
        let mut revision = 0;
        for messages in [0, 1, 127, 128, 129, 1_000, 10_000] {
            let (places, texts) = Places::new(&seen(messages, 6_000), 6_000);
            revision =
                store.commit(&opened.lease, revision, Commit { texts, ..Commit::default() }).await.expect("committed");
            let stored: Places =
                serde_json::from_str(&serde_json::to_string(&places).expect("JSON")).expect("what was written");
            assert_eq!(stored.each(&store).await.expect("read"), Some(seen(messages, 6_000)), "{messages}");
        }
        let length =
            |messages| serde_json::to_string(&Places::new(&seen(messages, 6_000), 6_000).0).expect("JSON").len();
        assert!(length(10_000) < 10_000, "{} bytes", length(10_000));
        // The next call names the same blocks.
        let texts = |calls| Places::new(&seen(1_000, calls), calls).1;
        assert_eq!(texts(6_000), texts(6_001));
        assert!(store.text(&digest_of(texts(6_000)[0].as_bytes())).await.is_ok());
    }
}
