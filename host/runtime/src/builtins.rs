//! The host's own tools, under the same grants as plugins (L7).

mod definitions;
mod finishing;
mod trees;

pub use definitions::definitions;
pub use finishing::finishing_definitions;
pub(crate) use finishing::{but_the_result, loop_break};

use crate::session::Shared;
use agent_core::change::CallResult;
use agent_core::message::{Content, Part};
use agent_core::tool::{ToolDone, ToolError};
use agent_core::view::result_text;
use agent_store::{CallFilter, MessageHit, MessageRange};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;
use trees::HostTrees;

/// Names of the built-in tools.
pub mod name {
    /// Entries of a directory.
    pub const LIST_DIRECTORY: &str = "list_directory";
    /// Lines of a file.
    pub const READ_FILE: &str = "read_file";
    /// The rest of a result that was cut.
    pub const READ_RESULT: &str = "read_result";
    /// Facts from long-term memory, and what this session's evicted messages said.
    pub const MEMORY_SEARCH: &str = "memory_search";
}

/// How long a file system may take before the call is given up.
const FILE_TIME: Duration = Duration::from_secs(30);
/// Characters kept for the note that follows a part of a result.
const NOTE_CHARACTERS: usize = 200;
/// Facts that a search returns at most.
const MAX_FACTS: usize = 50;

#[derive(Deserialize)]
struct ListDirectory {
    path: String,
}

#[derive(Deserialize)]
struct ReadFile {
    path: String,
    #[serde(default = "one")]
    from_line: u64,
    lines: Option<u64>,
}

#[derive(Deserialize)]
struct ReadResult {
    call_id: String,
    #[serde(default)]
    offset: u64,
}

#[derive(Deserialize)]
struct MemorySearch {
    query: String,
    limit: Option<usize>,
}

fn one() -> u64 {
    1
}

/// Runs one of the host's own tools. The arguments satisfy its schema.
pub(crate) async fn call(shared: &Shared, name: &str, arguments: &Value) -> Result<ToolDone, ToolError> {
    match name {
        name::LIST_DIRECTORY => {
            let ListDirectory { path } = read(arguments)?;
            in_trees(shared, move |trees| trees::list(trees, &path)).await
        }
        name::READ_FILE => {
            let ReadFile { path, from_line, lines } = read(arguments)?;
            in_trees(shared, move |trees| trees::read(trees, &path, from_line, lines)).await
        }
        name::READ_RESULT => read_result(shared, read(arguments)?).await,
        name::MEMORY_SEARCH => memory_search(shared, read(arguments)?).await,
        _ => Err(ToolError::NotFound { message: format!("the host has no tool `{name}`") }),
    }
}

fn read<'a, T: Deserialize<'a>>(arguments: &'a Value) -> Result<T, ToolError> {
    T::deserialize(arguments).map_err(|error| ToolError::Failed { message: format!("the arguments: {error}") })
}

/// Runs file work off the async threads. What blocks for longer than its time is left behind (row 33).
async fn in_trees(
    shared: &Shared,
    work: impl FnOnce(&HostTrees) -> Result<ToolDone, ToolError> + Send + 'static,
) -> Result<ToolDone, ToolError> {
    let trees = HostTrees { sandbox: shared.sandbox.clone(), granted: shared.host_trees() };
    let work = tokio::task::spawn_blocking(move || work(&trees));
    match tokio::time::timeout(FILE_TIME, work).await {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => Err(ToolError::Failed { message: format!("reading failed: {panic}") }),
        Err(_) => Err(ToolError::Unavailable {
            message: format!("the file system did not answer within {} s", FILE_TIME.as_secs()),
            retry_after: None,
        }),
    }
}

/// The rest of a stored result, from a character on (L26).
async fn read_result(shared: &Shared, ReadResult { call_id, offset }: ReadResult) -> Result<ToolDone, ToolError> {
    let missing = || ToolError::NotFound { message: format!("this session has no finished call `{call_id}`") };
    let filter = CallFilter::Ids(shared.call_ids(&call_id));
    let calls = shared.store.calls(&shared.subject, filter).await;
    let calls = calls.map_err(|error| ToolError::Failed { message: error.to_string() })?;
    let result: CallResult = calls.into_iter().next().and_then(|call| call.result).ok_or_else(missing)?;
    let text = result_text(&result.content);
    let total = text.chars().count() as u64;
    if offset > total {
        let message = format!("offset {offset} is behind the end: the result has {total} characters");
        return Err(ToolError::NotFound { message });
    }
    let limit = (shared.agent.config().bounds.result_characters as usize).saturating_sub(NOTE_CHARACTERS).max(1);
    let part: String = text.chars().skip(offset as usize).take(limit).collect();
    let end = offset + part.chars().count() as u64;
    let note = match end == total {
        true => format!("\n[characters {offset} to {end} of {total}: the end]"),
        false => format!("\n[characters {offset} to {end} of {total}; go on with offset {end}]"),
    };
    Ok(ToolDone::text(part + &note))
}

async fn memory_search(shared: &Shared, MemorySearch { query, limit }: MemorySearch) -> Result<ToolDone, ToolError> {
    let limit = limit.unwrap_or(5).clamp(1, MAX_FACTS);
    let found = match shared.recalls() {
        Some(filter) => shared.store.search(&filter, &query, limit).await,
        None => Ok(Vec::new()),
    };
    let found = found.map_err(|error| ToolError::Failed { message: error.to_string() })?;
    let facts: Vec<Value> =
        found.iter().map(|fact| json!({"text": fact.text, "written": fact.written, "score": fact.score})).collect();
    let evicted = shared.store.search_evicted(&shared.subject, &query, limit).await;
    let evicted = evicted.map_err(|error| ToolError::Failed { message: error.to_string() })?;
    let body = json!({ "facts": facts, "earlier_in_this_session": earlier(shared, &evicted).await? });
    Ok(ToolDone { content: vec![Content::Json(body)], structured: None })
}

/// Messages that were found, a tool's result with the call that `read_result` takes.
async fn earlier(shared: &Shared, hits: &[MessageHit]) -> Result<Vec<Value>, ToolError> {
    let ids = MessageRange::Ids(hits.iter().map(|hit| hit.id).collect());
    let messages = shared.store.messages(&shared.subject, ids).await;
    let messages = messages.map_err(|error| ToolError::Failed { message: error.to_string() })?;
    let shown = hits.iter().zip(&messages).map(|(hit, message)| {
        let call = message.parts.iter().find_map(|part| match part {
            Part::ToolResult(result) => Some(&result.call_id),
            _ => None,
        });
        let mut shown = json!({"turn": hit.turn, "role": hit.role, "excerpt": hit.excerpt, "score": hit.score});
        if let Some(call) = call {
            shown["call_id"] = json!(call);
        }
        shown
    });
    Ok(shown.collect())
}
