//! Media policies, which decide what a provider gets of the conversation's media. They have no effective imports and
//! get no bytes.

use crate::bindings::media_policy::exports::agent_host::plugin::media_policy as generated;
use crate::types::{Dimensions, Failure};
pub use generated::{Decision, Item, Position, Request};

/// A media policy. Export it with [`export_media_policy!`](crate::export_media_policy).
pub trait MediaPolicy {
    /// Returns one decision per item of the request, in the same order. Default time limit: 250 ms.
    fn decide(request: Request) -> Result<Vec<Decision>, Failure>;
}

impl Decision {
    /// Sends this text instead of the medium.
    pub fn mask(text: impl Into<String>) -> Self {
        Self::Mask(text.into())
    }

    /// Sends the image scaled down to fit this size. The aspect ratio is kept.
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
