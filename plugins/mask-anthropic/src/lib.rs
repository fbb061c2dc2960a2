//! A media policy for Anthropic's models: it masks media that the model has seen, and keeps new media within
//! Anthropic's limits on number, size and cost. The decisions of the plugin depend only on the request.

pub mod cost;
pub mod limits;

use agent_host_sdk::media_policy::{Decision, MediaPolicy, Request};
use agent_host_sdk::types::{Dimensions, Failure};
use cost::{Resolution, patches, resolution_of, within};
use limits::{
    FILE_TYPE, IMAGE_TYPES, LARGE_WINDOW, MANY_IMAGES_SIDE, MAX_IMAGE, MAX_IMAGES, MAX_IMAGES_LARGE_WINDOW,
    MAX_LARGE_IMAGES, MAX_PAYLOAD,
};
use media_masking::size::fit;
use media_masking::{Kind, KindLimits, Limits, Provider, SEEN_COST, UnknownSize};

/// The plugin, which is a media policy.
pub struct MaskAnthropic;

impl MediaPolicy for MaskAnthropic {
    fn decide(request: Request) -> Result<Vec<Decision>, Failure> {
        let window = request.model.window;
        let max_images = if window < LARGE_WINDOW { MAX_IMAGES } else { MAX_IMAGES_LARGE_WINDOW };
        let resolution = resolution_of(&request.model.name);
        let decide = |max_side| media_masking::decide(&request, &Anthropic { resolution, max_images, max_side });
        let decisions = decide(resolution.max_side);
        let kept = decisions.iter().filter(|decision| !matches!(decision, Decision::Mask(_))).count();
        // In a request with many images, Anthropic accepts only smaller images.
        Ok(if kept > MAX_LARGE_IMAGES { decide(MANY_IMAGES_SIDE) } else { decisions })
    }
}

agent_host_sdk::export_media_policy!(MaskAnthropic);

/// Anthropic's limits and costs for one request.
struct Anthropic {
    resolution: Resolution,
    max_images: usize,
    /// Maximum length of a side of an image, in pixels.
    max_side: u32,
}

impl Provider for Anthropic {
    fn kind(&self, mime_type: &str) -> Option<Kind> {
        match mime_type {
            image if IMAGE_TYPES.contains(&image) => Some(Kind::Image),
            FILE_TYPE => Some(Kind::Document),
            _ => None,
        }
    }

    fn limits(&self) -> Limits {
        Limits {
            payload: MAX_PAYLOAD,
            images: KindLimits { count: self.max_images, item_bytes: MAX_IMAGE, ..KindLimits::NONE },
            documents: KindLimits::NONE,
            audio: KindLimits::NONE,
            videos: KindLimits::NONE,
            unknown_size: UnknownSize::ScaleTo(self.max_side.min(self.resolution.max_side)),
        }
    }

    fn tokens(&self, size: Dimensions) -> u64 {
        patches(within(self.resolution, size))
    }

    fn seen_size(&self, size: Dimensions) -> Dimensions {
        // An image that stays in the prompt after the model has seen it always has the smaller size. If such an
        // image were scaled down only when the request contains many images, the prompt would change, and the provider
        // could no longer use its cache.
        let max_side = if self.tokens(size) <= SEEN_COST { MANY_IMAGES_SIDE } else { self.max_side };
        fit(within(self.resolution, size), max_side)
    }
}
