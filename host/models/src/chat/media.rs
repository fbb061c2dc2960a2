//! How a medium is sent, and what is said of one that is not.

use super::dialect::{Dialect, OtherMedia};
use agent_core::message::Media;
use serde_json::{Value, json};

/// Image types that every model with eyes takes.
const IMAGES: &[&str] = &["image/png", "image/jpeg", "image/gif", "image/webp"];

/// A medium that can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// As a data URL.
    Image,
    /// As bare base64 with its format: `wav` or `mp3`.
    Audio(&'static str),
    /// As a file with a data URL.
    Pdf,
}

impl Kind {
    /// How a medium of that type is sent; none where it is only described.
    pub(super) fn of(mime_type: &str, dialect: Dialect) -> Option<Self> {
        let other = dialect.other_media();
        let audio = other != OtherMedia::Nothing;
        match mime_type {
            image if IMAGES.contains(&image) => Some(Self::Image),
            "audio/wav" | "audio/x-wav" | "audio/wave" | "audio/vnd.wave" if audio => Some(Self::Audio("wav")),
            "audio/mpeg" | "audio/mp3" if audio => Some(Self::Audio("mp3")),
            "application/pdf" if other == OtherMedia::AudioAndPdf => Some(Self::Pdf),
            _ => None,
        }
    }

    /// The part of a user's message.
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

/// What a model and people are told of a medium: enough to ask a tool for it.
pub(super) fn name(media: &Media) -> String {
    let mut words = vec![media.mime_type.clone()];
    words.extend(media.name.as_ref().map(|name| format!("`{name}`")));
    words.extend(media.dimensions.map(|dimensions| format!("{} × {} pixels", dimensions.width, dimensions.height)));
    words.push(media.digest.to_string());
    words.join(", ")
}

/// The same for people, and where the whole was said before.
pub(super) fn short_name(media: &Media) -> String {
    let name = media.name.as_ref().map(|name| format!("`{name}`, ")).unwrap_or_default();
    format!("{}, {name}{}", media.mime_type, media.digest.short())
}

/// What stands in place of a medium that this provider cannot be sent.
pub(super) fn not_shown(media: &Media) -> String {
    format!("[{}, {} bytes: this model cannot be shown it]", name(media), media.size)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P4
    #[test]
    fn what_is_sent_to_whom() {
        let cases = [
            ("image/png", Dialect::DeepSeek, Some(Kind::Image)),
            ("image/tiff", Dialect::OpenAi, None),
            ("image/svg+xml", Dialect::OpenAi, None),
            ("audio/mpeg", Dialect::OpenAi, Some(Kind::Audio("mp3"))),
            ("audio/wav", Dialect::SelfHosted, Some(Kind::Audio("wav"))),
            ("audio/wav", Dialect::Groq, None),
            ("audio/ogg", Dialect::OpenAi, None),
            ("application/pdf", Dialect::Common, Some(Kind::Pdf)),
            ("application/pdf", Dialect::SelfHosted, None),
            ("video/mp4", Dialect::OpenAi, None),
        ];
        for (mime_type, dialect, expected) in cases {
            assert_eq!(Kind::of(mime_type, dialect), expected, "{mime_type} to {dialect:?}");
        }
    }
}
