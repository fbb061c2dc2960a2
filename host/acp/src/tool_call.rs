//! Describes tool calls for the editor: title, kind, locations, and content.

use crate::text::{block, code, plain};
use agent_client_protocol::v1::schema::{
    ContentBlock, Diff, ImageContent, TextContent, ToolCallContent, ToolCallLocation, ToolKind,
};
use agent_core::change::CallResult;
use agent_core::message::{Content, Media};
use agent_core::tool::{ToolSource, Traits};
use agent_runtime::{Agent, FileChange, ProposedChange};
use agent_store::Store;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Maximum size of an image that is sent to the editor, in bytes.
const MAX_IMAGE_BYTES: u64 = 8 << 20;
/// Number of bytes of an image that are read at once.
const PIECE_BYTES: u32 = 4 << 20;
/// Maximum size of structured arguments and results that are sent to the editor, as bytes of JSON.
const MAX_RAW_BYTES: usize = 256 << 10;
/// Arguments that say what a call is about, the most important first.
const SUBJECT_ARGUMENTS: [&str; 9] = ["path", "file", "from", "url", "query", "pattern", "command", "name", "text"];
/// Arguments that contain the path of a file or directory.
const PATH_ARGUMENTS: [&str; 5] = ["path", "file", "file_path", "from", "to"];

/// Returns the title of a call: the title of its tool, and what the call is about.
pub(crate) fn title(agent: &Agent, name: &str, arguments: &Value) -> String {
    let tool = agent.registry().get(name);
    let title = tool.and_then(|tool| tool.definition.title.as_deref()).map_or_else(|| code(name), plain);
    let subject = SUBJECT_ARGUMENTS.iter().find_map(|argument| arguments.get(argument).and_then(Value::as_str));
    match subject {
        Some(subject) => format!("{title} {}", code(subject)),
        None => title,
    }
}

/// Returns the kind of a call, which decides how the editor shows it.
pub(crate) fn kind(agent: &Agent, name: &str, arguments: &Value) -> ToolKind {
    let Some(tool) = agent.registry().get(name) else { return ToolKind::Other };
    let Traits { read_only, open_world, .. } = tool.definition.traits;
    let names_file = PATH_ARGUMENTS.iter().any(|argument| arguments.get(argument).is_some_and(Value::is_string));
    let has = |argument: &str| arguments.get(argument).is_some_and(Value::is_string);
    match &tool.source {
        ToolSource::Agent { .. } | ToolSource::Service { .. } | ToolSource::Client => ToolKind::Other,
        _ if read_only && open_world => ToolKind::Fetch,
        _ if read_only && (has("query") || has("pattern")) => ToolKind::Search,
        _ if read_only => ToolKind::Read,
        _ if has("from") && has("to") => ToolKind::Move,
        _ if names_file => ToolKind::Edit,
        _ => ToolKind::Execute,
    }
}

/// Returns the files that the arguments of a call name, if they are in directories that the agent may access.
pub(crate) fn locations(agent: &Agent, arguments: &Value) -> Vec<ToolCallLocation> {
    let trees = agent.granted_trees();
    let named = PATH_ARGUMENTS.iter().filter_map(|argument| arguments.get(argument).and_then(Value::as_str));
    let on_host = named.filter_map(|path| {
        let paths = trees.iter().filter_map(|tree| tree.path_on_host(path));
        paths.max_by_key(|path| path.as_os_str().len())
    });
    on_host.map(ToolCallLocation::new).collect()
}

/// Returns arguments or a structured result, if they are not too large for the editor.
pub(crate) fn raw(value: &Value) -> Option<Value> {
    (value.to_string().len() <= MAX_RAW_BYTES).then(|| value.clone())
}

/// Returns the structured result of a call.
pub(crate) fn raw_output(result: &CallResult) -> Option<Value> {
    match (&result.structured, result.content.as_slice()) {
        (Some(structured), _) => raw(structured),
        (None, [Content::Json(json)]) => raw(json),
        _ => None,
    }
}

/// Returns a text as the content of a call.
pub(crate) fn text(text: &str) -> ToolCallContent {
    ContentBlock::Text(TextContent::new(block(text))).into()
}

/// Returns a change of a file as the content of a call.
pub(crate) fn diff(change: FileChange) -> ToolCallContent {
    Diff::new(change.path, change.new).old_text(change.old).into()
}

/// Returns a change that a call would make to a file as the content of the call. The protocol has no removed files, so the
/// new content of a removed file is empty.
pub(crate) fn proposed_diff(change: ProposedChange) -> ToolCallContent {
    Diff::new(change.path, change.new.unwrap_or_default()).old_text(change.old).into()
}

/// Returns the content of a result. Images are read from the store.
pub(crate) async fn content(store: &dyn Store, session: &str, result: &CallResult) -> Vec<ToolCallContent> {
    let mut contents = Vec::new();
    for content in &result.content {
        contents.push(match content {
            Content::Text(shown) => text(shown),
            Content::Json(json) => text(&serde_json::to_string_pretty(json).unwrap_or_else(|_| json.to_string())),
            Content::Media(media) => media_block(store, session, media).await.into(),
        });
    }
    contents
}

/// Returns a stored image, or a text about another media item.
pub(crate) async fn media_block(store: &dyn Store, session: &str, media: &Media) -> ContentBlock {
    if media.mime_type.starts_with("image/")
        && media.size <= MAX_IMAGE_BYTES
        && let Some(bytes) = read(store, session, media).await
    {
        return ContentBlock::Image(ImageContent::new(STANDARD.encode(bytes), media.mime_type.clone()));
    }
    let name = media.name.as_deref().map(|name| format!("{}: ", plain(name))).unwrap_or_default();
    let about = format!("({name}{} with {} bytes)", plain(&media.mime_type), media.size);
    ContentBlock::Text(TextContent::new(about))
}

async fn read(store: &dyn Store, session: &str, media: &Media) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < media.size {
        let piece = store.read(session, &media.digest, bytes.len() as u64, PIECE_BYTES).await.ok()?;
        if piece.is_empty() {
            return None;
        }
        bytes.extend(piece);
    }
    Some(bytes)
}
