//! The common part of the media policies mask-anthropic, mask-gemini and mask-openai. The first step decides for each
//! media item whether it may stay in the prompt. The second step keeps as many of these items as the limits of the
//! provider allow, beginning with the newest item that the model has not seen. The decisions depend only on the
//! request.

mod budget;
mod limits;
pub mod size;

pub use limits::{Kind, KindLimits, Limits, Provider, UnknownSize};

use agent_host_sdk::media_policy::{Decision, Item, Request};
use agent_host_sdk::types::{Dimensions, Media};
use budget::{Budget, size_of};

/// Maximum payload of media in any request, in bytes of base64 text. The host rejects a request of more than 64 MiB,
/// and about 7 MB are reserved for text and tools.
pub const HOST_PAYLOAD: u64 = 60_000_000;

/// An image that costs at most this number of tokens stays in the prompt after the model has seen the image. This
/// project chose the number: it is about four times the cost of the text that replaces a media item.
pub const SEEN_COST: u64 = 100;

/// Divisor for the context window: images may use at most the tokens of the context window divided by this number. The
/// number is an assumption of this project.
pub const WINDOW_DIVISOR: u64 = 4;

/// The cost of an image of unknown size is the cost of a square with sides of this length, in pixels. The number is an
/// assumption of this project.
pub const ASSUMED_SIDE: u32 = 2_048;

/// Maximum number of bytes for each pixel of an image that the host has scaled down. Without compression, a pixel has
/// at most four bytes.
const SCALED_BYTES_PER_PIXEL: u64 = 5;

/// Maximum number of characters of a name in the text that replaces a media item.
const NAME_LENGTH: usize = 60;

/// Returns one decision for each item of the request, in the order of the items.
pub fn decide(request: &Request, provider: &impl Provider) -> Vec<Decision> {
    let mut budget = Budget::of(request, provider);
    let mut decisions: Vec<Decision> = request.items.iter().map(|item| mask(&item.media, provider)).collect();
    // Media that the model has not seen are considered first, starting with the newest, because the turn is about
    // these media.
    let candidates = request.items.iter().enumerate();
    let mut order: Vec<(usize, Kind)> =
        candidates.filter_map(|(index, item)| Some((index, kept_kind(item, provider)?))).collect();
    order.sort_by_key(|(index, _)| (request.items[*index].seen_count > 0, std::cmp::Reverse(*index)));
    for (index, kind) in order {
        if let Some(decision) = budget.admit(&request.items[index].media, kind) {
            decisions[index] = decision;
        }
    }
    decisions
}

/// Returns the kind of the item, or `None` if the item must not stay in the prompt. Masked media stay masked, media
/// that the model has seen stay only if their cost is small, and types that the provider does not accept are masked.
fn kept_kind(item: &Item, provider: &impl Provider) -> Option<Kind> {
    let kind = provider.kind(&item.media.mime_type).filter(|_| !item.masked)?;
    // Only images have a known cost.
    let is_cheap = || kind == Kind::Image && provider.tokens(size_of(&item.media)) <= SEEN_COST;
    (item.seen_count == 0 || is_cheap()).then_some(kind)
}

/// Returns the decision to mask a media item. The text that replaces the item depends only on the item and on the
/// provider. Because every prompt contains the same text for an item, the provider can cache the prompt.
fn mask(media: &Media, provider: &impl Provider) -> Decision {
    let name: String =
        media.name.as_deref().unwrap_or("unnamed").chars().filter(|letter| !letter.is_control()).collect();
    let name: String = name.chars().take(NAME_LENGTH).collect();
    let size = match media.dimensions {
        Some(Dimensions { width, height }) => format!("{width}×{height} pixels"),
        None => format!("{} bytes", media.size),
    };
    let reason = match provider.kind(&media.mime_type) {
        Some(kind) if Budget::fits_alone(provider, media, kind) => "was shown earlier or did not fit",
        Some(_) => "is too large to be shown",
        None => "cannot be shown to this model",
    };
    Decision::mask(format!("[{name} ({}, {size}) {reason}; {}]", media.mime_type, media.digest))
}
