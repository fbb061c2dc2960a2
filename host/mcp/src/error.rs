//! Errors that concern MCP servers, with messages for users.

use agent_core::visible::is_invisible;
use std::time::Duration;

/// An error in the configuration of an MCP server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum McpConfigError {
    /// The name of a server is empty, too long, or contains characters that are not allowed in server names.
    #[error("`{name}` is not a valid MCP server name: use 1 to 64 letters, digits, `_` or `-`")]
    Name {
        /// Name that the configuration gives to the server.
        name: String,
    },
    /// Two servers have the same name.
    #[error("two MCP servers are named `{name}`: rename one of them")]
    Duplicate {
        /// Name that both servers have.
        name: String,
    },
    /// The address or a header of an HTTP server is invalid.
    #[error("MCP server {server}: {reason}")]
    Http {
        /// Configured name of the MCP server.
        server: String,
        /// Description of the error and of how to fix it.
        reason: String,
    },
}

/// A server is not available, or some of its tools are not. The problem does not affect other servers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum McpError {
    /// The process of a server could not be started.
    #[error(
        "MCP server {server}: `{command}` could not be started ({reason}): check its `command`, `directory` and PATH"
    )]
    Start {
        /// Configured name of the MCP server.
        server: String,
        /// Program that the configuration names.
        command: String,
        /// Error message of the operating system.
        reason: String,
    },
    /// The host could not connect to the server, or the server does not follow the protocol.
    #[error("MCP server {server}: no connection: {reason}")]
    Connect {
        /// Configured name of the MCP server.
        server: String,
        /// Description of the error and of how to fix it.
        reason: String,
    },
    /// The server did not complete an action in time.
    #[error(
        "MCP server {server} did not {action} within {time:?}: check what it waits for, or raise `start_timeout_ms`"
    )]
    Timeout {
        /// Configured name of the MCP server.
        server: String,
        /// Verb phrase for the action that the server did not complete in time, such as `list its tools`.
        action: &'static str,
        /// Time limit within which the server did not complete the action.
        time: Duration,
    },
    /// The server failed recently, so the host waits before the next attempt.
    #[error("MCP server {server} failed and is retried in {wait:?}: {reason}")]
    BackingOff {
        /// Configured name of the MCP server.
        server: String,
        /// Remaining time until the next attempt.
        wait: Duration,
        /// Reason why the server failed.
        reason: String,
    },
    /// The server is available, but some of its tools are missing from the catalogue.
    #[error("MCP server {server}: its list of tools is incomplete: {reason}")]
    IncompleteList {
        /// Configured name of the MCP server.
        server: String,
        /// Reason why the list is incomplete, such as an exceeded limit.
        reason: String,
    },
    /// The host does not offer one tool of the server.
    #[error("MCP server {server}: its tool `{tool}` is left out: {reason}")]
    SkippedTool {
        /// Configured name of the MCP server.
        server: String,
        /// Name of the tool as the server spells it, with invisible characters escaped.
        tool: String,
        /// Reason why the host does not offer the tool.
        reason: String,
    },
}

impl McpError {
    /// Returns the server name and the message if the whole server is unavailable, or `None` if the server is available
    /// and only some of its tools are missing.
    pub fn unavailable_server(&self) -> Option<(&str, String)> {
        match self {
            Self::Start { server, .. }
            | Self::Connect { server, .. }
            | Self::Timeout { server, .. }
            | Self::BackingOff { server, .. } => Some((server, self.to_string())),
            Self::IncompleteList { .. } | Self::SkippedTool { .. } => None,
        }
    }
}

/// Prepares text that a server sent for use in a message. Escapes invisible characters and truncates the result to
/// `max_characters` characters. An escape such as `\u{1b}` counts as six characters.
pub(crate) fn printable(text: &str, max_characters: usize) -> String {
    let (mut printable, mut length) = (String::new(), 0);
    for char in text.chars() {
        let piece: String = match char {
            '\n' => " ".to_owned(),
            char if is_invisible(char) => char.escape_unicode().collect(),
            char => char.to_string(),
        };
        length += piece.chars().count();
        if length > max_characters {
            printable.push('…');
            break;
        }
        printable.push_str(&piece);
    }
    printable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i5_server_text_cannot_control_a_terminal() {
        assert_eq!(printable("a\u{1b}[2J\nb", 20), "a\\u{1b}[2J b");
        assert_eq!((printable("äöü", 2).as_str(), printable("äöü", 3).as_str()), ("äö…", "äöü"));
        assert_eq!(printable("a\u{1b}b", 6), "a…", "an escape counts as six characters");
    }
}
