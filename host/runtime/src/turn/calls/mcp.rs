//! Calls a tool of an MCP server and stores the media of its result by digest (I5, P2).

use super::RawOutcome;
use crate::host::SessionServices;
use crate::media::media_type_from_bytes;
use agent_core::change::CallRecord;
use agent_core::message::Content;
use agent_core::plugin::TraceContext;
use agent_core::run::TurnError;
use agent_core::tool::{CallCost, ToolDone, ToolError};
use agent_mcp::{McpContent, McpToolResult};
use agent_plugins::{NewMediaItem, PortError};
use std::time::Instant;

/// Calls the tool under the name that its server uses.
pub(super) async fn call(
    services: &SessionServices,
    server: &str,
    record: &CallRecord,
    trace: &TraceContext,
) -> Result<RawOutcome, TurnError> {
    let started = Instant::now();
    let Some(tool) = services.agent.mcp_tool(&record.name) else {
        let message = format!("MCP server {server} no longer has a tool `{}`", record.name);
        return Ok(RawOutcome::of_removed_tool(message));
    };
    let servers = services.agent.servers();
    let called = servers.call(server, &tool.remote_name, record.effective_arguments(), Some(trace)).await;
    let outcome = match called {
        Ok(done) => store_media(services, server, done).await?,
        Err(error) => Err(error),
    };
    let wall_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    Ok(RawOutcome { cost: CallCost { wall_us, ..CallCost::default() }, ..RawOutcome::without_cost(outcome) })
}

/// Stores the media of a result. If possible, the MIME type is detected from the bytes instead of being copied from the
/// server's result, because servers often only guess the type from the file name.
async fn store_media(
    services: &SessionServices,
    server: &str,
    done: McpToolResult,
) -> Result<Result<ToolDone, ToolError>, TurnError> {
    let McpToolResult { content, structured } = done;
    let mut stored = Vec::with_capacity(content.len());
    for content in content {
        stored.push(match content {
            McpContent::Text(text) => Content::Text(text),
            McpContent::Json(json) => Content::Json(json),
            McpContent::Media { bytes, mime_type, name } => {
                let mime_type = media_type_from_bytes(&bytes).map_or(mime_type, str::to_owned);
                match services.media.put(&services.subject, NewMediaItem { bytes, mime_type, name }).await {
                    Ok(media) => Content::Media(media),
                    Err(PortError::Refused(reason)) => {
                        let message = format!("MCP server {server} returned media that cannot be stored: {reason}");
                        return Ok(Err(ToolError::Failed { message }));
                    }
                    Err(PortError::Failed(message)) => return Err(TurnError::HostFailed { message }),
                }
            }
        });
    }
    Ok(Ok(ToolDone { content: stored, structured }))
}
