//! New pictures: encoded, described in a line, and handed to the host.

use agent_host_sdk::media::NewMedium;
use agent_host_sdk::prelude::*;
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::{DynamicImage, ImageFormat, RgbImage};

/// Most bytes that stand in a result itself; more goes through the media store.
const INLINE_BYTES: usize = 4 * 1024 * 1024;
/// Of JPEG, from 1 to 100.
const QUALITY: u8 = 88;
/// Under transparent pixels, where the format has no transparency.
const WHITE: f32 = 255.0;

/// How a new picture is stored.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Format {
    /// Exact; for drawings, screenshots and transparency.
    Png,
    /// Smaller; for photographs. Transparent pixels become white.
    Jpeg,
}

impl Format {
    /// That of the original where it can be, else the one that loses nothing that matters.
    pub(crate) fn suited(original: ImageFormat, has_alpha: bool) -> Self {
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

/// A line on a picture.
pub(crate) fn described(mime_type: &str, (width, height): (u32, u32), bytes: usize) -> String {
    format!("{mime_type}, {width} × {height} pixels, {bytes} bytes")
}

/// Encodes the picture and makes it the call's result, after `text`. Its name is that of the original with a word more.
pub(crate) fn deliver(
    picture: DynamicImage,
    format: Format,
    (original, word): (&str, &str),
    text: &str,
) -> Result<Done, ToolError> {
    let size = (picture.width(), picture.height());
    let (ending, mime_type) = format.names();
    let bytes = encode(picture, format)?;
    let stem = original.rsplit_once('.').map_or(original, |(stem, _)| stem);
    let name = format!("{stem}-{word}.{ending}");
    let text = format!("{text} is {name}: {}", described(mime_type, size, bytes.len()));
    hand_over(bytes, mime_type, &name, text)
}

/// A small picture stands in the result itself, a larger one goes through the media store.
pub(crate) fn hand_over(bytes: Vec<u8>, mime_type: &str, name: &str, text: String) -> Result<Done, ToolError> {
    let about = Done::text(text);
    if bytes.len() <= INLINE_BYTES {
        return Ok(about.and_media(bytes, mime_type, Some(name)));
    }
    let medium = NewMedium::new(mime_type, Some(name));
    medium.write(&bytes)?;
    Ok(about.and_stored(medium.finish()?.digest))
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

/// On white.
fn without_alpha(picture: DynamicImage) -> DynamicImage {
    if !picture.color().has_alpha() {
        return picture;
    }
    let transparent = picture.into_rgba8();
    let opaque = RgbImage::from_fn(transparent.width(), transparent.height(), |x, y| {
        let image::Rgba([red, green, blue, alpha]) = *transparent.get_pixel(x, y);
        let share = f32::from(alpha) / 255.0;
        let over = |channel: u8| (f32::from(channel) * share + WHITE * (1.0 - share)).round() as u8;
        image::Rgb([over(red), over(green), over(blue)])
    });
    DynamicImage::ImageRgb8(opaque)
}
