//! The conversation's media: read them by digest, and write media that are too large for a tool result. A plugin that
//! does not use this module does not import it.

#[cfg(not(target_arch = "wasm32"))]
use crate::testing::media as backend;
use crate::types::Media;
#[cfg(target_arch = "wasm32")]
use wasm as backend;

/// The reason why a medium could not be read or written.
pub use crate::bindings::imports::agent_host::plugin::media_store::Error;

/// Maximum number of bytes in one host call. Longer reads and writes are split.
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
    /// The description of the medium: digest, MIME type, size and other known properties.
    pub fn describe(&self) -> Media {
        self.inner.describe()
    }

    /// At most `length` bytes from `offset`: fewer at the end of the medium, never more than [`CHUNK`], and none
    /// exactly at the end.
    pub fn read(&self, offset: u64, length: u32) -> Result<Vec<u8>, Error> {
        self.inner.read(offset, length)
    }

    /// All bytes of a medium of at most `limit` bytes; [`Error::TooLarge`] if it is larger.
    pub fn read_all(&self, limit: u64) -> Result<Vec<u8>, Error> {
        let size = self.describe().size;
        if size > limit {
            return Err(Error::TooLarge(format!("the medium has {size} bytes; at most {limit} can be read")));
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

/// A medium that is being written. If it is dropped before [`finish`](Self::finish), nothing is stored.
pub struct NewMedium {
    inner: backend::NewMedium,
}

impl NewMedium {
    /// Starts a medium. The host checks the first bytes of PNG, JPEG, GIF, WebP and PDF files. The name is for
    /// people.
    pub fn new(mime_type: &str, name: Option<&str>) -> Self {
        Self { inner: backend::NewMedium::new(mime_type, name) }
    }

    /// Appends bytes, split into chunks of at most [`CHUNK`].
    pub fn write(&self, bytes: &[u8]) -> Result<(), Error> {
        bytes.chunks(CHUNK).try_for_each(|piece| self.inner.write(piece))
    }

    /// Stores the medium. A result refers to it with [`Done::stored`](crate::tool::Done::stored).
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
