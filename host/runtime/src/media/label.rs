//! Adds labels to the media in a prompt. A label is a line of text that precedes a media item and contains the item's
//! name and digest. The model uses the digest to refer to the item in a tool call.

use agent_core::message::{Content, Media, Message, Part};
use agent_core::visible::visible_name;

/// Maximum number of characters of a media item's name in a label.
const MAX_NAME_CHARACTERS: usize = 60;

/// Puts a label before each media item that is not masked. The labels change the indexes of a message's parts, and
/// masks refer to parts by index. The caller must therefore mask the media first, and must add labels only to the copy
/// of the messages that is sent to the model.
pub(crate) fn with_labels(messages: &mut [Message]) {
    for message in messages {
        if message.parts.iter().any(|part| matches!(part, Part::Media(_))) {
            let parts = std::mem::take(&mut message.parts).into_iter();
            message.parts = parts.flat_map(|part| labelled(part, Part::Text, media_of_part)).collect();
        }
        for part in &mut message.parts {
            if let Part::ToolResult(result) = part {
                let content = std::mem::take(&mut result.content).into_iter();
                result.content = content.flat_map(|item| labelled(item, Content::Text, media_of_content)).collect();
            }
        }
    }
}

fn labelled<T>(item: T, text: fn(String) -> T, media_of: fn(&T) -> Option<&Media>) -> impl Iterator<Item = T> {
    let label = media_of(&item).map(|media| text(label(media)));
    label.into_iter().chain([item])
}

fn media_of_part(part: &Part) -> Option<&Media> {
    match part {
        Part::Media(media) => Some(media),
        _ => None,
    }
}

fn media_of_content(content: &Content) -> Option<&Media> {
    match content {
        Content::Media(media) => Some(media),
        _ => None,
    }
}

/// Returns the label of a media item. The label depends only on the media item, so that an item has the same label
/// in every prompt.
fn label(media: &Media) -> String {
    format!("[{}; {}]", about(media), media.digest)
}

/// Returns a text that contains the name, type and size of a media item.
pub(crate) fn about(media: &Media) -> String {
    let name = visible_name(media.name.as_deref().unwrap_or("unnamed"), MAX_NAME_CHARACTERS);
    let size = match media.dimensions {
        Some(size) => format!("{} × {} pixels", size.width, size.height),
        None => format!("{} bytes", media.size),
    };
    format!("{name}: {}, {size}", media.mime_type)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::message::{CallId, Dimensions, Role, ToolResult};
    use agent_store::digest_of;

    /// P4, P2: every media item in messages and tool results gets a label, with which the model can refer to the item.
    #[test]
    fn p4_every_media_item_has_a_label() {
        let media = |name: Option<&str>, dimensions| Media {
            digest: digest_of(b"bytes"),
            mime_type: "image/png".to_owned(),
            size: 5,
            dimensions,
            name: name.map(str::to_owned),
        };
        let sized = media(Some("a\u{1b}\n.png"), Some(Dimensions { width: 4, height: 3 }));
        let content = vec![Content::Text("made".to_owned()), Content::Media(media(None, None))];
        let result = ToolResult { call_id: CallId("c".to_owned()), name: "t".to_owned(), content, is_error: false };
        let message = |role, parts| Message { role, parts, seen_count: 0 };
        let mut messages = [
            message(Role::User, vec![Part::Text("look".to_owned()), Part::Media(sized.clone())]),
            message(Role::Tool, vec![Part::ToolResult(result)]),
        ];
        with_labels(&mut messages);
        let (digest, name) = (digest_of(b"bytes"), r"a\u{1b}\u{a}.png");
        let expected = [
            Part::Text("look".to_owned()),
            Part::Text(format!("[{name}: image/png, 4 × 3 pixels; {digest}]")),
            Part::Media(sized),
        ];
        assert_eq!(messages[0].parts, expected);
        let Part::ToolResult(result) = &messages[1].parts[0] else { panic!("{:?}", messages[1]) };
        assert_eq!(result.content[1], Content::Text(format!("[unnamed: image/png, 5 bytes; {digest}]")));
        assert_eq!(result.content.len(), 3);
    }
}
