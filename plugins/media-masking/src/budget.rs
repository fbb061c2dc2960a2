//! Counts the media, bytes and tokens that can still be added to a request.

use crate::limits::{Kind, Provider, UnknownSize};
use crate::size::{fit, pixels, same, scale};
use crate::{ASSUMED_SIDE, HOST_PAYLOAD, SCALED_BYTES_PER_PIXEL, WINDOW_DIVISOR};
use agent_host_sdk::media_policy::{Decision, Request};
use agent_host_sdk::types::{Dimensions, Media};

/// MIME types of the images that the host can scale down.
const SCALABLE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/webp", "image/gif"];

/// Lengths of the longer side, in pixels, to which an image may be scaled down if it costs too many tokens.
const AFFORDABLE_SIDES: [u32; 9] = [u32::MAX, 4_096, 3_072, 2_048, 1_536, 1_024, 768, 512, 256];

/// The numbers of media, bytes and tokens that can still be added to a request.
pub(crate) struct Budget<'p, P> {
    provider: &'p P,
    payload: u64,
    tokens: u64,
    /// Number and size of the media of each kind that are already in the request.
    used: [(usize, u64); 4],
}

impl<'p, P: Provider> Budget<'p, P> {
    /// Returns the budget of a request without media.
    pub(crate) fn of(request: &Request, provider: &'p P) -> Self {
        Self::with_tokens(provider, u64::from(request.model.window) / WINDOW_DIVISOR)
    }

    /// Returns whether the media item fits into a request that contains no other media, in a context window of any
    /// size.
    pub(crate) fn fits_alone(provider: &'p P, media: &Media, kind: Kind) -> bool {
        Self::with_tokens(provider, u64::MAX).admit(media, kind).is_some()
    }

    fn with_tokens(provider: &'p P, tokens: u64) -> Self {
        Self { provider, payload: provider.limits().payload.min(HOST_PAYLOAD), tokens, used: [(0, 0); 4] }
    }

    /// Adds the media item to the request and returns how the item is sent, or `None` if the item does not fit.
    pub(crate) fn admit(&mut self, media: &Media, kind: Kind) -> Option<Decision> {
        match kind {
            Kind::Image => self.admit_image(media),
            Kind::Document | Kind::Audio | Kind::Video => {
                // These media have no known cost, because the cost depends on the number of pages or on the length,
                // which the description does not contain.
                self.reserve(kind, media.size).then_some(Decision::Keep)
            }
        }
    }

    fn admit_image(&mut self, media: &Media) -> Option<Decision> {
        let size = size_of(media);
        let seen = self.within_item_bytes(media, self.provider.seen_size(size))?;
        let target = self.affordable(seen)?;
        let is_scalable = is_scalable(media);
        // Only the newest image is scaled down to fit into the budget of tokens. The tokens that remain for older
        // images would allow only sizes at which these images are unreadable.
        let may_scale = is_scalable && self.used[Kind::Image as usize].0 == 0;
        let costs_too_much = !same(target, seen);
        if costs_too_much && !may_scale {
            return None;
        }
        let (decision, bytes) = if !is_scalable {
            (self.unscaled(media), media.size)
        } else if same(target, size) {
            (Decision::Keep, media.size)
        } else {
            (Decision::downscale(target.width, target.height), scaled_bytes(media, target))
        };
        if !self.reserve(Kind::Image, bytes) {
            return None;
        }
        self.tokens -= self.provider.tokens(target);
        Some(decision)
    }

    /// Returns the decision for an image whose scaled size cannot be calculated.
    fn unscaled(&self, media: &Media) -> Decision {
        match self.provider.limits().unknown_size {
            UnknownSize::ScaleTo(side) if has_scalable_type(media) => Decision::downscale(side, side),
            UnknownSize::ScaleTo(_) | UnknownSize::Keep => Decision::Keep,
        }
    }

    /// Returns the size to which an image must be scaled down so that it does not exceed the limit on the bytes of one
    /// image, or `None` if scaling cannot ensure this.
    fn within_item_bytes(&self, media: &Media, seen: Dimensions) -> Option<Dimensions> {
        let limit = self.provider.limits().images.item_bytes;
        if media.size <= limit {
            return Some(seen);
        }
        let max_pixels = limit / SCALED_BYTES_PER_PIXEL;
        let reduced = scale(seen, (max_pixels as f64 / pixels(seen) as f64).sqrt());
        // The host sends the original if it is not larger than the requested size.
        (is_scalable(media) && !same(reduced, size_of(media))).then_some(reduced)
    }

    /// Returns the largest size of an image that the remaining tokens allow, or `None` if even the smallest size costs
    /// more.
    fn affordable(&self, size: Dimensions) -> Option<Dimensions> {
        let sizes = AFFORDABLE_SIDES.into_iter().map(|side| fit(size, side));
        sizes.into_iter().find(|size| self.provider.tokens(*size) <= self.tokens)
    }

    /// Reserves a place and bytes for a media item. Returns whether the item fits. If it does not fit, nothing is
    /// reserved.
    fn reserve(&mut self, kind: Kind, bytes: u64) -> bool {
        let limits = self.provider.limits();
        let limits = match kind {
            Kind::Image => limits.images,
            Kind::Document => limits.documents,
            Kind::Audio => limits.audio,
            Kind::Video => limits.videos,
        };
        let (count, total) = &mut self.used[kind as usize];
        let encoded = bytes.div_ceil(3).saturating_mul(4);
        let fits = *count < limits.count
            && bytes <= limits.item_bytes
            && total.saturating_add(bytes) <= limits.total_bytes
            && encoded <= self.payload;
        if fits {
            *count += 1;
            *total += bytes;
            self.payload -= encoded;
        }
        fits
    }
}

/// Returns the size of an image, or the assumed size if the size is unknown.
pub(crate) fn size_of(media: &Media) -> Dimensions {
    media.dimensions.unwrap_or(Dimensions { width: ASSUMED_SIDE, height: ASSUMED_SIDE })
}

/// Returns whether the host can scale the image down to a calculated size.
fn is_scalable(media: &Media) -> bool {
    media.dimensions.is_some() && has_scalable_type(media)
}

fn has_scalable_type(media: &Media) -> bool {
    SCALABLE_TYPES.contains(&media.mime_type.as_str())
}

/// Estimates the number of bytes of an image after the host has scaled it down.
fn scaled_bytes(media: &Media, target: Dimensions) -> u64 {
    let pixels = pixels(target);
    media.size.clamp(pixels / 4, pixels)
}
