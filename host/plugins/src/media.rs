//! The conversation's media for guests: `media-store` of the contract over the port that the runtime implements.

use crate::bindings::agent_host::plugin::{media_store, types};
use crate::convert;
use crate::files::RecordedTrees;
use crate::grants::media_denied;
use crate::host_model::ModelPort;
use crate::http::HttpPort;
use crate::in_force::CurrentGrants;
use crate::key_value::KeyValuePort;
use crate::limits::{MEDIA_CHUNK_BYTES, NEW_MEDIA_BYTES};
use crate::state::CallState;
use crate::stopped::StoppedCalls;
use crate::text::cut;
use agent_core::change::Denial;
use agent_core::message::{Digest, Media};
use std::sync::Arc;
use std::time::Duration;
use wasmtime::component::Resource;

/// What the runtime does for plugins. A port that is not there is denied.
#[derive(Clone, Default)]
pub struct Ports {
    /// The session's media.
    pub media: Option<Arc<dyn MediaPort>>,
    /// What plugins keep between calls.
    pub key_value: Option<Arc<dyn KeyValuePort>>,
    /// The agent's model.
    pub model: Option<Arc<dyn ModelPort>>,
    /// Answers requests in the place of the network. None: the network does.
    pub http: Option<Arc<dyn HttpPort>>,
    /// Where a call is run again: what it saw of time, chance and files.
    pub then: Option<Arc<Then>>,
    /// What the agent grants at each moment. None: grants stay as the call begins with them.
    pub grants: Option<Arc<dyn CurrentGrants>>,
    /// Takes the denials of calls that are stopped before they can report them. None: they are lost.
    pub stopped: Option<Arc<StoppedCalls>>,
}

/// What a call saw of time, chance and files when it first ran.
#[derive(Clone, Debug, Default)]
pub struct Then {
    /// When it first read the clock, since 1970. None: it did not.
    pub time: Option<Duration>,
    /// Random numbers of the safe kind, in the order in which they were drawn. Behind them come fresh ones.
    pub random: Vec<u8>,
    /// The trees that it looked into, as it met them.
    pub trees: Option<Arc<RecordedTrees>>,
}

/// Reads and stores the media of sessions.
#[async_trait::async_trait]
pub trait MediaPort: Send + Sync {
    /// The medium's description, if it belongs to this session.
    async fn describe(&self, session: &str, digest: &Digest) -> Result<Option<Media>, PortError>;

    /// At most `length` bytes from `offset`; fewer at the end.
    async fn read(&self, session: &str, digest: &Digest, range: MediaRange) -> Result<Vec<u8>, PortError>;

    /// Stores a medium in this session. The MIME type is the guest's word; the port checks it.
    async fn put(&self, session: &str, medium: MediumToStore) -> Result<Media, PortError>;
}

/// Part of a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaRange {
    /// First byte.
    pub offset: u64,
    /// At most so many.
    pub length: u32,
}

/// A medium that a guest made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediumToStore {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What the guest says it is.
    pub mime_type: String,
    /// For people.
    pub name: Option<String>,
}

/// A port that could not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// What the guest gave is wrong; the text is for its author.
    #[error("{0}")]
    Refused(String),
    /// The host's own part failed.
    #[error("{0}")]
    Failed(String),
}

/// Longest MIME type and name of a medium.
const NAME_BYTES: usize = 255;

impl MediumToStore {
    /// With the guest's words cut to what is stored.
    pub(crate) fn new(bytes: Vec<u8>, mime_type: &str, name: Option<&str>) -> Self {
        Self { bytes, mime_type: short(mime_type), name: name.map(short) }
    }
}

/// An open medium of the session.
#[allow(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct OpenMedium {
    media: Media,
}

/// A medium in the making.
#[allow(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct GrowingMedium {
    mime_type: String,
    name: Option<String>,
    state: Growth,
}

enum Growth {
    Open(Vec<u8>),
    Finished,
}

impl GrowingMedium {
    /// The guest's words are cut at once: a call may have many media in the making.
    fn new(mime_type: &str, name: Option<&str>) -> Self {
        Self { mime_type: short(mime_type), name: name.map(short), state: Growth::Open(Vec::new()) }
    }
}

impl CallState {
    /// Why the conversation's media are not read, where they are not granted.
    fn media_denied(&mut self) -> Option<media_store::Error> {
        if self.grants().media {
            return None;
        }
        let (thing, advice) = media_denied(&self.record.plugin.name);
        let message = Denial::in_error(&thing, &advice.to_string());
        self.record.deny(thing, advice);
        Some(media_store::Error::Failed(message))
    }
}

type Answer<T> = wasmtime::Result<Result<T, media_store::Error>>;

