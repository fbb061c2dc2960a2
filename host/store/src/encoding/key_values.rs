//! Checks of keys, values and quotas.

use super::values::invalid;
use crate::{Bucket, ENTRY_BYTES, MAX_ENTRIES, MAX_KEY_BYTES, MAX_VALUE_BYTES, StoreError};

/// A bucket and a key. The lengths of the key and of the bucket's names have been checked.
pub(crate) struct EntryKey {
    pub(crate) bucket: Bucket,
    pub(crate) key: String,
}

impl EntryKey {
    pub(crate) fn new(bucket: &Bucket, key: &str) -> Result<Self, StoreError> {
        let names = [("an agent's name", &*bucket.agent), ("a plugin's name", &*bucket.plugin)];
        for (what, name) in names.into_iter().chain([("a bucket's name", &*bucket.name), ("a key", key)]) {
            if name.len() > MAX_KEY_BYTES {
                let (size, limit) = (name.len() as u64, MAX_KEY_BYTES as u64);
                return Err(StoreError::TooLarge { what: what.to_owned(), size, limit });
            }
        }
        if key.is_empty() {
            return Err(invalid("a value", "its key is empty"));
        }
        Ok(Self { bucket: bucket.clone(), key: key.to_owned() })
    }
}

/// What a plugin has stored before a write.
pub(crate) struct Stored {
    /// Number of entries of the plugin.
    pub(crate) entries: u64,
    /// Size of all keys and values of the plugin, in bytes.
    pub(crate) bytes: u64,
    /// Size of the value that the write replaces. `None` if the key has no value.
    pub(crate) replaced: Option<u64>,
}

/// Checks whether the plugin may store the value in addition to what it has stored.
pub(crate) fn check_usage(
    EntryKey { bucket, key }: &EntryKey,
    value: &[u8],
    Stored { entries, bytes, replaced }: Stored,
) -> Result<(), StoreError> {
    let other_entries = entries.saturating_sub(u64::from(replaced.is_some()));
    let other_bytes = bytes.saturating_sub(replaced.map_or(0, |length| length + key.len() as u64));
    if replaced.is_none() && other_entries >= MAX_ENTRIES {
        let problem = format!("the plugin already stores {other_entries} values, and the maximum is {MAX_ENTRIES}");
        return Err(invalid("another value", problem));
    }
    let size = other_bytes + (key.len() + value.len()) as u64 + (other_entries + 1) * ENTRY_BYTES;
    if size <= bucket.quota {
        return Ok(());
    }
    let what = format!("the stored data of plugin `{}`, including this value,", bucket.plugin);
    Err(StoreError::TooLarge { what, size, limit: bucket.quota })
}

/// Returns the sum of a stored number, which counts as 0 if it is missing, and `delta`.
pub(crate) fn incremented(entry: &EntryKey, stored: Option<&[u8]>, delta: i64) -> Result<i64, StoreError> {
    let what = || format!("the incremented value of key `{}`", entry.key);
    let number = match stored {
        None => 0,
        Some(value) => std::str::from_utf8(value)
            .ok()
            .and_then(|text| text.parse::<i64>().ok())
            .ok_or_else(|| invalid(what(), "the current value is not a 64-bit integer"))?,
    };
    number.checked_add(delta).ok_or_else(|| invalid(what(), "it does not fit into 64 bits"))
}

/// Refuses a value that is too large.
pub(crate) fn check_value(value: &[u8]) -> Result<(), StoreError> {
    if value.len() <= MAX_VALUE_BYTES {
        return Ok(());
    }
    let (size, limit) = (value.len() as u64, MAX_VALUE_BYTES as u64);
    Err(StoreError::TooLarge { what: "a value".to_owned(), size, limit })
}
