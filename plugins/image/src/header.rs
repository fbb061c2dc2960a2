//! What a picture's header says, before any of its pixels is decoded; and `image.describe`.

use crate::budget;
use crate::source::Source;
use agent_host_sdk::prelude::*;
use image::metadata::Orientation;
use image::{ColorType, ImageDecoder, ImageFormat, ImageReader, Limits};
use std::io::Cursor;

/// The formats that are read.
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

/// What a picture is.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Description {
    /// `PNG`, `JPEG`, `GIF` or `WebP`.
    format: &'static str,
    /// Media type, for example `image/png`.
    mime_type: &'static str,
    /// Pixels of the upright picture.
    width: u32,
    /// Pixels of the upright picture.
    height: u32,
    /// `grey`, `rgb`, each with `+alpha` where pixels may be transparent, and the bits of a channel.
    colour: &'static str,
    /// Length of the file.
    bytes: usize,
    /// How the stored pixels must be turned to be upright, by EXIF: 1 (not at all) to 8. Width and height are those of
    /// the turned picture.
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

/// A header that was read.
#[derive(Clone, Copy)]
pub(crate) struct Header {
    pub(crate) format: ImageFormat,
    /// As the pixels are stored.
    pub(crate) width: u32,
    /// As the pixels are stored.
    pub(crate) height: u32,
    pub(crate) colour: ColorType,
    pub(crate) orientation: Orientation,
}

impl Header {
    /// Reads it; nothing is allocated that grows with the number of pixels.
    pub(crate) fn read(title: &str, bytes: &[u8]) -> Result<Self, ToolError> {
        let format = format_of(title, bytes)?;
        if let Some(pixels) = claimed_by_png(format, bytes) {
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
        // A picture with broken EXIF data is shown as it is stored, as everywhere.
        let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
        Ok(Self { format, width, height, colour: decoder.color_type(), orientation })
    }

    /// Width and height of the upright picture.
    pub(crate) fn upright(&self) -> (u32, u32) {
        match lies(self.orientation) {
            true => (self.height, self.width),
            false => (self.width, self.height),
        }
    }

    pub(crate) fn pixels(&self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    /// Format, name and media type.
    pub(crate) fn names(&self) -> (ImageFormat, &'static str, &'static str) {
        names_of(self.format)
    }
}

/// Pixels by a PNG's first chunk. On 32 bits, its decoder cannot even be made where they are too many.
fn claimed_by_png(format: ImageFormat, bytes: &[u8]) -> Option<u64> {
    let side = |place: usize| bytes.get(place..place + 4)?.try_into().ok().map(u32::from_be_bytes);
    match (format, side(16), side(20)) {
        (ImageFormat::Png, Some(width), Some(height)) => Some(u64::from(width) * u64::from(height)),
        _ => None,
    }
}

/// Whether upright width is stored height.
pub(crate) fn lies(orientation: Orientation) -> bool {
    matches!(
        orientation,
        Orientation::Rotate90 | Orientation::Rotate270 | Orientation::Rotate90FlipH | Orientation::Rotate270FlipH
    )
}

/// One of [`FORMATS`], told by the first bytes.
pub(crate) fn format_of(title: &str, bytes: &[u8]) -> Result<ImageFormat, ToolError> {
    let format = image::guess_format(bytes).ok().filter(|format| FORMATS.iter().any(|(known, ..)| known == format));
    format.ok_or_else(|| ToolError::failed(format!("`{title}` is no PNG, JPEG, GIF or WebP picture")))
}

pub(crate) fn names_of(format: ImageFormat) -> (ImageFormat, &'static str, &'static str) {
    FORMATS.into_iter().find(|(known, ..)| *known == format).unwrap_or(FORMATS[0])
}

/// For everything that a decoder allocates beside the pixels, such as colour profiles.
pub(crate) fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.max_alloc = Some(budget::MOST_MEMORY);
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
