//! Calculates the cost of an image in tokens, and the size at which the model sees the image.

use crate::limits::{FIXED_COST_SINCE, IMAGE_COST, MAX_SIDE, ONE_TILE_SIDE, TILE_COST, TILE_SIDES};
use agent_host_sdk::types::Dimensions;
use media_masking::size::{fit, nonzero};

/// The rule by which a model converts an image to tokens, at the API's default resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// An image costs a number of tokens for each tile.
    Tiles,
    /// Each image costs the same number of tokens.
    Fixed,
}

/// Returns the rule by which a model converts an image to tokens. Unknown models get the rule of the newest models.
pub fn rule_of(model: &str) -> Rule {
    match version_of(model) {
        Some(version) if version < FIXED_COST_SINCE => Rule::Tiles,
        Some(_) | None => Rule::Fixed,
    }
}

/// Returns the version in the name of a model, for example 2.5 in `google/gemini-2.5-flash`. The minor version is 0 if
/// the name does not contain it.
pub fn version_of(model: &str) -> Option<(u32, u32)> {
    let (_, name) = model.rsplit_once("gemini-")?;
    let version = name.split('-').next().unwrap_or_default();
    let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Returns the cost of an image, in tokens.
pub fn tokens(rule: Rule, size: Dimensions) -> u64 {
    match rule {
        Rule::Fixed => IMAGE_COST,
        Rule::Tiles => TILE_COST * tiles(within(size)),
    }
}

/// Returns the size at which the model sees an image.
pub fn within(size: Dimensions) -> Dimensions {
    fit(nonzero(size), MAX_SIDE)
}

/// Returns the number of tiles into which the service divides an image. The sides of a tile are two thirds of the
/// image's shorter side, within the limits for tiles.
fn tiles(size: Dimensions) -> u64 {
    if size.width.max(size.height) <= ONE_TILE_SIDE {
        return 1;
    }
    // The division by 1.5 is written without fractions. The size is at most `MAX_SIDE`, so the product is small.
    let side = (size.width.min(size.height) * 2 / 3).clamp(TILE_SIDES.0, TILE_SIDES.1);
    u64::from(size.width.div_ceil(side)) * u64::from(size.height.div_ceil(side))
}
