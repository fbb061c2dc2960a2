//! Pictures that have been made smaller lately, so that each is made once and not in each step. Bounded in bytes.

use agent_core::message::{Digest, Dimensions};
use agent_models::MediaBytes;
use std::collections::{BTreeMap, HashMap};

/// Bytes of the pictures that are kept.
pub(super) const KEPT_BYTES: usize = 64 << 20;

/// Which picture, and at most how large.
pub(super) type Key = (Digest, (u32, u32));

pub(super) fn key(digest: &Digest, to: Dimensions) -> Key {
    (digest.clone(), (to.width, to.height))
}

/// The pictures, those that were used last the longest.
#[derive(Debug, Default)]
pub(super) struct Cache {
    kept: HashMap<Key, Kept>,
    by_use: BTreeMap<u64, Key>,
    uses: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    /// None: the original was small enough.
    picture: Option<MediaBytes>,
    used: u64,
}

/// What an entry takes beside its picture, for the many that hold none.
const ENTRY_BYTES: usize = 256;

impl Cache {
    /// What is known of a picture: its smaller form, or that it needs none.
    pub(super) fn get(&mut self, key: &Key) -> Option<Option<MediaBytes>> {
        let kept = self.kept.get_mut(key)?;
        self.uses += 1;
        self.by_use.remove(&kept.used);
        self.by_use.insert(self.uses, key.clone());
        kept.used = self.uses;
        Some(kept.picture.clone())
    }

    /// Keeps a picture; those that were not used for longest go.
    pub(super) fn put(&mut self, key: Key, picture: Option<MediaBytes>) {
        self.remove(&key);
        self.bytes += size_of(picture.as_ref());
        self.uses += 1;
        self.by_use.insert(self.uses, key.clone());
        self.kept.insert(key, Kept { picture, used: self.uses });
        while self.bytes > KEPT_BYTES
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some(kept) = self.kept.remove(key) {
            self.by_use.remove(&kept.used);
            self.bytes -= size_of(kept.picture.as_ref());
        }
    }
}

fn size_of(picture: Option<&MediaBytes>) -> usize {
    ENTRY_BYTES + picture.map_or(0, |picture| picture.bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_store::digest_of;

    fn picture(bytes: usize) -> Option<MediaBytes> {
        Some(MediaBytes { mime_type: "image/jpeg".to_owned(), bytes: vec![0; bytes].into() })
    }

    #[test]
    fn what_was_used_last_stays_within_the_bound() {
        let key = |name: &str| key(&digest_of(name.as_bytes()), Dimensions { width: 1, height: 1 });
        let mut cache = Cache::default();
        cache.put(key("a"), picture(KEPT_BYTES / 2 - 1_000));
        cache.put(key("b"), picture(KEPT_BYTES / 2 - 1_000));
        assert!(cache.get(&key("a")).is_some());
        cache.put(key("c"), picture(10_000));
        assert!(cache.get(&key("b")).is_none(), "it was not used for longest");
        assert!(cache.get(&key("a")).is_some() && cache.get(&key("c")).is_some());
        cache.put(key("fits"), None);
        assert_eq!(cache.get(&key("fits")), Some(None));
        cache.put(key("c"), picture(20_000));
        assert_eq!(cache.get(&key("c")), Some(picture(20_000)));
        cache.put(key("large"), picture(KEPT_BYTES + 1));
        assert!(cache.kept.is_empty() && cache.by_use.is_empty() && cache.bytes == 0, "{cache:?}");
        for number in 0..=KEPT_BYTES / ENTRY_BYTES {
            cache.put(key(&number.to_string()), None);
        }
        assert!(cache.bytes <= KEPT_BYTES && cache.kept.len() == cache.by_use.len());
    }
}
