//! Images that the command line adds to a prompt.

use crate::exit::Failure;
use agent_runtime::{NewMediaItem, media};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Maximum number of images of a prompt.
const MAX_IMAGES: usize = 20;
/// Maximum size of an image in bytes.
pub(super) const MAX_BYTES: u64 = 32 << 20;
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
    from_bytes(bytes, path).map_err(refused)
}

/// Returns the media type of an image that models accept, which the first bytes of the image determine. Returns `None`
/// for any other file.
pub(super) fn media_type(bytes: &[u8]) -> Option<&'static str> {
    media::media_type_from_bytes(bytes).filter(|found| TYPES.contains(found))
}

/// Returns the image that these bytes contain. The error says why the bytes cannot be used.
pub(super) fn from_bytes(bytes: Vec<u8>, path: &Path) -> Result<NewMediaItem, String> {
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("the image has more than {} MiB", MAX_BYTES >> 20));
    }
    let mime_type = media_type(&bytes).ok_or("it is not a PNG, JPEG, GIF or WebP image")?.to_owned();
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    Ok(NewMediaItem { bytes, mime_type, name })
}
