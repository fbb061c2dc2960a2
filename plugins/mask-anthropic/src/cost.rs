//! Calculates the cost of an image in tokens, and the size at which the model sees the image.

use crate::limits::{HIGH_RESOLUTION, HIGH_RESOLUTION_SINCE, PATCH, STANDARD};
use agent_host_sdk::types::Dimensions;
use media_masking::size::nonzero;

/// The resolution in which a model sees images. A larger image is scaled down by the service or, to make the request
/// smaller, by this plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// Maximum length of a side, in pixels.
    pub max_side: u32,
    /// Maximum number of patches. A patch is a square with sides of 28 pixels.
    pub max_patches: u32,
}

/// The resolution of the models before Claude 4.7.
pub const STANDARD_RESOLUTION: Resolution = Resolution { max_side: STANDARD.0, max_patches: STANDARD.1 };

/// The resolution of the models since Claude 4.7. Unknown models get this resolution too.
pub const NEWEST: Resolution = Resolution { max_side: HIGH_RESOLUTION.0, max_patches: HIGH_RESOLUTION.1 };

/// Returns the resolution in which a model sees images. Unknown models get the newest resolution. This resolution
/// scales images down least, so the calculated cost is never too low.
pub fn resolution_of(model: &str) -> Resolution {
    match version_of(model) {
        Some(version) if version < HIGH_RESOLUTION_SINCE => STANDARD_RESOLUTION,
        Some(_) | None => NEWEST,
    }
}

/// Returns the version in the name of a model, for example 4.7 in `claude-opus-4-7-20260416`,
/// `us.anthropic.claude-opus-4-7-v1:0` and `anthropic/claude-opus-4.7`. The minor version is 0 if the name does not
/// contain it.
fn version_of(model: &str) -> Option<(u32, u32)> {
    let (_, name) = model.rsplit_once("claude-")?;
    // A number with more digits is a date.
    let number = |word: &str| word.parse::<u32>().ok().filter(|number| *number < 100);
    let mut words = name.split(['-', '.', '@', ':']).skip_while(|word| number(word).is_none());
    let major = words.next().and_then(number)?;
    Some((major, words.next().and_then(number).unwrap_or(0)))
}

/// Returns the cost, in tokens, of an image that has this size when the model sees it. The cost is one token for each
/// patch.
pub fn patches(size: Dimensions) -> u64 {
    u64::from(size.width.div_ceil(PATCH)) * u64::from(size.height.div_ceil(PATCH))
}

/// Applies the limits of the resolution to the size of an image: returns the largest size with the same proportions
/// that does not exceed the limits, by the rule of the coordinates guide, "How Claude resizes and pads images".
pub fn within(resolution: Resolution, size: Dimensions) -> Dimensions {
    let size = nonzero(size);
    if fits(resolution, size) {
        return size;
    }
    // The size with a longer side of one pixel fits, and the size with a longer side of `too_long` pixels does not.
    let (mut fitting, mut too_long) = (1, size.width.max(size.height));
    while too_long - fitting > 1 {
        let middle = fitting + (too_long - fitting) / 2;
        if fits(resolution, with_longer_side(size, middle)) {
            fitting = middle;
        } else {
            too_long = middle;
        }
    }
    with_longer_side(size, fitting)
}

/// Returns whether the service does not scale down an image of this size. The service extends each side to whole
/// patches before it compares the side with the limit.
fn fits(resolution: Resolution, size: Dimensions) -> bool {
    let longer = u64::from(size.width.max(size.height).div_ceil(PATCH)) * u64::from(PATCH);
    longer <= u64::from(resolution.max_side) && patches(size) <= u64::from(resolution.max_patches)
}

/// Returns the size with the same proportions whose longer side has this length. The shorter side is rounded as the
/// service rounds it: the ratio of the sides is calculated first, and ties are rounded to the even number.
fn with_longer_side(size: Dimensions, longer: u32) -> Dimensions {
    let ratio = f64::from(size.width.max(size.height)) / f64::from(size.width.min(size.height));
    let shorter = ((f64::from(longer) / ratio).round_ties_even() as u32).max(1);
    if size.width >= size.height {
        Dimensions { width: longer, height: shorter }
    } else {
        Dimensions { width: shorter, height: longer }
    }
}
