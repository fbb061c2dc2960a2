//! Converts rectangles of the upright picture to rectangles of the stored picture.

use agent_host_sdk::prelude::*;
use image::metadata::Orientation;

/// The unit of positions and lengths.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    /// Pixels of the original.
    #[default]
    Pixels,
    /// Percent of the original's width (for `x` and `width`) and height (for `y` and `height`).
    Percent,
}

/// A rectangle in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Region {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
}

/// A requested range on one axis. Both values are in the unit that the call chose.
#[derive(Clone, Copy)]
pub(crate) struct RequestedRange {
    pub(crate) from: f64,
    pub(crate) length: f64,
}

impl Region {
    /// Returns the part of the requested rectangle that is inside a picture of the given size.
    pub(crate) fn within(
        (width, height): (u32, u32),
        (across, down): (RequestedRange, RequestedRange),
        unit: Unit,
    ) -> Result<Self, ToolError> {
        let (x, width) = range(across, width, unit, ("/x", "/width"))?;
        let (y, height) = range(down, height, unit, ("/y", "/height"))?;
        Ok(Self { x, y, width, height })
    }

    /// Converts this region of the upright picture to the same region of the stored picture. The last argument is the
    /// width and height of the stored picture.
    pub(crate) fn stored(self, orientation: Orientation, (width, height): (u32, u32)) -> Self {
        let Self { x, y, width: across, height: down } = self;
        let (right, below) = (x + across, y + down);
        let sideways = |x, y| Self { x, y, width: down, height: across };
        match orientation {
            Orientation::NoTransforms => self,
            Orientation::FlipHorizontal => Self { x: width - right, ..self },
            Orientation::FlipVertical => Self { y: height - below, ..self },
            Orientation::Rotate180 => Self { x: width - right, y: height - below, ..self },
            Orientation::Rotate90 => sideways(y, height - right),
            Orientation::Rotate270 => sideways(width - below, x),
            Orientation::Rotate90FlipH => sideways(y, x),
            Orientation::Rotate270FlipH => sideways(width - below, height - right),
        }
    }
}

/// Returns the index of the first pixel that the range touches, and the number of pixels that cover the range.
fn range(
    requested: RequestedRange,
    side: u32,
    unit: Unit,
    (from, length): (&str, &str),
) -> Result<(u32, u32), ToolError> {
    let pixels = match unit {
        Unit::Pixels => 1.0,
        Unit::Percent => f64::from(side) / 100.0,
    };
    if requested.length.is_nan() || requested.length <= 0.0 {
        return Err(ToolError::invalid(length, "must be more than 0"));
    }
    let (first, last) = (requested.from * pixels, (requested.from + requested.length) * pixels);
    if first < 0.0 || first >= f64::from(side) || !last.is_finite() {
        let whole_side = match unit {
            Unit::Pixels => format!("{side} pixels"),
            Unit::Percent => "100 percent".to_owned(),
        };
        return Err(ToolError::invalid(
            from,
            format!("is outside of the picture, which has {whole_side} on this side"),
        ));
    }
    // After rounding and limiting, `first` and `last` are between 0 and the length of the side.
    let (first, last) = (first.floor() as u32, last.ceil().min(f64::from(side)) as u32);
    Ok((first, (last - first).max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::is_sideways;
    use image::{DynamicImage, GrayImage, Luma};

    #[test]
    fn finds_region_in_every_orientation() {
        let stored = DynamicImage::ImageLuma8(GrayImage::from_fn(7, 5, |x, y| Luma([(y * 7 + x) as u8])));
        for exif in 1..=8 {
            let orientation = Orientation::from_exif(exif).expect("1 to 8");
            let mut upright = stored.clone();
            upright.apply_orientation(orientation);
            assert_eq!(is_sideways(orientation), upright.width() == 5, "{orientation:?}");
            let wanted = Region { x: 1, y: 2, width: 3, height: 2 };
            let found = wanted.stored(orientation, (7, 5));
            let mut cut = stored.crop_imm(found.x, found.y, found.width, found.height);
            cut.apply_orientation(orientation);
            assert_eq!(cut, upright.crop_imm(1, 2, 3, 2), "{orientation:?}");
        }
    }

    #[test]
    fn clips_ranges_to_the_picture() {
        let clipped = |from, length, unit| range(RequestedRange { from, length }, 200, unit, ("/x", "/width"));
        assert_eq!(clipped(10.0, 20.0, Unit::Pixels), Ok((10, 20)));
        assert_eq!(clipped(190.0, 50.0, Unit::Pixels), Ok((190, 10)));
        assert_eq!(clipped(25.0, 50.0, Unit::Percent), Ok((50, 100)));
        assert_eq!(clipped(0.2, 0.1, Unit::Percent), Ok((0, 1)));
        for (from, length) in
            [(-1.0, 5.0), (200.0, 5.0), (0.0, 0.0), (0.0, f64::NAN), (f64::NAN, 1.0), (0.0, 1e308 * 10.0)]
        {
            assert!(
                matches!(clipped(from, length, Unit::Pixels), Err(ToolError::InvalidArguments(_))),
                "{from} {length}"
            );
        }
    }
}
