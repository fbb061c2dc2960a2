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

/// Returns the file name of a PDF file. OpenAI rejects files whose names do not end in `.pdf`.
pub(in crate::encode) fn pdf_name(media: &Media) -> String {
    let name = media.name.as_deref().map(str::trim).filter(|name| !name.is_empty()).unwrap_or("document");
    if name.to_ascii_lowercase().ends_with(".pdf") { name.to_owned() } else { format!("{name}.pdf") }
}
