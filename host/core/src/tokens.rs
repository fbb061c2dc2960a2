//! Estimates of the number of tokens in texts and messages. The host uses these estimates to decide which messages fit
//! into a prompt. For all other purposes, the host uses the token counts that the provider reports.

use crate::message::{Content, Media, Part};

/// Estimated number of tokens that a message costs in addition to the tokens of its content.
pub(crate) const PER_MESSAGE: u32 = 4;

/// Estimated number of tokens of one media item, such as an image or a sound file.
const PER_MEDIA_ITEM: u32 = 1_000;

/// The most tokens that providers count for an image, after they have reduced its size.
const MOST_PER_IMAGE: u64 = 2_000;

/// The most tokens that providers count for a page of a document.
const MOST_PER_PAGE: u64 = 3_000;

/// Estimates the number of tokens in `text` at four bytes per token. The ratio fits English text and program code. Text
/// in other scripts has more bytes per character, but also more tokens per character, so the ratio is similar.
pub fn of_text(text: &str) -> u32 {
    u32::try_from(text.len().div_ceil(4)).unwrap_or(u32::MAX)
}

/// Estimates the number of tokens in a message with these parts, including the fixed number of tokens that each
/// message costs.
pub fn of_parts(parts: &[Part]) -> u32 {
    parts.iter().map(of_part).fold(PER_MESSAGE, u32::saturating_add)
}

/// Estimates the number of tokens that a prompt saves if it contains `text` instead of a media item.
pub fn saved_by_mask(text: &str) -> u32 {
    PER_MEDIA_ITEM.saturating_sub(of_text(text))
}

/// Estimates the number of tokens that the media items in a result's content cost.
pub fn of_media(content: &[Content]) -> u32 {
    let media = content.iter().filter(|content| matches!(content, Content::Media(_))).count();
    u32::try_from(media).unwrap_or(u32::MAX).saturating_mul(PER_MEDIA_ITEM)
}

/// Estimates the most tokens that a provider counts for a media item. Providers count pages, seconds or pixels, which the host
/// does not know, so the estimate depends on the type and the size in bytes, and is usually too high.
pub fn at_most_of_media(media: &Media) -> u64 {
    let (size, kind) = (media.size, media.mime_type.split('/').next().unwrap_or_default());
    match kind {
        "image" => MOST_PER_IMAGE,
        // Speech at the lowest usual bit rate has about 1,000 bytes per second, for which providers count about 32 tokens.
        "audio" | "video" => (size / 30).max(MOST_PER_IMAGE),
        // A page costs up to 3,000 tokens, and the pages of a text have a few kilobytes each. No provider reads more than 1,000
        // pages.
        _ if media.mime_type == "application/pdf" => (size / 2).clamp(MOST_PER_PAGE, 1_000 * MOST_PER_PAGE),
        _ => (size / 3).max(MOST_PER_IMAGE),
    }
}

/// Returns the media items in the parts of a message.
pub(crate) fn media_in(parts: &[Part]) -> impl Iterator<Item = &Media> {
    parts.iter().flat_map(|part| -> Box<dyn Iterator<Item = &Media>> {
        match part {
            Part::Media(media) => Box::new(std::iter::once(media)),
            Part::ToolResult(result) => Box::new(result.content.iter().filter_map(|content| match content {
                Content::Media(media) => Some(media),
                Content::Text(_) | Content::Json(_) => None,
            })),
            _ => Box::new(std::iter::empty()),
        }
    })
}

fn of_part(part: &Part) -> u32 {
    match part {
        Part::Text(text) | Part::Preface(text) => of_text(text),
        Part::Json(json) => of_text(&json.to_string()),
        Part::Media(_) => PER_MEDIA_ITEM,
        Part::ToolCall(call) => of_text(&call.name).saturating_add(of_text(&call.arguments.to_string())),
        Part::Replay(replay) => of_text(&replay.data.to_string()),
        Part::ToolResult(result) => result.content.iter().fold(0, |sum, content| {
            sum.saturating_add(match content {
                Content::Text(text) => of_text(text),
                Content::Json(json) => of_text(&json.to_string()),
                Content::Media(_) => PER_MEDIA_ITEM,
            })
        }),
    }
}
