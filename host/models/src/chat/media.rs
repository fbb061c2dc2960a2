//! Decides how a media item is sent, and describes one that cannot be sent.

use super::dialect::{Dialect, OtherMedia};
use agent_core::message::Media;
use serde_json::{Value, json};

/// Image types that every vision model accepts.
const IMAGES: &[&str] = &["image/png", "image/jpeg", "image/gif", "image/webp"];

/// How a media item is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MediaKind {
    /// As an image with a data URL.
    Image,
    /// As plain base64 with its format: `wav` or `mp3`.
    Audio(&'static str),
    /// As a file with a data URL.
    Pdf,
}

impl MediaKind {
    /// Returns how an item of this type is sent, or `None` if it can only be described.
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

    /// Builds the content part of a user message.
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

/// Describes an item in enough detail to request it from a tool.
pub(super) fn description(media: &Media) -> String {
    let mut words = vec![media.mime_type.clone()];
    words.extend(media.name.as_ref().map(|name| format!("`{name}`")));
    words.extend(media.dimensions.map(|dimensions| format!("{} × {} pixels", dimensions.width, dimensions.height)));
    words.push(media.digest.to_string());
    words.join(", ")
}

/// A shorter description, for people and for items that were already described.
pub(super) fn short_description(media: &Media) -> String {
    let name = media.name.as_ref().map(|name| format!("`{name}`, ")).unwrap_or_default();
    format!("{}, {name}{}", media.mime_type, media.digest.short())
}

/// Text that replaces an item that this provider does not accept.
pub(super) fn placeholder(media: &Media) -> String {
    format!("[{}, {} bytes: this model cannot view it]", description(media), media.size)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P4
    #[test]
    fn p4_media_kinds_by_type_and_dialect() {
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
