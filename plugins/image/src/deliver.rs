//! Encodes a new picture, and returns the picture to the host with a line that describes the picture.

use agent_host_sdk::media::NewMedium;
use agent_host_sdk::prelude::*;
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::{DynamicImage, ImageFormat, RgbImage};

/// Maximum number of bytes of a picture that is returned as a part of the result. Larger pictures are written to the
/// media store.
const INLINE_BYTES: usize = 4 * 1024 * 1024;
/// JPEG quality, from 1 to 100.
const QUALITY: u8 = 88;
/// The colour that replaces transparent pixels in formats without transparency.
const WHITE: f32 = 255.0;

/// The file format of a new picture.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Format {
    /// Exact; for drawings, screenshots and transparency.
    Png,
    /// Smaller; for photographs. Transparent pixels become white.
    Jpeg,
}

impl Format {
    /// Returns the format of the original if new pictures can have this format, and otherwise a format without
    /// visible loss.
    pub(crate) fn for_new_picture(original: ImageFormat, has_alpha: bool) -> Self {
        match original {
            ImageFormat::Jpeg => Self::Jpeg,
            ImageFormat::WebP if !has_alpha => Self::Jpeg,
            _ => Self::Png,
        }
    }

    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Png => ("png", "image/png"),
            Self::Jpeg => ("jpg", "image/jpeg"),
        }
    }
}

/// Returns a line that describes a picture.
pub(crate) fn described(mime_type: &str, (width, height): (u32, u32), bytes: usize) -> String {
    format!("{mime_type}, {width} × {height} pixels, {bytes} bytes")
}

/// Encodes the picture, and returns a result that consists of `text` and the picture. The name of the new picture
/// consists of the name of the original and `suffix`.
pub(crate) fn deliver(
    picture: DynamicImage,
    format: Format,
    (original, suffix): (&str, &str),
    text: &str,
) -> Result<Done, ToolError> {
    let size = (picture.width(), picture.height());
    let (ending, mime_type) = format.names();
    let bytes = encode(picture, format)?;
    let stem = original.rsplit_once('.').map_or(original, |(stem, _)| stem);
    let name = format!("{stem}-{suffix}.{ending}");
    let text = format!("{text} is {name}: {}", described(mime_type, size, bytes.len()));
    return_picture(bytes, mime_type, &name, text)
}

/// Returns a small picture as a part of the result, and a large picture through the media store.
pub(crate) fn return_picture(bytes: Vec<u8>, mime_type: &str, name: &str, text: String) -> Result<Done, ToolError> {
    let about = Done::text(text);
    if bytes.len() <= INLINE_BYTES {
        return Ok(about.and_media(bytes, mime_type, Some(name)));
    }
    let stored = NewMedium::new(mime_type, Some(name));
    stored.write(&bytes)?;
    Ok(about.and_stored(stored.finish()?.digest))
}

fn encode(picture: DynamicImage, format: Format) -> Result<Vec<u8>, ToolError> {
    let mut bytes = Vec::new();
    let encoded = match format {
        Format::Png => picture.write_with_encoder(PngEncoder::new(&mut bytes)),
        Format::Jpeg => {
            let encoder = JpegEncoder::new_with_quality(&mut bytes, QUALITY);
            without_alpha(picture).write_with_encoder(encoder)
        }
    };
    encoded.map_err(|error| ToolError::failed(format!("the new picture cannot be encoded: {error}")))?;
    Ok(bytes)
}

/// Draws the picture on a white background, so that the result has no transparent pixels.
fn without_alpha(picture: DynamicImage) -> DynamicImage {
    if !picture.color().has_alpha() {
        return picture;
    }
    let transparent = picture.into_rgba8();
    let opaque = RgbImage::from_fn(transparent.width(), transparent.height(), |x, y| {
        let image::Rgba([red, green, blue, alpha]) = *transparent.get_pixel(x, y);
        let opacity = f32::from(alpha) / 255.0;
        let on_white = |channel: u8| (f32::from(channel) * opacity + WHITE * (1.0 - opacity)).round() as u8;
        image::Rgb([on_white(red), on_white(green), on_white(blue)])
    });
    DynamicImage::ImageRgb8(opaque)
}
