//! Images that the command line adds to a prompt.

use crate::exit::Failure;
use agent_core::message::{Part, TurnInput};
use agent_runtime::{NewMediaItem, Session, media};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Maximum number of images of a prompt.
const MAX_IMAGES: usize = 20;
/// Maximum size of an image in bytes.
const MAX_BYTES: u64 = 32 << 20;
/// The types of images that models accept.
const TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Reads the images.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Vec<NewMediaItem>, Failure> {
    if paths.len() > MAX_IMAGES {
        return Err(Failure::refused(format!("a prompt can have at most {MAX_IMAGES} images, not {}", paths.len())));
    }
    paths.iter().map(|path| image(path)).collect()
}

fn image(path: &Path) -> Result<NewMediaItem, Failure> {
    let refused = |problem: String| Failure::refused(format!("--image {}: {problem}", path.display()));
    let failed = |error: std::io::Error| refused(error.to_string());
    // Reading a pipe or a device could wait forever.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(refused("it is not a file".to_owned()));
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(refused(format!("the image has more than {} MiB", MAX_BYTES >> 20)));
    }
    let mime_type = media::media_type_from_bytes(&bytes).filter(|found| TYPES.contains(found));
    let mime_type = mime_type.ok_or_else(|| refused("it is not a PNG, JPEG, GIF or WebP image".to_owned()))?;
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    Ok(NewMediaItem { bytes, mime_type: mime_type.to_owned(), name })
}

/// Stores the images in the session, and adds them to the prompt.
pub(crate) async fn attach(
    session: &Session,
    prompt: TurnInput,
    images: Vec<NewMediaItem>,
) -> Result<TurnInput, Failure> {
    if images.is_empty() {
        return Ok(prompt);
    }
    let mut parts = prompt.message().parts;
    for image in images {
        parts.push(Part::Media(session.attach(image).await.map_err(Failure::refused)?));
    }
    Ok(TurnInput::Message(parts))
}
