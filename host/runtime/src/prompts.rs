//! The steps that turn stored messages into the prompt of a model call. A model call, and the reconstruction of a recorded
//! model call (D1), use the same steps.

use agent_core::message::{Content, Media, Message, MessageId, Part, Role};
use agent_core::model::ModelRequest;
use agent_core::plugin::{MediaPosition, PolicyItem};
use agent_core::text_dialect::{ToolAddress, calls_as_text};

/// Adds parts to the message that follows the first `from_history` messages. If the prompt contains no further message,
/// appends a new message to the prompt.
pub(crate) fn add_last(request: &mut ModelRequest, from_history: usize, parts: Vec<Part>) {
    match request.messages.get_mut(from_history) {
        Some(message) => message.parts.extend(parts),
        None if parts.is_empty() => {}
        None => request.messages.push(Message { role: Role::User, parts, seen_count: 0 }),
    }
}

/// Converts a message of the history for the provider: tool names become provider names, and the preface becomes
/// text (L14, L22). `provider_name` returns the provider name of a tool, or `None` if the provider uses the name in
/// the history.
pub(crate) fn for_provider<'n>(mut message: Message, provider_name: impl Fn(&str) -> Option<&'n str>) -> Message {
    for part in &mut message.parts {
        let name = match part {
            Part::ToolCall(call) => &mut call.name,
            Part::ToolResult(result) => &mut result.name,
            Part::Preface(text) => {
                *part = Part::Text(std::mem::take(text));
                continue;
            }
            _ => continue,
        };
        if let Some(provider) = provider_name(name).filter(|provider| provider != name) {
            *name = provider.to_owned();
        }
    }
    message
}

/// Writes the tools as sections of the message with the index `turn`, in which the turn began, and writes all calls and
/// results as text (L20). If there is no such message, appends a new message with the sections.
pub(crate) fn write_as_text(
    request: &mut ModelRequest,
    turn: Option<usize>,
    sections: Vec<String>,
    address: &dyn Fn(&str) -> ToolAddress,
) {
    request.tools.clear();
    let sections: Vec<Part> = sections.into_iter().map(Part::Text).collect();
    match turn.and_then(|index| request.messages.get_mut(index)).filter(|message| message.role == Role::User) {
        Some(message) => drop(message.parts.splice(0..0, sections)),
        None if sections.is_empty() => {}
        None => request.messages.push(Message { role: Role::User, parts: sections, seen_count: 0 }),
    }
    let messages = std::mem::take(&mut request.messages);
    request.messages = calls_as_text(messages, address);
}

/// A media item of the outgoing prompt.
pub(crate) struct OutgoingMediaItem {
    pub(crate) item: PolicyItem,
    /// Position of the media item in the stored history, by which masks refer to the item.
    pub(crate) stored_position: StoredPosition,
}

/// Position of a media item in the stored history: the message, the index of the message's part and, if the part is a
/// tool result, the index among the media of the result. The position in the outgoing prompt depends on how much of a
/// result's text is shown, but the position in the stored history does not.
pub(crate) type StoredPosition = (MessageId, u32, Option<u32>);

/// Returns all media of the outgoing prompt with their stored positions.
pub(crate) fn outgoing_media(
    request: &ModelRequest,
    ids: &[MessageId],
    is_masked: impl Fn(StoredPosition) -> bool,
) -> Vec<OutgoingMediaItem> {
    let mut found = Vec::new();
    for (message, (id, sent)) in (0..).zip(ids.iter().zip(&request.messages)) {
        let mut push = |part: u32, (item, media_index): (Option<u32>, Option<u32>), media: &Media| {
            let stored_position = (*id, part, media_index);
            let position = MediaPosition { message, part, item };
            let (role, seen_count, masked) = (sent.role, sent.seen_count, is_masked(stored_position));
            let item = PolicyItem { position, role, seen_count, media: media.clone(), masked };
            found.push(OutgoingMediaItem { item, stored_position });
        };
        for (number, part) in (0..).zip(&sent.parts) {
            match part {
                Part::Media(media) => push(number, (None, None), media),
                Part::ToolResult(result) => {
                    let content = (0..).zip(&result.content);
                    let media = content.filter_map(|(item, content)| match content {
                        Content::Media(media) => Some((item, media)),
                        _ => None,
                    });
                    for (media_index, (item, media)) in (0..).zip(media) {
                        push(number, (Some(item), Some(media_index)), media);
                    }
                }
                _ => {}
            }
        }
    }
    found
}

/// Replaces a media item of the prompt by a text.
pub(crate) fn replace_media_item(request: &mut ModelRequest, position: MediaPosition, text: String) {
    let Some(message) = request.messages.get_mut(position.message as usize) else { return };
    let Some(part) = message.parts.get_mut(position.part as usize) else { return };
    match (part, position.item) {
        (part @ Part::Media(_), None) => *part = Part::Text(text),
        (Part::ToolResult(result), Some(item)) => {
            if let Some(content) = result.content.get_mut(item as usize) {
                *content = Content::Text(text);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::message::{CallId, StoredMessage, ToolResult};
    use agent_core::model::Model;
    use agent_core::plugin::Lifecycle;
    use agent_core::view::shown_message;
    use agent_store::digest_of;

    fn media_item(name: &str) -> Media {
        let (digest, mime_type) = (digest_of(name.as_bytes()), "image/png".to_owned());
        Media { digest, mime_type, size: 5, dimensions: None, name: Some(name.to_owned()) }
    }

    fn request(message: Message) -> ModelRequest {
        let model = Model { provider: "p".to_owned(), name: "m".to_owned(), window: 1 };
        ModelRequest {
            model,
            lifecycle: Lifecycle::Init,
            system: Vec::new(),
            messages: vec![message],
            downscaled: Vec::new(),
            tools: Vec::new(),
            output_schema: None,
            max_tokens: 1,
        }
    }

    /// P4: a mask applies to the same media item whether the texts before the item are shown completely or truncated.
    #[test]
    fn p4_stored_media_positions_do_not_depend_on_the_shown_text_length() {
        let text = |text: &str| Content::Text(text.to_owned());
        let content = vec![
            text("one"),
            text("two"),
            Content::Media(media_item("a")),
            text("three"),
            Content::Media(media_item("b")),
        ];
        let result = ToolResult { call_id: CallId("c".to_owned()), name: "t".to_owned(), content, is_error: false };
        let parts = vec![Part::ToolResult(result)];
        let stored = StoredMessage { id: 7, turn: 1, role: Role::Tool, parts, tokens: 1 };
        let positions = |limit: usize| {
            let request = request(shown_message(&stored, 0, limit));
            let found = outgoing_media(&request, &[7], |position| position == (7, 0, Some(1)));
            let about =
                |found: &OutgoingMediaItem| (found.stored_position, found.item.position.item, found.item.masked);
            found.iter().map(about).collect::<Vec<_>>()
        };
        assert_eq!(positions(1_000), [((7, 0, Some(0)), Some(2), false), ((7, 0, Some(1)), Some(4), true)]);
        assert_eq!(positions(5), [((7, 0, Some(0)), Some(1), false), ((7, 0, Some(1)), Some(2), true)]);
    }
}
