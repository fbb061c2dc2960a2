//! A media policy for OpenAI's models: it masks media that the model has seen, and keeps new media within OpenAI's
//! limits on number, size and cost. The decisions of the plugin depend only on the request.

pub mod cost;
pub mod limits;
pub mod policy;

use agent_host_sdk::media_policy::{Decision, MediaPolicy, Request};
use agent_host_sdk::types::Failure;

/// The plugin, which is a media policy.
pub struct MaskOpenAi;

impl MediaPolicy for MaskOpenAi {
    fn decide(request: Request) -> Result<Vec<Decision>, Failure> {
        Ok(policy::decide(&request))
    }
}

agent_host_sdk::export_media_policy!(MaskOpenAi);
