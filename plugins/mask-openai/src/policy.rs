//! The decisions: first what each medium is by itself, then, newest first, what fits together.

use crate::cost::{Rule, affordable, rule_of, tokens, within};
use crate::limits::{
    ASSUMED_SIDE, FILE_TYPE, IMAGE_TYPES, MAX_FILES, MAX_IMAGES, MAX_PAYLOAD, SEEN_COST, WINDOW_SHARE,
};
use agent_host_sdk::media_policy::{Decision, Item, Request};
use agent_host_sdk::types::{Dimensions, Media};

/// Letters of a name that stand in the text for a medium.
const NAME_LENGTH: usize = 60;

/// One decision for each item, in their order.
pub fn decide(request: &Request) -> Vec<Decision> {
    let rule = rule_of(&request.model.name);
    let mut room = Room::of(request);
    let mut decisions: Vec<Decision> = request.items.iter().map(|item| mask(&item.media)).collect();
    // What the model has not seen comes first, and of that the newest: it is what the turn is about.
    let mut order: Vec<usize> =
        (0..request.items.len()).filter(|index| may_stay(&request.items[*index], rule)).collect();
    order.sort_by_key(|index| (request.items[*index].seen_count > 0, std::cmp::Reverse(*index)));
    for index in order {
        let media = &request.items[index].media;
        let decision = if is_image(media) { room.admit_image(media, rule) } else { room.admit_file(media) };
        if let Some(decision) = decision {
            decisions[index] = decision;
        }
    }
    decisions
}

/// What is masked stays masked; what is seen stays only if it costs next to nothing; other types are not taken.
fn may_stay(item: &Item, rule: Rule) -> bool {
    let media = &item.media;
    let seen = item.seen_count > 0;
    if item.masked {
        false
    } else if is_image(media) {
        !seen || tokens(rule, size_of(media)) <= SEEN_COST
    } else {
        // A file's cost is that of its pages, which a description does not tell.
        media.mime_type == FILE_TYPE && !seen
    }
}

/// What is left of the limits of one request.
struct Room {
    images: usize,
    payload: u64,
    files: u64,
    tokens: u64,
}

impl Room {
    fn of(request: &Request) -> Self {
        let tokens = u64::from(request.model.window) / WINDOW_SHARE;
        Self { images: MAX_IMAGES, payload: MAX_PAYLOAD, files: MAX_FILES, tokens }
    }

    fn admit_image(&mut self, media: &Media, rule: Rule) -> Option<Decision> {
        let size = size_of(media);
        let target = affordable(rule, size, self.tokens)?;
        let squeezed = !same(target, within(rule, size));
        // An image of unknown size cannot be reduced, and one that the newer ones leave too little room for would be
        // a blur.
        let newest = self.images == MAX_IMAGES;
        let reducible = newest && media.dimensions.is_some();
        if self.images == 0 || (squeezed && !reducible) || !self.carry(media) {
            return None;
        }
        self.images -= 1;
        self.tokens -= tokens(rule, target);
        let keep = same(target, size) || media.dimensions.is_none();
        Some(if keep { Decision::Keep } else { Decision::downscale(target.width, target.height) })
    }

    fn admit_file(&mut self, media: &Media) -> Option<Decision> {
        // The guide says "under".
        if media.size >= self.files || !self.carry(media) {
            return None;
        }
        self.files -= media.size;
        Some(Decision::Keep)
    }

    fn carry(&mut self, media: &Media) -> bool {
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

fn same(first: Dimensions, second: Dimensions) -> bool {
    (first.width, first.height) == (second.width, second.height)
}

/// Depends on nothing but the medium, so that the text is the same in every prompt and prompt caches hit.
fn mask(media: &Media) -> Decision {
    let name: String =
        media.name.as_deref().unwrap_or("unnamed").chars().filter(|letter| !letter.is_control()).collect();
    let name: String = name.chars().take(NAME_LENGTH).collect();
    let size = match media.dimensions {
        Some(Dimensions { width, height }) => format!("{width}×{height} pixels"),
        None => format!("{} bytes", media.size),
    };
    let why = if is_image(media) || (media.mime_type == FILE_TYPE && media.size < MAX_FILES) {
        "was shown earlier or did not fit"
    } else if media.mime_type == FILE_TYPE {
        "is too large to be shown"
    } else {
        "cannot be shown to this model"
    };
    Decision::mask(format!("[{name} ({}, {size}) {why}; {}]", media.mime_type, media.digest))
}
