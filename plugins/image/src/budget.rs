//! Estimates from the header of a picture how much memory decoding the picture needs, and checks that the call has this
//! much memory. The header of a very small file may claim that the picture has very many pixels.

use crate::header::Header;
use agent_host_sdk::prelude::*;
use image::{ColorType, ImageFormat};

/// Maximum number of pixels of a picture. A call has at most 256 MiB of memory, and a pixel needs at least 4 bytes.
pub(crate) const MAX_PIXELS: u64 = 64_000_000;
/// Maximum number of bytes of memory that a call can have.
pub(crate) const MAX_MEMORY: u64 = 256 * 1024 * 1024;

/// Rejects a picture with more than [`MAX_PIXELS`] pixels.
pub(crate) fn check_pixels(title: &str, pixels: u64) -> Result<(), ToolError> {
    if pixels <= MAX_PIXELS {
        return Ok(());
    }
    let (claimed, limit) = (megapixels(pixels), megapixels(MAX_PIXELS));
    Err(ToolError::failed(format!("`{title}` claims {claimed} megapixels; the limit is {limit}")))
}

/// Rejects a picture if the call does not have enough memory to decode the picture and to create the result. Creating
/// the result needs `result_bytes` bytes. Without this check, the call would run out of memory without a clear error.
pub(crate) fn check_memory(title: &str, header: &Header, bytes: &[u8], result_bytes: u64) -> Result<(), ToolError> {
    let needed = decoding_bytes(header, bytes).saturating_add(result_bytes);
    let free = usize::try_from(needed).is_ok_and(|needed| Vec::<u8>::new().try_reserve_exact(needed).is_ok());
    if needed <= MAX_MEMORY && free {
        return Ok(());
    }
    let (claimed, mib) = (megapixels(header.pixels()), needed.div_ceil(1024 * 1024));
    let advice = match needed.saturating_mul(5) / 4 <= MAX_MEMORY {
        true => "raise `memory_mib` in [plugins.image.limits] of agent.toml (64 by default, at most 256)",
        false => "no call is allowed that much memory: use a smaller picture",
    };
    Err(ToolError::failed(format!(
        "`{title}` has {claimed} megapixels; processing it takes about {mib} MiB of memory, and this call has less: {advice}"
    )))
}

/// Returns the number of bytes that the decoder needs, including the decoded picture.
fn decoding_bytes(header: &Header, bytes: &[u8]) -> u64 {
    let stored = u64::from(header.colour.bytes_per_pixel());
    let eight_bits = match header.colour {
        ColorType::L16 | ColorType::La16 | ColorType::Rgb16 | ColorType::Rgba16 => stored / 2,
        _ => 0,
    };
    let extra = match header.format {
        // While a progressive JPEG is decoded, the decoder stores the coefficients of the complete picture.
        ImageFormat::Jpeg if is_progressive(bytes) => 6,
        ImageFormat::Jpeg => 0,
        ImageFormat::WebP => 4,
        ImageFormat::Gif => 1,
        _ => 0,
    };
    let file_copy = if header.format == ImageFormat::Jpeg { bytes.len() as u64 } else { 0 };
    header.pixels().saturating_mul(stored + eight_bits + extra).saturating_add(file_copy)
}

/// Whether a JPEG is progressive, according to its start-of-frame marker.
fn is_progressive(bytes: &[u8]) -> bool {
    let mut offset = 2;
    while let Some([0xff, marker, high, low]) = bytes.get(offset..offset + 4) {
        match marker {
            // A byte 0xFF before a marker is padding.
            0xff => offset += 1,
            0xc0 | 0xc1 | 0xda => return false,
            0xc2 => return true,
            _ => offset += 2 + usize::from(u16::from_be_bytes([*high, *low])),
        }
    }
    false
}

fn megapixels(pixels: u64) -> String {
    let tenths = pixels.div_ceil(100_000);
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::metadata::Orientation;

    #[test]
    fn finds_progressive_frame_after_other_segments() {
        let baseline = [0xff, 0xd8, 0xff, 0xe0, 0, 4, 1, 2, 0xff, 0xff, 0xc0, 0, 0];
        assert!(!is_progressive(&baseline));
        let mut progressive = baseline;
        progressive[10] = 0xc2;
        assert!(is_progressive(&progressive));
        for broken in [&progressive[..9], &[][..], &[0xff, 0xd8, 0, 0, 0, 0][..]] {
            assert!(!is_progressive(broken));
        }
    }

    #[test]
    fn row_34_estimates_memory_from_header() {
        let header = |format, colour, width| Header {
            format,
            width,
            height: 1_000,
            colour,
            orientation: Orientation::NoTransforms,
        };
        assert_eq!(decoding_bytes(&header(ImageFormat::Png, ColorType::Rgba8, 10), &[]), 40_000);
        assert_eq!(decoding_bytes(&header(ImageFormat::Png, ColorType::Rgb16, 10), &[]), 90_000);
        assert_eq!(decoding_bytes(&header(ImageFormat::Jpeg, ColorType::Rgb8, 10), &[0; 7]), 30_007);
        let photo = header(ImageFormat::Jpeg, ColorType::Rgb8, 12_000);
        assert!(check_memory("photo", &photo, &[0; 7], 0).is_ok());
        let huge = header(ImageFormat::Png, ColorType::Rgba16, 60_000);
        let message = check_memory("huge", &huge, &[], 0).expect_err("more than any call has").message();
        assert!(
            message.contains("60.0 megapixels") && message.contains("no call is allowed that much memory"),
            "{message}"
        );
        assert_eq!(megapixels(3_600_000_000), "3600.0");
    }
}
