//! Media policies: what the provider gets to see of the conversation's media. What they import is inert, and they get no bytes.

use crate::bindings::media_policy::exports::agent_host::plugin::media_policy as generated;
use crate::types::{Dimensions, Failure};
pub use generated::{Decision, Item, Position, Request};

/// A policy. Export it with [`export_media_policy!`](crate::export_media_policy).
pub trait MediaPolicy {
    /// One decision for each of the request's items, in the same order; within 250 ms by default.
    fn decide(request: Request) -> Result<Vec<Decision>, Failure>;
}

impl Decision {
    /// Sends this text in the medium's place.
    pub fn mask(text: impl Into<String>) -> Self {
        Self::Mask(text.into())
    }

    /// Sends the image at most so large, its sides in proportion.
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
