//! Attaches the media files of a turn, which are in the scenario's folder, to the user's input.

use super::script::Turn;
use agent_core::message::{Part, TurnInput};
use agent_plugins::{NewMediaItem, read_regular_file};
use agent_runtime::Session;
use agent_runtime::media::media_type_from_bytes;
use std::path::Path;

/// Maximum size of a file that can be attached, in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// Returns the input of the turn. Stores the media of the input in the session.
pub(super) async fn input(session: &Session, turn: &Turn, folder: &Path) -> Result<TurnInput, String> {
    if turn.media.is_empty() {
        return Ok(TurnInput::Text(turn.say.clone()));
    }
    let mut parts = vec![Part::Text(turn.say.clone())];
    for path in turn.media.iter().map(toml::Spanned::get_ref) {
        let attachment_error = |problem: &str| format!("`{path}` cannot be attached: {problem}");
        let bytes = read_regular_file(&folder.join(path), MAX_BYTES)
            .map_err(|error| attachment_error(&format!("{error}; add the file with `files`")))?;
        let mime_type = media_type_from_bytes(&bytes)
            .ok_or_else(|| attachment_error("the file is not a PNG, JPEG, GIF, WebP or PDF file"))?;
        let name = Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned());
        let media_item = NewMediaItem { bytes, mime_type: mime_type.to_owned(), name };
        parts
            .push(Part::Media(session.attach(media_item).await.map_err(|error| attachment_error(&error.to_string()))?));
    }
    Ok(TurnInput::Message(parts))
}

/// Returns the user's input for the transcript, with one line for each attached file.
pub(super) fn input_text(turn: &Turn) -> String {
    let media = turn.media.iter().map(|path| format!("\n[{}]", path.get_ref()));
    std::iter::once(turn.say.clone()).chain(media).collect()
}
