//! Reduces the size of images by area averaging: each new pixel is the mean of the area that it covers.
//!
//! Resizing takes time linear in the size of the image, causes no moiré, and allocates only the new image. The filters
//! of the `image` crate allocate 16 bytes per pixel, which does not fit into the memory of a guest. The host and the
//! image plugin use this crate, so that both produce the same pixels.
//!
//! ```
//! use image::{DynamicImage, GrayImage};
//!
//! let image = GrayImage::from_raw(4, 1, vec![0, 100, 200, 100]).map(DynamicImage::ImageLuma8).unwrap();
//! assert_eq!(area_average::reduced(&image, (2, 1)).as_bytes(), [50, 150]);
//! ```

use image::{DynamicImage, GrayAlphaImage, GrayImage, RgbImage, RgbaImage};

/// Returns the image reduced to a new width and height, in pixels. The image is never enlarged: if the new width or
/// height is larger than that of the image, the width or height of the image is kept.
///
/// The image must have 8 bits per channel. If the image has an alpha channel, its transparent pixels do not affect the
/// colours of neighbouring pixels.
pub fn reduced(picture: &DynamicImage, (width, height): (u32, u32)) -> DynamicImage {
    let from = (picture.width(), picture.height());
    let to = (width.min(from.0), height.min(from.1));
    let color = picture.color();
    let bytes = match color.channel_count() {
        1 => channel_means::<1>(picture.as_bytes(), from, to),
        2 => channel_means::<2>(picture.as_bytes(), from, to),
        3 => channel_means::<3>(picture.as_bytes(), from, to),
        _ => channel_means::<4>(picture.as_bytes(), from, to),
    };
    let (width, height) = to;
    let new_picture = match color.channel_count() {
        1 => GrayImage::from_raw(width, height, bytes).map(DynamicImage::ImageLuma8),
        2 => GrayAlphaImage::from_raw(width, height, bytes).map(DynamicImage::ImageLumaA8),
        3 => RgbImage::from_raw(width, height, bytes).map(DynamicImage::ImageRgb8),
        _ => RgbaImage::from_raw(width, height, bytes).map(DynamicImage::ImageRgba8),
    };
    new_picture.unwrap_or_default()
}

/// The old pixels along one axis that one new pixel covers, and how much of each old pixel is covered.
struct Span {
    /// Index of the first covered old pixel, counted along the axis.
    first: usize,
    /// For each old pixel in the span, the fraction of the pixel that is covered, from 0 (nothing) to 1 (the
    /// whole pixel).
    shares: Vec<f32>,
}

/// Returns, for each new pixel along one axis, the span of old pixels that it covers. The axis is resized from `from`
/// to `to` pixels.
fn spans(from: u32, to: u32) -> Vec<Span> {
    let ratio = f64::from(from) / f64::from(to);
    let spans = (0..to).map(|index| {
        let (begin, end) = (f64::from(index) * ratio, f64::from(index + 1) * ratio);
        let last = (end.ceil() as usize).min(from as usize);
        let first = (begin.floor() as usize).min(last.saturating_sub(1));
        let share = |pixel: usize| (end.min(pixel as f64 + 1.0) - begin.max(pixel as f64)) as f32;
        Span { first, shares: (first..last).map(share).collect() }
    });
    spans.collect()
}

/// Returns the channel values of all new pixels, row by row. If there are two or four channels, the last channel is
/// alpha, and transparent old pixels do not affect the colours of the new pixels.
fn channel_means<const CHANNELS: usize>(pixels: &[u8], from: (u32, u32), to: (u32, u32)) -> Vec<u8> {
    let has_alpha = CHANNELS.is_multiple_of(2);
    let row = from.0 as usize * CHANNELS;
    let (across, down) = (spans(from.0, to.0), spans(from.1, to.1));
    let mut bytes = Vec::with_capacity(across.len() * down.len() * CHANNELS);
    for vertical in &down {
        for horizontal in &across {
            let (mut sums, mut weight, mut area) = ([0.0_f32; CHANNELS], 0.0, 0.0);
            for (y, height) in (vertical.first..).zip(&vertical.shares) {
                let begin = y * row + horizontal.first * CHANNELS;
                let covered = pixels[begin..].chunks_exact(CHANNELS).zip(&horizontal.shares);
                for (pixel, width) in covered {
                    let share = width * height;
                    let visible = if has_alpha { share * f32::from(pixel[CHANNELS - 1]) / 255.0 } else { share };
                    for (sum, channel) in sums.iter_mut().zip(pixel) {
                        *sum += f32::from(*channel) * visible;
                    }
                    weight += visible;
                    area += share;
                }
            }
            let mean = |sum: f32| if weight > 0.0 { (sum / weight).round() as u8 } else { 0 };
            bytes.extend(sums.map(mean));
            if has_alpha && let Some(alpha) = bytes.last_mut() {
                *alpha = (weight / area * 255.0).round() as u8;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pixel_is_the_mean_of_its_area() {
        let grey = |width, bytes: &[u8]| {
            let height = bytes.len() as u32 / width;
            DynamicImage::ImageLuma8(GrayImage::from_raw(width, height, bytes.to_vec()).expect("pixels"))
        };
        assert_eq!(reduced(&grey(4, &[0, 100, 200, 100, 0, 100, 0, 100]), (2, 1)), grey(2, &[50, 100]));
        assert_eq!(reduced(&grey(3, &[0, 90, 180]), (2, 1)), grey(2, &[30, 150]), "the middle pixel counts half");
        assert_eq!(reduced(&grey(2, &[7, 9]), (9, 9)), grey(2, &[7, 9]), "nothing is enlarged");
    }

    #[test]
    fn transparent_pixels_do_not_affect_colours() {
        let pixels = vec![200, 0, 0, 255, 0, 255, 0, 0];
        let picture = DynamicImage::ImageRgba8(RgbaImage::from_raw(2, 1, pixels).expect("pixels"));
        assert_eq!(reduced(&picture, (1, 1)).as_bytes(), [200, 0, 0, 128]);
        let empty = DynamicImage::ImageLumaA8(GrayAlphaImage::from_raw(2, 1, vec![9, 0, 9, 0]).expect("pixels"));
        assert_eq!(reduced(&empty, (1, 1)).as_bytes(), [0, 0]);
    }

    #[test]
    fn a_uniform_picture_stays_uniform_at_every_size() {
        let picture = DynamicImage::ImageRgb8(RgbImage::from_pixel(97, 61, image::Rgb([10, 200, 255])));
        for size in [(1, 1), (96, 60), (50, 3), (97, 61), (13, 59)] {
            let small = reduced(&picture, size);
            assert_eq!((small.width(), small.height()), size);
            assert!(small.as_bytes().chunks(3).all(|pixel| pixel == [10, 200, 255]), "{size:?}");
        }
    }
}