impl media_store::Host for CallState {
    async fn open(&mut self, digest: String) -> Answer<Resource<OpenMedium>> {
        if let Some(denied) = self.media_denied() {
            return Ok(Err(denied));
        }
        let (Ok(digest), Some(port)) = (Digest::parse(&digest), self.media.clone()) else {
            return Ok(Err(media_store::Error::NotFound));
        };
        match port.describe(&self.session, &digest).await {
            Ok(Some(media)) => Ok(Ok(self.push(OpenMedium { media })?)),
            Ok(None) => Ok(Err(media_store::Error::NotFound)),
            Err(error) => Ok(Err(media_store::Error::Failed(error.to_string()))),
        }
    }
}

impl media_store::HostMedium for CallState {
    async fn describe(&mut self, medium: Resource<OpenMedium>) -> wasmtime::Result<types::Media> {
        Ok(convert::media_out(&self.table.get(&medium)?.media))
    }

    async fn read(&mut self, medium: Resource<OpenMedium>, offset: u64, length: u32) -> Answer<Vec<u8>> {
        // What is revoked while the call runs is revoked for what it has open, too (row 48).
        if let Some(denied) = self.media_denied() {
            return Ok(Err(denied));
        }
        let media = &self.table.get(&medium)?.media;
        if offset > media.size {
            return Ok(Err(media_store::Error::OutOfRange));
        }
        let left = u32::try_from(media.size - offset).unwrap_or(u32::MAX);
        let length = length.min(MEDIA_CHUNK_BYTES as u32).min(left);
        let Some(port) = self.media.clone() else {
            return Ok(Err(media_store::Error::NotFound));
        };
        if length == 0 {
            return Ok(Ok(Vec::new()));
        }
        let read = port.read(&self.session, &media.digest, MediaRange { offset, length }).await;
        self.record.give(read.as_ref().map_or(0, Vec::len));
        Ok(read.map_err(|error| media_store::Error::Failed(error.to_string())))
    }

    async fn drop(&mut self, medium: Resource<OpenMedium>) -> wasmtime::Result<()> {
        self.table.delete(medium)?;
        Ok(())
    }
}

impl media_store::HostNewMedium for CallState {
    async fn new(&mut self, mime_type: String, name: Option<String>) -> wasmtime::Result<Resource<GrowingMedium>> {
        self.push(GrowingMedium::new(&mime_type, name.as_deref()))
    }

    async fn write(&mut self, medium: Resource<GrowingMedium>, data: Vec<u8>) -> Answer<()> {
        if data.len() > MEDIA_CHUNK_BYTES {
            return Ok(Err(too_large("1 MiB may be written at once")));
        }
        let growing = self.table.get_mut(&medium)?;
        let Growth::Open(bytes) = &mut growing.state else {
            return Ok(Err(finished()));
        };
        if self.growing_bytes + data.len() > NEW_MEDIA_BYTES {
            return Ok(Err(too_large("a call's new media may have 32 MiB together")));
        }
        self.growing_bytes += data.len();
        self.record.take(data.len());
        bytes.extend_from_slice(&data);
        Ok(Ok(()))
    }

    async fn finish(&mut self, medium: Resource<GrowingMedium>) -> Answer<types::Media> {
        let growing = self.table.get_mut(&medium)?;
        let Growth::Open(bytes) = std::mem::replace(&mut growing.state, Growth::Finished) else {
            return Ok(Err(finished()));
        };
        // They stay counted: what a call stores is bounded, and not only what it holds at once.
        let medium = MediumToStore::new(bytes, &growing.mime_type, growing.name.as_deref());
        let Some(port) = self.media.clone() else {
            return Ok(Err(media_store::Error::Failed("this call may not store media".to_owned())));
        };
        match port.put(&self.session, medium).await {
            Ok(media) => Ok(Ok(convert::media_out(&media))),
            Err(error) => Ok(Err(media_store::Error::Failed(error.to_string()))),
        }
    }

    async fn drop(&mut self, medium: Resource<GrowingMedium>) -> wasmtime::Result<()> {
        if let Growth::Open(bytes) = self.table.delete(medium)?.state {
            self.growing_bytes -= bytes.len();
        }
        Ok(())
    }
}

/// A copy, so that a long text's memory is given back.
fn short(text: &str) -> String {
    cut(text, NAME_BYTES).to_owned()
}

fn too_large(limit: &str) -> media_store::Error {
    media_store::Error::TooLarge(limit.to_owned())
}

fn finished() -> media_store::Error {
    media_store::Error::Failed("this medium is finished already".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    // P8: what a medium in the making keeps of the guest's words is bounded, in memory, too.
    #[test]
    fn the_words_for_a_new_medium_are_cut() {
        let medium = GrowingMedium::new(&"x".repeat(4096), Some(&"ä".repeat(4096)));
        let name = medium.name.expect("a name");
        assert_eq!((medium.mime_type.len(), name.len()), (NAME_BYTES, NAME_BYTES - 1));
        assert!(medium.mime_type.capacity() <= NAME_BYTES && name.capacity() <= NAME_BYTES);
    }
}
