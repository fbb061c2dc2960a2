//! Describes media items in texts for the model and in error messages.

use agent_core::message::Media;

/// Returns a description of the media item with enough detail for the model to request the item from a tool.
pub(in crate::encode) fn description(media: &Media) -> String {
    let mut words = vec![media.mime_type.clone()];
    words.extend(media.name.as_ref().map(|name| format!("`{name}`")));
    words.extend(media.dimensions.map(|dimensions| format!("{} × {} pixels", dimensions.width, dimensions.height)));
    words.push(media.digest.to_string());
    words.join(", ")
}

/// Returns a short description of the media item, for error messages and for texts that refer to an item in the
/// same request.
pub(in crate::encode) fn short_description(media: &Media) -> String {
    let name = media.name.as_ref().map(|name| format!("`{name}`, ")).unwrap_or_default();
    format!("{}, {name}{}", media.mime_type, media.digest.short())
}

/// Returns the text that replaces a media item that the provider does not accept.
pub(in crate::encode) fn placeholder(media: &Media) -> String {
    format!("[{}, {} bytes: this model cannot view it]", description(media), media.size)
}
