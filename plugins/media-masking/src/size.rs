//! Calculates the sizes of scaled images.

use agent_host_sdk::types::Dimensions;

/// Scales a size down to at most `side` pixels on each side, with the same proportions.
pub fn fit(size: Dimensions, side: u32) -> Dimensions {
    scale(size, f64::from(side) / f64::from(size.width.max(size.height)))
}

/// Multiplies a size by the factor if the factor is less than 1, and otherwise returns the size unchanged.
pub fn scale(size: Dimensions, factor: f64) -> Dimensions {
    if factor >= 1.0 {
        return size;
    }
    // A side has at least one pixel. The cast cannot overflow, because the result is smaller than `pixels`.
    let side = |pixels: u32| ((f64::from(pixels) * factor) as u32).max(1);
    Dimensions { width: side(size.width), height: side(size.height) }
}

/// Returns the size, but with at least one pixel on each side.
pub fn nonzero(size: Dimensions) -> Dimensions {
    Dimensions { width: size.width.max(1), height: size.height.max(1) }
}

/// Returns the number of pixels of an image.
pub(crate) fn pixels(size: Dimensions) -> u64 {
    u64::from(size.width) * u64::from(size.height)
}

/// Returns whether two sizes are equal.
pub(crate) fn same(first: Dimensions, second: Dimensions) -> bool {
    (first.width, first.height) == (second.width, second.height)
}
