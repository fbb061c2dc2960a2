//! Reads the media of the conversation by digest, and writes media items that are too large for a tool result. A plugin
//! that does not use this module does not import `media-store`.

#[cfg(not(target_arch = "wasm32"))]
use crate::testing::media as backend;
use crate::types::Media;
#[cfg(target_arch = "wasm32")]
use wasm as backend;

/// The reason why the plugin could not read or write a media item.
pub use crate::bindings::imports::agent_host::plugin::media_store::Error;

/// Maximum number of bytes that one call of a host function reads or writes. [`Medium::read_all`] and
/// [`NewMedium::write`] split larger amounts into several calls.
pub const CHUNK: usize = 1024 * 1024;

/// Opens a media item that belongs to the session of this call.
pub fn open(digest: &str) -> Result<Medium, Error> {
    backend::open(digest).map(|inner| Medium { inner })
}

/// An open media item. The bytes of a media item never change.
pub struct Medium {
    inner: backend::Medium,
}

impl Medium {
    /// Returns the description of the media item: the digest, the MIME type, the size, and (if known) the dimensions
    /// and the name.
    pub fn describe(&self) -> Media {
        self.inner.describe()
    }

    /// Reads at most `length` bytes from `offset`, but never more than [`CHUNK`]. If the media item ends within this
    /// range, the result is shorter. If `offset` is exactly the size of the media item, the result is empty.
    pub fn read(&self, offset: u64, length: u32) -> Result<Vec<u8>, Error> {
        self.inner.read(offset, length)
    }

    /// Reads all bytes of the media item. Returns [`Error::TooLarge`] if the media item has more than `limit` bytes.
    pub fn read_all(&self, limit: u64) -> Result<Vec<u8>, Error> {
        let size = self.describe().size;
        if size > limit {
            return Err(Error::TooLarge(format!("the media item has {size} bytes; at most {limit} can be read")));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
        while (bytes.len() as u64) < size {
            let chunk = self.read(bytes.len() as u64, CHUNK as u32)?;
            if chunk.is_empty() {
                return Err(Error::Failed(format!("the media item ends after {} of {size} bytes", bytes.len())));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }
}

/// A media item that is being written. If this value is dropped before [`finish`](Self::finish) is called, the host
/// stores nothing.
pub struct NewMedium {
    inner: backend::NewMedium,
}

impl NewMedium {
    /// Creates an empty media item. The host checks that the first bytes of PNG, JPEG, GIF, WebP and PDF files match
    /// the MIME type. The name of the item is shown to users.
    pub fn new(mime_type: &str, name: Option<&str>) -> Self {
        Self { inner: backend::NewMedium::new(mime_type, name) }
    }

    /// Appends bytes to the media item. The bytes are passed to the host in pieces of at most [`CHUNK`] bytes.
    pub fn write(&self, bytes: &[u8]) -> Result<(), Error> {
        bytes.chunks(CHUNK).try_for_each(|chunk| self.inner.write(chunk))
    }

    /// Stores the media item. To return the stored item from a tool, use [`Done::stored`](crate::tool::Done::stored).
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
