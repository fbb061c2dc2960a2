//! Scales one picture down: checks the size that the picture's header declares and the memory that decoding would use,
//! and then decodes, resamples and encodes the picture. The functions of this module block the thread, and their
//! results depend only on their arguments.

use agent_core::message::Dimensions;
use agent_models::MediaBytes;
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};
use std::io::Cursor;

/// Maximum number of bytes of memory that one picture may use while it is decoded. The limit is necessary because a
/// small file can declare very large dimensions.
pub(super) const MAX_DECODING_BYTES: u64 = 256 << 20;
/// JPEG quality with which scaled pictures are encoded, from 1 to 100.
const JPEG_QUALITY: u8 = 88;

/// The reason why a picture can never be scaled down. The reason lies in the bytes of the picture, so another attempt
/// would fail in the same way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unscalable {
    /// The format of the picture is not supported.
    #[error("only PNG, JPEG, GIF and WebP pictures can be made smaller")]
    Format,
    /// According to the header, decoding would use more than [`MAX_DECODING_BYTES`] of memory.
    #[error(
        "its header declares {width} × {height} pixels, which take more than {} MiB of memory",
        MAX_DECODING_BYTES >> 20
    )]
    TooLarge {
        /// Width that the picture's header declares, in pixels.
        width: u32,
        /// Height that the picture's header declares, in pixels.
        height: u32,
    },
    /// The picture is damaged, or uses an unsupported feature of its format.
    #[error("it cannot be decoded: {0}")]
    Unreadable(String),
}

/// The result of scaling a picture.
#[derive(Debug, PartialEq)]
pub(super) enum Reduced {
    /// The picture is small enough, so it is sent unchanged.
    Fits,
    /// The scaled picture, which is sent instead of the original.
    Scaled(MediaBytes),
}

/// Scales a picture down to at most this width and height. The picture keeps its proportions and is rotated according
/// to its EXIF orientation. The result contains only the first frame of an animation. The scaled picture is a PNG if it
/// has transparent pixels, and otherwise a JPEG.
pub(super) fn reduced(bytes: &[u8], to: Dimensions) -> Result<Reduced, Unscalable> {
    let format = image::guess_format(bytes).map_err(|_| Unscalable::Format)?;
    if !matches!(format, ImageFormat::Png | ImageFormat::Jpeg | ImageFormat::Gif | ImageFormat::WebP) {
        return Err(Unscalable::Format);
    }
    let mut decoder = reader(bytes, format).into_decoder().map_err(decoding_error)?;
    let (width, height) = decoder.dimensions();
    if width == 0 || height == 0 {
        return Err(Unscalable::Unreadable("it has no pixels".to_owned()));
    }
    if width <= to.width && height <= to.height {
        return Ok(Reduced::Fits);
    }
    let pixels = u64::from(width) * u64::from(height);
    let bytes_per_pixel = working_bytes(format, u64::from(decoder.color_type().bytes_per_pixel()), bytes);
    if pixels.saturating_mul(bytes_per_pixel) > MAX_DECODING_BYTES {
        return Err(Unscalable::TooLarge { width, height });
    }
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    drop(decoder);
    let picture = with_eight_bits(reader(bytes, format).decode().map_err(decoding_error)?);
    let mut small = area_average::reduced(&picture, fitting_size((width, height), to));
    drop(picture);
    // The scaled picture has no EXIF data that could describe its orientation, so its pixels are rotated here.
    small.apply_orientation(orientation);
    encode_picture(small).map(Reduced::Scaled).map_err(decoding_error)
}

fn reader(bytes: &[u8], format: ImageFormat) -> ImageReader<Cursor<&[u8]>> {
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_DECODING_BYTES);
    reader.limits(limits);
    reader
}

fn decoding_error(error: image::ImageError) -> Unscalable {
    Unscalable::Unreadable(error.to_string())
}

/// Estimates how many bytes of memory per pixel are used to decode a picture. The estimate is the sum of
/// `decoded`, which is the size of a decoded pixel, and the additional memory that the decoder or the conversion
/// to 8 bits per channel needs.
fn working_bytes(format: ImageFormat, decoded: u64, bytes: &[u8]) -> u64 {
    match format {
        // For a progressive JPEG, the decoder must keep the coefficients of the complete picture in memory before it
        // produces the first pixel.
        ImageFormat::Jpeg if is_progressive(bytes) => decoded + 6,
        ImageFormat::Jpeg => decoded,
        ImageFormat::WebP => decoded + 4,
        ImageFormat::Gif => decoded + 1,
        // Pictures with 16 bits per channel are converted to 8 bits per channel.
        _ if decoded == 2 || decoded > 4 => decoded + decoded / 2,
        _ => decoded,
    }
}

