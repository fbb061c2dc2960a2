//! Pictures and documents that go with what the user says: files of the scenario's folder.

use super::script::Turn;
use agent_core::message::{Part, TurnInput};
use agent_plugins::{MediumToStore, read_regular_file};
use agent_runtime::Session;
use agent_runtime::media::told_by_bytes;
use std::path::Path;

/// Largest file that goes with what is said.
const MOST_BYTES: u64 = 64 << 20;

/// What is said in the turn, with its media in the session.
pub(super) async fn input(session: &Session, turn: &Turn, folder: &Path) -> Result<TurnInput, String> {
    if turn.media.is_empty() {
        return Ok(TurnInput::Text(turn.say.clone()));
    }
    let mut parts = vec![Part::Text(turn.say.clone())];
    for path in turn.media.iter().map(toml::Spanned::get_ref) {
        let bad = |problem: &str| format!("`{path}` cannot go with what is said: {problem}");
        let bytes = read_regular_file(&folder.join(path), MOST_BYTES)
            .map_err(|error| bad(&format!("{error}; lay it there with `files`")))?;
        let mime_type = told_by_bytes(&bytes).ok_or_else(|| bad("it is neither PNG, JPEG, GIF, WebP nor PDF"))?;
        let name = Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned());
        let medium = MediumToStore { bytes, mime_type: mime_type.to_owned(), name };
        parts.push(Part::Media(session.attach(medium).await.map_err(|error| bad(&error.to_string()))?));
    }
    Ok(TurnInput::Message(parts))
}

/// What is said, for the transcript.
pub(super) fn said(turn: &Turn) -> String {
    let media = turn.media.iter().map(|path| format!("\n[{}]", path.get_ref()));
    std::iter::once(turn.say.clone()).chain(media).collect()
}
