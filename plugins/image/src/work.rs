//! The tools `image.crop` and `image.scale`. The tools check the memory, decode the picture, crop or resample the
//! stored pixels, turn the result upright, and return the new picture.

use crate::budget::check_memory;
use crate::deliver::{Format, deliver};
use crate::header::{Header, is_sideways};
use crate::picture::decode;
use crate::region::{Region, RequestedRange, Unit};
use crate::source::{LoadedPicture, Source};
use agent_host_sdk::prelude::*;
use area_average::reduced;
use image::DynamicImage;
use image::imageops::FilterType;

/// Maximum number of pixels of an enlarged picture.
const MAX_ENLARGED: u64 = 4_000_000;
/// Maximum width and height of a new picture, in pixels.
const MAX_SIDE: u32 = 16_384;
/// Memory that the filter for enlarging needs, in bytes per pixel of the new picture: 4 channels with 4 bytes each.
const FILTER_BYTES: u64 = 16;

/// Arguments of `image.crop`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Crop {
    /// `{"path": "plan.png"}`, or `{"digest": "sha256:…"}`.
    from: Source,
    /// Left edge, from 0.
    #[schemars(range(min = 0))]
    x: f64,
    /// Upper edge, from 0.
    #[schemars(range(min = 0))]
    y: f64,
    /// Width of the rectangle.
    width: f64,
    /// Height of the rectangle.
    height: f64,
    /// Unit of the positions and lengths. Default: pixels.
    #[serde(default)]
    unit: Unit,
    /// Format of the new picture. Default: that of the original; JPEG for WebP without transparency, PNG for GIF.
    format: Option<Format>,
}

/// Arguments of `image.scale`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scale {
    /// `{"path": "plan.png"}`, or `{"digest": "sha256:…"}`.
    from: Source,
    /// Maximum width of the new picture in pixels.
    #[schemars(range(min = 1, max = 16384))]
    width: Option<u32>,
    /// Maximum height of the new picture in pixels.
    #[schemars(range(min = 1, max = 16384))]
    height: Option<u32>,
    /// Format of the new picture. Default: that of the original; JPEG for WebP without transparency, PNG for GIF.
    format: Option<Format>,
}

/// Runs `image.crop`.
pub(crate) fn crop(arguments: Crop) -> Result<Done, ToolError> {
    let Crop { from, x, y, width, height, unit, format } = arguments;
    let LoadedPicture { title, name, bytes } = from.load()?;
    let header = Header::read(&title, &bytes)?;
    let requested = (RequestedRange { from: x, length: width }, RequestedRange { from: y, length: height });
    let region = Region::within(header.upright(), requested, unit)?;
    let new = u64::from(region.width) * u64::from(region.height) * channels(&header);
    check_memory(&title, &header, &bytes, additional_bytes(&header, new))?;
    let picture = decode(&title, &bytes, &header)?;
    drop(bytes);
    let stored = region.stored(header.orientation, (header.width, header.height));
    let mut cut = picture.crop_imm(stored.x, stored.y, stored.width, stored.height);
    drop(picture);
    cut.apply_orientation(header.orientation);
    let format = format.unwrap_or_else(|| Format::for_new_picture(header.format, header.colour.has_alpha()));
    let Region { x, y, width, height } = region;
    let text = format!("The rectangle of {width} × {height} pixels at {x}, {y} of {title}");
    deliver(cut, format, (&name, "crop"), &text)
}

/// Runs `image.scale`.
pub(crate) fn scale(Scale { from, width, height, format }: Scale) -> Result<Done, ToolError> {
    let limits = within_bounds(width, height)?;
    let LoadedPicture { title, name, bytes } = from.load()?;
    let header = Header::read(&title, &bytes)?;
    let upright = header.upright();
    let size = fitted(upright, limits);
    let pixels = u64::from(size.0) * u64::from(size.1);
    let enlarged = size.0 > upright.0 || size.1 > upright.1;
    if enlarged && pixels > MAX_ENLARGED {
        let message = format!("would create {pixels} pixels; an enlarged picture has at most {MAX_ENLARGED}");
        return Err(ToolError::invalid(if width.is_some() { "/width" } else { "/height" }, message));
    }
    let filter = if enlarged { pixels * FILTER_BYTES } else { 0 };
    check_memory(
        &title,
        &header,
        &bytes,
        additional_bytes(&header, pixels * channels(&header)).saturating_add(filter),
    )?;
    let picture = decode(&title, &bytes, &header)?;
    drop(bytes);
    let stored = if is_sideways(header.orientation) { (size.1, size.0) } else { size };
    let mut scaled = resampled(picture, stored);
    scaled.apply_orientation(header.orientation);
    let format = format.unwrap_or_else(|| Format::for_new_picture(header.format, header.colour.has_alpha()));
    let text = format!("{title} ({} × {} pixels), scaled,", upright.0, upright.1);
    deliver(scaled, format, (&name, &format!("{}x{}", size.0, size.1)), &text)
}

fn resampled(picture: DynamicImage, size: (u32, u32)) -> DynamicImage {
    if size == (picture.width(), picture.height()) {
        picture
    } else if size.0 <= picture.width() && size.1 <= picture.height() {
        reduced(&picture, size)
    } else {
        picture.resize_exact(size.0, size.1, FilterType::CatmullRom)
    }
}

/// Returns how many bytes of memory the new picture needs in addition to the decoded picture. Turning and encoding the
/// new picture needs three times the size of the new picture, but the decoded picture is freed before these steps.
fn additional_bytes(header: &Header, new: u64) -> u64 {
    let decoded = header.pixels().saturating_mul(channels(header));
    new.max(new.saturating_mul(3).saturating_sub(decoded))
}

fn channels(header: &Header) -> u64 {
    u64::from(header.colour.channel_count())
}

fn within_bounds(width: Option<u32>, height: Option<u32>) -> Result<(u32, u32), ToolError> {
    for (pointer, side) in [("/width", width), ("/height", height)] {
        if side.is_some_and(|side| !(1..=MAX_SIDE).contains(&side)) {
            return Err(ToolError::invalid(pointer, format!("must be 1 to {MAX_SIDE}")));
        }
    }
    match (width, height) {
        (None, None) => Err(ToolError::invalid("", "needs `width` or `height`, or both")),
        _ => Ok((width.unwrap_or(MAX_SIDE), height.unwrap_or(MAX_SIDE))),
    }
}

/// Returns the largest size that has the proportions of the first size and fits into the second size.
fn fitted((width, height): (u32, u32), (max_width, max_height): (u32, u32)) -> (u32, u32) {
    let factor = (f64::from(max_width) / f64::from(width)).min(f64::from(max_height) / f64::from(height));
    let side = |pixels: u32, max: u32| ((f64::from(pixels) * factor).round() as u32).clamp(1, max);
    (side(width, max_width), side(height, max_height))
}

#[cfg(test)]
mod tests {
    use super::fitted;

    #[test]
    fn fits_sizes_in_proportion() {
        for (size, max_size, expected) in [
            ((4_000, 3_000), (1_000, 16_384), (1_000, 750)),
            ((4_000, 3_000), (1_000, 300), (400, 300)),
            ((10, 20), (16_384, 100), (50, 100)),
            ((30_000, 2), (100, 100), (100, 1)),
            ((3, 3), (2, 2), (2, 2)),
        ] {
            assert_eq!(fitted(size, max_size), expected, "{size:?} in {max_size:?}");
        }
    }
}
