//! Token estimates. The provider's counts are authoritative; the estimates only decide what is sent.

use crate::message::{Content, Part};

/// Tokens that a message costs in addition to its content.
pub(crate) const PER_MESSAGE: u32 = 4;

/// Estimate for one image, page or sound.
const PER_MEDIUM: u32 = 1_000;

/// Estimates the tokens of a text. About four bytes of English or code make a token; other scripts have more bytes
/// and more tokens per character.
pub fn of_text(text: &str) -> u32 {
    u32::try_from(text.len().div_ceil(4)).unwrap_or(u32::MAX)
}

/// Estimates the tokens of a whole message.
pub fn of_parts(parts: &[Part]) -> u32 {
    parts.iter().map(of_part).fold(PER_MESSAGE, u32::saturating_add)
}

/// Estimates the tokens of the media in a result's content.
pub fn of_media(content: &[Content]) -> u32 {
    let media = content.iter().filter(|content| matches!(content, Content::Media(_))).count();
    u32::try_from(media).unwrap_or(u32::MAX).saturating_mul(PER_MEDIUM)
}

fn of_part(part: &Part) -> u32 {
    match part {
        Part::Text(text) | Part::Preface(text) => of_text(text),
        Part::Json(json) => of_text(&json.to_string()),
        Part::Media(_) => PER_MEDIUM,
        Part::ToolCall(call) => of_text(&call.name).saturating_add(of_text(&call.arguments.to_string())),
        Part::Replay(replay) => of_text(&replay.data.to_string()),
        Part::ToolResult(result) => result.content.iter().fold(0, |sum, content| {
            sum.saturating_add(match content {
                Content::Text(text) => of_text(text),
                Content::Json(json) => of_text(&json.to_string()),
                Content::Media(_) => PER_MEDIUM,
            })
        }),
    }
}