/// Whether a JPEG file is progressive, according to its start-of-frame marker.
fn is_progressive(bytes: &[u8]) -> bool {
    let mut offset = 2;
    while let Some([0xff, marker, high, low]) = bytes.get(offset..offset + 4) {
        match marker {
            // This byte is a fill byte before the next marker.
            0xff => offset += 1,
            0xc0 | 0xc1 | 0xda => return false,
            0xc2 => return true,
            _ => offset += 2 + usize::from(u16::from_be_bytes([*high, *low])),
        }
    }
    false
}

fn with_eight_bits(picture: DynamicImage) -> DynamicImage {
    match picture {
        DynamicImage::ImageLuma16(_) => DynamicImage::ImageLuma8(picture.into_luma8()),
        DynamicImage::ImageLumaA16(_) => DynamicImage::ImageLumaA8(picture.into_luma_alpha8()),
        DynamicImage::ImageRgb16(_) => DynamicImage::ImageRgb8(picture.into_rgb8()),
        DynamicImage::ImageRgba16(_) => DynamicImage::ImageRgba8(picture.into_rgba8()),
        eight_bits => eight_bits,
    }
}

/// Returns the largest size that has the proportions of `width` and `height` and fits into `to`. Width and height are
/// at least one pixel.
fn fitting_size((width, height): (u32, u32), to: Dimensions) -> (u32, u32) {
    let factor = (f64::from(to.width) / f64::from(width)).min(f64::from(to.height) / f64::from(height));
    let side = |pixels: u32, max: u32| ((f64::from(pixels) * factor).round() as u32).clamp(1, max);
    (side(width, to.width), side(height, to.height))
}

fn encode_picture(picture: DynamicImage) -> Result<MediaBytes, image::ImageError> {
    let mut bytes = Vec::new();
    let mime_type = if is_transparent(&picture) {
        picture.write_with_encoder(PngEncoder::new(&mut bytes))?;
        "image/png"
    } else {
        let picture = match picture.color().has_color() {
            true => DynamicImage::ImageRgb8(picture.into_rgb8()),
            false => DynamicImage::ImageLuma8(picture.into_luma8()),
        };
        picture.write_with_encoder(JpegEncoder::new_with_quality(&mut bytes, JPEG_QUALITY))?;
        "image/jpeg"
    };
    Ok(MediaBytes { mime_type: mime_type.to_owned(), bytes: bytes.into() })
}

