//! Decodes the stored pixels of a picture to 8 bits per channel. The decoded picture has the orientation of the stored
//! picture, and is not turned upright.

use crate::header::{Header, limits};
use agent_host_sdk::prelude::*;
use image::{DynamicImage, ImageReader};
use std::io::Cursor;

/// Decodes a picture, or the first frame of an animation. The caller must first check that the call has enough memory.
pub(crate) fn decode(title: &str, bytes: &[u8], header: &Header) -> Result<DynamicImage, ToolError> {
    let mut reader = ImageReader::with_format(Cursor::new(bytes), header.format);
    reader.limits(limits());
    let picture = reader.decode();
    let picture = picture.map_err(|error| ToolError::failed(format!("`{title}` cannot be decoded: {error}")))?;
    Ok(match picture {
        DynamicImage::ImageLuma16(_) => DynamicImage::ImageLuma8(picture.into_luma8()),
        DynamicImage::ImageLumaA16(_) => DynamicImage::ImageLumaA8(picture.into_luma_alpha8()),
        DynamicImage::ImageRgb16(_) => DynamicImage::ImageRgb8(picture.into_rgb8()),
        DynamicImage::ImageRgba16(_) => DynamicImage::ImageRgba8(picture.into_rgba8()),
        eight_bits => eight_bits,
    })
}
