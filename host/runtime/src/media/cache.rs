//! A cache of recently scaled pictures, so that a picture is not scaled again in every step. The total size of the
//! cached pictures is limited.

use agent_core::message::{Digest, Dimensions};
use agent_models::MediaBytes;
use std::collections::{BTreeMap, HashMap};

/// Maximum total size of the cached pictures, in bytes.
pub(super) const MAX_CACHED_BYTES: usize = 64 << 20;

/// Key of a cached picture: the digest of the original picture, and the maximum width and height to which
/// it was scaled.
pub(super) type PictureKey = (Digest, (u32, u32));

pub(super) fn picture_key(digest: &Digest, to: Dimensions) -> PictureKey {
    (digest.clone(), (to.width, to.height))
}

/// A least-recently-used cache of scaled pictures.
#[derive(Debug, Default)]
pub(super) struct Cache {
    entries: HashMap<PictureKey, CacheEntry>,
    /// The keys of all entries, ordered by the latest use of the entry. The key of this map is the value of `uses`
    /// directly after the entry's latest use.
    by_use: BTreeMap<u64, PictureKey>,
    /// Number of times that any entry of the cache has been read or added so far.
    uses: u64,
    /// Total size of all entries, in bytes.
    bytes: usize,
}

#[derive(Debug)]
struct CacheEntry {
    /// The scaled picture, or `None` if the original picture was small enough.
    picture: Option<MediaBytes>,
    /// The value of [`Cache::uses`] when this entry was last read or added.
    last_use: u64,
}

/// Number of bytes that are counted for each entry in addition to the size of its picture. Because of these bytes, the
/// number of entries that contain no picture is limited too.
const ENTRY_BYTES: usize = 256;

impl Cache {
    /// Returns the cached result of scaling a picture, or `None` if no result is cached. The cached result is `Some`
    /// with the scaled picture, or `Some(None)` if the original picture was small enough.
    pub(super) fn get(&mut self, key: &PictureKey) -> Option<Option<MediaBytes>> {
        let entry = self.entries.get_mut(key)?;
        self.uses += 1;
        self.by_use.remove(&entry.last_use);
        self.by_use.insert(self.uses, key.clone());
        entry.last_use = self.uses;
        Some(entry.picture.clone())
    }

    /// Adds the result of scaling a picture to the cache. If the cache becomes too large, the least recently used
    /// entries are removed.
    pub(super) fn put(&mut self, key: PictureKey, picture: Option<MediaBytes>) {
        self.remove(&key);
        self.bytes += size_of(picture.as_ref());
        self.uses += 1;
        self.by_use.insert(self.uses, key.clone());
        self.entries.insert(key, CacheEntry { picture, last_use: self.uses });
        while self.bytes > MAX_CACHED_BYTES
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &PictureKey) {
        if let Some(entry) = self.entries.remove(key) {
            self.by_use.remove(&entry.last_use);
            self.bytes -= size_of(entry.picture.as_ref());
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
    fn the_least_recently_used_picture_is_removed_at_the_bound() {
        let key = |name: &str| picture_key(&digest_of(name.as_bytes()), Dimensions { width: 1, height: 1 });
        let mut cache = Cache::default();
        cache.put(key("a"), picture(MAX_CACHED_BYTES / 2 - 1_000));
        cache.put(key("b"), picture(MAX_CACHED_BYTES / 2 - 1_000));
        assert!(cache.get(&key("a")).is_some());
        cache.put(key("c"), picture(10_000));
        assert!(cache.get(&key("b")).is_none(), "it is the least recently used picture");
        assert!(cache.get(&key("a")).is_some() && cache.get(&key("c")).is_some());
        cache.put(key("fits"), None);
        assert_eq!(cache.get(&key("fits")), Some(None));
        cache.put(key("c"), picture(20_000));
        assert_eq!(cache.get(&key("c")), Some(picture(20_000)));
        cache.put(key("large"), picture(MAX_CACHED_BYTES + 1));
        assert!(cache.entries.is_empty() && cache.by_use.is_empty() && cache.bytes == 0, "{cache:?}");
        for number in 0..=MAX_CACHED_BYTES / ENTRY_BYTES {
            cache.put(key(&number.to_string()), None);
        }
        assert!(cache.bytes <= MAX_CACHED_BYTES && cache.entries.len() == cache.by_use.len());
    }
}