/// Whether any pixel of the picture is transparent. A check for an alpha channel is not sufficient, because many
/// screenshots have an alpha channel but no transparent pixels.
fn is_transparent(picture: &DynamicImage) -> bool {
    let color = picture.color();
    let channels = usize::from(color.channel_count());
    color.has_alpha() && picture.as_bytes().chunks_exact(channels).any(|pixel| pixel[channels - 1] < u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::{ImageEncoder, Luma, Rgb, RgbImage, Rgba, RgbaImage};

    fn size(width: u32, height: u32) -> Dimensions {
        Dimensions { width, height }
    }

    fn written(picture: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        picture.into().write_to(&mut bytes, format).expect("encoded");
        bytes.into_inner()
    }

    fn scaled_format_and_picture(bytes: &[u8], to: Dimensions) -> (String, DynamicImage) {
        match reduced(bytes, to) {
            Ok(Reduced::Scaled(media)) => {
                (media.mime_type.clone(), image::load_from_memory(&media.bytes).expect("a picture"))
            }
            other => panic!("{other:?}"),
        }
    }

    /// P4: pictures of every format keep their proportions when they are scaled. The scaled picture is a PNG only if it
    /// has transparent pixels.
    #[test]
    fn p4_pictures_are_scaled_down_in_proportion() {
        let opaque = || RgbaImage::from_pixel(400, 100, Rgba([200, 100, 0, 255]));
        let veil = || RgbaImage::from_pixel(400, 100, Rgba([200, 100, 0, 128]));
        let photo = || RgbImage::from_pixel(400, 100, Rgb([200, 100, 0]));
        let sixteen = image::ImageBuffer::from_pixel(400, 100, Luma([40_000_u16]));
        for (name, bytes, expected) in [
            ("opaque PNG", written(opaque(), ImageFormat::Png), "image/jpeg"),
            ("transparent PNG", written(veil(), ImageFormat::Png), "image/png"),
            ("16 bits", written(DynamicImage::ImageLuma16(sixteen), ImageFormat::Png), "image/jpeg"),
            ("JPEG", written(photo(), ImageFormat::Jpeg), "image/jpeg"),
            ("GIF", written(opaque(), ImageFormat::Gif), "image/jpeg"),
            ("WebP", written(photo(), ImageFormat::WebP), "image/jpeg"),
            ("transparent WebP", written(veil(), ImageFormat::WebP), "image/png"),
        ] {
            let (mime_type, small) = scaled_format_and_picture(&bytes, size(100, 100));
            assert_eq!((mime_type.as_str(), small.width(), small.height()), (expected, 100, 25), "{name}");
            if name != "16 bits" {
                let Rgba([red, green, blue, _]) = *small.to_rgba8().get_pixel(50, 12);
                assert!(red.abs_diff(200) < 4 && green.abs_diff(100) < 4 && blue < 4, "{name}: {red} {green} {blue}");
            }
        }
    }

    #[test]
    fn pictures_that_fit_are_left_unchanged_and_none_is_enlarged() {
        let bytes = written(RgbImage::new(40, 30), ImageFormat::Png);
        assert_eq!(reduced(&bytes, size(40, 30)), Ok(Reduced::Fits));
        assert_eq!(reduced(&bytes, size(4_000, 3_000)), Ok(Reduced::Fits));
        let (_, small) = scaled_format_and_picture(&bytes, size(4_000, 15));
        assert_eq!((small.width(), small.height()), (20, 15));
        let (_, strip) = scaled_format_and_picture(&written(RgbImage::new(3_000, 2), ImageFormat::Png), size(100, 100));
        assert_eq!((strip.width(), strip.height()), (100, 1));
    }

    /// If a picture is scaled in two requests, the resulting bytes must be identical, because otherwise the second
    /// request would not match the provider's prompt cache.
    #[test]
    fn scaling_the_same_picture_twice_returns_the_same_bytes() {
        let noise = RgbImage::from_fn(301, 203, |x, y| Rgb([(x * y) as u8, (x ^ y) as u8, (x + y) as u8]));
        let bytes = written(noise, ImageFormat::Png);
        assert_eq!(reduced(&bytes, size(97, 97)), reduced(&bytes, size(97, 97)));
    }

    #[test]
    fn the_exif_orientation_is_applied() {
        let left_red = RgbImage::from_fn(200, 100, |x, _| if x < 100 { Rgb([255, 0, 0]) } else { Rgb([0, 0, 255]) });
        let mut exif = b"II\x2a\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
        exif.extend([Orientation::Rotate90.to_exif(), 0, 0, 0, 0, 0, 0, 0]);
        let mut bytes = Vec::new();
        let mut encoder = JpegEncoder::new_with_quality(&mut bytes, 95);
        encoder.set_exif_metadata(exif).expect("EXIF");
        encoder.encode_image(&left_red).expect("encoded");
        let (_, small) = scaled_format_and_picture(&bytes, size(100, 50));
        assert_eq!((small.width(), small.height()), (50, 100));
        let top = *small.to_rgb8().get_pixel(25, 10);
        assert!(top.0[0] > 200 && top.0[2] < 60, "the left side is now at the top: {top:?}");
    }

    /// Row 34: a picture whose header declares too many pixels is refused before it is decoded.
    #[test]
    fn row_34_a_decompression_bomb_is_refused_before_it_is_decoded() {
        let mut bomb = written(DynamicImage::new_luma8(1, 1), ImageFormat::Png);
        bomb[16..20].copy_from_slice(&60_000_u32.to_be_bytes());
        bomb[20..24].copy_from_slice(&60_000_u32.to_be_bytes());
        let refused = reduced(&bomb, size(100, 100));
        assert!(matches!(&refused, Err(Unscalable::Unreadable(text)) if text.contains("CRC")), "{refused:?}");
        let sum = !bomb[12..29].iter().fold(u32::MAX, |sum, byte| {
            (0..8).fold(sum ^ u32::from(*byte), |sum, _| if sum & 1 == 1 { 0xedb8_8320 ^ (sum >> 1) } else { sum >> 1 })
        });
        bomb[29..33].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(reduced(&bomb, size(100, 100)), Err(Unscalable::TooLarge { width: 60_000, height: 60_000 }));
        assert!(bomb.len() < 100);
    }

    #[test]
    fn pictures_that_cannot_be_decoded_are_refused_with_a_reason() {
        assert_eq!(reduced(b"<svg/>", size(1, 1)), Err(Unscalable::Format));
        assert_eq!(reduced(b"BM\0\0\0\0", size(1, 1)), Err(Unscalable::Format));
        let empty = b"GIF89a\0\0\x10\x27\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02\x44\x01\0;";
        assert_eq!(reduced(empty, size(8, 8)), Err(Unscalable::Unreadable("it has no pixels".to_owned())));
        let mut cut = written(RgbImage::from_fn(64, 64, |x, y| Rgb([x as u8, y as u8, 0])), ImageFormat::Png);
        cut.truncate(90);
        assert!(matches!(reduced(&cut, size(8, 8)), Err(Unscalable::Unreadable(_))));
    }
}
