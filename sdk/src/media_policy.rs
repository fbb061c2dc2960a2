//! Media policies, which decide how each media item of the conversation is sent to a provider. A policy gets
//! descriptions of the media items, but not the bytes of the media items. The only host functions that a policy can
//! call are those that write log lines.

use crate::bindings::media_policy::exports::agent_host::plugin::media_policy as generated;
use crate::types::{Dimensions, Failure};
pub use generated::{Decision, Item, Position, Request};

/// A plugin that is a media policy. Export the plugin with [`export_media_policy!`](crate::export_media_policy).
pub trait MediaPolicy {
    /// Returns one decision for each item of the request, in the order of the items. The default time limit is 250 ms.
    fn decide(request: Request) -> Result<Vec<Decision>, Failure>;
}

impl Decision {
    /// Creates a decision to send this text instead of the media item.
    pub fn mask(text: impl Into<String>) -> Self {
        Self::Mask(text.into())
    }

    /// Creates a decision to send the image scaled down to fit this size in pixels. The host keeps the aspect ratio.
    pub fn downscale(width: u32, height: u32) -> Self {
        Self::Downscale(Dimensions { width, height })
    }
}

impl<P: MediaPolicy> generated::Guest for crate::Exported<P> {
    fn decide(request: Request) -> Result<Vec<Decision>, Failure> {
        P::decide(request)
    }
}

/// Exports a [`MediaPolicy`](crate::media_policy::MediaPolicy) from the component.
#[macro_export]
macro_rules! export_media_policy {
    ($plugin:ty) => {
        $crate::__export!($plugin, $crate::media_policy::MediaPolicy, media_policy);
    };
}
