//! Bytes that are stored under their digest.

use super::values::invalid;
use crate::{MAX_BLOB_BYTES, StoreError, digest_of};
use agent_core::message::Digest;
use bytes::Bytes;

/// Maximum number of bytes that are hashed on the calling thread. Longer byte strings are hashed on a blocking thread.
const MAX_BYTES_HASHED_INLINE: usize = 64 << 10;

/// Bytes to store in the `blobs` table, with their digest. The key is the digest in binary form.
pub(crate) struct StoredBytes {
    pub(crate) digest: Digest,
    pub(crate) key: [u8; 32],
    pub(crate) bytes: Bytes,
}

impl StoredBytes {
    pub(crate) fn new(what: &str, bytes: Vec<u8>) -> Result<Self, StoreError> {
        let size = bytes.len() as u64;
        if size > MAX_BLOB_BYTES {
            return Err(StoreError::TooLarge { what: what.to_owned(), size, limit: MAX_BLOB_BYTES });
        }
        let digest = digest_of(&bytes);
        Ok(Self { key: key_of(&digest)?, digest, bytes: bytes.into() })
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// Computes the digest of bytes without blocking the calling thread for long.
pub(crate) async fn hash(what: &'static str, bytes: Vec<u8>) -> Result<StoredBytes, StoreError> {
    if bytes.len() <= MAX_BYTES_HASHED_INLINE {
        return StoredBytes::new(what, bytes);
    }
    tokio::task::spawn_blocking(move || StoredBytes::new(what, bytes)).await.map_err(|_| StoreError::Closed)?
}

/// Returns the key of a digest in the `blobs` table: the 32 bytes that the digest's 64 hexadecimal digits represent.
pub(crate) fn key_of(digest: &Digest) -> Result<[u8; 32], StoreError> {
    let mut key = [0; 32];
    hex::decode_to_slice(digest.hex(), &mut key).map_err(|error| invalid(digest.to_string(), error.to_string()))?;
    Ok(key)
}
