//! Reads the header of a picture without decoding the pixels, and implements `image.describe`.

use crate::budget;
use crate::source::Source;
use agent_host_sdk::prelude::*;
use image::metadata::Orientation;
use image::{ColorType, ImageDecoder, ImageFormat, ImageReader, Limits};
use std::io::Cursor;

/// The supported formats, each with its name and its media type.
pub(crate) const FORMATS: [(ImageFormat, &str, &str); 4] = [
    (ImageFormat::Png, "PNG", "image/png"),
    (ImageFormat::Jpeg, "JPEG", "image/jpeg"),
    (ImageFormat::Gif, "GIF", "image/gif"),
    (ImageFormat::WebP, "WebP", "image/webp"),
];

/// Arguments of `image.describe`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Describe {
    /// `{"path": "plan.png"}`, or `{"digest": "sha256:…"}`.
    from: Source,
}

/// The description of a picture.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Description {
    /// `PNG`, `JPEG`, `GIF` or `WebP`.
    format: &'static str,
    /// Media type, for example `image/png`.
    mime_type: &'static str,
    /// Width of the upright picture in pixels.
    width: u32,
    /// Height of the upright picture in pixels.
    height: u32,
    /// `grey` or `rgb`, with `+alpha` if pixels may be transparent, and the bits per channel.
    colour: &'static str,
    /// Size of the file in bytes.
    bytes: usize,
    /// How to turn the stored pixels upright, as an EXIF orientation: 1 (unchanged) to 8. Width and height are those
    /// of the upright picture.
    exif_orientation: u8,
}

/// Runs `image.describe`.
pub(crate) fn describe(Describe { from }: Describe) -> Result<Description, ToolError> {
    let picture = from.load()?;
    let header = Header::read(&picture.title, &picture.bytes)?;
    let (width, height) = header.upright();
    let (_, format, mime_type) = header.names();
    Ok(Description {
        format,
        mime_type,
        width,
        height,
        colour: colour(header.colour),
        bytes: picture.bytes.len(),
        exif_orientation: header.orientation.to_exif(),
    })
}

/// The properties of a picture that the header of the file contains.
#[derive(Clone, Copy)]
pub(crate) struct Header {
    pub(crate) format: ImageFormat,
    /// Width of the stored picture, in pixels.
    pub(crate) width: u32,
    /// Height of the stored picture, in pixels.
    pub(crate) height: u32,
    pub(crate) colour: ColorType,
    pub(crate) orientation: Orientation,
}

impl Header {
    /// Reads the header of a picture. The memory that this method needs does not depend on the number of pixels.
    pub(crate) fn read(title: &str, bytes: &[u8]) -> Result<Self, ToolError> {
        let format = format_of(title, bytes)?;
        if let Some(pixels) = pixels_claimed_by_png(format, bytes) {
            budget::check_pixels(title, pixels)?;
        }
        let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
        reader.limits(limits());
        let broken = |error| ToolError::failed(format!("the header of `{title}` cannot be read: {error}"));
        let mut decoder = reader.into_decoder().map_err(broken)?;
        let (width, height) = decoder.dimensions();
        if width == 0 || height == 0 {
            return Err(ToolError::failed(format!("`{title}` has no pixels")));
        }
        budget::check_pixels(title, u64::from(width) * u64::from(height))?;
        // If the EXIF data is invalid, the picture is treated as upright, because other programs also ignore invalid
        // EXIF data.
        let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
        Ok(Self { format, width, height, colour: decoder.color_type(), orientation })
    }

    /// Returns the width and the height of the upright picture.
    pub(crate) fn upright(&self) -> (u32, u32) {
        match is_sideways(self.orientation) {
            true => (self.height, self.width),
            false => (self.width, self.height),
        }
    }

    pub(crate) fn pixels(&self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    /// Returns the picture's format, the name of this format, and its media type.
    pub(crate) fn names(&self) -> (ImageFormat, &'static str, &'static str) {
        names_of(self.format)
    }
}

/// Returns the number of pixels that the first chunk of a PNG claims. The caller checks this number before the decoder
/// is created, because on 32-bit targets, the decoder cannot be created if the picture has too many pixels.
fn pixels_claimed_by_png(format: ImageFormat, bytes: &[u8]) -> Option<u64> {
    let number_at = |offset: usize| bytes.get(offset..offset + 4)?.try_into().ok().map(u32::from_be_bytes);
    match (format, number_at(16), number_at(20)) {
        (ImageFormat::Png, Some(width), Some(height)) => Some(u64::from(width) * u64::from(height)),
        _ => None,
    }
}

/// Returns whether the stored picture must be turned by 90 degrees, so that width and height are exchanged.
pub(crate) fn is_sideways(orientation: Orientation) -> bool {
    matches!(
        orientation,
        Orientation::Rotate90 | Orientation::Rotate270 | Orientation::Rotate90FlipH | Orientation::Rotate270FlipH
    )
}

/// Detects one of the [`FORMATS`] from the first bytes of a file.
pub(crate) fn format_of(title: &str, bytes: &[u8]) -> Result<ImageFormat, ToolError> {
    let format = image::guess_format(bytes).ok().filter(|format| FORMATS.iter().any(|(known, ..)| known == format));
    format.ok_or_else(|| ToolError::failed(format!("`{title}` is not a PNG, JPEG, GIF or WebP picture")))
}

pub(crate) fn names_of(format: ImageFormat) -> (ImageFormat, &'static str, &'static str) {
    FORMATS.into_iter().find(|(known, ..)| *known == format).unwrap_or(FORMATS[0])
}

/// Returns the limits for a decoder. The limits apply to the pixels and to all other data, such as colour profiles.
pub(crate) fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.max_alloc = Some(budget::MAX_MEMORY);
    limits
}

fn colour(colour: ColorType) -> &'static str {
    match colour {
        ColorType::L8 => "grey, 8 bits",
        ColorType::La8 => "grey+alpha, 8 bits",
        ColorType::Rgb8 => "rgb, 8 bits",
        ColorType::Rgba8 => "rgb+alpha, 8 bits",
        ColorType::L16 => "grey, 16 bits",
        ColorType::La16 => "grey+alpha, 16 bits",
        ColorType::Rgb16 => "rgb, 16 bits",
        ColorType::Rgba16 => "rgb+alpha, 16 bits",
        _ => "other",
    }
}
