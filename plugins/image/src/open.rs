//! `image.open`: a file's bytes as they are, as a medium of the conversation.

use crate::deliver::{described, hand_over};
use crate::header::{Header, format_of};
use crate::source::file_name;
use agent_host_sdk::prelude::*;
use agent_host_sdk::trees;
use image::ImageFormat;

/// Most bytes of a file: the host takes no more in one call.
const MOST_BYTES: u64 = 32 * 1024 * 1024;
/// Bytes of a JPEG that hold its header, since its decoder copies what it gets.
const JPEG_HEADER_BYTES: usize = 4 * 1024 * 1024;

/// Arguments of `image.open`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Open {
    /// The file, for example `pictures/plan.png`.
    path: String,
}

/// Runs `image.open`.
pub(crate) fn open(Open { path }: Open) -> Result<Done, ToolError> {
    let bytes = trees::read(&path, MOST_BYTES)?;
    let part = match format_of(&path, &bytes)? {
        ImageFormat::Jpeg => &bytes[..bytes.len().min(JPEG_HEADER_BYTES)],
        _ => &bytes,
    };
    let header = Header::read(&path, part)?;
    let (_, _, mime_type) = header.names();
    let name = file_name(&path);
    let text = format!("{name}: {}", described(mime_type, header.upright(), bytes.len()));
    hand_over(bytes, mime_type, name, text)
}
