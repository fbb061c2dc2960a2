//! Runs the host's built-in tools (L7).

use super::file_trees::{self, HostTrees};
use crate::host::SessionServices;
use crate::tools::builtins::name;
use agent_core::change::CallResult;
use agent_core::message::{Content, Part};
use agent_core::tool::{ToolDone, ToolError};
use agent_core::view::result_text;
use agent_store::{CallFilter, MessageHit, MessageRange};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// Maximum time for the file operations of a call. If the file operations take longer, the call fails.
const FILE_TIME_LIMIT: Duration = Duration::from_secs(30);
/// Number of characters that are reserved for the note that follows a part of a tool result.
const NOTE_CHARACTERS: usize = 200;
/// Maximum number of facts that a search returns.
const MAX_FACTS: usize = 50;

#[derive(Deserialize)]
struct ListDirectory {
    path: String,
}

#[derive(Deserialize)]
struct ReadFile {
    path: String,
    #[serde(default = "first_line")]
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

fn first_line() -> u64 {
    1
}

/// Runs a built-in tool. The arguments must have been checked against the tool's schema.
pub(super) async fn call(services: &SessionServices, name: &str, arguments: &Value) -> Result<ToolDone, ToolError> {
    match name {
        name::LIST_DIRECTORY => {
            let ListDirectory { path } = read(arguments)?;
            run_file_operations(services, move |trees| file_trees::list(trees, &path)).await
        }
        name::READ_FILE => {
            let ReadFile { path, from_line, lines } = read(arguments)?;
            run_file_operations(services, move |trees| file_trees::read(trees, &path, from_line, lines)).await
        }
        name::READ_RESULT => read_result(services, read(arguments)?).await,
        name::MEMORY_SEARCH => memory_search(services, read(arguments)?).await,
        _ => Err(ToolError::NotFound { message: format!("the host has no built-in tool `{name}`") }),
    }
}

fn read<'a, T: Deserialize<'a>>(arguments: &'a Value) -> Result<T, ToolError> {
    T::deserialize(arguments)
        .map_err(|error| ToolError::Failed { message: format!("the arguments cannot be read: {error}") })
}

/// Runs file operations on a blocking thread. Operations that exceed the time limit are abandoned (row 33).
async fn run_file_operations(
    services: &SessionServices,
    work: impl FnOnce(&HostTrees) -> Result<ToolDone, ToolError> + Send + 'static,
) -> Result<ToolDone, ToolError> {
    let trees = HostTrees { sandbox: services.sandbox.clone(), granted: services.current_host_trees() };
    let work = tokio::task::spawn_blocking(move || work(&trees));
    match tokio::time::timeout(FILE_TIME_LIMIT, work).await {
        Ok(Ok(result)) => result,
        Ok(Err(error)) => Err(ToolError::Failed { message: format!("reading failed: {error}") }),
        Err(_) => Err(ToolError::Unavailable {
            message: format!("the file system did not answer within {} s", FILE_TIME_LIMIT.as_secs()),
            retry_after: None,
        }),
    }
}

/// Returns a part of a stored tool result, starting at a character offset (L26).
async fn read_result(
    services: &SessionServices,
    ReadResult { call_id, offset }: ReadResult,
) -> Result<ToolDone, ToolError> {
    let missing = || ToolError::NotFound { message: format!("this session has no finished call `{call_id}`") };
    let filter = CallFilter::Ids(services.call_ids(&call_id));
    let calls = services.store.calls(&services.subject, filter).await;
    let calls = calls.map_err(|error| ToolError::Failed { message: error.to_string() })?;
    let result: CallResult = calls.into_iter().next().and_then(|call| call.result).ok_or_else(missing)?;
    let text = result_text(&result.content);
    let total = text.chars().count() as u64;
    if offset > total {
        let message = format!("offset {offset} is past the end: the result has {total} characters");
        return Err(ToolError::NotFound { message });
    }
    let limit = (services.agent.config().bounds.result_characters as usize).saturating_sub(NOTE_CHARACTERS).max(1);
    let part: String = text.chars().skip(offset as usize).take(limit).collect();
    let end = offset + part.chars().count() as u64;
    let note = match end == total {
        true => format!("\n[characters {offset} to {end} of {total}: the end]"),
        false => format!("\n[characters {offset} to {end} of {total}; continue with offset {end}]"),
    };
    Ok(ToolDone::text(part + &note))
}

async fn memory_search(
    services: &SessionServices,
    MemorySearch { query, limit }: MemorySearch,
) -> Result<ToolDone, ToolError> {
    let limit = limit.unwrap_or(5).clamp(1, MAX_FACTS);
    let found = match services.recall_filter() {
        Some(filter) => services.store.search(&filter, &query, limit).await,
        None => Ok(Vec::new()),
    };
    let found = found.map_err(|error| ToolError::Failed { message: error.to_string() })?;
    let facts: Vec<Value> =
        found.iter().map(|fact| json!({"text": fact.text, "written": fact.written, "score": fact.score})).collect();
    let evicted = services.store.search_evicted(&services.subject, &query, limit).await;
    let evicted = evicted.map_err(|error| ToolError::Failed { message: error.to_string() })?;
    let body = json!({ "facts": facts, "earlier_in_this_session": format_hits(services, &evicted).await? });
    Ok(ToolDone { content: vec![Content::Json(body)], structured: None })
}

/// Formats the messages that a search found. The text about a tool result contains the call's id, so that the model can
/// pass the id to `read_result`.
async fn format_hits(services: &SessionServices, hits: &[MessageHit]) -> Result<Vec<Value>, ToolError> {
    let ids = MessageRange::Ids(hits.iter().map(|hit| hit.id).collect());
    let messages = services.store.messages(&services.subject, ids).await;
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
