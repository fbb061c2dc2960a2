//! A media policy for OpenAI's models: it masks media that the model has seen, and keeps new media within OpenAI's
//! limits on number, size and cost. The decisions of the plugin depend only on the request.

pub mod cost;
pub mod limits;

use agent_host_sdk::media_policy::{Decision, MediaPolicy, Request};
use agent_host_sdk::types::{Dimensions, Failure};
use cost::{Rule, rule_of};
use limits::{FILE_TYPE, IMAGE_TYPES, MAX_FILES, MAX_IMAGES, MAX_PAYLOAD};
use media_masking::{Kind, KindLimits, Limits, Provider, UnknownSize};

/// The plugin, which is a media policy.
pub struct MaskOpenAi;

impl MediaPolicy for MaskOpenAi {
    fn decide(request: Request) -> Result<Vec<Decision>, Failure> {
        let provider = OpenAi { rule: rule_of(&request.model.name) };
        Ok(media_masking::decide(&request, &provider))
    }
}

agent_host_sdk::export_media_policy!(MaskOpenAi);

/// OpenAI's limits and costs for one model.
struct OpenAi {
    rule: Rule,
}

impl Provider for OpenAi {
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
            images: KindLimits { count: MAX_IMAGES, ..KindLimits::NONE },
            documents: KindLimits { item_bytes: MAX_FILES, total_bytes: MAX_FILES, ..KindLimits::NONE },
            audio: KindLimits::NONE,
            videos: KindLimits::NONE,
            unknown_size: UnknownSize::Keep,
        }
    }

    fn tokens(&self, size: Dimensions) -> u64 {
        cost::tokens(self.rule, size)
    }

    fn seen_size(&self, size: Dimensions) -> Dimensions {
        cost::within(self.rule, size)
    }
}
