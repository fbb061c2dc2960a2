//! A media policy for Google's Gemini models: it masks media that the model has seen, and keeps new media within the
//! limits of the Gemini API on number, size and cost. The decisions of the plugin depend only on the request.

pub mod cost;
pub mod limits;

use agent_host_sdk::media_policy::{Decision, MediaPolicy, Request};
use agent_host_sdk::types::{Dimensions, Failure};
use cost::{Rule, rule_of, version_of};
use limits::{
    AUDIO_TYPES, FILE_TYPE, IMAGE_TYPES, MANY_VIDEOS_SINCE, MAX_IMAGES, MAX_PAYLOAD, MAX_PDF, MAX_VIDEOS,
    MAX_VIDEOS_OLD, VIDEO_TYPES,
};
use media_masking::{Kind, KindLimits, Limits, Provider, UnknownSize};

/// The plugin, which is a media policy.
pub struct MaskGemini;

impl MediaPolicy for MaskGemini {
    fn decide(request: Request) -> Result<Vec<Decision>, Failure> {
        let model = &request.model.name;
        let is_old = version_of(model).is_some_and(|version| version < MANY_VIDEOS_SINCE);
        let max_videos = if is_old { MAX_VIDEOS_OLD } else { MAX_VIDEOS };
        Ok(media_masking::decide(&request, &Gemini { rule: rule_of(model), max_videos }))
    }
}

agent_host_sdk::export_media_policy!(MaskGemini);

/// The limits and costs of the Gemini API for one model.
struct Gemini {
    rule: Rule,
    max_videos: usize,
}

impl Provider for Gemini {
    fn kind(&self, mime_type: &str) -> Option<Kind> {
        match mime_type {
            image if IMAGE_TYPES.contains(&image) => Some(Kind::Image),
            audio if AUDIO_TYPES.contains(&audio) => Some(Kind::Audio),
            video if VIDEO_TYPES.contains(&video) => Some(Kind::Video),
            FILE_TYPE => Some(Kind::Document),
            _ => None,
        }
    }

    fn limits(&self) -> Limits {
        Limits {
            payload: MAX_PAYLOAD,
            images: KindLimits { count: MAX_IMAGES, ..KindLimits::NONE },
            documents: KindLimits { item_bytes: MAX_PDF, ..KindLimits::NONE },
            audio: KindLimits::NONE,
            videos: KindLimits { count: self.max_videos, ..KindLimits::NONE },
            unknown_size: UnknownSize::Keep,
        }
    }

    fn tokens(&self, size: Dimensions) -> u64 {
        cost::tokens(self.rule, size)
    }

    fn seen_size(&self, size: Dimensions) -> Dimensions {
        cost::within(size)
    }
}
