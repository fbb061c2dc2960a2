//! Decides in which form a media item is sent, and describes media items that cannot be sent.

use super::dialect::{Dialect, OtherMedia};
use agent_core::message::Media;
use serde_json::{Value, json};

/// Image types that every vision model accepts.
const IMAGES: &[&str] = &["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Form in which a media item is sent to the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MediaKind {
    /// An image, which is sent as a data URL.
    Image,
    /// Audio, which is sent as base64 data with the name of the audio format, `wav` or `mp3`.
    Audio(&'static str),
    /// A PDF file, which is sent as a data URL.
    Pdf,
}

impl MediaKind {
    /// Returns the form in which a media item of this type is sent. Returns `None` if the server does not accept this
    /// type, so that only a description of the item can be sent.
    pub(super) fn of(mime_type: &str, dialect: Dialect) -> Option<Self> {
        let other = dialect.other_media();
        let audio = other != OtherMedia::ImagesOnly;
        match mime_type {
            image if IMAGES.contains(&image) => Some(Self::Image),
            "audio/wav" | "audio/x-wav" | "audio/wave" | "audio/vnd.wave" if audio => Some(Self::Audio("wav")),
            "audio/mpeg" | "audio/mp3" if audio => Some(Self::Audio("mp3")),
            "application/pdf" if other == OtherMedia::AudioAndPdf => Some(Self::Pdf),
            _ => None,
        }
    }

    /// Builds the part of a user message that contains the media item.
    pub(super) fn part(self, media: &Media, mime_type: &str, base64: &str) -> Value {
        match self {
            Self::Image => {
                json!({ "type": "image_url", "image_url": { "url": format!("data:{mime_type};base64,{base64}") } })
            }
            Self::Audio(format) => {
                json!({ "type": "input_audio", "input_audio": { "data": base64, "format": format } })
            }
            Self::Pdf => {
                let name = media.name.as_deref().unwrap_or("document.pdf");
                let data = format!("data:{mime_type};base64,{base64}");
                json!({ "type": "file", "file": { "filename": name, "file_data": data } })
            }
        }
    }
}

/// Returns a description of the media item with enough detail for the model to request the item from a tool.
pub(super) fn description(media: &Media) -> String {
    let mut words = vec![media.mime_type.clone()];
    words.extend(media.name.as_ref().map(|name| format!("`{name}`")));
    words.extend(media.dimensions.map(|dimensions| format!("{} × {} pixels", dimensions.width, dimensions.height)));
    words.push(media.digest.to_string());
    words.join(", ")
}

/// Returns a short description of the media item, for error messages and for texts that refer to an item in the
/// same request.
pub(super) fn short_description(media: &Media) -> String {
    let name = media.name.as_ref().map(|name| format!("`{name}`, ")).unwrap_or_default();
    format!("{}, {name}{}", media.mime_type, media.digest.short())
}

/// Returns the text that replaces a media item that the provider does not accept.
pub(super) fn placeholder(media: &Media) -> String {
    format!("[{}, {} bytes: this model cannot view it]", description(media), media.size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p4_the_form_of_a_media_item_depends_on_its_type_and_the_dialect() {
        let cases = [
            ("image/png", Dialect::DeepSeek, Some(MediaKind::Image)),
            ("image/tiff", Dialect::OpenAi, None),
            ("image/svg+xml", Dialect::OpenAi, None),
            ("audio/mpeg", Dialect::OpenAi, Some(MediaKind::Audio("mp3"))),
            ("audio/wav", Dialect::SelfHosted, Some(MediaKind::Audio("wav"))),
            ("audio/wav", Dialect::Groq, None),
            ("audio/ogg", Dialect::OpenAi, None),
            ("application/pdf", Dialect::Common, Some(MediaKind::Pdf)),
            ("application/pdf", Dialect::SelfHosted, None),
            ("video/mp4", Dialect::OpenAi, None),
        ];
        for (mime_type, dialect, expected) in cases {
            assert_eq!(MediaKind::of(mime_type, dialect), expected, "{mime_type} to {dialect:?}");
        }
    }
}
