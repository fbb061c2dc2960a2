//! `image.open`: a file's bytes as they are, as a medium of the conversation.

use crate::deliver::{INLINE_BYTES, described};
use crate::header::{check_size, format_of, lies, limits, names_of};
use crate::source::file_name;
use agent_host_sdk::media::NewMedium;
use agent_host_sdk::prelude::*;
use agent_host_sdk::trees;
use image::metadata::Orientation;
use image::{ImageDecoder, ImageReader};
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};

/// Most bytes of a file: the host takes no more in one call.
const MOST_BYTES: u64 = 32 * 1024 * 1024;
/// Bytes that tell a format.
const SIGNATURE_BYTES: u64 = 16;
/// Bytes that are copied at once.
const PIECE: u64 = 1024 * 1024;

/// Arguments of `image.open`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Open {
    /// The file, for example `pictures/plan.png`.
    path: String,
}

/// Runs `image.open`.
pub(crate) fn open(Open { path }: Open) -> Result<Done, ToolError> {
    let failed = |error| trees::error(&path, &error);
    let mut file = trees::open(&path)?;
    let length = file.metadata().map_err(failed)?.len();
    if length > MOST_BYTES {
        return Err(ToolError::failed(format!("`{path}` has {length} bytes; at most {MOST_BYTES} are opened")));
    }
    let mut signature = Vec::new();
    file.by_ref().take(SIGNATURE_BYTES).read_to_end(&mut signature).map_err(failed)?;
    let format = format_of(&path, &signature)?;
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    check_size(&path, imagesize::reader_size(BufReader::new(&file)))?;
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    let mut reader = ImageReader::with_format(BufReader::new(&file), format);
    reader.limits(limits());
    let broken = |error| ToolError::failed(format!("the header of `{path}` cannot be read: {error}"));
    let mut decoder = reader.into_decoder().map_err(broken)?;
    let (width, height) = decoder.dimensions();
    let upright = match lies(decoder.orientation().unwrap_or(Orientation::NoTransforms)) {
        true => (height, width),
        false => (width, height),
    };
    drop(decoder);
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    let (_, _, mime_type) = names_of(format);
    let about = Done::text(format!("{}: {}", file_name(&path), described(mime_type, upright, length)));
    hand_over(file, length, (mime_type, &path)).map(|medium| match medium {
        Handed::Inline(bytes) => about.and_media(bytes, mime_type, Some(file_name(&path))),
        Handed::Stored(digest) => about.and_stored(digest),
    })
}

enum Handed {
    Inline(Vec<u8>),
    Stored(String),
}

/// A small file whole, a larger one piece by piece: it never stands in memory as a whole.
fn hand_over(file: File, length: u64, (mime_type, path): (&str, &str)) -> Result<Handed, ToolError> {
    let failed = |error| trees::error(path, &error);
    // A file that grows meanwhile is cut where it ended.
    let mut file = file.take(length);
    if length <= INLINE_BYTES {
        let mut bytes = Vec::with_capacity(length as usize);
        file.read_to_end(&mut bytes).map_err(failed)?;
        return Ok(Handed::Inline(bytes));
    }
    let medium = NewMedium::new(mime_type, Some(file_name(path)));
    let mut piece = Vec::with_capacity(PIECE as usize);
    loop {
        piece.clear();
        if file.by_ref().take(PIECE).read_to_end(&mut piece).map_err(failed)? == 0 {
            return Ok(Handed::Stored(medium.finish()?.digest));
        }
        medium.write(&piece)?;
    }
}
