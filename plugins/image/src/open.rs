//! The tool `image.open`: returns the unchanged bytes of a file as a picture for the conversation.

use crate::deliver::{described, return_picture};
use crate::header::{Header, format_of};
use crate::source::file_name;
use agent_host_sdk::prelude::*;
use agent_host_sdk::trees;
use image::ImageFormat;

/// Maximum size of a file, in bytes. The host accepts at most this number of bytes of new media from one call.
const MAX_BYTES: u64 = 32 * 1024 * 1024;
/// To read the header of a JPEG, the decoder gets at most this number of bytes from the start of the file. The number
/// is limited because the decoder copies its input.
const JPEG_HEADER_BYTES: usize = 4 * 1024 * 1024;

/// Arguments of `image.open`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Open {
    /// The path of the file, for example `pictures/plan.png`.
    path: String,
}

/// Runs `image.open`.
pub(crate) fn open(Open { path }: Open) -> Result<Done, ToolError> {
    let bytes = trees::read(&path, MAX_BYTES)?;
    let part = match format_of(&path, &bytes)? {
        ImageFormat::Jpeg => &bytes[..bytes.len().min(JPEG_HEADER_BYTES)],
        _ => &bytes,
    };
    let header = Header::read(&path, part)?;
    let (_, _, mime_type) = header.names();
    let name = file_name(&path);
    let text = format!("{name}: {}", described(mime_type, header.upright(), bytes.len()));
    return_picture(bytes, mime_type, name, text)
}
