//! Decides in which form a media item is sent.

use super::dialect::{Dialect, OtherMedia};
use crate::encode::media::pdf_name;
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
                let name = pdf_name(media);
                let data = format!("data:{mime_type};base64,{base64}");
                json!({ "type": "file", "file": { "filename": name, "file_data": data } })
            }
        }
    }
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
