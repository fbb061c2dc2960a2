//! The interface `media-store` of the plugin contract: access to the media items of the call's session, through the
//! port that the runtime implements.

mod bindings;
mod host;
mod inert;
mod linker;

pub(crate) use linker::{add_inert_to_linker, add_to_linker};

use super::CapabilityView;
use crate::ports::media::{MediaPort, short};
use agent_core::message::Media;
use std::sync::Arc;

/// The media capability of one call.
pub(crate) struct MediaState {
    /// The media items of the session. `None` means that the call cannot access media items.
    port: Option<Arc<dyn MediaPort>>,
    /// Total size of the new media items that the call has written so far, in bytes.
    new_media_bytes: usize,
}

type MediaView<'a> = CapabilityView<'a, MediaState>;

impl MediaState {
    pub(crate) fn new(port: Option<Arc<dyn MediaPort>>) -> Self {
        Self { port, new_media_bytes: 0 }
    }
}

/// A media item of the session that the guest has opened.
#[allow(unreachable_pub, reason = "the generated bindings re-export this type")]
pub struct OpenMediaItem {
    media: Media,
}

/// A new media item that the guest is writing.
#[allow(unreachable_pub, reason = "the generated bindings re-export this type")]
pub struct MediaItemWriter {
    mime_type: String,
    name: Option<String>,
    state: Growth,
}

enum Growth {
    Open(Vec<u8>),
    Finished,
}

impl MediaItemWriter {
    /// Creates an empty media item. Immediately cuts the MIME type and the name to their maximum length, because a call
    /// may have many unfinished media items in memory.
    fn new(mime_type: &str, name: Option<&str>) -> Self {
        Self { mime_type: short(mime_type), name: name.map(short), state: Growth::Open(Vec::new()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::media::MEDIA_ITEM_NAME_BYTES;

    // P8: the MIME type and the name that a guest passes for a new media item are cut to the maximum length, and do not
    // use more memory than that length.
    #[test]
    fn p8_texts_of_a_new_media_item_are_cut() {
        let item = MediaItemWriter::new(&"x".repeat(4096), Some(&"ä".repeat(4096)));
        let name = item.name.expect("a name");
        assert_eq!((item.mime_type.len(), name.len()), (MEDIA_ITEM_NAME_BYTES, MEDIA_ITEM_NAME_BYTES - 1));
        assert!(item.mime_type.capacity() <= MEDIA_ITEM_NAME_BYTES && name.capacity() <= MEDIA_ITEM_NAME_BYTES);
    }
}
