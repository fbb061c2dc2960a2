//! Calculates the cost of an image in tokens, and the size at which the model sees the image, by the rules of each
//! model family.

use crate::limits::{MAX_PATCHES, MAX_SIDE, PATCH, TILE, TILED_SHORTEST, TILED_SQUARE};
use agent_host_sdk::types::Dimensions;
use media_masking::size::{fit, nonzero, scale};

/// The rule by which a model family converts an image to tokens, at the API's default level of detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// An image costs a base number of tokens, plus a number of tokens for each tile. The tiles are squares of the
    /// scaled image, with sides of 512 pixels.
    Tiles {
        /// Number of tokens that each image costs in addition to the cost of the tiles.
        base: u64,
        /// Number of tokens that each tile costs.
        tile: u64,
    },
    /// An image costs a number of tokens for each patch. A patch is a square with sides of 32 pixels.
    Patches {
        /// Maximum number of patches. A larger image is scaled down by the service or, if the service would reject the
        /// image, by this plugin.
        budget: u32,
        /// Maximum length of a side. An image with a longer side is scaled down by the service or, if the service would
        /// reject the image, by this plugin.
        max_side: u32,
        /// Number of tokens that 100 patches cost.
        multiplier: u64,
    },
}

const fn tiles(base: u64, tile: u64) -> Rule {
    Rule::Tiles { base, tile }
}

const fn patches(budget: u32, max_side: u32, multiplier: u64) -> Rule {
    Rule::Patches { budget, max_side, multiplier }
}

/// The rule by which GPT-5.6 converts an image to tokens. Unknown models get this rule too. At the default level of
/// detail, `auto`, GPT-5.6 does not resize images.
pub const NEWEST: Rule = patches(MAX_PATCHES, MAX_SIDE, 120);

/// Rules by model name. A rule applies to the model that has the rule's name, and to models whose names start with
/// the rule's name and `-`. The first rule that matches applies. The sources are the section "Model
/// sizing behavior" and the tables in the section "Calculating costs" of the vision guide. The multipliers with the
/// value 120 are not in the guide: they come from measurements and from texts that quote the guide.
const RULES: [(&str, Rule); 24] = [
    ("gpt-4o-mini", tiles(2_833, 5_667)),
    ("gpt-4o", tiles(85, 170)),
    ("gpt-4.5", tiles(85, 170)),
    ("gpt-4.1-mini", patches(1_536, 2_048, 162)),
    ("gpt-4.1-nano", patches(1_536, 2_048, 246)),
    ("gpt-4.1", tiles(85, 170)),
    ("gpt-4-turbo", tiles(85, 170)),
    ("o4-mini", patches(1_536, 2_048, 172)),
    ("o1", tiles(75, 150)),
    ("o3", tiles(75, 150)),
    ("computer-use-preview", tiles(65, 129)),
    ("gpt-5-mini", patches(1_536, 2_048, 162)),
    ("gpt-5-nano", patches(1_536, 2_048, 246)),
    ("gpt-5-codex-mini", patches(1_536, 2_048, 120)),
    ("gpt-5.1-codex-mini", patches(1_536, 2_048, 120)),
    ("gpt-5.1", tiles(70, 140)),
    ("gpt-5", tiles(70, 140)),
    ("gpt-5.2", patches(1_536, 2_048, 120)),
    ("gpt-5.3-codex", patches(1_536, 2_048, 120)),
    ("gpt-5.4-mini", patches(1_536, 2_048, 162)),
    ("gpt-5.4-nano", patches(1_536, 2_048, 246)),
    ("gpt-5.4", patches(2_500, 2_048, 120)),
    ("gpt-5.5", patches(10_000, 6_000, 120)),
    ("gpt-5.6", NEWEST),
];

/// Returns the rule by which a model converts an image to tokens. Unknown models get the newest rule. This rule scales
/// images down least, so the calculated cost is never too low.
pub fn rule_of(model: &str) -> Rule {
    let name = model.rsplit('/').next().unwrap_or(model);
    let matches =
        |family: &str| name.strip_prefix(family).is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('-'));
    RULES.iter().find(|(family, _)| matches(family)).map_or(NEWEST, |(_, rule)| *rule)
}

/// Returns the cost of an image, in tokens.
pub fn tokens(rule: Rule, size: Dimensions) -> u64 {
    let limited = within(rule, size);
    match rule {
        Rule::Tiles { base, tile } => {
            let seen = scale(limited, f64::from(TILED_SHORTEST) / f64::from(limited.width.min(limited.height)));
            base + tile * u64::from(seen.width.div_ceil(TILE)) * u64::from(seen.height.div_ceil(TILE))
        }
        Rule::Patches { multiplier, .. } => (patch_count(limited) * multiplier).div_ceil(100),
    }
}

/// Applies the limits of the rule to the size of an image. Returns a smaller size if the image exceeds the limits, and
/// otherwise the original size.
pub fn within(rule: Rule, size: Dimensions) -> Dimensions {
    let size = nonzero(size);
    match rule {
        Rule::Tiles { .. } => fit(size, TILED_SQUARE),
        Rule::Patches { budget, max_side, .. } => within_patches(fit(size, max_side), budget),
    }
}

fn patch_count(size: Dimensions) -> u64 {
    u64::from(size.width.div_ceil(PATCH)) * u64::from(size.height.div_ceil(PATCH))
}

/// Reduces a size to at most `budget` patches, with the formula of the vision guide. The formula first reduces the size
/// to the area of `budget` patches, and then reduces the size further, until one side is a whole number of patches.
fn within_patches(size: Dimensions, budget: u32) -> Dimensions {
    if patch_count(size) <= u64::from(budget) {
        return size;
    }
    let (width, height, patch) = (f64::from(size.width), f64::from(size.height), f64::from(PATCH));
    let factor = (patch * patch * f64::from(budget) / (width * height)).sqrt();
    let whole = |side: f64| (side * factor / patch).floor().max(1.0) / (side * factor / patch);
    let mut shrunk = scale(size, factor * whole(width).min(whole(height)).min(1.0) + f64::EPSILON);
    // The formula is not exact for an image with a side shorter than a patch, because such an image is still one
    // patch wide.
    while patch_count(shrunk) > u64::from(budget) {
        shrunk = scale(shrunk, f64::from(budget) / patch_count(shrunk) as f64);
    }
    shrunk
}
