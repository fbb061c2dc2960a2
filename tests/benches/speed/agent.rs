//! Agents with a scripted model that answers immediately, and the folder that stores their sessions.

use agent_plugins::Generation;
use agent_runtime::{Agent, AgentConfig};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// The folder of Linux's in-memory file system.
const IN_MEMORY: &str = "/dev/shm";

/// Returns a model script that consists of `replies` identical replies.
pub(crate) fn script(replies: usize) -> String {
    let reply = serde_json::json!({
        "text": "It has 42 lines.", "usage": {"prompt_tokens": 100, "completion_tokens": 10}
    });
    serde_json::json!({ "replies": vec![reply; replies] }).to_string()
}

/// Creates an agent without plugins. In each session, the agent's model returns at most `replies` replies.
pub(crate) fn scripted(directory: &Path, replies: usize) -> wasmtime::Result<Arc<Agent>> {
    std::fs::write(directory.join("script.json"), script(replies))?;
    let provider = agent_models::provider("scripted:script.json", directory)?;
    Ok(Arc::new(Agent::new(AgentConfig::new("bench"), provider, Generation::new([]))?))
}

/// Creates a temporary directory, in memory if possible. Returns the directory and a description of its location.
pub(crate) fn in_memory() -> std::io::Result<(TempDir, &'static str)> {
    match Path::new(IN_MEMORY).is_dir() {
        true => Ok((tempfile::tempdir_in(IN_MEMORY)?, "in memory")),
        false => Ok((tempfile::tempdir()?, "on disk, because no in-memory file system exists")),
    }
}
