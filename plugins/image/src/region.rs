//! A rectangle of the upright picture, and where its pixels are stored.

use agent_host_sdk::prelude::*;
use image::metadata::Orientation;

/// What positions and lengths are counted in.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    /// Pixels of the original.
    #[default]
    Pixels,
    /// Hundredths of the original's width (for `x` and `width`) and height (for `y` and `height`).
    Percent,
}

/// Pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Region {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
}

/// A range of one axis, as it was asked for.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) from: f64,
    pub(crate) length: f64,
}

impl Region {
    /// What was asked for of a picture of that size, without what lies outside of it.
    pub(crate) fn within(
        (width, height): (u32, u32),
        (across, down): (Asked, Asked),
        unit: Unit,
    ) -> Result<Self, ToolError> {
        let (x, width) = range(across, width, unit, ("/x", "/width"))?;
        let (y, height) = range(down, height, unit, ("/y", "/height"))?;
        Ok(Self { x, y, width, height })
    }

    /// Where the pixels of this region of the upright picture are, in the picture of that size as it is stored.
    pub(crate) fn stored(self, orientation: Orientation, (width, height): (u32, u32)) -> Self {
        let Self { x, y, width: across, height: down } = self;
        let (right, below) = (x + across, y + down);
        let lying = |x, y| Self { x, y, width: down, height: across };
        match orientation {
            Orientation::NoTransforms => self,
            Orientation::FlipHorizontal => Self { x: width - right, ..self },
            Orientation::FlipVertical => Self { y: height - below, ..self },
            Orientation::Rotate180 => Self { x: width - right, y: height - below, ..self },
            Orientation::Rotate90 => lying(y, height - right),
            Orientation::Rotate270 => lying(width - below, x),
            Orientation::Rotate90FlipH => lying(y, x),
            Orientation::Rotate270FlipH => lying(width - below, height - right),
        }
    }
}

/// Whole pixels that hold the range, and their number.
fn range(asked: Asked, side: u32, unit: Unit, (from, length): (&str, &str)) -> Result<(u32, u32), ToolError> {
    let pixels = match unit {
        Unit::Pixels => 1.0,
        Unit::Percent => f64::from(side) / 100.0,
    };
    if asked.length.is_nan() || asked.length <= 0.0 {
        return Err(ToolError::invalid(length, "must be more than 0"));
    }
    let (first, last) = (asked.from * pixels, (asked.from + asked.length) * pixels);
    if first < 0.0 || first >= f64::from(side) || !last.is_finite() {
        let all = match unit {
            Unit::Pixels => format!("{side} pixels"),
            Unit::Percent => "100 percent".to_owned(),
        };
        return Err(ToolError::invalid(from, format!("lies outside of the picture, which has {all} on this side")));
    }
    // Both fit: they lie between 0 and the side.
    let (first, last) = (first.floor() as u32, last.ceil().min(f64::from(side)) as u32);
    Ok((first, (last - first).max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::lies;
    use image::{DynamicImage, GrayImage, Luma};

    #[test]
    fn a_region_is_found_in_every_orientation() {
        let stored = DynamicImage::ImageLuma8(GrayImage::from_fn(7, 5, |x, y| Luma([(y * 7 + x) as u8])));
        for exif in 1..=8 {
            let orientation = Orientation::from_exif(exif).expect("1 to 8");
            let mut upright = stored.clone();
            upright.apply_orientation(orientation);
            assert_eq!(lies(orientation), upright.width() == 5, "{orientation:?}");
            let wanted = Region { x: 1, y: 2, width: 3, height: 2 };
            let found = wanted.stored(orientation, (7, 5));
            let mut cut = stored.crop_imm(found.x, found.y, found.width, found.height);
            cut.apply_orientation(orientation);
            assert_eq!(cut, upright.crop_imm(1, 2, 3, 2), "{orientation:?}");
        }
    }

    #[test]
    fn ranges_are_cut_at_the_picture_and_refused_outside() {
        let of = |from, length, unit| range(Asked { from, length }, 200, unit, ("/x", "/width"));
        assert_eq!(of(10.0, 20.0, Unit::Pixels), Ok((10, 20)));
        assert_eq!(of(190.0, 50.0, Unit::Pixels), Ok((190, 10)));
        assert_eq!(of(25.0, 50.0, Unit::Percent), Ok((50, 100)));
        assert_eq!(of(0.2, 0.1, Unit::Percent), Ok((0, 1)));
        for (from, length) in
            [(-1.0, 5.0), (200.0, 5.0), (0.0, 0.0), (0.0, f64::NAN), (f64::NAN, 1.0), (0.0, 1e308 * 10.0)]
        {
            assert!(matches!(of(from, length, Unit::Pixels), Err(ToolError::InvalidArguments(_))), "{from} {length}");
        }
    }
}
