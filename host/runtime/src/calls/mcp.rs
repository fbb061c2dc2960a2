//! A call of an MCP server's tool: sent to the right server, its media stored by digest (I5, P2).

use super::Brought;
use crate::media::told_by_bytes;
use crate::session::Shared;
use agent_core::change::CallRecord;
use agent_core::message::Content;
use agent_core::run::TurnError;
use agent_core::tool::{CallCost, ToolDone, ToolError};
use agent_mcp::{McpContent, McpDone};
use agent_plugins::{MediumToStore, PortError};
use std::time::Instant;

/// Calls it, by the name that its server gives it.
pub(super) async fn call(shared: &Shared, server: &str, record: &CallRecord) -> Result<Brought, TurnError> {
    let started = Instant::now();
    let Some(tool) = shared.agent.mcp_tool(&record.name) else {
        let message = format!("MCP server {server} has no tool `{}` any more", record.name);
        return Ok(Brought::gone(message));
    };
    let called = shared.agent.servers().call(server, &tool.remote_name, record.effective_arguments()).await;
    let outcome = match called {
        Ok(done) => stored(shared, server, done).await?,
        Err(error) => Err(error),
    };
    let wall_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    Ok(Brought { cost: CallCost { wall_us, ..CallCost::default() }, ..Brought::without_cost(outcome) })
}

/// The result with its media in the session's store. What they are is told by their bytes, where these tell it: servers
/// often have only the end of a file's name to go by.
async fn stored(shared: &Shared, server: &str, done: McpDone) -> Result<Result<ToolDone, ToolError>, TurnError> {
    let McpDone { content, structured } = done;
    let mut kept = Vec::with_capacity(content.len());
    for content in content {
        kept.push(match content {
            McpContent::Text(text) => Content::Text(text),
            McpContent::Json(json) => Content::Json(json),
            McpContent::Media { bytes, mime_type, name } => {
                let mime_type = told_by_bytes(&bytes).map_or(mime_type, str::to_owned);
                match shared.media.put(&shared.subject, MediumToStore { bytes, mime_type, name }).await {
                    Ok(media) => Content::Media(media),
                    Err(PortError::Refused(reason)) => {
                        let message = format!("MCP server {server} gave a medium that is not taken: {reason}");
                        return Ok(Err(ToolError::Failed { message }));
                    }
                    Err(PortError::Failed(message)) => return Err(TurnError::HostFailed { message }),
                }
            }
        });
    }
    Ok(Ok(ToolDone { content: kept, structured }))
}
