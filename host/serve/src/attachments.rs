//! Images and other media items that a request contains as base64, for prompts with attachments.

use agent_runtime::{NewMediaItem, media};
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;
use utoipa::ToSchema;

/// Maximum number of media items in one request.
pub(crate) const MAX_ATTACHMENTS: usize = 20;
/// Maximum size of the name of a media item, in bytes.
const NAME_BYTES: usize = 255;
/// Maximum size of a media type, in bytes.
const MEDIA_TYPE_BYTES: usize = 255;

/// Accepts base64 with and without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// An image or another media item that belongs to a prompt.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Attachment {
    /// The media type. PNG, JPEG, GIF, WebP and PDF must match the first bytes of the data.
    #[schema(example = "image/png")]
    mime_type: String,
    /// The bytes, as base64.
    data: String,
    /// A name that is shown to users. It is never used as a path.
    name: Option<String>,
}

/// Decodes the attachments of a prompt.
pub(crate) fn decode_attachments(attachments: Vec<Attachment>) -> Result<Vec<NewMediaItem>, String> {
    if attachments.len() > MAX_ATTACHMENTS {
        return Err(format!("a prompt can have at most {MAX_ATTACHMENTS} attachments, not {}", attachments.len()));
    }
    let decode = |(number, Attachment { mime_type, data, name }): (usize, Attachment)| {
        media_item(&mime_type, &data, name).map_err(|problem| format!("attachments[{number}]: {problem}"))
    };
    attachments.into_iter().enumerate().map(decode).collect()
}

/// Decodes one media item, and checks that its bytes can have its media type.
pub(crate) fn media_item(mime_type: &str, data: &str, name: Option<String>) -> Result<NewMediaItem, String> {
    if mime_type.len() > MEDIA_TYPE_BYTES {
        return Err(format!("the media type has more than {MEDIA_TYPE_BYTES} bytes"));
    }
    checked(decode(data)?, mime_type, name)
}

/// Decodes one media item whose media type is not known. The type is recognised from the bytes if possible.
pub(crate) fn media_item_of_any_type(data: &str, name: Option<String>) -> Result<NewMediaItem, String> {
    let bytes = decode(data)?;
    let mime_type = media::media_type_from_bytes(&bytes).unwrap_or("application/octet-stream");
    checked(bytes, mime_type, name)
}

fn decode(data: &str) -> Result<Vec<u8>, String> {
    let bytes = BASE64.decode(data).map_err(|_| "the data is not valid base64".to_owned())?;
    if bytes.is_empty() { Err("the data is empty".to_owned()) } else { Ok(bytes) }
}

fn checked(bytes: Vec<u8>, mime_type: &str, name: Option<String>) -> Result<NewMediaItem, String> {
    if let Some(name) = &name
        && (name.len() > NAME_BYTES || name.chars().any(char::is_control))
    {
        return Err(format!("the name must have at most {NAME_BYTES} bytes and no control characters"));
    }
    let about = media::describe(&bytes, mime_type, name)?;
    Ok(NewMediaItem { bytes, mime_type: about.mime_type, name: about.name })
}

/// Decodes a URL such as `data:image/png;base64,…`. The host fetches nothing for a client, so other URLs are refused.
pub(crate) fn media_item_of_url(url: &str, name: Option<String>) -> Result<NewMediaItem, String> {
    let is_data = url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"));
    if !is_data {
        return Err(
            "only `data:` URLs are accepted, because the host fetches nothing for a client; send the bytes as \
                    `data:image/png;base64,…`"
                .to_owned(),
        );
    }
    let (about, data) = url[5..].split_once(',').ok_or("the `data:` URL contains no comma before its data")?;
    let mime_type = about.strip_suffix(";base64").ok_or("the data of a `data:` URL must be base64")?;
    media_item(mime_type, data, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I3: data URLs are decoded. URLs that the host would have to fetch, and bytes of another type, are refused.
    #[test]
    fn i3_only_data_urls_with_matching_bytes_are_accepted() {
        let item = media_item_of_url("data:text/plain;base64,aGVsbG8=", Some("a.txt".to_owned())).unwrap();
        assert_eq!((item.bytes.as_slice(), item.mime_type.as_str()), (&b"hello"[..], "text/plain"));
        assert_eq!(media_item_of_url("DATA:text/plain;charset=utf-8;base64,aGVsbG8", None).unwrap().bytes, b"hello");
        for url in [
            "https://example.com/a.png",
            "http://169.254.169.254/",
            "file:///etc/passwd",
            "",
            "data:",
            "data:image/png",
            "data:text/plain,hello",
            "data:text/plain;base64,%%%",
            "data:text/plain;base64,",
            "data:image/png;base64,aGVsbG8=",
            "data:;base64,aGVsbG8=",
            "dat\u{e4}",
        ] {
            assert!(media_item_of_url(url, None).is_err(), "{url}");
        }
        for name in ["a\nb", "\u{0}", &"a".repeat(256)] {
            assert!(media_item("text/plain", "aGVsbG8=", Some(name.to_owned())).is_err(), "{name:?}");
        }
    }
}
