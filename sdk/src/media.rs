//! The conversation's media: reading them by digest, and writing ones that are too large to stand in a result. A plugin
//! that does neither does not import them.

#[cfg(not(target_arch = "wasm32"))]
use crate::testing::media as backend;
use crate::types::Media;
#[cfg(target_arch = "wasm32")]
use wasm as backend;

/// Why a medium could not be read or written.
pub use crate::bindings::imports::agent_host::plugin::media_store::Error;

/// Most bytes that cross in one host call; longer reads and writes are cut into such pieces.
pub const CHUNK: usize = 1024 * 1024;

/// Opens a medium of this call's session.
pub fn open(digest: &str) -> Result<Medium, Error> {
    backend::open(digest).map(|inner| Medium { inner })
}

/// An open medium. Its bytes never change.
pub struct Medium {
    inner: backend::Medium,
}

impl Medium {
    /// Digest, MIME type, size, and what else is known of it.
    pub fn describe(&self) -> Media {
        self.inner.describe()
    }

    /// At most `length` bytes from `offset`; fewer at the end, and never more than [`CHUNK`]. At exactly the end: none.
    pub fn read(&self, offset: u64, length: u32) -> Result<Vec<u8>, Error> {
        self.inner.read(offset, length)
    }

    /// All bytes, if there are at most `limit`; [`Error::TooLarge`] otherwise.
    pub fn read_all(&self, limit: u64) -> Result<Vec<u8>, Error> {
        let size = self.describe().size;
        if size > limit {
            return Err(Error::TooLarge(format!("the medium has {size} bytes, and at most {limit} are read")));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
        while (bytes.len() as u64) < size {
            let piece = self.read(bytes.len() as u64, CHUNK as u32)?;
            if piece.is_empty() {
                return Err(Error::Failed(format!("the medium ends after {} of {size} bytes", bytes.len())));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }
}

/// A medium in the making. Dropped before [`finish`](Self::finish), nothing of it is stored.
pub struct NewMedium {
    inner: backend::NewMedium,
}

impl NewMedium {
    /// Begins a medium. The host checks PNG, JPEG, GIF, WebP and PDF against the first bytes; the name is for people.
    pub fn new(mime_type: &str, name: Option<&str>) -> Self {
        Self { inner: backend::NewMedium::new(mime_type, name) }
    }

    /// Adds bytes at the end, in pieces of at most [`CHUNK`].
    pub fn write(&self, bytes: &[u8]) -> Result<(), Error> {
        bytes.chunks(CHUNK).try_for_each(|piece| self.inner.write(piece))
    }

    /// Stores what was written. The result refers to it by [`Done::stored`](crate::tool::Done::stored).
    pub fn finish(self) -> Result<Media, Error> {
        self.inner.finish()
    }
}

#[cfg(target_arch = "wasm32")]
mod wasm {
    pub(super) use crate::bindings::imports::agent_host::plugin::media_store::{
        Medium, NewMedium, open as open_digest,
    };

    pub(super) fn open(digest: &str) -> Result<Medium, super::Error> {
        open_digest(digest)
    }
}
