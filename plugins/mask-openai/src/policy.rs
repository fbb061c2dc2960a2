//! Decides about the media of a request. The first step decides for each media item whether it may stay in the prompt.
//! The second step keeps as many of these items as the limits allow, beginning with the newest item that the model has
//! not seen.

use crate::cost::{Rule, affordable, rule_of, tokens, within};
use crate::limits::{
    ASSUMED_SIDE, FILE_TYPE, IMAGE_TYPES, MAX_FILES, MAX_IMAGES, MAX_PAYLOAD, SEEN_COST, WINDOW_SHARE,
};
use agent_host_sdk::media_policy::{Decision, Item, Request};
use agent_host_sdk::types::{Dimensions, Media};

/// Maximum number of characters of a name in the text that replaces a media item.
const NAME_LENGTH: usize = 60;

/// Returns one decision for each item of the request, in the order of the items.
pub fn decide(request: &Request) -> Vec<Decision> {
    let rule = rule_of(&request.model.name);
    let mut budget = RequestBudget::of(request);
    let mut decisions: Vec<Decision> = request.items.iter().map(|item| mask(&item.media)).collect();
    // Media that the model has not seen are considered first, starting with the newest, because the turn is about
    // these media.
    let mut order: Vec<usize> =
        (0..request.items.len()).filter(|index| may_stay(&request.items[*index], rule)).collect();
    order.sort_by_key(|index| (request.items[*index].seen_count > 0, std::cmp::Reverse(*index)));
    for index in order {
        let media = &request.items[index].media;
        let decision = if is_image(media) { budget.admit_image(media, rule) } else { budget.admit_file(media) };
        if let Some(decision) = decision {
            decisions[index] = decision;
        }
    }
    decisions
}

/// Returns whether an item may stay in the prompt. Masked media stay masked, media that the model has seen stay only if
/// their cost is small, and types that OpenAI does not accept are masked.
fn may_stay(item: &Item, rule: Rule) -> bool {
    let media = &item.media;
    let seen = item.seen_count > 0;
    if item.masked {
        false
    } else if is_image(media) {
        !seen || tokens(rule, size_of(media)) <= SEEN_COST
    } else {
        // A file has no known cost, because the cost depends on the number of pages, which the description does
        // not contain.
        media.mime_type == FILE_TYPE && !seen
    }
}

/// The numbers of images, bytes and tokens that can still be added to the request.
struct RequestBudget {
    images: usize,
    payload: u64,
    files: u64,
    tokens: u64,
}

impl RequestBudget {
    fn of(request: &Request) -> Self {
        let tokens = u64::from(request.model.window) / WINDOW_SHARE;
        Self { images: MAX_IMAGES, payload: MAX_PAYLOAD, files: MAX_FILES, tokens }
    }

    fn admit_image(&mut self, media: &Media, rule: Rule) -> Option<Decision> {
        let size = size_of(media);
        let target = affordable(rule, size, self.tokens)?;
        let exceeds_budget = !same_size(target, within(rule, size));
        // Only the newest image is scaled down to fit into the budget of tokens. The tokens that remain for older
        // images would allow only sizes at which these images are unreadable. An image of unknown size cannot be
        // scaled down.
        let newest = self.images == MAX_IMAGES;
        let reducible = newest && media.dimensions.is_some();
        if self.images == 0 || (exceeds_budget && !reducible) || !self.reserve_payload(media) {
            return None;
        }
        self.images -= 1;
        self.tokens -= tokens(rule, target);
        let keep = same_size(target, size) || media.dimensions.is_none();
        Some(if keep { Decision::Keep } else { Decision::downscale(target.width, target.height) })
    }

    fn admit_file(&mut self, media: &Media) -> Option<Decision> {
        // The guide requires files "under" the limit, so a file whose size is exactly the limit is too large.
        if media.size >= self.files || !self.reserve_payload(media) {
            return None;
        }
        self.files -= media.size;
        Some(Decision::Keep)
    }

    fn reserve_payload(&mut self, media: &Media) -> bool {
        let encoded = media.size.div_ceil(3).saturating_mul(4);
        let fits = encoded <= self.payload;
        if fits {
            self.payload -= encoded;
        }
        fits
    }
}

fn is_image(media: &Media) -> bool {
    IMAGE_TYPES.contains(&media.mime_type.as_str())
}

fn size_of(media: &Media) -> Dimensions {
    media.dimensions.unwrap_or(Dimensions { width: ASSUMED_SIDE, height: ASSUMED_SIDE })
}

fn same_size(first: Dimensions, second: Dimensions) -> bool {
    (first.width, first.height) == (second.width, second.height)
}

/// Returns the decision to mask a media item. The text that replaces the item depends only on the item. Because every
/// prompt contains the same text for an item, the provider can cache the prompt.
fn mask(media: &Media) -> Decision {
    let name: String =
        media.name.as_deref().unwrap_or("unnamed").chars().filter(|letter| !letter.is_control()).collect();
    let name: String = name.chars().take(NAME_LENGTH).collect();
    let size = match media.dimensions {
        Some(Dimensions { width, height }) => format!("{width}×{height} pixels"),
        None => format!("{} bytes", media.size),
    };
    let reason = if is_image(media) || (media.mime_type == FILE_TYPE && media.size < MAX_FILES) {
        "was shown earlier or did not fit"
    } else if media.mime_type == FILE_TYPE {
        "is too large to be shown"
    } else {
        "cannot be shown to this model"
    };
    Decision::mask(format!("[{name} ({}, {size}) {reason}; {}]", media.mime_type, media.digest))
}
